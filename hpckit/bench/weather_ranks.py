"""What each rank of `hpckit bench weather` runs: the apps' models on all ranks and on every rank alone, in turn.

Alone in turn, while the others sleep: the mean over the cores, which differ in speed on a host that shares them out,
is the time of 1 rank. And on each rank alone at the same time: what cores that share memory and cache give at best.

Rank 0 writes the times as one JSON object to the file named on the command line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather import model as slab
from hpckit.apps.weather.config import PRESETS
from hpckit.apps.weather.config import Config as SlabConfig
from hpckit.apps.weather3d import model as box
from hpckit.apps.weather3d.config import Config as BoxConfig
from hpckit.atmosphere.loop import Model
from hpckit.bench.job import alone_in_turn, answer
from hpckit.mesh import Mesh
from hpckit.timing import PhaseTimer

WAKE = 0.02  # s


def make(comm: MPI.Comm, sizes: list[int]) -> Model:
    """The model of a case on the ranks of `comm`: a slab of two sizes, a box of three."""
    if len(sizes) == 2:
        grid = dict(zip(("nx", "nz"), sizes, strict=True))
        config = SlabConfig.model_validate({**PRESETS["collision"][1], "grid": grid})
        return slab.Model(config, Mesh(comm, z=1, x=0, periodic=("x",)))
    grid = dict(zip(("nx", "ny", "nz"), sizes, strict=True))
    box_config = BoxConfig.model_validate({"grid": grid})
    return box.Model(box_config, box.mesh_for(box_config, comm))


def seconds_of(step: Callable[[], object], steps: int, comm: MPI.Comm) -> float:
    """Wall time of some steps, of the slowest rank of `comm`; the core works a while before, as it wakes up slowly."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < WAKE:
        pass
    comm.Barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    seconds = np.array(time.perf_counter() - begin)
    comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return float(seconds)


def case(key: str, sizes: list[int], steps: int, rounds: int) -> dict[str, Any]:
    """Times of a case on all ranks, on every rank alone in turn, and on every rank alone at once."""
    models = make(MPI.COMM_WORLD, sizes), make(MPI.COMM_SELF, sizes)
    together, alone = (partial(model.step, model.dt, PhaseTimer()) for model in models)
    times = in_turn(MPI.COMM_WORLD, together, alone, steps, rounds)
    for model in models:
        model.mesh.close()
    return {"key": key, "steps": steps, "cells": models[0].cells, "times": times}


def in_turn(
    comm: MPI.Intracomm, together: Callable[[], object], alone: Callable[[], object], steps: int, rounds: int
) -> dict[str, list[float]]:
    """Times of some steps on all ranks, on every rank alone in turn (the mean), and on every rank alone at once;
    `rounds` times. Where sweeps go in two orders `steps` is even, so that each has both.
    """
    times: dict[str, list[float]] = {"1 rank": [], "all ranks": [], "1 rank each": []}
    for _ in range(rounds + 1):
        times["all ranks"].append(seconds_of(together, steps, comm))
        times["1 rank"].append(alone_in_turn(comm, lambda: seconds_of(alone, steps, MPI.COMM_SELF)))
        times["1 rank each"].append(seconds_of(alone, steps, comm))
    # The first round compiles the kernels and touches the memory.
    return {name: each[1:] for name, each in times.items()}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
