"""Messages between ranks of one node: through memory that both see, without MPI on the way.

A rank packs what it sends into memory of its own and sets a flag there; the peer unpacks it from there once it has seen
the flag: two copies, where MPI's messages within a node take four for packed data, and nobody has to answer. Two
buffers a message suffice: every exchange is two-way, be it with nothing, so receiving message n proves that the peer
has taken message n - 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from hpckit.comm.shared.compiled.flags import arrived, post
from hpckit.comm.shared.group import node_comm
from hpckit.comm.shared.memory import make_segment, whole_pages
from hpckit.errors import SetupError

__communicates__ = True  # its frames are not call sites

ALIGNMENT = 64  # bytes: of messages in a buffer, and of an entry of the table, which no other writer touches
ENTRY = ALIGNMENT // 8
FLAG, FIRST, COUNT = range(3)  # of an entry, int64: its flag, the first item of its message, how many there are
ROOM = 1.25  # how much more is reserved than is needed now, where a message may grow
LOOKS = 10_000  # at the flags before another process gets the core: some ten microseconds


class Transport:
    """Memory for the messages of the ranks of a node. Made by all ranks of `comm`.

    A rank's part holds a table with an entry for each of its messages, and two buffers for all of them. `ranks`: those
    of `comm` that it reaches; none where this rank is alone on its node. node: the ranks of `comm` that share memory
    with this one, found where it is not given.
    """

    def __init__(self, comm: MPI.Comm, node: MPI.Comm | None = None) -> None:
        self.comm = comm
        self.node: MPI.Comm = node or node_comm(comm)
        places = np.empty(self.node.size, np.int64)
        self.node.Allgather(np.array(comm.rank, np.int64), places)
        self.place = {int(rank): place for place, rank in enumerate(places)}
        self.ranks = frozenset(self.place) - {comm.rank}
        self._bytes = -1  # of a buffer
        self._parts = np.empty((0, 0), np.uint8)

    def prepare(self, counts: Sequence[int], itemsize: int = 1, room: float = 1.0) -> None:
        """Collective over the node, between exchanges: message k of this rank has counts[k] items from now on, of at
        most `itemsize` bytes. All ranks give as many counts. room: how much more to reserve than that. What another
        rank says of its messages is there once one of them has come.

        Raises `SetupError` on all ranks of the node alike where there is no memory for more.
        """
        ends = np.cumsum(counts)
        needed = np.array([ends[-1] * itemsize], np.int64)
        self.node.Allreduce(MPI.IN_PLACE, needed, MPI.MAX)
        if needed[0] > self._bytes:
            self._head = whole_pages(8 * ENTRY * len(counts))
            self._bytes = whole_pages(int(room * needed[0]))
            segment = make_segment(self.node, self._head + 2 * self._bytes)
            self._parts = segment.memory.reshape(self.node.size, -1)
        table = self._table(self.comm.rank)
        for k, (end, count) in enumerate(zip(ends, counts, strict=True)):
            table[k, FIRST], table[k, COUNT] = end - count, count
        self._total = int(ends[-1])

    def buffer(self, turn: int, itemsize: int = 1) -> np.ndarray:
        """All messages of this rank, one after the other, where items have so many bytes: uint8, flat."""
        return self._items(self.comm.rank, turn, 0, self._total, itemsize)

    def message(self, rank: int, k: int, turn: int, itemsize: int = 1) -> np.ndarray:
        """Message k of a rank of the node: uint8, flat."""
        entry = self._table(rank)[k]
        return self._items(rank, turn, int(entry[FIRST]), int(entry[COUNT]), itemsize)

    def flag(self, rank: int, k: int) -> int:
        """The address of the flag of message k of a rank."""
        return self._parts[self.place[rank]].ctypes.data + 8 * ENTRY * k

    def _table(self, rank: int) -> np.ndarray:
        return self._parts[self.place[rank]][: self._head].view(np.int64).reshape(-1, ENTRY)

    def _items(self, rank: int, turn: int, first: int, count: int, itemsize: int) -> np.ndarray:
        start = self._head + turn * self._bytes
        return self._parts[self.place[rank]][start + first * itemsize : start + (first + count) * itemsize]


class Flags:
    """The flags of an exchange that is made again and again: of this rank's messages, and of those it waits for."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.number = 0  # of the exchange that was started last
        self._sent = self._taken = np.empty(0, np.int64)

    def meet(self, sent: Sequence[int], taken: Sequence[int]) -> None:
        """Their addresses, from now on."""
        self._sent, self._taken = np.array(sent, np.int64), np.array(taken, np.int64)

    def post(self) -> None:
        """The messages of this rank are there: an exchange begins. All ranks call it, with messages or without."""
        self.number += 1
        if len(self._sent):
            post(self._sent, self.number)

    def wait(self) -> None:
        """Return when the messages of the peers are there."""
        if len(self._taken):
            while not arrived(self._taken, self.number, LOOKS):
                os.sched_yield()
                self._comm.Iprobe()  # a peer may be waiting for a message of ours that MPI has yet to move


