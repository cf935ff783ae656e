"""A droplet in vapor on these ranks, cut along x: the cuts move; prints work per rank before and after as JSON."""

import json

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import PRESETS, Config
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.md.dynamics import NVE
from hpckit.migration import audit
from hpckit.timing import PhaseTimer

comm = MPI.COMM_WORLD
settings = PRESETS["droplet"][1] | {"ranks": {"x": comm.size, "balance": 15}}
settings["system"] = settings["system"] | {"cells": (14, 10, 10), "droplet": 6.0}
config = Config.model_validate(settings)
system = make_system(config, Start(config), comm, PhaseTimer())
dynamics = NVE()


def work() -> list[int]:
    """Pairs in the list of each rank."""
    every = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([system.neighbors.length]), every)
    return every.tolist()


before = work()
for _ in range(120):
    dynamics.step(system, 0.004, False)
audit(system.mesh, system.particles, system.count)
after = work()
found = system.snapshot()
if comm.rank == 0:
    place = found.positions.sum(), (found.positions * np.sin(np.arange(found.count))[:, None]).sum()
    print(json.dumps({"before": before, "after": after, "cuts": system.bricks.cuts[0], "place": place}))
system.mesh.close()
