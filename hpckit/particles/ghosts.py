"""Ghosts: copies of other ranks' particles, and of images across the box, refreshed each step in one direction only.

Forces are computed for own particles alone, over full lists, so nothing travels back. Who sends what is decided at each
rebuild (`Bricks.ghosts`); every rank sends directly to all that want its particles, one message a peer and step, which
leaves the whole exchange to fly while the clusters that touch no ghosts are computed.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from hpckit.comm import checksums
from hpckit.comm.checksums import End, Seals
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe import waits
from hpckit.comm.shared.ghost_mail import open_ghost_mail
from hpckit.kernels.cells.constants import RECORD
from hpckit.kernels.records.dispatch import choose, copy_all, put, take_all
from hpckit.particles.particles import Particles
from hpckit.plan.particles.domain import Bricks, Reached

NOTHING = np.empty((0, RECORD))


class Rows(NamedTuple):
    """Ghosts that go the same way: the slots that they come from, their segments, the shifts of all segments."""

    slots: np.ndarray
    segments: np.ndarray
    shifts: np.ndarray
    total: int

    def room(self) -> np.ndarray:
        """Where their records may be packed."""
        return np.empty((self.total, RECORD))


class GhostExchange:
    """The ghosts of a rank: `rebuild` decides who they are, `start` and `finish` bring their positions up to date.

    A rank has images of its own particles in up to 26 directions, and a call costs more than the images of one of them:
    each ghost has the number of its segment (`Bricks.ghosts`), each segment its shift, and one kernel moves them all.
    Ghosts are numbered in the order in which they come: images of own particles first, then those of each peer, of the
    same node before the others. mailboxes: whether peers on a node share memory; False for messages alone.
    """

    def __init__(self, mesh: Mesh, mailboxes: bool = True) -> None:
        self.mesh = mesh
        self._tag = mesh.lasting_tags(3)
        self._mail = open_ghost_mail(mesh.comm) if mailboxes else None
        self._planned: tuple[Bricks, float] | None = None
        self._requests: list[MPI.Request] = []
        self._seals = Seals(mesh.comm) if checksums.on else None
        self.wait_seconds = 0.0
        self._channel = waits.channel("ghosts", mesh.comm)
        self._begun = self._posted = 0.0

    def rebuild(self, bricks: Bricks, particles: Particles, reach: float) -> np.ndarray:
        """Collective: choose the particles within `reach` of others' bricks; all ghost records, float64[n, 4].

        The caller puts them into slots and says so by `settle`.
        """
        self._plan(bricks, reach)
        near = self._near_peers
        sent = self._choose(particles)
        own, given, self._sent = sent[0], sum(sent[1 : 1 + len(near)]), sent[1 + len(near) :]
        self._images, self._given = self._rows(0, own), self._rows(own, given)
        self._gone = self._rows(own + given, sum(self._sent))
        self._takers = dict(zip([*near, *self._peers], sent[1:], strict=True))
        if self._mail is not None:
            self._mail.prepare(near, sent[1 : 1 + len(near)])
        records = self._exchange_records(particles)
        self._out = np.empty((sum(self._sent), 3))
        self._in = np.empty((sum(self._received), 3))
        return records

    def _plan(self, bricks: Bricks, reach: float) -> None:
        """Who takes what from where: as long as the bricks stay."""
        if (bricks, reach) == self._planned:
            return
        self._planned = bricks, reach
        rank, mail = self.mesh.rank, self._mail
        options, segments = bricks.ghosts(rank, reach)
        self._limits = limits_of(options, *bricks.owned(rank))
        self._shifts = np.array([segment.turns for segment in segments]) * bricks.lengths
        takers = np.array([segment.peer for segment in segments])
        peers = set(takers.tolist()) - {rank}
        near = sorted(peers & mail.ranks) if mail is not None else []
        self._near_peers, self._peers = near, sorted(peers.difference(near))  # the latter are sent messages
        self._segments_of = [np.flatnonzero(takers == taker) for taker in (rank, *near, *self._peers)]
        if self._channel is not None:
            self._channel.meet([*near, *self._peers])

    def settle(self, slots: np.ndarray) -> None:
        """The slots that ghosts 0, 1, … were put into."""
        self._slots = slots

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends in a step."""
        return (self._given.total + self._gone.total) * 3 * 8

    def start(self, particles: Particles) -> None:
        """Send the positions of what others have as ghosts, and move the images of own particles."""
        self._begun = time.perf_counter()
        positions = particles.positions
        given = self._give(positions, 3)
        if self._peers:
            take_all(positions, *self._gone, self._out)
            self._requests = self._communicate(self._in, self._out, self._tag)
        self._seal(given, self._out)
        self._posted = time.perf_counter()
        copy_all(positions, *self._images, self._slots)

    @property
    def under_way(self) -> bool:
        """Whether messages are: MPI moves long ones only when both sides call it."""
        return bool(self._requests)

    def advance(self) -> None:
        """Look after messages that are under way."""
        if self._requests:
            MPI.Request.Testall(self._requests)

    def finish(self, particles: Particles) -> None:
        """Wait for the positions of the others' particles, and put them in place."""
        if not (self._peers or self._near_peers):
            return
        begin = time.perf_counter()
        self._wait(self._requests)
        self._requests = []
        end = time.perf_counter()
        self.wait_seconds += end - begin
        if self._channel is not None:
            self._channel.add(self._begun, self._posted, begin, end, end - begin)
        first, near = self._images.total, self._from_near(3)
        self._check(near, self._in)
        for came in (*near, self._in):
            if len(came):
                put(came, particles.positions, self._slots, first, first + len(came))
                first += len(came)

    def _wait(self, requests: list[MPI.Request]) -> None:
        """Wait for what peers on the node give, and for messages."""
        if self._mail is not None:
            self._mail.wait()
        if requests:
            MPI.Request.Waitall(requests)

    def _rows(self, first: int, count: int) -> Rows:
        """So many of the chosen ghosts, from number `first` on."""
        stop = first + count
        return Rows(self._chosen[first:stop], self._segments[first:stop], self._shifts, count)

    def _give(self, positions: np.ndarray, width: int) -> np.ndarray:
        """Pack what peers on the node take; returns it."""
        if self._mail is None:
            return NOTHING[:, :width]
        if self._given.total:
            given = self._mail.out(width)
            take_all(positions, *self._given, given)
        else:
            given = NOTHING[:, :width]
        self._mail.post()
        return given

    def _seal(self, near: np.ndarray, far: np.ndarray) -> None:
        """Send checksums of what peers take, on the node and off it."""
        if self._seals is not None:
            rows = np.concatenate([near, far])
            parts = np.split(rows, np.cumsum(list(self._takers.values()))[:-1])
            self._seals.start(self._ends(parts), [(peer, self._tag + 2) for peer in self._takers])

    def _check(self, near: list[np.ndarray], far: np.ndarray) -> None:
        """Compare what has come with its checksums."""
        if self._seals is not None:
            parts = [*near, *np.split(far, np.cumsum(self._received)[:-1])] if self._peers else near
            self._seals.finish(self._ends(parts))

    def _ends(self, parts: list[np.ndarray]) -> list[End]:
        """The rows of each peer, in the order of `_takers`."""
        ends = zip(self._takers, parts, strict=False)
        return [End(peer, self._tag + 2, "ghost particles", [rows]) for peer, rows in ends]

    def _from_near(self, width: int) -> list[np.ndarray]:
        """What peers on the node have given, float64[n, width] each."""
        return [] if self._mail is None else self._mail.received(width)

    def _choose(self, particles: Particles) -> list[int]:
        """The slots and segments of all ghosts that this rank gives, by who takes them; returns how many each takes."""
        counts = np.zeros(len(self._shifts), np.int64)
        choose(particles.positions, particles.slots, *self._limits, counts, np.empty(0, np.int64))
        order = np.concatenate(self._segments_of)
        ends = np.cumsum(counts[order])
        starts = np.empty_like(counts)
        starts[order] = ends - counts[order]
        self._chosen = np.empty(max(1, ends[-1]), np.int64)
        choose(particles.positions, particles.slots, *self._limits, starts, self._chosen)
        self._segments = np.repeat(order, counts[order]).astype(np.int32)
        return [int(counts[segments].sum()) for segments in self._segments_of]

    def _exchange_counts(self) -> list[int]:
        comm, tag, peers = self.mesh.comm, self._tag + 1, self._peers
        theirs, ours = np.empty((len(peers), 1), np.int64), np.array(self._sent, np.int64).reshape(-1, 1)
        requests = [comm.Irecv(theirs[i], peer, tag) for i, peer in enumerate(peers)]
        requests += [comm.Isend(ours[i], peer, tag) for i, peer in enumerate(peers)]
        MPI.Request.Waitall(requests)
        return [int(count) for count in theirs[:, 0]]

    def _exchange_records(self, particles: Particles) -> np.ndarray:
        """Whole records, with the types, once."""
        positions, far, images = particles.positions, self._gone.room(), self._images.room()
        given = self._give(positions, RECORD)
        take_all(positions, *self._gone, far)
        self._received = self._exchange_counts() if self._peers else []
        arriving = np.empty((sum(self._received), RECORD))
        requests = self._communicate(arriving, far, self._tag + 1)
        self._seal(given, far)
        take_all(positions, *self._images, images)
        self._wait(requests)
        near = self._from_near(RECORD)
        self._check(near, arriving)
        return np.concatenate([images, *near, arriving])

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
