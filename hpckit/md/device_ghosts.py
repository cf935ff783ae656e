"""Ghosts on a GPU: images of own particles copied by one kernel, those of other ranks packed by one and sent."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.kernels.cells.constants import RECORD
from hpckit.kernels.device_array import address
from hpckit.kernels.records.cuda import copy_all, count_wanted, list_wanted, put, take_all
from hpckit.md.device_particles import DeviceParticles
from hpckit.particles.ghosts import limits_of
from hpckit.plan.particles.domain import Bricks

Buffer = tuple[Any, np.ndarray]  # on the device, and pinned on the host


class DeviceGhostExchange:
    """As `GhostExchange`, on a GPU. A step takes a kernel for images; with peers, one to pack, one to put in place, and
    a message to each, straight from the GPU's memory where MPI takes it, else by way of pinned memory of the host.

    Ghosts are numbered in the order in which they come: images of own particles first, then those of each peer.
    """

    def __init__(self, mesh: Mesh, device: Device) -> None:
        self.mesh, self.device = mesh, device
        self._tag = mesh.lasting_tags(2)
        self._packed = device.event()
        self.wait_seconds = 0.0

    def rebuild(self, bricks: Bricks, particles: DeviceParticles, reach: float) -> Any:
        """Collective: choose the particles within `reach` of others' bricks; all ghost records, on the GPU: [n, 4].

        The caller puts them into slots and says so by `settle`.
        """
        device, rank = self.device, self.mesh.rank
        options, segments = bricks.ghosts(rank, reach)
        limits = limits_of(options, *bricks.owned(rank))
        self._shifts = device.to_device(np.array([segment.turns for segment in segments]) * bricks.lengths)
        self._peers = sorted({segment.peer for segment in segments} - {rank})
        total = self._choose(particles, limits)
        self._sent = self._sort_by_peer(np.array([segment.peer for segment in segments]), total)
        self._received = self._exchange_counts()
        return self._exchange_records(particles, total)

    def settle(self, slots: Any) -> None:
        """The slots, on the GPU, that ghosts 0, 1, … were put into."""
        self._slots, self._peers_slots = slots[: self._sent[0]], slots[self._sent[0] :]

    def start(self, particles: DeviceParticles) -> None:
        """Move the images of own particles, and pack what others have as ghosts."""
        own, positions = self._sent[0], particles.positions
        copy_all(positions, self._chosen[:own], self._segments[:own], self._shifts, own, self._slots)
        if not self._peers:
            return
        sent = int(self._sent[1:].sum())
        take_all(positions, self._chosen[own:], self._segments[own:], self._shifts, sent, self._out[0])
        if not self.device.direct:
            self.device.copy_out(self._out[0], self._out[1])
        self._packed.record(self.device.current_stream())

    def finish(self, particles: DeviceParticles) -> None:
        """Wait for the pack, send and receive, and ask for the unpack."""
        if not self._peers:
            return
        begin = time.perf_counter()
        # The last unpack came before this pack: buffers to receive into are free, too.
        self._packed.synchronize()
        self._communicate(self._in, self._received, self._out, self._sent[1:], 3)
        self.wait_seconds += time.perf_counter() - begin
        if not self.device.direct:
            self.device.copy_in(self._in[1], self._in[0])
        put(self._in[0], particles.positions, self._peers_slots, 0, int(self._received.sum()))

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends in a step."""
        return int(self._sent[1:].sum()) * 3 * 8

    def _choose(self, particles: DeviceParticles, limits: tuple[np.ndarray, ...]) -> int:
        """The slots and segments of all ghosts that this rank gives, itself among the takers; how many."""
        device, n = self.device, particles.slots
        low, high, *rest = limits
        where = device.to_device(low), device.to_device(high), *rest
        counts = device.zeros((n,), np.int32)
        count_wanted(particles.positions, n, *where, counts)
        ends = device.xp.cumsum(counts, dtype=np.int64)
        total = int(device.to_host(ends[-1:]).sum())  # waits for the GPU
        self._chosen, self._segments = device.zeros((total,), np.int32), device.zeros((total,), np.int32)
        if total:
            list_wanted(particles.positions, n, *where, ends, counts, self._chosen, self._segments)
        return total

    def _sort_by_peer(self, peer_of_segment: np.ndarray, total: int) -> np.ndarray:
        """Group ghosts by who takes them, this rank first, then its peers; how many each takes."""
        if not self._peers:
            return np.array([total])
        device = self.device
        takers = np.array([self.mesh.rank, *self._peers])
        place = np.array([int(np.flatnonzero(takers == peer)[0]) for peer in peer_of_segment], np.int32)
        whose = device.to_device(place)[self._segments]
        order = device.xp.argsort(whose, kind="stable")
        self._chosen, self._segments = self._chosen[order], self._segments[order]
        return np.bincount(device.to_host(whose), minlength=len(takers))

    def _exchange_counts(self) -> np.ndarray:
        comm, tag = self.mesh.comm, self._tag + 1
        theirs = np.zeros((len(self._peers), 1), np.int64)
        requests = [comm.Irecv(theirs[i], peer, tag) for i, peer in enumerate(self._peers)]
        ours = self._sent[1:, None].astype(np.int64)
        requests += [comm.Isend(ours[i], peer, tag) for i, peer in enumerate(self._peers)]
        MPI.Request.Waitall(requests)
        return theirs[:, 0]

    def _exchange_records(self, particles: DeviceParticles, total: int) -> Any:
        """Whole records, with the types, once; and the buffers for the steps."""
        device, own = self.device, int(self._sent[0])
        given = device.zeros((total, RECORD))
        take_all(particles.positions, self._chosen, self._segments, self._shifts, total, given)
        if not self._peers:
            return given
        received = int(self._received.sum())
        out, into = self._buffer(total - own, RECORD), self._buffer(received, RECORD)
        out[0][...] = given[own:]
        if not device.direct:
            device.copy_out(out[0], out[1])
        device.wait()
        self._communicate(into, self._received, out, self._sent[1:], RECORD)
        if not device.direct:
            device.copy_in(into[1], into[0])
        records = device.zeros((own + received, RECORD))
        records[:own], records[own:] = given[:own], into[0]
        device.wait()  # pinned memory goes with this call
        self._out, self._in = self._buffer(total - own, 3), self._buffer(received, 3)
        return records

    def _buffer(self, count: int, width: int) -> Buffer:
        """Memory of the device, and of the host beside it, for some ghosts of so many numbers."""
        there = self.device.zeros((count, width))
        pinned = self.device.pinned(0 if self.device.direct else there.nbytes)
        return there, pinned.view(np.float64).reshape(-1 if self.device.direct else count, width)

    def _communicate(self, into: Buffer, received: np.ndarray, out: Buffer, sent: np.ndarray, width: int) -> None:
        """Collective: so many ghosts from and to each peer, of so many numbers, in buffers that hold them in turn."""
        comm, requests = self.mesh.comm, []
        for (there, host), counts, start in ((into, received, comm.Irecv), (out, sent, comm.Isend)):
            base = address(there) if self.device.direct else host.ctypes.data
            ends = np.cumsum(counts) * width * 8
            for peer, end, count in zip(self._peers, ends, counts, strict=True):
                if count:
                    nbytes = int(count) * width * 8
                    memory = MPI.memory.fromaddress(base + int(end) - nbytes, nbytes)
                    requests.append(start((memory, MPI.BYTE), peer, self._tag))
        MPI.Request.Waitall(requests)
