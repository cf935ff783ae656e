"""Ghosts through memory that ranks share, by messages, and by both: the same ones, step after step, on any ranks.

What ranks send and take at each rebuild is gathered and proved as a plan, as is a migration.
"""

from dataclasses import replace

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.device import HOST
from hpckit.comm.shared.transport import RowExchange
from hpckit.errors import PlanError
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.migration import exchange, migrate, rows_between
from hpckit.particles.particles import Particles, pack_particles
from hpckit.particles.returns import GhostReturn
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.ghosts import GhostPlan, Ghosts
from hpckit.plan.particles.migration import MigrationPlan, migration_of
from hpckit.plan.protocol import transposed

comm = MPI.COMM_WORLD
ROW = np.dtype([("sender", "i8"), ("receiver", "i8"), ("particle", "i8"), ("image", "i8", 3)])
BOX, REACH = np.array([7.0, 5.0, 6.0]), 1.3


def particles(mesh: hp.Mesh, domains: DomainDecomposition, count: int) -> Particles:
    """Those of `count` particles in the box, known to all, that are at home on this rank."""
    places, types = all_positions(count), np.random.default_rng(count).integers(0, 3, count)
    home = domains.owners(places) == mesh.rank
    found = Particles()
    found.append(pack_particles(np.arange(count)[home], places[home], np.zeros((home.sum(), 3)), types[home]))
    return found


def all_positions(count: int) -> np.ndarray:
    """Where the particles are, by id."""
    return np.random.default_rng(count).uniform(0, 1, (count, 3)) * BOX


def prove_rebuild(
    mesh: hp.Mesh, domains: DomainDecomposition, ghosts: GhostExchange, own: Particles, count: int
) -> None:
    """Gather who sends and takes what, and prove it, out and back; a ghost that is left out is found."""
    slots, image = ghosts.chosen
    given = np.zeros(len(slots), ROW)
    given["sender"], given["particle"], given["image"] = comm.rank, own.ids[slots], image
    given["receiver"] = np.repeat([comm.rank, *ghosts.peers], ghosts.sent)
    every = exchange(mesh, given, np.where(np.arange(comm.size) == 0, len(given), 0))
    taken, here = np.zeros((comm.size, comm.size), np.int64), np.zeros(comm.size, np.int64)
    here[[comm.rank, *ghosts.peers]] = [ghosts.sent[0], *ghosts.received]
    comm.Allgather(here, taken)
    if comm.rank == 0:
        every = every[np.lexsort((every["receiver"], every["sender"]))]
        sent = Ghosts(*(every[name] for name in ROW.names))
        plan = GhostPlan(domains, REACH, all_positions(count), sent, taken)
        fewer = replace(plan, sent=sent.of(slice(1, None)))
        for way in (lambda each: each, transposed):  # out, and what `GhostReturn` sends
            hp.prove(way(plan))
            try:
                hp.prove(way(fewer))
            except PlanError:
                continue
            raise AssertionError("a ghost that is left out is not found")


def prove_migration(mesh: hp.Mesh, domains: DomainDecomposition, between: RowExchange | None, count: int) -> None:
    """Move particles, gather what went from where to where, and prove it."""
    own = particles(mesh, domains, count)
    before = domains.owners(all_positions(count))
    places = np.mod(all_positions(count) + np.random.default_rng(5).normal(0, 1, (count, 3)), BOX)
    homes = domains.owners(places)
    own.positions[: own.slots, :3] = places[own.ids[: own.slots]]
    old = np.sort(own.ids[own.own])
    left = migrate(mesh, domains, own, between)
    ids = own.ids[own.own]
    np.testing.assert_array_equal(own.positions[own.own, :3], places[ids])
    np.testing.assert_array_equal(np.sort(ids), np.flatnonzero(homes == comm.rank))
    arrived = ids[~np.isin(ids, old)]
    assert (np.diff(before[arrived]) >= 0).all(), "not in the order of the ranks"
    taken = np.zeros((comm.size, comm.size), np.int64)
    comm.Allgather(np.bincount(before[arrived], minlength=comm.size), taken)
    plan = MigrationPlan(migration_of(homes, before, comm.size), taken)
    assert plan.counts[comm.rank].sum() == left
    hp.prove(plan)


