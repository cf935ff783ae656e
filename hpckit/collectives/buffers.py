"""The arrays that a collective is given: checked before any message leaves, flattened, staged where they must be."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.comm.gpu_choice import takes_device_memory
from hpckit.errors import InputError
from hpckit.kernels.device_array import SimulatedArray, address, from_host, is_device_array, to_host


class Buffer:
    """An array of a caller.

    `flat` is what messages leave and enter: its own memory, or a copy of it on the host where MPI does not take the
    memory of its GPU; `put_back` then copies that to the GPU.
    """

    def __init__(self, array: Any, what: str, written: bool = True) -> None:
        self.array = _checked(array, what, written)
        self.staged = is_device_array(array) and not _direct(array)
        self.size, self.nbytes = int(array.size), int(array.nbytes)

    @functools.cached_property
    def flat(self) -> Any:
        """Its memory, or the copy of it on the host."""
        return np.array(to_host(self.array)).reshape(-1) if self.staged else self.array.reshape(-1)

    def put_back(self) -> Any:
        """The array, with what `flat` holds."""
        if self.staged and self.array.size:
            self.array[...] = from_host(self.flat.reshape(self.array.shape), self.array)
        return self.array

    def empty(self, count: int) -> Buffer:
        """A flat buffer of the same kind and dtype, with room for `count` elements."""
        if type(self.array).__module__ == "cupy":
            import cupy

            return Buffer(cupy.empty(count, self.array.dtype), "a result")
        return Buffer(np.empty(count, self.array.dtype).view(type(self.array)), "a result")

    def is_memory_of(self, values: Any) -> bool:
        """Whether it is that very memory, so that nothing need be copied."""
        return not self.staged and address(self.flat) == address(values) and self.flat.size == values.size


def _checked(array: Any, what: str, written: bool) -> Any:
    """The array, if a collective can take it. Raises `InputError`."""
    if not isinstance(array, np.ndarray) and not is_device_array(array):
        raise InputError(
            f"{what} is a {type(array).__name__}, not a NumPy or CuPy array", do="give an array, as np.array([value])"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(
            f"{what} is a masked array, and messages do not carry masks", do="give its data: x.filled(0), or x.data"
        )
    if array.dtype.hasobject or not array.dtype.isnative:
        raise InputError(
            f"{what} holds {array.dtype}, and collectives move numbers in this machine's byte order",
            do="convert it with astype first",
        )
    if not array.flags.c_contiguous:
        raise InputError(
            f"{what} is not contiguous: shape {list(array.shape)}, strides {list(array.strides)} bytes",
            likely="a slice or a transposed view",
            do="copy it with np.ascontiguousarray, and copy the result back",
        )
    if written and isinstance(array, np.ndarray) and not array.flags.writeable:
        raise InputError(f"{what} cannot be written to", likely="a view of bytes, or a broadcast array", do="copy it")
    return array


def _direct(array: Any) -> bool:
    return not isinstance(array, SimulatedArray) and _library_takes_device_memory()


@functools.cache
def _library_takes_device_memory() -> bool:
    return takes_device_memory()


def same_kind(first: Buffer, second: Buffer, names: tuple[str, str]) -> None:
    """Raise `InputError` unless two buffers hold the same numbers in the same kind of memory."""
    if first.array.dtype != second.array.dtype:
        raise InputError(
            f"{names[0]} holds {first.array.dtype} and {names[1]} {second.array.dtype}; they must be alike"
        )
    if is_device_array(first.array) != is_device_array(second.array):
        raise InputError(f"one of {names[0]} and {names[1]} is on a GPU and the other on the host")


def checked_counts(counts: Sequence[int] | np.ndarray, ranks: int, what: str = "counts") -> np.ndarray:
    """Elements of each rank's block: int64[ranks]. Raises `InputError`."""
    sizes = np.asarray(counts)
    if sizes.shape != (ranks,) or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise InputError(f"{what} are {ranks} whole numbers, 0 or more, one a rank, not {counts!r:.200}")
    return sizes.astype(np.int64)


def checked_matrix(counts: np.ndarray, ranks: int) -> np.ndarray:
    """Elements that each rank sends to each: int64[ranks, ranks]. Raises `InputError`."""
    if counts.shape != (ranks, ranks) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise InputError(
            f"counts are {ranks} or {ranks} x {ranks} whole numbers, 0 or more, not {counts.tolist()!r:.200}"
        )
    return counts.astype(np.int64)
