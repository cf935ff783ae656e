"""Broadcast, gathers, scatter and all-to-all by the chosen algorithm: the steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpckit.collectives.axis import Axis
from hpckit.collectives.buffers import (
    Buffer,
    PairedSlots,
    checked_counts,
    checked_matrix,
    counted_slots,
    even_slots,
    flat_like,
    segmented_slots,
)
from hpckit.collectives.choice import AlgorithmChoice, choose
from hpckit.collectives.request import Steps
from hpckit.collectives.runner import Runner
from hpckit.errors import InputError
from hpckit.kernels.device_array import may_share_memory
from hpckit.plan.blocks import block_starts

__communicates__ = True  # its frames are not call sites

Options = Mapping[str, Any]


def block_sizes(total: int, ranks: int, counts: Any, what: str) -> np.ndarray:
    """Elements of each rank's block of `total`: as given, else by the block rule. Raises `InputError`."""
    if counts is None:
        return np.diff(block_starts(total, ranks))
    sizes = checked_counts(counts, ranks)
    if sizes.sum() != total:
        raise InputError(f"counts add up to {sizes.sum()} elements, and {what} holds {total}")
    return sizes


def sized(buffer: Buffer, count: int, like: Buffer, what: str = "out") -> Buffer:
    """The buffer, if it holds `count` elements of the dtype of `like`. Raises `InputError`."""
    if buffer.array.dtype != like.array.dtype:
        raise InputError(f"{what} holds {buffer.array.dtype}, and the buffer {like.array.dtype}")
    if buffer.size != count:
        raise InputError(
            f"{what} holds {buffer.size} elements on this rank, and the block of this rank has {count}",
            likely="blocks of unequal size" if what == "the block" else "",
            do="give counts, the elements of each rank's block" if what == "the block" else f"give {count}",
        )
    return buffer


def apart(first: Buffer, second: Buffer) -> None:
    """Raise `InputError` where two buffers overlap."""
    if not first.staged and not second.staged and may_share_memory(first.flat, second.flat):
        raise InputError("out overlaps the buffer", do="give an array of its own, or leave it out")


def broadcast(axis: Axis, tag: int, values: Any, choice: AlgorithmChoice) -> Steps:
    """Copy flat values from the root, byte by byte: any dtype."""
    program = choice.program(axis)
    yield from Runner(axis, tag, program, even_slots(values, program.slots)).steps()


class BlockGather:
    """One gather of blocks, to `root`, or to all ranks where it is None.

    sizes: elements of each rank's block, None where the ranks must tell each other.
    """

    def __init__(
        self,
        axis: Axis,
        given: Buffer,
        target: Buffer | None,
        sizes: np.ndarray | None,
        algorithm: str,
        options: Options,
        root: int | None = None,
    ) -> None:
        self._axis, self._given, self._target, self._sizes, self._root = axis, given, target, sizes, root
        known = 0 if sizes is None else int(sizes.sum()) * given.array.itemsize
        self._choose = _chooser("all_gather" if root is None else "gather", algorithm, axis, options, root, known)

    def steps(self, tag: int) -> Steps:
        """The run."""
        axis, given, here = self._axis, self._given, self._root in (None, self._axis.rank)
        sizes = self._sizes
        if sizes is None:
            told = yield from _told(axis, given.size, -1 if self._target is None else self._target.size)
            sizes = told[:, 0]
            _check_room(told[:, 1], int(sizes.sum()), "out")
        total = int(sizes.sum())
        if self._target is None and here:
            self._target = given.empty(total)
        values = self._target.flat if self._target is not None else flat_like(given.flat, total)
        own = counted_slots(values, sizes).view(axis.rank, axis.rank + 1)
        if not given.is_memory_of(own):
            own[...] = given.flat
        program = self._choose(total * values.itemsize).program(axis)
        yield from Runner(axis, tag, program, segmented_slots(values, sizes, program.slots)).steps()

    def result(self) -> Any:
        """All blocks; None where they do not go."""
        return None if self._target is None else self._target.put_back()


