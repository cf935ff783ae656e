"""Ghosts: copies of other ranks' particles, and of images across the box, refreshed each step in one direction only.

Forces are computed only for own particles, over full lists, so nothing is sent back. Where they depend on what the
owner of a ghost computes, such as a density, a second exchange in the same direction brings that. The `GhostPlan` of
each rebuild fixes the messages: every rank sends directly to all ranks that need its particles, one message per peer
and exchange. It can be under way while the forces of clusters that touch no ghosts are computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import max_of_ranks
from hpckit.comm.buffer import MessageBuffer
from hpckit.comm.checksums import End, Seals
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.progress import Begun, Unfinished
from hpckit.comm.shared.transport import open_rows
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.records.dispatch import (
    choose_ghosts,
    copy_all,
    copy_values,
    put,
    put_values,
    take_all,
    take_values,
)
from hpckit.particles.migration import straight
from hpckit.particles.particles import Particles
from hpckit.particles.swap import put_rows, swap_places
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.domain import DomainDecomposition, limits_of

__communicates__ = True  # its frames are not call sites

NOTHING = np.empty((0, RECORD))


class PackedGhosts(NamedTuple):
    """Ghosts packed together: their source slots, their segments, and the shifts of all segments."""

    slots: Any
    segments: Any
    shifts: Any
    total: int


class Routes(NamedTuple):
    """The ranks that get ghosts of this one and give it theirs, on its node and off it; how many are sent, to itself
    first, and received, of each; the slots of the particles that are ghosts elsewhere, and of ghosts, in this order.
    """

    near: list[int]
    far: list[int]
    sent: list[int]
    received: list[int]
    chosen: Any
    slots: Any


class GhostExchange(Begun):
    """The ghosts of a rank: `rebuild` selects them, `start` and `finish` update their positions, `start_values` and
    `finish_values` some numbers of each.

    A rank has images of its own particles in up to 26 directions, and one call per direction would cost more than the
    work: each ghost has the number of its segment (`DomainDecomposition.ghosts`), each segment its shift, and one
    kernel moves them all. Ghosts are numbered in the order of arrival: images of own particles first, then those of
    peers on the same node, then those of other peers. Particles are on `device`; a GPU packs and unpacks with one
    kernel each, and `start` waits for the packing. within_node: whether peers on a node use shared memory (never on a
    GPU), or the communicator of the ranks that do; False for messages only. values: how many numbers of each particle
    `start_values` sends at most, if more than a record has.
    """

    def __init__(self, mesh: Mesh, device: Device = HOST, within_node: bool | MPI.Comm = True, values: int = 1) -> None:
        self.mesh, self.device = mesh, device
        self.within_node = within_node
        self._tag = mesh.lasting_tags(4)
        node = None if isinstance(within_node, bool) else within_node
        self._mail = open_rows(mesh.comm, max(RECORD, values), node) if within_node and not device.is_gpu else None
        self._planned: tuple[DomainDecomposition, float] | None = None
        self._requests: list[MPI.Request] = []
        self._empty: dict[int, MessageBuffer] = {}  # by width: where all peers are on the node
        self._observer = mesh.observer
        self._report = mesh.observer.exchange(mesh.comm, "ghosts", "ghost exchange", "float64")
        self._seals = Seals(mesh.comm) if mesh.observer.checks_messages else None
        self.wait_seconds = 0.0
        self._outlive()

    def unfinished(self) -> Unfinished | None:
        """The messages that were started and not finished."""
        return Unfinished("a ghost exchange", None, self._requests) if self._requests else None

    def largest(self, number: float) -> float:
        """Collective: the largest of the numbers of all ranks, before messages; through memory if they share a node."""
        if self.mesh.size == 1:
            return float(number)
        if self._mail is None or len(self._mail.ranks) + 1 < self.mesh.size:
            return float(max_of_ranks(self.mesh.comm, np.array(number)))
        with self._observer.operation(self.mesh.comm, "largest number"):
            return self._mail.largest.of(number)

    def rebuild(self, domains: DomainDecomposition, particles: Particles, reach: float) -> Any:
        """Collective: choose the particles within `reach` of others' domains; all ghost records, float64[n, 4].

        The caller puts them into slots and passes these to `settle`. Waits for a GPU.
        """
        self._plan(domains, reach)
        near, takers = len(self._near_peers), 1 + len(self.peers)
        self._chosen, self._segments, counts = choose_ghosts(
            straight(domains, particles), particles.slots, self._limits, self._taker, takers
        )
        self.sent = [int(count) for count in counts]
        own, given = self.sent[0], sum(self.sent[1 : 1 + near])
        self._images, self._given = self._rows(0, own), self._rows(own, given)
        self._gone = self._rows(own + given, sum(self.sent[1 + near :]))
        if self._mail is not None:
            self._mail.prepare(self._near_peers, self.sent[1 : 1 + near])
        records = self._exchange_records(particles)
        self._out, self._in = self._buffer(self._gone.total, 3), self._buffer(sum(self._received), 3)
        self._rooms: dict[int, tuple[MessageBuffer, MessageBuffer]] = {}
        return records

    def _buffer(self, count: int, width: int) -> MessageBuffer:
        """A buffer for so many rows; those of none are one."""
        if count:
            return MessageBuffer(self.device, count, width)
        if width not in self._empty:
            self._empty[width] = MessageBuffer(self.device, 0, width)
        return self._empty[width]

    def _room(self, width: int) -> tuple[MessageBuffer, MessageBuffer]:
        """The buffers of messages of so many values of each ghost, out and in; made at the first use."""
        if width not in self._rooms:
            self._rooms[width] = self._buffer(self._gone.total, width), self._buffer(sum(self._received), width)
        return self._rooms[width]

    def _plan(self, domains: DomainDecomposition, reach: float) -> None:
        """Set the peers and ghost regions, valid while the domains stay."""
        if (domains, reach) == self._planned:
            return
        self._planned = domains, reach
        rank, mail = self.mesh.rank, self._mail
        options, segments = domains.ghosts(rank, reach)
        self._limits = limits_of(options, *domains.owned(rank))
        self.images = np.array([segment.image for segment in segments])
        here, sizes = domains.topology.coords(rank), domains.topology.sizes
        homes = np.array(here) + self.images * np.array(sizes)
        ways = homes - np.array([domains.topology.coords(segment.peer) for segment in segments])
        self._ahead = np.array([tuple(way) > (0, 0, 0) for way in ways.tolist()])
        self._shifts = self.device.to_device(domains.cell.shifts(self.images))
        peers = {segment.peer for segment in segments} - {rank}
        near = sorted(peers & mail.ranks) if mail is not None else []
        self._near_peers, self._far_peers = near, sorted(peers.difference(near))  # the latter are sent messages
        self.peers = [*near, *self._far_peers]
        self._leaving = np.argsort(domains.direction(rank, self._far_peers)).tolist() if self._far_peers else []
        number = {taker: i for i, taker in enumerate([rank, *self.peers])}
        self._taker = np.array([number[segment.peer] for segment in segments])
        self._report.meet(self.peers)

    def reshape(self, cell: Cell) -> None:
        """Move images by the edges of this cell from now on; who is a ghost stays until the next rebuild."""
        self._shifts[...] = self.device.to_device(cell.shifts(self.images))
        self._planned = None

    def settle(self, slots: Any) -> None:
        """Set the slots of ghosts 0, 1, …."""
        self._slots = slots

    def ahead(self, slots: int) -> np.ndarray:
        """Collective, after `settle`: which of these slots have ghosts whose domain lies ahead of this rank's, bool: of
        the two ranks that see a pair, or the two images of it that a rank sees, this is so for one. For arrays in host
        memory.
        """
        found, segments, own = np.zeros(slots, bool), np.asarray(self._segments), self._images.total

        def take(rows: PackedGhosts, out: Any) -> None:
            out[...] = self._ahead[rows.segments][:, None]

        def put_flags(came: Any, first: int, stop: int) -> None:
            found[self._slots[first:stop]] = came[:, 0] != 0.0

        out, into = self._room(1)
        self._begin(out, self._tag + 3, take, into)
        found[self._slots[:own]] = self._ahead[segments[:own]]
        self._end(into, put_flags)
        return found

    @property
    def chosen(self) -> tuple[np.ndarray, np.ndarray]:
        """The slots and the image flags, int[n, 3], of all ghosts that this rank sends: `sent` of them to itself and to
        each of `peers`, in this order. It receives `received` from each peer.
        """
        total = sum(self.sent)
        segments = self.device.to_host(self._segments)[:total]
        return self.device.to_host(self._chosen)[:total], self.images[segments]

    @property
    def routes(self) -> Routes:
        """Who sends what, since the last rebuild."""
        return Routes(self._near_peers, self._far_peers, self.sent, self.received, self._chosen, self._slots)

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends in a step."""
        return (self._given.total + self._gone.total) * 3 * 8

    def start(self, particles: Particles) -> None:
        """Send the positions of the particles that are ghosts elsewhere, and move the images of own particles."""
        positions = particles.positions
        self._begin(self._out, self._tag, lambda rows, out: take_all(positions, *rows, out), self._in)
        copy_all(positions, *self._images, self._slots)

    @property
    def come_at_once(self) -> bool:
        """Whether all ghosts come through memory, so that they are there once their owners are as far as this rank."""
        return (self._mail is not None and not self._far_peers) or (self.mesh.size == 1 and not self.device.is_gpu)

    def swap(self, particles: Particles) -> None:
        """`start` and `finish` in one call, where ghosts `come_at_once` and the ranks have just agreed on something."""
        if self._mail is None or self._observer.on or self._seals is not None:
            self.start(particles)
            self.finish(particles)
            return
        positions, images = particles.positions, self._images.total
        out, posts, waits, came, *when = self._mail.next(3)
        what = self._chosen, self._segments, self._shifts, (images, self._given.total), self._slots
        if not swap_places(positions, *what, out, posts, waits, came, *when):
            begin = time.perf_counter()
            self._mail.wait()
            put_rows(came, positions, self._slots, images)
            self.wait_seconds += time.perf_counter() - begin

    def start_values(self, values: Any) -> None:
        """Send the values of each particle that is a ghost elsewhere, and copy those of the images.

        float64[parts, slots, width], of which `values` are parts x width.
        """

        def take(rows: PackedGhosts, out: Any) -> None:
            take_values(values, rows.slots, rows.total, out)

        out, into = self._room(values.shape[0] * values.shape[2])
        self._begin(out, self._tag + 3, take, into)
        copy_values(values, self._images.slots, self._images.total, self._slots)

    @property
    def under_way(self) -> bool:
        """Whether messages are under way: MPI moves long ones only while both sides call it."""
        return bool(self._requests)

    def advance(self) -> None:
        """Let MPI progress the messages under way."""
        if self._requests:
            MPI.Request.Testall(self._requests)

    def finish(self, particles: Particles) -> None:
        """Wait for the positions of the others' particles, and put them in place."""
        self._end(self._in, lambda came, first, stop: put(came, particles.positions, self._slots, first, stop))

    def finish_values(self, values: Any) -> None:
        """Wait for the values of the others' particles, and put them in place."""
        into = self._room(values.shape[0] * values.shape[2])[1]
        self._end(into, lambda came, first, stop: put_values(came, values, self._slots, first, stop))

    def _begin(
        self, out: MessageBuffer, tag: int, take: Callable[[PackedGhosts, Any], None], into: MessageBuffer
    ) -> None:
        """Send rows that `take` packs."""
        reporting = self._observer.on and bool(self.peers)
        if reporting:
            self._report.begin()
        given = self._give(take, out.width)
        if self._far_peers:
            take(self._gone, out.values)
            out.leave()
            self._requests = self._communicate(into, out, tag)
        self._seal(given, out)
        if reporting:
            self._report.posted()

    def _end(self, into: MessageBuffer, place: Callable[[Any, int, int], None]) -> None:
        """Wait for rows, and have `place` put them into the ghosts `first` to `stop` - 1."""
        if not self.peers:
            return
        if self._observer.on:
            self._report.wait()
        begin = time.perf_counter()
        self._wait(self._requests)
        self._requests = []
        waited = time.perf_counter() - begin
        self.wait_seconds += waited
        if self._observer.on:
            self._report.end(waited=waited)
        first, near = self._images.total, self._from_near(into.width)
        self._check(near, into)
        into.arrive()
        for came in (*near, into.values):
            if len(came):
                place(came, first, first + len(came))
                first += len(came)

    def _wait(self, requests: list[MPI.Request]) -> None:
        """Wait for the rows of peers on the node, and for messages."""
        if self._mail is not None:
            self._mail.wait()
        if requests:
            MPI.Request.Waitall(requests)

    def _rows(self, first: int, count: int) -> PackedGhosts:
        """`count` of the chosen ghosts, from number `first` on."""
        stop = first + count
        return PackedGhosts(self._chosen[first:stop], self._segments[first:stop], self._shifts, count)

    def _give(self, take: Callable[[PackedGhosts, Any], None], width: int) -> np.ndarray:
        """Pack and return the rows for peers on the node."""
        if self._mail is None:
            return NOTHING[:, :width]
        if self._given.total:
            given = self._mail.out(width)
            take(self._given, given)
            if self._seals is not None:
                given = given.copy()  # their checksum is of what was packed, whatever becomes of memory that is shared
        else:
            given = NOTHING[:, :width]
        self._mail.post()
        return given

    def _seal(self, near: np.ndarray, far: MessageBuffer) -> None:
        """Send the checksums of the rows for peers, on the node and off it."""
        if self._seals is not None:
            rows = np.concatenate([near, far.on_host()])
            parts = np.split(rows, np.cumsum(self.sent[1:])[:-1])
            self._seals.start(self._ends(parts), [(peer, self._tag + 2) for peer in self.peers])

    def _check(self, near: list[np.ndarray], far: MessageBuffer) -> None:
        """Compare the rows received with their checksums."""
        if self._seals is not None:
            parts = [*near, *np.split(far.on_host(), np.cumsum(self._received)[:-1])] if self._far_peers else near
            self._seals.finish(self._ends(parts))

    def _ends(self, parts: list[np.ndarray]) -> list[End]:
        """The rows of each peer."""
        ends = zip(self.peers, parts, strict=False)
        return [End(peer, self._tag + 2, "ghost particles", [rows]) for peer, rows in ends]

    def _from_near(self, width: int) -> list[np.ndarray]:
        """The rows from each peer on the node, float64[n, width]."""
        return [] if self._mail is None else self._mail.received(width)

    def _exchange_counts(self) -> list[int]:
        comm, tag, peers = self.mesh.comm, self._tag + 1, self._far_peers
        theirs, ours = np.empty((len(peers), 1), np.int64), np.array(self._counts_sent, np.int64).reshape(-1, 1)
        requests = [comm.Irecv(theirs[i], peer, tag) for i, peer in enumerate(peers)]
        requests += [comm.Isend(ours[i], peer, tag) for i, peer in enumerate(peers)]
        MPI.Request.Waitall(requests)
        return [int(count) for count in theirs[:, 0]]

    @property
    def _counts_sent(self) -> list[int]:
        """How many ghosts go by message to each peer that is not on the node."""
        return self.sent[1 + len(self._near_peers) :]

    def _exchange_records(self, particles: Particles) -> Any:
        """Exchange whole records, with the types; once per rebuild."""
        if self._observer.on and self.peers:
            self._report.begin()
        positions, far = particles.positions, self._buffer(self._gone.total, RECORD)
        given = self._give(lambda rows, out: take_all(positions, *rows, out), RECORD)
        take_all(positions, *self._gone, far.values)
        self._received = self._exchange_counts() if self._far_peers else []
        arriving = self._buffer(sum(self._received), RECORD)
        far.leave()
        requests = self._communicate(arriving, far, self._tag + 1)
        self._seal(given, far)
        if self._observer.on and self.peers:
            self._report.posted()
            self._report.wait()
        self._wait(requests)
        if self._observer.on and self.peers:
            self._report.end()
        near = self._from_near(RECORD)
        self.received = [*map(len, near), *self._received]
        self._check(near, arriving)
        arriving.arrive()
        first = self._images.total
        records = self.device.zeros((first + sum(self.received), RECORD))
        take_all(positions, *self._images, records)
        for part in (*near, arriving.values):
            if len(part):
                records[first : first + len(part)] = part
                first += len(part)
        if self.device.is_gpu:
            self.device.wait()  # this call frees its pinned memory
        return records

    def _communicate(self, into: MessageBuffer, out: MessageBuffer, tag: int) -> list[MPI.Request]:
        """Post receives, then sends by direction, of the rows of each peer, which are consecutive in both buffers."""
        comm, requests, peers = self.mesh.comm, list[MPI.Request](), self._far_peers
        if not peers:
            return requests
        came, left, every = self._received, self._counts_sent, range(len(peers))
        for buffer, counts, start, order in ((into, came, comm.Irecv, every), (out, left, comm.Isend, self._leaving)):
            ends = np.cumsum(counts).tolist()
            for number in order:
                if counts[number]:
                    message = buffer.message(ends[number] - counts[number], ends[number])
                    requests.append(start(message, peers[number], tag))
        return requests
