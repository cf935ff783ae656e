"""Halo messages between ranks of one node: through memory that both see, without MPI on the way.

A rank packs what it sends into memory of its own, sets a flag there, and the neighbor unpacks it from there once it has
seen the flag: two copies, where MPI's messages within a node take four for packed slabs, and nobody has to answer. Each
message has two buffers, used in turn. That is enough: neighbors send to each other in every exchange, so a rank that
has received a neighbor's message of this exchange knows that the neighbor has unpacked those of the one before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.shared.group import node_comm
from hpckit.comm.shared.memory import make_segment, whole_pages
from hpckit.errors import SetupError
from hpckit.grid.regions import ALIGNMENT, Side, Slab, large_fields, slab_starts
from hpckit.kernels.flags import arrived, post

__communicates__ = True  # its frames are not call sites

Calls = list[tuple[Callable[..., None], tuple[Any, ...]]]
Parcel = tuple[Slab, tuple[np.ndarray, np.ndarray]]  # a slab and its places in the two buffers
ENTRY = ALIGNMENT // 8  # int64 of a message's entry at the start of a part: its flag, and where its buffers stand
FLAG, PLACE, SIZE = range(3)
NOTHING = np.zeros((0, 0, 0))
LOOKS = 10_000  # at the flags before another process gets the core: some ten microseconds


class Mailbox:
    """The messages of a phase from and to neighbors on this node."""

    def __init__(self, comm: MPI.Comm, ranks: frozenset[int]) -> None:
        self.ranks = ranks  # of `comm`, those that it reaches
        self.number = 0  # of the exchange that was started last
        self.outgoing: list[Parcel] = []
        self.incoming: list[Parcel] = []
        self.out_flags: list[int] = []  # addresses
        self.in_flags: list[int] = []
        self._comm = comm

    @property
    def used(self) -> bool:
        """Whether any message goes by it; the same on every rank of the phase's line."""
        return bool(self.outgoing or self.incoming)

    def bind(self, arrays: Sequence[np.ndarray]) -> BoundMailbox:
        """What an exchange of these arrays does."""
        return BoundMailbox(self, arrays)

    def wait(self, flags: np.ndarray) -> None:
        """Return when the neighbors' messages are there."""
        while not arrived(flags, self.number, LOOKS):
            os.sched_yield()
            self._comm.Iprobe()  # a neighbor may be waiting for a message of ours that MPI has yet to move


class BoundMailbox:
    """A mailbox and the arrays that its messages come from and go to; keeps no array alive."""

    def __init__(self, mailbox: Mailbox, arrays: Sequence[np.ndarray]) -> None:
        self._mailbox = mailbox
        self._out_flags = np.array(mailbox.out_flags, np.int64)
        self._in_flags = np.array(mailbox.in_flags, np.int64)
        self._pack: list[Calls] = [
            [(s.layout.kernels.pack_slab, (*s.arguments(arrays), buffers[turn])) for s, buffers in mailbox.outgoing]
            for turn in (0, 1)
        ]
        self._unpack: list[Calls] = [
            [(s.layout.kernels.unpack_slab, (*s.arguments(arrays), buffers[turn])) for s, buffers in mailbox.incoming]
            for turn in (0, 1)
        ]

    def post(self) -> None:
        """Pack what the neighbors get, and tell them."""
        box = self._mailbox
        box.number += 1
        for kernel, arguments in self._pack[box.number & 1]:
            kernel(*arguments)
        post(self._out_flags, box.number)

    def wait(self) -> None:
        """Return when the neighbors' messages are there."""
        self._mailbox.wait(self._in_flags)

    def unpack(self) -> None:
        """Take the messages out."""
        for kernel, arguments in self._unpack[self._mailbox.number & 1]:
            kernel(*arguments)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the low and the high halo of the first field stand, [pieces, layers, values]; of size 0 for none."""
        found = [NOTHING, NOTHING]
        for slab, buffers in self._mailbox.incoming:
            if slab.field == 0:
                found[slab.first > 0] = buffers[self._mailbox.number & 1].reshape(slab.pieces, slab.layers, -1)
        return found[0], found[1]


def open_mailboxes(comm: MPI.Comm, phases: Sequence[Sequence[Side]]) -> list[Mailbox] | None:
    """Collective: a mailbox for each phase (of its two sides), for all but large slabs of one piece.

    None where this rank is alone on its node, or where the node's memory cannot be shared.
    """
    node = node_comm(comm)
    if node.size == 1:
        return None
    places = np.empty(node.size, np.int64)
    node.Allgather(np.array(comm.rank, np.int64), places)
    near = {int(rank): place for place, rank in enumerate(places) if rank != comm.rank}
    sides = [[_small(side).among(near) for side in both] for both in phases]
    parts = _parts(node, _entries(sides))
    if parts is None:
        return None
    boxes = []
    for number, both in enumerate(sides):
        box = Mailbox(comm, frozenset(near))
        for turn, side in enumerate(both):
            entry = entry_of(number, turn) * ENTRY
            if side.send_to is not None:
                _add(parts[node.rank], entry, side.send, box.outgoing, box.out_flags)
            if side.recv_from is not None:
                _add(parts[near[side.recv_from]], entry, side.recv, box.incoming, box.in_flags)
        boxes.append(box)
    return boxes


def entry_of(phase: int, turn: int) -> int:
    """The entry of the message that a phase sends low (turn 0) or high (turn 1)."""
    return 2 * phase + turn


def _small(side: Side) -> Side:
    """The part of it that goes by mailbox."""
    large = large_fields(side)
    return side.only([slab.field for slab in side.send if slab.field not in large])


def _entries(phases: Sequence[Sequence[Side]]) -> np.ndarray:
    """The entries of a rank's part, int64[entries, ENTRY], and a last one whose PLACE is the size of the part."""
    sides = [side for both in phases for side in both]
    entries = np.zeros((len(sides) + 1, ENTRY), np.int64)
    at = entries.nbytes
    for entry, side in zip(entries, sides, strict=False):
        entry[PLACE], entry[SIZE] = at, slab_starts(side.send)[-1] if side.send_to is not None else 0
        at += 2 * entry[SIZE]
    entries[-1, PLACE] = at
    return entries


def _add(part: np.ndarray, entry: int, slabs: Sequence[Slab], parcels: list[Parcel], flags: list[int]) -> None:
    """The places of a message's slabs in its buffers, and the address of its flag."""
    _, place, size = part[8 * entry : 8 * (entry + 3)].view(np.int64)
    flags.append(part.ctypes.data + 8 * entry)
    for slab, start in zip(slabs, slab_starts(slabs)[:-1], strict=True):
        first, second = (
            part[at : at + slab.nbytes].view(slab.layout.dtype) for at in (place + start, place + size + start)
        )
        parcels.append((slab, (first, second)))


def _parts(node: MPI.Comm, entries: np.ndarray) -> np.ndarray | None:
    """Collective: shared memory with a part for each rank of the node, uint8[ranks, nbytes], which starts with its
    entries; None where there is none.
    """
    nbytes = np.array([entries[-1, PLACE]], np.int64)
    node.Allreduce(MPI.IN_PLACE, nbytes, MPI.MAX)
    try:
        segment = make_segment(node, whole_pages(int(nbytes[0])))
    except SetupError:  # on all ranks of the node alike
        return None
    parts = segment.memory.reshape(node.size, -1)
    parts[node.rank, : entries.nbytes] = entries.reshape(-1).view(np.uint8)
    node.Barrier()
    return parts
