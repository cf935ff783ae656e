"""Arrays on lines of the cache, and the addresses of arrays."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from hpckit.kernels import aligned
from hpckit.kernels.device_array import address

MIDDLE = [(1 << 17,), (66, 66, 32), (3, 100_003), (1 << 18,), ((1 << 19) - 1,)]  # doubles: 1 to 4 MiB


def test_arrays_that_share_large_pages_are_zero_and_apart():
    made = []
    for k, shape in enumerate(3 * MIDDLE, 1):
        array = aligned.zeros(shape, np.float64)
        assert array.shape == shape
        assert array.flags.c_contiguous
        assert address(array) % aligned.LINE == 0
        assert not array.any()
        array[...] = k
        made.append(array)
    for k, array in enumerate(made, 1):
        assert (array == k).all()


def test_shared_pages_go_with_the_last_array_on_them():
    made = [aligned.zeros((1 << 17,), np.float64) for _ in range(24)]
    held = {id(each.base): weakref.ref(each.base) for each in made}
    assert 2 <= len(held) < len(made)
    del made[1:]
    gc.collect()
    assert [ref() is not None for ref in held.values()].count(True) <= 2  # the first's, and those with room left
    assert not made[0].any()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12.0)[3:],
        np.arange(12.0)[::2],
        np.asfortranarray(np.ones((3, 4))),
        np.ones((4, 5))[1:, 2:],
        np.broadcast_to(1.0, (3, 3)),
        np.zeros((0, 3)),
        np.float64(2.0) * np.ones(()),
        np.zeros(3, "M8[s]"),
        np.frombuffer(b"12345678", np.uint8),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}{array.strides}",
)
def test_the_address_is_that_of_the_first_value(array):
    array = np.asarray(array)
    assert address(array) == array.__array_interface__["data"][0]
