"""Migration: particles that left their rank's brick go to the rank that owns the place where they are now."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from hpckit.comm.checksums import End, Seals
from hpckit.comm.mesh import Mesh
from hpckit.errors import RankLostError
from hpckit.kernels.particles.integrate.dispatch import find_leavers
from hpckit.particles.particles import Particles
from hpckit.plan.particles.domain import Bricks

__communicates__ = True  # its frames are not call sites


def migrate(mesh: Mesh, bricks: Bricks, particles: Particles) -> int:
    """Collective: send every particle (wrapped into the box) home; how many left this rank.

    A particle may go to any rank, however far it moved or the cuts did. Those that arrive stand behind the slots in
    use, in the order of the ranks that they come from.
    """
    if mesh.size == 1:
        return 0
    lower, upper = bricks.owned(mesh.rank)
    slots = np.empty(max(64, particles.slots // 8), np.int64)
    count = find_leavers(particles.positions, particles.slots, lower, upper, slots)
    if count > len(slots):
        slots = np.empty(count, np.int64)
        find_leavers(particles.positions, particles.slots, lower, upper, slots)
    leaving = particles.take(slots[:count])
    homes = bricks.owners(leaving["position"][:, :3])
    leaving = leaving[np.argsort(homes, kind="stable")]
    particles.append(exchange(mesh, leaving, np.bincount(homes, minlength=mesh.size)))
    return count


def exchange(mesh: Mesh, travelers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Collective: send counts[r] particles to rank r, in this order; those that came, in the order of ranks."""
    sent = np.ascontiguousarray(counts, np.int64)
    received = np.empty_like(sent)
    mesh.comm.Alltoall(sent, received)
    arriving = np.empty(int(received.sum()), travelers.dtype)
    requests = []
    tag = mesh.tags(1)
    for target, counted, send in ((arriving, received, False), (travelers, sent, True)):
        ends = np.cumsum(counted)
        for peer in np.flatnonzero(counted):
            part = target[ends[peer] - counted[peer] : ends[peer]].view(np.uint8)
            start = mesh.comm.Isend if send else mesh.comm.Irecv
            requests.append(start([part, MPI.BYTE], int(peer), tag))
    MPI.Request.Waitall(requests)
    if mesh.observer.checks_messages:
        _check(mesh, (travelers, sent), (arriving, received))
    return arriving


def _check(mesh: Mesh, gone: tuple[np.ndarray, np.ndarray], come: tuple[np.ndarray, np.ndarray]) -> None:
    """Collective: compare the checksums of what each rank sent with those of what came: both rows, and their numbers.

    Raises `SilentCorruptionError`.
    """

    def parts(rows: np.ndarray, counts: np.ndarray) -> list[End]:
        split = np.split(rows, np.cumsum(counts)[:-1])
        return [End(peer, tag, "particles", [part]) for peer, part in enumerate(split)]

    tag = mesh.tags(1)
    seals = Seals(mesh.comm)
    seals.start(parts(*gone), [(peer, tag) for peer in range(mesh.size)])
    seals.finish(parts(*come))


def audit(mesh: Mesh, particles: Particles, total: int) -> None:
    """Collective: the ids of all ranks are 0 to total - 1, each once; `RankLostError` names what is lost or doubled.

    Ids are compared by their number and by two fingerprints, the sums of a hash of each, modulo 2^64.
    """
    ids = particles.ids[particles.own]
    own = np.array([len(ids), *_fingerprints(ids)], np.uint64)
    mesh.comm.Allreduce(MPI.IN_PLACE, own, op=MPI.SUM)
    expected = np.array([total, *_fingerprints(np.arange(total))], np.uint64)
    if not np.array_equal(own, expected):
        raise RankLostError(
            f"the ranks hold {own[0]} particles, and {total} set out"
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
