"""Launches by the driver: the words of a launch are those that Numba passes. On a GPU, `test_device` sees them used."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpckit.kernels.compile.cuda.launch import agree, direct_of, flatten, words_of_numba

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="no numba-cuda here")


class OnDevice:
    """An array as CuPy's look from outside."""

    __module__ = "cupy"

    def __init__(self, shape: tuple[int, ...], dtype: str, pointer: int) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.itemsize, self.size = self.dtype.itemsize, int(np.prod(shape))
        self.data, self.flags = SimpleNamespace(ptr=pointer), SimpleNamespace(c_contiguous=True)


ARGUMENTS = (
    OnDevice((3, 5, 1), "f4", 4096), 7, OnDevice((), "f8", 64), (1.5, np.float32(-2.25), (True, np.uint8(3))),
    np.uint64(2**64 - 1), -9, np.int32(-4), OnDevice((0, 6), "i8", 1 << 40), np.bool_(False), np.float64(1e-300),
)  # fmt: skip


def numba_side(arguments: tuple) -> tuple[Any, list[Any]]:
    """A compiled kernel and its arguments as Numba takes them, with arrays that live nowhere."""
    from numba import types
    from numba.cuda.args import ArgHint
    from numba.cuda.dispatcher import _Kernel
    from numba.cuda.typing.typeof import Purpose, typeof

    class There(ArgHint):
        def to_device(self, retr: list, stream: Any = 0) -> Any:
            array = self.value
            layout = SimpleNamespace(strides_in_bytes=None, is_contiguous_c=True, is_contiguous_f=False)
            return SimpleNamespace(
                size=array.size, dtype=array.dtype, ptr=array.data.ptr, shape=array.shape, _layout=layout
            )

    def kind(argument: Any) -> Any:
        if isinstance(argument, OnDevice):
            return types.Array(types.float64, len(argument.shape), "C")
        if isinstance(argument, tuple):
            return types.Tuple([kind(each) for each in argument])
        return typeof(argument, Purpose.argument)

    compiled = SimpleNamespace(
        argument_types=[kind(each) for each in arguments], cooperative=False, debug=False, extensions=(),
        _codelibrary=SimpleNamespace(get_cufunc=lambda: SimpleNamespace(handle=12345)),
    )  # fmt: skip
    compiled._prepare_args = partial(_Kernel._prepare_args, compiled)
    return compiled, [There(each) if isinstance(each, OnDevice) else each for each in arguments]


def test_the_words_of_a_launch_are_those_of_numba():
    kinds: list[Any] = []
    words: list[Any] = []
    flatten(ARGUMENTS, kinds, words)
    compiled, taken = numba_side(ARGUMENTS)
    direct = direct_of(compiled, taken, kinds, words)
    assert direct is not None
    assert direct.handle == 12345
    assert len(words_of_numba(compiled, taken)) == len(words) == direct.packed.size // 8
    for i in range(len(words)):
        assert direct.pointers[i] == ctypes.addressof(direct.words) + 8 * i


@pytest.mark.parametrize("change", ["type", "number", "unknown"])
def test_a_kernel_whose_words_differ_stays_with_numba(change):
    kinds: list[Any] = []
    words: list[Any] = []
    flatten(ARGUMENTS, kinds, words)
    compiled, taken = numba_side(ARGUMENTS)
    if change == "type":
        kinds[1] = float
    elif change == "number":
        words[-1] = 0.5
    else:
        kinds.append(complex)
    assert direct_of(compiled, taken, kinds, words) is None


def test_words_agree_only_as_a_whole():
    assert agree(b"12345678abcd\0\0\0\0", [b"12345678", b"abcd"])
    assert not agree(b"12345678abcd\0\0\0\0", [b"12345678"])
    assert not agree(b"12345678", [b"12345678", b"abcd"])
