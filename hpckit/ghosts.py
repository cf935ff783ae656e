"""Ghosts: copies of other ranks' particles, and of images across the box, refreshed each step in one direction only.

Forces are computed for own particles alone, over full lists, so nothing travels back. Who sends what is decided at each
rebuild (`Bricks.ghosts`); every rank sends directly to all that want its particles, one message a peer and step, which
leaves the whole exchange to fly while the clusters that touch no ghosts are computed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpckit.kernels.cells.constants import RECORD
from hpckit.kernels.records.dispatch import choose, copy, put, take
from hpckit.mesh import Mesh
from hpckit.particles import Particles
from hpckit.plan.bricks import Bricks, Reached


@dataclass(frozen=True)
class Part:
    """A run of ghosts that are moved by one shift: entries first to stop - 1 of the list of a peer's ghosts."""

    first: int
    stop: int
    shift: np.ndarray


class GhostExchange:
    """The ghosts of a rank: `rebuild` decides who they are, `start` and `finish` bring their positions up to date.

    Ghosts are numbered in the order in which they come: images of own particles first, then those of each peer.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._tag = mesh.tags(2)
        self._requests: list[MPI.Request] = []
        self.wait_seconds = 0.0

    def rebuild(self, bricks: Bricks, particles: Particles, reach: float) -> np.ndarray:
        """Collective: choose the particles within `reach` of others' bricks; all ghost records, float64[n, 4].

        The caller puts them into slots and says so by `settle`.
        """
        rank = self.mesh.rank
        options, segments = bricks.ghosts(rank, reach)
        self._choose(particles, limits_of(options, *bricks.owned(rank)), len(segments))
        peers = sorted({segment.peer for segment in segments} - {rank})
        self._parts: dict[int, list[Part]] = {peer: [] for peer in (rank, *peers)}
        for segment, first, stop in zip(segments, self._ends[:-1], self._ends[1:], strict=True):
            if stop > first:
                shift = np.array(segment.turns) * bricks.lengths
                self._parts[segment.peer].append(Part(int(first), int(stop), shift))
        sent = {peer: sum(part.stop - part.first for part in parts) for peer, parts in self._parts.items()}
        self._peers = peers
        self._received = {rank: sent[rank], **self._exchange_counts(peers, sent)}
        records = np.empty((sum(self._received.values()), RECORD))
        self._exchange_records(particles, sent, records)
        self._send = {peer: np.empty(3 * sent[peer]) for peer in peers}
        self._receive = {peer: np.empty(3 * self._received[peer]) for peer in peers}
        return records

    def settle(self, slots: np.ndarray) -> None:
        """The slots that ghosts 0, 1, … were put into."""
        self._slots = slots

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends in a step."""
        return sum(buffer.nbytes for buffer in self._send.values())

    def start(self, particles: Particles) -> None:
        """Send the positions of what others have as ghosts, and move the images of own particles."""
        positions, comm = particles.positions, self.mesh.comm
        self._requests = [comm.Irecv(buffer, peer, self._tag) for peer, buffer in self._receive.items() if buffer.size]
        for peer, buffer in self._send.items():
            at = 0
            for part in self._parts[peer]:
                take(positions, self._chosen, part.first, part.stop, part.shift, buffer, at)
                at += part.stop - part.first
            if buffer.size:
                self._requests.append(comm.Isend(buffer, peer, self._tag))
        at = 0
        for part in self._parts[self.mesh.rank]:
            copy(positions, self._chosen, part.first, part.stop, part.shift, self._slots, at)
            at += part.stop - part.first

    def finish(self, particles: Particles) -> None:
        """Wait for the positions of the others' particles, and put them in place."""
        if not self._peers:
            return
        begin = time.perf_counter()
        MPI.Request.Waitall(self._requests)
        self.wait_seconds += time.perf_counter() - begin
        first = self._received[self.mesh.rank]
        for peer, buffer in self._receive.items():
            stop = first + self._received[peer]
            put(buffer, particles.positions, self._slots, first, stop)
            first = stop

    def _choose(self, particles: Particles, limits: tuple[np.ndarray, ...], segments: int) -> None:
        counts = np.zeros(segments, np.int64)
        choose(particles.positions, particles.slots, *limits, counts, np.empty(0, np.int64))
        self._ends = np.concatenate([[0], np.cumsum(counts)])
        self._chosen = np.empty(max(1, self._ends[-1]), np.int64)
        choose(particles.positions, particles.slots, *limits, self._ends[:-1].copy(), self._chosen)

    def _exchange_counts(self, peers: list[int], sent: dict[int, int]) -> dict[int, int]:
        comm, tag = self.mesh.comm, self._tag + 1
        theirs = np.empty((len(peers), 1), np.int64)
        requests = [comm.Irecv(theirs[i], peer, tag) for i, peer in enumerate(peers)]
        requests += [comm.Isend(np.array([sent[peer]], np.int64), peer, tag) for peer in peers]
        MPI.Request.Waitall(requests)
        return {peer: int(theirs[i, 0]) for i, peer in enumerate(peers)}

    def _exchange_records(self, particles: Particles, sent: dict[int, int], records: np.ndarray) -> None:
        """Whole records, with the types, once."""
        comm, rank = self.mesh.comm, self.mesh.rank
        first, requests = self._received[rank], []
        for peer in self._peers:
            stop = first + self._received[peer]
            requests.append(comm.Irecv(records[first:stop], peer, self._tag + 1))
            first = stop
        outgoing = []
        for peer, parts in self._parts.items():
            each = records[: sent[rank]] if peer == rank else np.empty((sent[peer], RECORD))
            at = 0
            for part in parts:
                stop = at + part.stop - part.first
                each[at:stop] = particles.positions[self._chosen[part.first : part.stop]]
                each[at:stop, :3] += part.shift
                at = stop
            if peer != rank:
                outgoing.append(each)
                requests.append(comm.Isend(each, peer, self._tag + 1))
        MPI.Request.Waitall(requests)


def limits_of(options: list[list[Reached]], lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, ...]:
    """The limits of `Bricks.reached` as arrays [3, most], their numbers, and a box within which nobody wants any."""
    most = max(map(len, options))
    low, high = np.zeros((3, most)), np.zeros((3, most))
    number = np.array([len(each) for each in options])
    inner_low, inner_high = np.full(3, -np.inf), np.full(3, np.inf)
    for d, each in enumerate(options):
        for i, one in enumerate(each):
            low[d, i], high[d, i] = one.low, one.high
        for one in each[1:]:
            if one.low <= lower[d]:
                inner_low[d] = max(inner_low[d], one.high)
            if one.high >= upper[d]:
                inner_high[d] = min(inner_high[d], one.low)
    return low, high, number, inner_low, inner_high
