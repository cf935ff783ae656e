"""Ghosts through memory that ranks share, by messages, and by both: the same ones, step after step, on any ranks."""

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles, make_travelers
from hpckit.plan.particles.domain import Bricks

comm = MPI.COMM_WORLD
BOX, REACH = np.array([7.0, 5.0, 6.0]), 1.3


def particles(mesh: hp.Mesh, bricks: Bricks, count: int) -> Particles:
    """Those of `count` particles in the box, known to all, that are at home on this rank."""
    rng = np.random.default_rng(count)
    places, types = rng.uniform(0, 1, (count, 3)) * BOX, rng.integers(0, 3, count)
    home = bricks.owners(places) == mesh.rank
    found = Particles()
    found.append(make_travelers(np.arange(count)[home], places[home], np.zeros((home.sum(), 3)), types[home]))
    return found


def history(mesh: hp.Mesh, bricks: Bricks, ghosts: GhostExchange) -> tuple[list[np.ndarray], int]:
    """Ghost records after rebuilds with few and with many particles, and after each of some steps; bytes of a step."""
    seen = []
    for count in (40, 40, 900, 300):
        own = particles(mesh, bricks, count)
        records = ghosts.rebuild(bricks, own, REACH)
        first = own.slots
        own.reserve(first + len(records))
        own.positions[first : first + len(records)] = records
        ghosts.settle(np.arange(first, first + len(records)))
        seen.append(records.copy())
        for step in range(5):
            own.positions[:first, :3] += 0.01 * (step + 1)
            ghosts.start(own)
            ghosts.advance()
            ghosts.finish(own)
            seen.append(own.positions[first : first + len(records)].copy())
    return seen, ghosts.bytes_sent


def by_place(records: np.ndarray) -> np.ndarray:
    """In an order that does not depend on who sent them."""
    return records[np.lexsort(records.T)]


mesh = hp.Mesh(comm, periodic=("x", "z"), x=0, y=0, z=1)
bricks = Bricks.even(mesh.topology, np.zeros(3), BOX)
expected, nbytes = history(mesh, bricks, GhostExchange(mesh, within_node=False))
assert expected[0].size or comm.size == 1
for node_ranks in (comm.size, 2, 1):  # as if so many shared a node
    node = comm.Split(comm.rank // node_ranks, comm.rank)
    exchange = GhostExchange(mesh, within_node=node)
    assert (exchange._mail is None) == (min(node_ranks, comm.size - comm.rank // node_ranks * node_ranks) == 1)
    found, sent = history(mesh, bricks, exchange)
    assert sent == nbytes
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(by_place(a), by_place(b))
mesh.close()
if comm.rank == 0:
    print("all good")
