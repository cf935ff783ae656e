"""Migration: particles that left their rank's domain move to the rank that owns their new position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import sum_of_ranks
from hpckit.comm.checksums import End, Seals
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.shared.transport import RowExchange, open_rows
from hpckit.errors import RankLostError
from hpckit.kernels.particles.integrate.cell.dispatch import straighten, wrap_cell
from hpckit.kernels.particles.integrate.dispatch import find_leavers, sort_leavers
from hpckit.kernels.particles.integrate.dispatch import wrap as wrap_upright
from hpckit.kernels.particles.records.dispatch import PIECE
from hpckit.particles.particles import Particles
from hpckit.plan.particles.domain import DomainDecomposition

__communicates__ = True  # its frames are not call sites


def wrap(domains: DomainDecomposition, positions: Any, images: Any, slots: int) -> int:
    """Move the particles of records [slots, 4] by whole edges of the box into it along periodic dims, and count the
    moves in `images`; returns how many coordinates are too far away, or nan, which a GPU does not count.
    """
    cell = domains.cell
    lower, upper = domains.lower, domains.upper
    if not cell.tilted:
        return wrap_upright(positions, images, slots, lower, upper, domains.periodic)
    return wrap_cell(positions, images, slots, lower, cell.lengths, np.array(cell.tilt), domains.periodic)


def straight(domains: DomainDecomposition, particles: Particles) -> Any:
    """The records of own particles in straight coordinates: the positions themselves where there is no tilt."""
    cell = domains.cell
    if not cell.tilted:
        return particles.positions
    found = particles.device.zeros((max(1, particles.slots), particles.positions.shape[1]))
    straighten(particles.positions, particles.slots, domains.lower, cell.slopes, found)
    return found


def rows_between(mesh: Mesh, device: Device) -> RowExchange | None:
    """Collective: what takes particles to other ranks where all ranks of `mesh` share a node, else None: MPI does."""
    if mesh.size == 1 or device.is_gpu or mesh.observer.checks_messages:
        return None
    rows = open_rows(mesh.comm, PIECE)
    return rows if rows is not None and len(rows.ranks) + 1 == mesh.size else None


def migrate(mesh: Mesh, domains: DomainDecomposition, particles: Particles, between: RowExchange | None = None) -> int:
    """Collective: send every particle (wrapped into the box) to its owner; returns how many left this rank.

    A particle may go to any rank, however far it or the cuts moved. Arriving particles go behind the slots in use, in
    the order of their source ranks. between: of `rows_between`. Waits for a GPU.
    """
    if mesh.size == 1:
        return 0
    lower, upper = domains.owned(mesh.rank)
    device = particles.device
    slots = device.zeros((max(64, particles.slots // 32),), np.int64)
    places = straight(domains, particles)
    count = find_leavers(places, particles.slots, lower, upper, slots)
    if count > len(slots):
        slots = device.zeros((count,), np.int64)
        find_leavers(places, particles.slots, lower, upper, slots)
    slots = slots[:count]
    counts, order = np.empty(mesh.size, np.int64), np.empty(count, np.int64)  # as they are sent
    if device.is_gpu:
        sort_leavers(device.to_host(places[slots]), np.arange(count), *domains.inner_cuts, counts, order)
        order = slots[device.to_device(order)]
    else:
        sort_leavers(places, slots, *domains.inner_cuts, counts, order)
    if between is None:
        particles.append(exchange(mesh, particles.take(order), counts))
    else:
        _pass_on(mesh, between, particles, order, counts)
    return count


def _pass_on(mesh: Mesh, between: RowExchange, particles: Particles, slots: np.ndarray, counts: np.ndarray) -> None:
    """Collective: send particles, counts[r] to rank r in this order, through the memory of the node."""
    with mesh.observer.operation(mesh.comm, "migration"):
        peers = [rank for rank in range(mesh.size) if rank != mesh.rank]
        between.prepare(peers, [int(counts[peer]) for peer in peers])
        particles.leave(slots, between.out(PIECE))
        between.post()
        between.wait()
        for rows in between.received(PIECE):
            particles.append_rows(rows)


def send_to(mesh: Mesh, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Collective: send row i (of any dtype) to ranks[i]; returns the rows received, in the order of their source ranks,
    and those of one rank in the order that they had there.
    """
    order = np.argsort(ranks, kind="stable")
    return exchange(mesh, rows[order], np.bincount(ranks, minlength=mesh.size))


def exchange(mesh: Mesh, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Collective: send counts[r] rows to rank r, in this order; returns the rows received, in the order of the ranks.

    It runs the `MigrationPlan` of the counts of all ranks. Raises `SilentCorruptionError` if checksums of messages are
    on and one is wrong.
    """
    with mesh.observer.operation(mesh.comm, "migration"):
        sent = np.ascontiguousarray(counts, np.int64)
        received = np.empty_like(sent)
        mesh.comm.Alltoall(sent, received)
        arriving = np.empty(int(received.sum()), rows.dtype)
        tag = mesh.tags(2)
        requests = _messages(mesh.comm.Irecv, arriving, received, tag) + _messages(mesh.comm.Isend, rows, sent, tag)
        MPI.Request.Waitall(requests)
        if mesh.observer.checks_messages:
            seals = Seals(mesh.comm)
            seals.start(_parts(rows, sent, tag + 1), [(peer, tag + 1) for peer in range(mesh.size)])
            seals.finish(_parts(arriving, received, tag + 1))
    return arriving


def _parts(rows: np.ndarray, counts: np.ndarray, tag: int) -> list[End]:
    """The rows of each rank, which are consecutive; tag: of their checksums."""
    stops = np.cumsum(counts)
    parts = zip(stops - counts, stops, strict=True)
    return [End(peer, tag, "particles", [rows[first:stop]]) for peer, (first, stop) in enumerate(parts)]


def _messages(start: Callable[..., MPI.Request], rows: np.ndarray, counts: np.ndarray, tag: int) -> list[MPI.Request]:
    """Start a message with each rank that has rows, which are consecutive."""
    requests, first = [], 0
    for peer, count in enumerate(counts.tolist()):
        if count:
            requests.append(start([rows[first : first + count].view(np.uint8), MPI.BYTE], peer, tag))
            first += count
    return requests


def audit(mesh: Mesh, particles: Particles, total: int) -> None:
    """Collective: check that the ids of all ranks are 0 to total - 1, each once; raises `RankLostError` otherwise.

    It compares the number of ids and two fingerprints: the sums of a hash of each id, modulo 2^64.
    """
    ids = particles.device.to_host(particles.ids[particles.own])
    own = sum_of_ranks(mesh.comm, np.array([len(ids), *_fingerprints(ids)], np.uint64))
    expected = np.array([total, *_fingerprints(np.arange(total))], np.uint64)
    if not np.array_equal(own, expected):
        raise RankLostError(
            f"the ranks hold {own[0]} particles, but {total} at the start"
            if own[0] != total
            else "particles were exchanged for copies of others",
            likely="a fault of hpckit: please report it with the run file",
        )


def _fingerprints(ids: np.ndarray) -> list[np.uint64]:
    """Two sums over splitmix64 hashes of the ids (Steele, Lea and Flood 2014)."""
    found = []
    for salt in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03):
        x = ids.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(salt)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        found.append(np.add.reduce(x ^ (x >> np.uint64(31)), dtype=np.uint64))
    return found
