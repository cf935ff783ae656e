"""Ghosts: copies of other ranks' particles, and of images across the box, refreshed each step in one direction only.

Forces are computed for own particles alone, over full lists, so nothing travels back. Who sends what is decided at each
rebuild (`Bricks.ghosts`); every rank sends directly to all that want its particles, one message a peer and step, which
leaves the whole exchange to fly while the clusters that touch no ghosts are computed.
"""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI

from hpckit import waits
from hpckit.kernels.cells.constants import RECORD
from hpckit.kernels.records.dispatch import choose, copy_all, put, take_all
from hpckit.mesh import Mesh
from hpckit.particles import Particles
from hpckit.plan.bricks import Bricks, Reached


class GhostExchange:
    """The ghosts of a rank: `rebuild` decides who they are, `start` and `finish` bring their positions up to date.

    A rank has images of its own particles in up to 26 directions, and a call costs more than the images of one of them:
    each ghost has the number of its segment (`Bricks.ghosts`), each segment its shift, and one kernel moves them all.
    Ghosts are numbered in the order in which they come: images of own particles first, then those of each peer.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._tag = mesh.tags(2)
        self._requests: list[MPI.Request] = []
        self.wait_seconds = 0.0
        self._channel = waits.channel("ghosts", mesh.comm)
        self._begun = self._posted = 0.0

    def rebuild(self, bricks: Bricks, particles: Particles, reach: float) -> np.ndarray:
        """Collective: choose the particles within `reach` of others' bricks; all ghost records, float64[n, 4].

        The caller puts them into slots and says so by `settle`.
        """
        rank = self.mesh.rank
        options, segments = bricks.ghosts(rank, reach)
        self._shifts = np.array([segment.turns for segment in segments]) * bricks.lengths
        takers = np.array([segment.peer for segment in segments])
        self._peers = sorted({segment.peer for segment in segments} - {rank})
        if self._channel is not None:
            self._channel.meet(self._peers)
        sent = self._choose(particles, limits_of(options, *bricks.owned(rank)), takers)
        self._own, self._sent = sent[0], sent[1:]
        self._received = self._exchange_counts()
        records = self._exchange_records(particles)
        self._out = np.empty((sum(self._sent), 3))
        self._in = np.empty((sum(self._received), 3))
        return records

    def settle(self, slots: np.ndarray) -> None:
        """The slots that ghosts 0, 1, … were put into."""
        self._slots = slots

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends in a step."""
        return self._out.nbytes

    def start(self, particles: Particles) -> None:
        """Send the positions of what others have as ghosts, and move the images of own particles."""
        self._begun = time.perf_counter()
        positions, own = particles.positions, self._own
        if self._peers:
            lists = self._chosen[own:], self._segments[own:], self._shifts, len(self._out)
            take_all(positions, *lists, self._out)
            self._requests = self._communicate(self._in, self._out, self._tag)
        self._posted = time.perf_counter()
        copy_all(positions, self._chosen[:own], self._segments[:own], self._shifts, own, self._slots)

    def advance(self) -> None:
        """Look after messages that are under way: MPI moves long ones only when both sides call it."""
        if self._requests:
            MPI.Request.Testall(self._requests)

    def finish(self, particles: Particles) -> None:
        """Wait for the positions of the others' particles, and put them in place."""
        if not self._peers:
            return
        begin = time.perf_counter()
        MPI.Request.Waitall(self._requests)
        end = time.perf_counter()
        self.wait_seconds += end - begin
        if self._channel is not None:
            self._channel.add(self._begun, self._posted, begin, end, end - begin)
        put(self._in, particles.positions, self._slots, self._own, self._own + len(self._in))

    def _choose(self, particles: Particles, limits: tuple[np.ndarray, ...], takers: np.ndarray) -> list[int]:
        """The slots and segments of all ghosts that this rank gives, by who takes them: this rank, then each peer.

        takers: the rank that each segment goes to. Returns how many each takes.
        """
        counts = np.zeros(len(takers), np.int64)
        choose(particles.positions, particles.slots, *limits, counts, np.empty(0, np.int64))
        every = [self.mesh.rank, *self._peers]
        order = np.concatenate([np.flatnonzero(takers == taker) for taker in every])
        ends = np.cumsum(counts[order])
        starts = np.empty_like(counts)
        starts[order] = ends - counts[order]
        self._chosen = np.empty(max(1, ends[-1]), np.int64)
        choose(particles.positions, particles.slots, *limits, starts, self._chosen)
        self._segments = np.repeat(order, counts[order]).astype(np.int32)
        return [int(counts[takers == taker].sum()) for taker in every]

    def _exchange_counts(self) -> list[int]:
        comm, tag, peers = self.mesh.comm, self._tag + 1, self._peers
        theirs, ours = np.empty((len(peers), 1), np.int64), np.array(self._sent, np.int64).reshape(-1, 1)
        requests = [comm.Irecv(theirs[i], peer, tag) for i, peer in enumerate(peers)]
        requests += [comm.Isend(ours[i], peer, tag) for i, peer in enumerate(peers)]
        MPI.Request.Waitall(requests)
        return [int(count) for count in theirs[:, 0]]

    def _exchange_records(self, particles: Particles) -> np.ndarray:
        """Whole records, with the types, once."""
        own = self._own
        given = np.empty((len(self._segments), RECORD))
        take_all(particles.positions, self._chosen, self._segments, self._shifts, len(given), given)
        if not self._peers:
            return given
        records = np.empty((own + sum(self._received), RECORD))
        requests = self._communicate(records[own:], given[own:], self._tag + 1)
        records[:own] = given[:own]
        MPI.Request.Waitall(requests)
        return records

    def _communicate(self, into: np.ndarray, out: np.ndarray, tag: int) -> list[MPI.Request]:
        """Start to receive and to send the rows of each peer, which follow each other in both arrays."""
        comm, requests = self.mesh.comm, []
        for rows, counts, start in ((into, self._received, comm.Irecv), (out, self._sent, comm.Isend)):
            first = 0
            for peer, count in zip(self._peers, counts, strict=True):
                if count:
                    requests.append(start(rows[first : first + count], peer, tag))
                first += count
        return requests


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
