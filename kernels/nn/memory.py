"""Work arrays from kept memory: an array that dies gives its memory to the next one of its size.

A training step needs the same arrays again and again. The system would hand out fresh pages each time, and the first
touch of a page costs as much as a pass over it (a quarter of a microsecond for 4 KB).
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels import device_array
from hpckit.kernels.aligned import LINE, lined

SMALLEST = 1 << 16  # bytes; below it NumPy's own memory is as quick
_kept: dict[int, list[np.ndarray]] = defaultdict(list)
_taken: dict[int, int] = defaultdict(int)  # blocks of a size that were taken from the system and not given back


class _Lease:
    """The owner of a block while arrays look into it: NumPy's views hold it, and the last one gives it back."""

    def __init__(self, block: np.ndarray) -> None:
        self.block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        _kept[self.block.size].append(self.block)


def empty(shape: tuple[int, ...], like: Any, dtype: npt.DTypeLike | None = None) -> Any:
    """A C-contiguous array of the kind of `like`, and of its dtype if none is given; what it holds is left open."""
    kind = type(like)
    if kind.__module__ == "cupy":
        return kind(shape, like.dtype if dtype is None else dtype)
    dtype = np.dtype(like.dtype if dtype is None else dtype)
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if nbytes < SMALLEST:
        return device_array.empty(shape, like, dtype)
    size = _size_class(nbytes)
    free = _kept[size]
    if not free:
        _taken[size] += 1
    block = free.pop() if free else lined(np.empty(size + LINE, np.uint8), size)
    return np.asarray(_Lease(block))[:nbytes].view(dtype).reshape(shape).view(type(like))


def empty_like(array: Any) -> Any:
    """`empty` of an array's own shape."""
    return empty(array.shape, array)


def zeros_like(array: Any) -> Any:
    """`empty_like`, zeroed."""
    made = empty_like(array)
    made[...] = 0
    return made


def copied(view: Any) -> Any:
    """A C-contiguous copy."""
    made = empty_like(view)
    made[...] = view
    return made


def kept_bytes() -> int:
    """Bytes that no array uses and that wait for the next one."""
    return sum(size * len(blocks) for size, blocks in _kept.items())


def owned_bytes() -> int:
    """Bytes of all work arrays of `SMALLEST` and more, in use or kept: the most that were needed at once, or a little
    more.
    """
    return sum(size * blocks for size, blocks in _taken.items())


def release() -> None:
    """Give what is kept back to the system."""
    for size, blocks in _kept.items():
        _taken[size] -= len(blocks)
    _kept.clear()


def _size_class(nbytes: int) -> int:
    """The next size of eight between two powers of two: few sizes, and at most an eighth is wasted."""
    step = 1 << max(nbytes.bit_length() - 4, 12)
    return -(-nbytes // step) * step