class Scatter:
    """One scatter of the blocks of `root`; `source` is None on the other ranks; sizes as of `BlockGather`."""

    def __init__(
        self,
        axis: Axis,
        source: Buffer | None,
        target: Buffer,
        sizes: np.ndarray | None,
        algorithm: str,
        options: Options,
        root: int,
    ) -> None:
        self._axis, self._source, self._target, self._sizes = axis, source, target, sizes
        known = 0 if sizes is None else int(sizes.sum()) * target.array.itemsize
        self._choose = _chooser("scatter", algorithm, axis, options, root, known)

    def steps(self, tag: int) -> Steps:
        """The run."""
        axis, target, sizes = self._axis, self._target, self._sizes
        if sizes is None:
            told = yield from _told(axis, target.size, -1 if self._source is None else self._source.size)
            sizes = told[:, 0]
            _check_room(told[:, 1], int(sizes.sum()), "the buffer")
        total = int(sizes.sum())
        values = flat_like(target.flat, total) if self._source is None else self._source.flat
        program = self._choose(total * values.itemsize).program(axis)
        slots = counted_slots(values, sizes)
        yield from Runner(axis, tag, program, slots).steps()
        own = slots.view(axis.rank, axis.rank + 1)
        if not target.is_memory_of(own):
            target.flat[...] = own


class AllToAll:
    """One all-to-all. sent: elements for each rank; taken: those from each, None where they must be told."""

    def __init__(
        self,
        axis: Axis,
        given: Buffer,
        target: Buffer | None,
        sent: np.ndarray,
        taken: np.ndarray | None,
        algorithm: str,
        options: Options,
    ) -> None:
        self._axis, self._given, self._target, self._sent, self._taken = axis, given, target, sent, taken
        self._choose = _chooser("all_to_all", algorithm, axis, options)

    def steps(self, tag: int) -> Steps:
        """The run."""
        axis, given = self._axis, self._given
        if self._taken is None:
            self._taken = np.empty_like(self._sent)
            yield axis.comm.Ialltoall(self._sent, self._taken)
        total = int(self._taken.sum())
        into = self._target
        if into is None or into.size != total:
            into = given.empty(total)
        slots = PairedSlots(counted_slots(given.flat, self._sent), counted_slots(into.flat, self._taken))
        yield from Runner(axis, tag, self._choose(0).program(axis), slots).steps()
        self._target = sized(self._target or into, total, given)  # the others got what they wait for all the same

    def result(self) -> Any:
        """The blocks from all ranks."""
        assert self._target is not None
        return self._target.put_back()


def exchanged_sizes(
    axis: Axis, given: Buffer, target: Buffer | None, counts: Any
) -> tuple[np.ndarray, np.ndarray | None]:
    """Elements that this rank sends to each and takes from each, None where only the others know: int64[ranks]."""
    table = None if counts is None else np.asarray(counts)
    taken = None
    if table is None:
        sent = block_sizes(given.size, axis.size, None, "the buffer")
        taken = np.full(axis.size, sent[axis.rank])
    elif table.ndim == 2:
        table = checked_matrix(table, axis.size)
        sent, taken = table[axis.rank], table[:, axis.rank].copy()
    else:
        sent = table
    sent = block_sizes(given.size, axis.size, sent, "the buffer")
    if taken is not None and target is not None:
        sized(target, int(taken.sum()), given)
    return sent, taken


def _chooser(
    operation: str, algorithm: str, axis: Axis, options: Options, root: int | None = None, known: int = 0
) -> Callable[[int], AlgorithmChoice]:
    """A function that chooses once the bytes are known; what is wrong with the names is found now.

    known: the bytes, where they are known already; the choice is then made now.
    """
    early = choose(operation, algorithm, axis, known, options, root=root)
    return lambda nbytes: early if nbytes == known else choose(operation, algorithm, axis, nbytes, options, root=root)


def _told(axis: Axis, *own: int) -> Any:
    """What every rank says: int64[ranks, numbers]."""
    told = np.empty((axis.size, len(own)), np.int64)
    yield axis.comm.Iallgather(np.array(own, np.int64), told)
    return told


def _check_room(rooms: np.ndarray, total: int, what: str) -> None:
    """Raise `InputError` on all ranks where one has a whole buffer (not -1) of another size."""
    wrong = np.flatnonzero((rooms >= 0) & (rooms != total))
    if wrong.size:
        raise InputError(f"{what} holds {rooms[wrong[0]]} elements on rank {wrong[0]}, and all blocks together {total}")
