"""A droplet in vapor on these ranks, cut along x: the cuts move; prints work per rank before and after as JSON.

The clock by which the cuts move goes on by a nanosecond for each pair: a real one tells of a machine that stands still.
"""

import json
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import PRESETS, Config
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.md.forces import PairForces
from hpckit.md.motion.dynamics import NVE
from hpckit.md.snapshots import snapshot
from hpckit.particles import balance
from hpckit.particles.migration import audit

comm = MPI.COMM_WORLD
clock = SimpleNamespace(seconds=0.0, process_time=lambda: clock.seconds)
balance.time = clock
compute = PairForces.compute


def timed(forces, particles, neighbors, clusters, measure, stage):
    """Forces of some clusters, which take the time of their pairs."""
    compute(forces, particles, neighbors, clusters, measure, stage)
    lists = neighbors.lists
    clock.seconds += 1e-9 * neighbors.pairs * len(clusters) / max(1, len(lists.inner) + len(lists.outer))


PairForces.compute = timed
settings = PRESETS["droplet"][1] | {"ranks": {"x": comm.size, "balance": 15}}
settings["system"] = settings["system"] | {"cells": (14, 10, 10), "droplet": 6.0}
config = Config.model_validate(settings)
system = make_system(config, Start(config), comm, PhaseTimer())
dynamics = NVE()


def work() -> list[int]:
    """Pairs in the list of each rank."""
    every = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([system.neighbors.pairs]), every)
    return every.tolist()


before = work()
for _ in range(120):
    dynamics.step(system, 0.004, False)
audit(system.mesh, system.particles, system.count)
after = work()
found = snapshot(system)
if comm.rank == 0:
    place = found.positions.sum(), (found.positions * np.sin(np.arange(found.count))[:, None]).sum()
    print(json.dumps({"before": before, "after": after, "cuts": system.domains.cuts[0], "place": place}))
system.mesh.close()
