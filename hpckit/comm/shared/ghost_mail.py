"""Ghosts between ranks of one node: through memory that both see, without MPI on the way.

A rank packs what it gives into memory of its own and sets a flag; each taker puts it into its slots from there. A
message has two buffers, used in turn. That is enough: whoever takes from a rank gives to it too, be it nothing, so a
rank that has the message of this exchange knows that its own of the one before was taken.
"""

from __future__ import annotations

import os

import numpy as np
from mpi4py import MPI

from hpckit.comm.shared.group import node_comm
from hpckit.comm.shared.memory import make_segment, whole_pages
from hpckit.errors import SetupError
from hpckit.kernels.flags import arrived, post
from hpckit.kernels.particles.cells.constants import RECORD

__communicates__ = True  # its frames are not call sites

LOOKS = 10_000  # at the flags before another process gets the core: some ten microseconds
LINE = 128  # bytes: what a flag has for itself
ROOM = 1.25  # how much more is reserved than is needed now


class GhostMail:
    """What the ranks of a node send each other; made, and `prepare`d, by all ranks of `comm`.

    ranks: those of `comm` that it reaches, none where this rank is alone on its node.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm, self._node = comm, node_comm(comm)
        places = np.empty(self._node.size, np.int64)
        self._node.Allgather(np.array(comm.rank, np.int64), places)
        self._place = {int(rank): place for place, rank in enumerate(places)}
        self.ranks = frozenset(self._place) - {comm.rank}
        self._number = 0  # of the exchange that was started last
        self._room = -1  # records in a buffer
        self._peers: list[int] = []
        self._outs: dict[tuple[int, int], np.ndarray] = {}  # by buffer and width, until the next `prepare`
        self._ins: dict[tuple[int, int], list[np.ndarray]] = {}

    def prepare(self, peers: list[int], counts: list[int]) -> None:
        """Collective over the node: exchanges with these peers on it follow, of so many ghosts to each.

        No message is under way: all buffers are free. Raises `SetupError` where there is no memory for more.
        """
        needed = np.array([sum(counts)], np.int64)
        self._node.Allreduce(MPI.IN_PLACE, needed, MPI.MAX)
        if needed[0] > self._room:
            self._make_parts(int(ROOM * needed[0]))
        self._peers = peers
        self._outs.clear()
        self._ins.clear()
        if not peers:
            return
        mine = self._parts[self._node.rank]
        ends = np.cumsum(counts)
        for peer, end, count in zip(peers, ends, counts, strict=True):
            self._table(mine)[self._place[peer]] = end - count, count
        self._given = int(ends[-1])
        self._flag = np.array([mine.ctypes.data], np.int64)
        theirs = [self._parts[self._place[peer]] for peer in peers]
        self._flags = np.array([part.ctypes.data for part in theirs], np.int64)

    def out(self, width: int) -> np.ndarray:
        """Where what is given goes in the next exchange, the rows of each peer behind those of the one before: float64
        [n, width].
        """
        key = (self._number + 1) & 1, width
        if key not in self._outs:
            self._outs[key] = self._buffer(self._node.rank, *key)[: self._given]
        return self._outs[key]

    def post(self) -> None:
        """It is there: an exchange begins. Every rank of the node calls it, with peers or without."""
        self._number += 1
        if self._peers:
            post(self._flag, self._number)

    def wait(self) -> None:
        """Return when the messages of all peers are there."""
        if self._peers:
            while not arrived(self._flags, self._number, LOOKS):
                os.sched_yield()
                self._comm.Iprobe()  # a peer may be waiting for a message of ours that MPI has yet to move

    def received(self, width: int) -> list[np.ndarray]:
        """What has come, float64[n, width] of each peer; there until the exchange after the next one."""
        key = self._number & 1, width
        if key not in self._ins:
            self._ins[key] = [self._from(self._place[peer], *key) for peer in self._peers]
        return self._ins[key]

    def _from(self, place: int, turn: int, width: int) -> np.ndarray:
        """The rows that the rank at a place gives to this one."""
        first, count = self._table(self._parts[place])[self._node.rank]
        return self._buffer(place, turn, width)[first : first + count]

    def _make_parts(self, room: int) -> None:
        """Collective: memory for so many records in a buffer. Raises `SetupError` on all ranks of the node alike."""
        head = whole_pages(LINE + 16 * self._node.size)
        self._head, self._bytes = head, whole_pages(room * RECORD * 8)
        self._room = self._bytes // (RECORD * 8)
        segment = make_segment(self._node, head + 2 * self._bytes)
        self._parts = segment.memory.reshape(self._node.size, -1)
        self._number = 0

    def _table(self, part: np.ndarray) -> np.ndarray:
        """For each rank of the node the first row that is for it, and how many are: int64[ranks, 2]."""
        return part[LINE : LINE + 16 * self._node.size].view(np.int64).reshape(-1, 2)

    def _buffer(self, place: int, turn: int, width: int) -> np.ndarray:
        start = self._head + turn * self._bytes
        rows = self._parts[place][start : start + self._room * width * 8]
        return rows.view(np.float64).reshape(-1, width)


def open_ghost_mail(comm: MPI.Comm) -> GhostMail | None:
    """Collective: the mail of the ranks of `comm`; None where this rank is alone on its node, or nothing is shared."""
    mail = GhostMail(comm)
    if not mail.ranks:
        return None
    try:
        mail.prepare([], [])
    except SetupError:  # on all ranks of the node alike
        return None
    return mail