class Rows:
    """Rows of float64 that ranks of a node give each other, as many as each needs now: message k is for place k of the
    node. Made, and `prepare`d, by all ranks of `comm`; most: values of the longest row.
    """

    def __init__(self, transport: Transport, most: int) -> None:
        self.ranks = transport.ranks
        self._transport, self._most = transport, most
        self._flags = Flags(transport.comm)
        self._peers: list[int] = []
        self._outs: dict[tuple[int, int], np.ndarray] = {}  # by buffer and width, until the next `prepare`
        self._ins: dict[tuple[int, int], list[np.ndarray]] = {}

    def prepare(self, peers: list[int], counts: list[int]) -> None:
        """Collective over the node: exchanges with these peers, in rising order, follow, of so many rows to each.

        No message is under way: all buffers are free. Raises `SetupError` where there is no memory for more.
        """
        given = dict(zip(peers, counts, strict=True))
        own, place = self._transport.comm.rank, self._transport.place
        self._transport.prepare([given.get(rank, 0) for rank in place], 8 * self._most, ROOM)
        self._peers = peers
        sent = [self._transport.flag(own, place[peer]) for peer in peers]
        self._flags.meet(sent, [self._transport.flag(peer, place[own]) for peer in peers])
        self._outs.clear()
        self._ins.clear()

    def out(self, width: int) -> np.ndarray:
        """Where what is given goes in the next exchange, the rows of each peer behind those of the one before: float64
        [n, width].
        """
        key = (self._flags.number + 1) & 1, width
        if key not in self._outs:
            self._outs[key] = self._transport.buffer(key[0], 8 * width).view(np.float64).reshape(-1, width)
        return self._outs[key]

    def post(self) -> None:
        """It is there: an exchange begins. Every rank of the node calls it, with peers or without."""
        self._flags.post()

    def wait(self) -> None:
        """Return when the rows of all peers are there."""
        self._flags.wait()

    def received(self, width: int) -> list[np.ndarray]:
        """What has come, float64[n, width] of each peer; there until the exchange after the next one."""
        key = self._flags.number & 1, width
        if key not in self._ins:
            transport = self._transport
            own = transport.place[transport.comm.rank]
            came = [transport.message(peer, own, key[0], 8 * width) for peer in self._peers]
            self._ins[key] = [rows.view(np.float64).reshape(-1, width) for rows in came]
        return self._ins[key]


def open_rows(comm: MPI.Comm, most: int, node: MPI.Comm | None = None) -> Rows | None:
    """Collective: rows between the ranks of `comm`; None where this rank is alone on its node, or nothing is shared.

    node: as of `Transport`.
    """
    rows = Rows(Transport(comm, node), most)
    if not rows.ranks:
        return None
    try:
        rows.prepare([], [])
    except SetupError:  # on all ranks of the node alike
        return None
    return rows
