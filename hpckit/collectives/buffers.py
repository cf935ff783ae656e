"""The arrays that a collective is given: checked before any message leaves, flattened, staged where they must be, and
cut into the slots of a plan.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.comm.gpu import takes_device_memory
from hpckit.errors import InputError
from hpckit.kernels.device_array import SimulatedArray, address, from_host, is_device_array, to_host
from hpckit.plan.blocks import block_starts


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

    def renew(self) -> None:
        """The array may hold other values than before: forget the copy on the host."""
        if self.staged:
            self.__dict__.pop("flat", None)

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


class Slots:
    """A flat array (NumPy's or a GPU's) whose slot i holds the elements starts[i] to starts[i + 1]."""

    def __init__(self, values: Any, starts: list[int]) -> None:
        self.values, self.starts = values, starts

    @property
    def kind(self) -> Any:
        """An array of the kind of memory that they are in."""
        return self.values

    def view(self, first: int, last: int) -> Any:
        """The elements of the slots from first to last (excluded), which are adjacent."""
        return self.values[self.starts[first] : self.starts[last]]


class PairedSlots:
    """Slots of two arrays, as all-to-all has them: those of what is given come first, then those of what is taken."""

    def __init__(self, given: Slots, taken: Slots) -> None:
        self._given, self._taken = given, taken
        self._count = len(given.starts) - 1

    @property
    def kind(self) -> Any:
        """An array of the kind of memory that they are in."""
        return self._given.values

    def view(self, first: int, last: int) -> Any:
        """The elements of the slots from first to last, all of one of the arrays."""
        if first >= self._count:
            return self._taken.view(first - self._count, last - self._count)
        return self._given.view(first, last)


def even_slots(values: Any, slots: int) -> Slots:
    """Slots by the block rule."""
    return Slots(values, block_starts(values.size, slots).tolist())


def counted_slots(values: Any, counts: np.ndarray) -> Slots:
    """Slots of counts[i] elements."""
    return Slots(values, [0, *np.cumsum(counts).tolist()])


def segmented_slots(values: Any, sizes: np.ndarray, slots: int) -> Slots:
    """Blocks of these sizes, each cut by the block rule into as many slots."""
    segments = slots // len(sizes)
    if segments <= 1:
        return counted_slots(values, sizes)
    starts = np.cumsum(sizes) - sizes
    within = [block_starts(int(size), segments)[:-1] + start for size, start in zip(sizes, starts, strict=True)]
    return Slots(values, [*np.concatenate(within).tolist(), int(sizes.sum())])


def flat_like(values: Any, count: int) -> Any:
    """An array of `count` elements like those of a flat array; what it holds is left open."""
    if type(values).__module__ != "cupy":
        return np.empty(count, values.dtype)
    import cupy

    return cupy.empty(count, values.dtype)
