"""What each rank of `hpckit bench shallow_water` runs: the app's model on all ranks and on each alone, in turn."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from mpi4py import MPI

from hpckit.apps.shallow_water.config import PRESETS, Config
from hpckit.apps.shallow_water.layout import time_step
from hpckit.apps.shallow_water.model import Model
from hpckit.bench.ranks import against_one, answer
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.shallow_water.constants import HALO


def case(key: str, n: int, calls: int, rounds: int) -> dict[str, Any]:
    """Times of a free periodic basin of n x n cells on all ranks, on every rank alone in turn, and at once."""
    preset = PRESETS["eddies"][1]
    config = Config.model_validate(
        {**preset, "grid": {"nx": n, "ny": n}, "physics": {**preset["physics"], "viscosity": 0.0}}
    )
    dt, models = time_step(config), []
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        models.append(Model(config, Mesh(comm, shape=(n, n), periodic=config.grid.periodic, halo=HALO, y=0, x=0)))
    together, alone = (partial(model.step, dt, PhaseTimer(), model.at_once) for model in models)
    timed = against_one(MPI.COMM_WORLD, together, alone, calls, rounds)
    for model in models:
        model.mesh.close()
    return {"key": key, "steps": calls * models[0].at_once, **timed}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
