"""Halo messages between ranks of one node: through memory that both see, without MPI on the way.

A rank packs what it sends into memory of its own, sets a flag there, and the neighbor unpacks it from there once it has
seen the flag: two copies, where MPI's messages within a node take four for packed slabs, and nobody has to answer. Each
message has two buffers, used in turn. That is enough: neighbors send to each other in every exchange, so a rank that
has received a neighbor's message of this exchange knows that the neighbor has unpacked those of the one before.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.kernels.flags import arrived, post
from hpckit.slabs import ALIGNMENT, Side, Slab, large_fields, slab_starts

Calls = list[tuple[Callable[..., None], tuple[Any, ...]]]
Parcel = tuple[Slab, tuple[np.ndarray, np.ndarray]]  # a slab and its places in the two buffers
ENTRY = ALIGNMENT // 8  # int64 of a message's entry at the start of a segment: its flag, and where its buffers stand
FLAG, PLACE, SIZE = range(3)
OWN = -1  # in place of a rank
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


def open_mailboxes(comm: MPI.Comm, phases: Sequence[Sequence[Side]]) -> list[Mailbox] | None:
    """Collective: a mailbox for each phase (of its two sides), for all but large slabs of one piece.

    None where this rank is alone on its node, or where the node's memory cannot be shared.
    """
    node = node_of(comm)
    places = np.empty(node.size, np.int64)
    node.Allgather(np.array(comm.rank, np.int64), places)
    near = {int(rank): place for place, rank in enumerate(places) if rank != comm.rank}
    sides = [[_small(side).among(near) for side in both] for both in phases]
    peers = {rank for both in sides for side in both for rank in (side.send_to, side.recv_from) if rank is not None}
    segments = _segments(node, _entries(sides), {rank: near[rank] for rank in peers}) if near else None
    node.Free()
    if segments is None:
        return None
    boxes = []
    for number, both in enumerate(sides):
        box = Mailbox(comm, frozenset(near))
        for turn, side in enumerate(both):
            entry = (2 * number + turn) * ENTRY
            if side.send_to is not None:
                _add(segments[OWN], entry, side.send, box.outgoing, box.out_flags)
            if side.recv_from is not None:
                _add(segments[side.recv_from], entry, side.recv, box.incoming, box.in_flags)
        boxes.append(box)
    return boxes


def _small(side: Side) -> Side:
    """The part of it that goes by mailbox."""
    large = large_fields(side)
    return side.only([slab.field for slab in side.send if slab.field not in large])


def node_of(comm: MPI.Comm) -> MPI.Comm:
    """Collective: the ranks that share a node with this one, in the order of `comm`."""
    return comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)


def _entries(phases: Sequence[Sequence[Side]]) -> np.ndarray:
    """The entries of a segment, int64[entries, ENTRY], and a last one whose PLACE is the segment's size."""
    sides = [side for both in phases for side in both]
    entries = np.zeros((len(sides) + 1, ENTRY), np.int64)
    at = entries.nbytes
    for entry, side in zip(entries, sides, strict=False):
        entry[PLACE], entry[SIZE] = at, slab_starts(side.send)[-1] if side.send_to is not None else 0
        at += 2 * entry[SIZE]
    entries[-1, PLACE] = at
    return entries


def _add(segment: np.ndarray, entry: int, slabs: Sequence[Slab], parcels: list[Parcel], flags: list[int]) -> None:
    """The places of a message's slabs in its buffers, and the address of its flag."""
    _, place, size = segment[8 * entry : 8 * (entry + 3)].view(np.int64)
    flags.append(segment.ctypes.data + 8 * entry)
    for slab, start in zip(slabs, slab_starts(slabs)[:-1], strict=True):
        first, second = (
            segment[at : at + slab.nbytes].view(slab.layout.dtype) for at in (place + start, place + size + start)
        )
        parcels.append((slab, (first, second)))


def _segments(node: MPI.Comm, entries: np.ndarray, peers: dict[int, int]) -> dict[int, np.ndarray] | None:
    """Collective: the segments of this rank (at `OWN`) and of its peers (rank: place on the node), uint8.

    None where it failed on any rank of the node. The memory has no name, so nothing is left of it however the job ends:
    others open it by process and file number, and a random number at its end shows that it is the one that was meant.
    """
    nbytes, token = int(entries[-1, PLACE]), int.from_bytes(os.urandom(7))
    segments: dict[int, np.ndarray] = {}
    file = -1
    with suppress(OSError, AttributeError):  # no memory left, or a system without memfd
        file = os.memfd_create("hpckit-halo")
        os.posix_fallocate(file, 0, nbytes)  # so that it is there, and no access fails later
        segments[OWN] = _mapped(file, nbytes)
        segments[OWN][: entries.nbytes] = entries.reshape(-1).view(np.uint8)
        _token(segments[OWN], entries)[...] = token
    facts = np.empty((node.size, 4), np.int64)
    node.Allgather(np.array([os.getpid(), file, nbytes, token], np.int64), facts)
    for rank, place in peers.items():
        process, number, size, wanted = (int(value) for value in facts[place])
        with suppress(OSError, ValueError):
            theirs = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR)
            segments[rank] = _mapped(theirs, size)
            os.close(theirs)
            if _token(segments[rank], entries) != wanted:
                del segments[rank]
    complete = np.array([len(segments) == len(peers) + 1], np.int32)
    node.Allreduce(MPI.IN_PLACE, complete, MPI.MIN)
    if file >= 0:
        os.close(file)
    return segments if complete[0] else None


def _mapped(file: int, nbytes: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(file, nbytes), np.uint8)


def _token(segment: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """The last number of the entries."""
    return segment[entries.nbytes - 8 : entries.nbytes].view(np.int64)