def prove_return(ghosts: GhostExchange, back: GhostReturn, own: Particles, there: int, count: int) -> None:
    """What ghosts have arrives at the particles that they are of, and is added to what these have."""
    back.rebuild()
    ids = np.zeros((1, own.slots + there, 1))
    ids[0, : own.slots, 0] = own.ids[: own.slots]
    ghosts.start_values(ids)
    ghosts.finish_values(ids)
    whose = ids[0, own.slots :, 0].astype(np.int64)
    for turn in range(3):
        values = np.zeros((2, own.slots + there, 3))
        values[:, : own.slots] = own.ids[: own.slots, None]
        values[:, own.slots :] = np.random.default_rng(7 * comm.rank + turn).integers(0, 1000, (2, there, 3))
        expected = np.zeros((count, 2, 3))
        np.add.at(expected, whose, values[:, own.slots :].transpose(1, 0, 2))
        comm.Allreduce(MPI.IN_PLACE, expected)
        back.start(values)
        back.advance()
        back.finish(values)
        mine = own.ids[: own.slots]
        wanted = expected[mine] + mine[:, None, None]
        np.testing.assert_array_equal(values[:, : own.slots].transpose(1, 0, 2), wanted)
    assert (expected[mine] > 0).any() or not len(mine) or count < 100


def history(mesh: hp.Mesh, domains: DomainDecomposition, ghosts: GhostExchange) -> tuple[list[np.ndarray], int]:
    """Ghost records after rebuilds with few and with many particles, and after each of some steps; bytes of a step."""
    seen, back = [], GhostReturn(ghosts, 6)
    for count in (40, 40, 900, 300):
        own = particles(mesh, domains, count)
        records = ghosts.rebuild(domains, own, REACH)
        first = own.slots
        own.reserve(first + len(records))
        own.positions[first : first + len(records)] = records
        ghosts.settle(np.arange(first, first + len(records)))
        prove_rebuild(mesh, domains, ghosts, own, count)
        prove_return(ghosts, back, own, len(records), count)
        seen.append(records.copy())
        for step in range(5):
            own.positions[:first, :3] += 0.01 * (step + 1)
            if step % 3 == comm.rank % 2 and ghosts.come_at_once:
                ghosts.swap(own)  # as others start and finish
            else:
                ghosts.start(own)
                ghosts.advance()
                ghosts.finish(own)
            seen.append(own.positions[first : first + len(records)].copy())
    return seen, ghosts.bytes_sent


def by_place(records: np.ndarray) -> np.ndarray:
    """In an order that does not depend on who sent them."""
    return records[np.lexsort(records.T)]


mesh = hp.Mesh(comm, periodic=("x", "z"), x=0, y=0, z=1)


def growing(size: int, edge: float) -> tuple[float, ...]:
    """Cuts of an edge; each part is larger than the one before."""
    ends = np.cumsum(np.arange(size + 1)) / (size * (size + 1) / 2)
    return tuple(float(end * edge) for end in ends)


domains = DomainDecomposition(mesh.topology, tuple(map(growing, mesh.topology.sizes, BOX)))
shared_rows = rows_between(mesh, HOST)
for between in (None, shared_rows, shared_rows, shared_rows):
    prove_migration(mesh, domains, between, 500)
prove_migration(mesh, domains, shared_rows, 7000)
expected, nbytes = history(mesh, domains, GhostExchange(mesh, within_node=False))
assert expected[0].size or comm.size == 1
for node_ranks in (comm.size, 2, 1):  # as if so many shared a node
    shared = GhostExchange(mesh, within_node=comm.Split(comm.rank // node_ranks, comm.rank))
    assert (shared._mail is None) == (min(node_ranks, comm.size - comm.rank // node_ranks * node_ranks) == 1)
    found, sent = history(mesh, domains, shared)
    assert sent == nbytes
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(by_place(a), by_place(b))
mesh.close()
if comm.rank == 0:
    print("all good")
