"""Launches of compiled kernels by the driver alone: Numba's own take 40 to 90 microseconds of an H100's host, these 14.

Numba passes a kernel one word after the other: of an array two unused ones, its size, the bytes of an item, its
address, its shape and its strides; of a number the number itself. `Launcher` lets Numba launch a kernel once for each
combination of types, asks it for the words of that launch, and uses the driver from then on where its own words are
the same. Whatever it does not know, or finds to differ, stays with Numba.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

WORD = 8  # bytes
_one_at_a_time = threading.Lock()
FORMATS = {
    int: "q", float: "d", bool: "?7x", np.bool_: "?7x", np.float64: "d", np.float32: "f4x",
    np.int64: "q", np.uint64: "Q", np.int32: "i4x", np.uint32: "I4x", np.int16: "h6x", np.uint16: "H6x",
    np.int8: "b7x", np.uint8: "B7x",
}  # fmt: skip


class Direct(NamedTuple):
    """A kernel for arguments of certain types: its handle, and where its words go."""

    handle: int
    packed: struct.Struct
    words: Any
    pointers: Any


class Launcher:
    """Launches a kernel on arrays of CuPy, tuples and numbers.

    by_numba(shape, stream, arguments) launches it and returns the compiled kernel and the arguments as Numba took them.
    """

    def __init__(self, by_numba: Callable[[tuple, int, tuple], tuple[Any, list[Any]]]) -> None:
        self._by_numba = by_numba
        self._direct: dict[tuple, Direct | None] = {}

    def __call__(self, shape: tuple, stream: int, arguments: tuple) -> None:
        """Launch; shape: blocks, threads and bytes of shared memory; stream: its address."""
        kinds: list[Any] = []
        words: list[Any] = []
        flatten(arguments, kinds, words)
        key = tuple(kinds)
        direct = self._direct.get(key)
        if direct is not None and _launched(direct, shape, stream, words):
            return
        compiled, taken = self._by_numba(shape, stream, arguments)
        if key not in self._direct:
            self._direct[key] = direct_of(compiled, taken, kinds, words)

    @property
    def count(self) -> int:
        """Combinations of types that the driver launches."""
        return sum(each is not None for each in self._direct.values())


def flatten(arguments: Iterable[Any], kinds: list[Any], words: list[Any]) -> None:
    """Append what tells the types of the arguments, and their words. Raises `TypeError` for arrays with gaps."""
    for argument in arguments:
        kind = type(argument)
        if kind in FORMATS:
            kinds.append(kind)
            words.append(argument)
        elif isinstance(argument, tuple):
            kinds.append((kind, len(argument)))
            flatten(argument, kinds, words)
        elif kind.__module__ == "cupy":
            if not argument.flags.c_contiguous:
                raise TypeError("a kernel takes C-contiguous arrays")
            shape = argument.shape
            size, itemsize, rest = _extent(shape, argument.itemsize)
            kinds.append((argument.dtype.num, len(shape)))
            words += (0, 0, size, itemsize, argument.data.ptr, *rest)
        else:
            kinds.append(kind)


@functools.lru_cache(4096)
def _extent(shape: tuple[int, ...], itemsize: int) -> tuple[int, int, tuple[int, ...]]:
    """Size, bytes of an item, shape and strides of a C-contiguous array."""
    strides, size = [], 1
    for count in reversed(shape):
        strides.append(size * itemsize)
        size *= count
    return size, itemsize, (*shape, *reversed(strides))


def direct_of(compiled: Any, taken: list[Any], kinds: list[Any], words: list[Any]) -> Direct | None:
    """The direct launch of a kernel that Numba has compiled, or None where its words are not ours."""
    try:
        formats = "".join(_format(kind) for kind in kinds)
        if compiled.cooperative or compiled.debug:
            return None
        packed = struct.Struct("<" + formats)
        room = ctypes.create_string_buffer(max(packed.size, WORD))
        packed.pack_into(room, 0, *words)
        if not agree(room.raw, words_of_numba(compiled, taken)):
            return None
        handle = int(compiled._codelibrary.get_cufunc().handle)
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError, struct.error):
        return None  # another release of Numba, or types that only it knows
    count = len(words)
    pointers = (ctypes.c_void_p * max(count, 1))(*(ctypes.addressof(room) + WORD * i for i in range(count)))
    return Direct(handle, packed, room, pointers)


def _format(kind: Any) -> str:
    if isinstance(kind, tuple):
        first, count = kind
        return "" if isinstance(first, type) else "q" * (5 + 2 * count)
    return FORMATS[kind]


def words_of_numba(compiled: Any, taken: list[Any]) -> list[bytes]:
    """The words that Numba would pass."""
    found: list[Any] = []
    for kind, value in zip(compiled.argument_types, taken, strict=True):
        compiled._prepare_args(kind, value, 0, [], found)
    return [_bytes(each) for each in found]


def _bytes(word: Any) -> bytes:
    if isinstance(word, bool):
        return struct.pack("<?", word)
    return struct.pack("<q", word) if isinstance(word, int) else bytes(word)


def agree(ours: bytes, theirs: list[bytes]) -> bool:
    """Whether each of their words begins one of ours, and none is left."""
    begun = all(ours[WORD * i : WORD * i + len(word)] == word for i, word in enumerate(theirs))
    return begun and len(ours) == max(WORD * len(theirs), WORD)


def _launched(direct: Direct, shape: tuple, stream: int, words: list[Any]) -> bool:
    """Launch; False where the driver does not take it, and Numba is to tell why."""
    grid, block, *shared = shape
    place = *_three(grid), *_three(block), shared[0] if shared else 0, stream
    with _one_at_a_time:  # the driver reads the words before it returns
        try:
            direct.packed.pack_into(direct.words, 0, *words)
        except struct.error:  # a number beyond 64 bits
            return False
        return not _launch()(direct.handle, *place, direct.pointers, None)


def _three(count: Any) -> tuple[int, ...]:
    if isinstance(count, tuple):
        return (*count, 1, 1)[:3]
    return (count, 1, 1)


@functools.cache
def _launch() -> Callable[..., int]:
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    launch.restype = ctypes.c_int
    return launch
