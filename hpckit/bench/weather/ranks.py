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

from mpi4py import MPI

from hpckit.apps.weather import model as slab
from hpckit.apps.weather.config import PRESETS
from hpckit.apps.weather.config import Config as SlabConfig
from hpckit.apps.weather3d import model as box
from hpckit.apps.weather3d.config import Config as BoxConfig
from hpckit.atmosphere.loop import Model
from hpckit.bench.core_wait import CALM, MOST, core_wait
from hpckit.bench.ranks import alone_in_turn, answer, slowest
from hpckit.bench.scaling.rounds import calmest
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


class Stopwatch:
    """Times steps, and keeps the largest share of a timing that this rank waited for its core."""

    def __init__(self) -> None:
        self.waited = 0.0

    def seconds(self, step: Callable[[], object], steps: int, comm: MPI.Comm) -> float:
        """Wall time of some steps, of the slowest rank of `comm`; the core works a while first: it wakes up slowly."""
        begin = time.perf_counter()
        while time.perf_counter() - begin < WAKE:
            pass
        comm.Barrier()
        before, begin = core_wait(), time.perf_counter()
        for _ in range(steps):
            step()
        seconds = time.perf_counter() - begin
        self.waited = max(self.waited, (core_wait() - before) / seconds)
        return slowest(comm, seconds)


def case(key: str, sizes: list[int], steps: int, rounds: int) -> dict[str, Any]:
    """Times of a case on all ranks, on every rank alone in turn, and on every rank alone at once."""
    models = make(MPI.COMM_WORLD, sizes), make(MPI.COMM_SELF, sizes)
    together, alone = (partial(model.step, model.dt, PhaseTimer()) for model in models)
    timed = in_turn(MPI.COMM_WORLD, together, alone, steps, rounds)
    for model in models:
        model.mesh.close()
    return {"key": key, "steps": steps, "cells": models[0].cells, **timed}


def in_turn(
    comm: MPI.Intracomm, together: Callable[[], object], alone: Callable[[], object], steps: int, rounds: int
) -> dict[str, Any]:
    """`times` of some steps on all ranks, on every rank alone in turn (the mean), and on every rank alone at once,
    `rounds` of each. Where sweeps go in two orders `steps` is even, so that each has both.

    Rounds in which a rank waited for its core, as another program had it, are made again, up to MOST times as many;
    those in which ranks waited least count. `rounds_made` says how many there were, `rounds_disturbed` how many of
    those that count were disturbed all the same.
    """
    found: list[dict[str, Any]] = []
    calm = 0
    for turn in range(-1, MOST * rounds):
        watch = Stopwatch()
        alone_seconds = partial(watch.seconds, alone, steps, MPI.COMM_SELF)
        times = {
            "all ranks": watch.seconds(together, steps, comm),
            "1 rank": alone_in_turn(comm, alone_seconds),
            "1 rank each": watch.seconds(alone, steps, comm),
        }
        waited = slowest(comm, watch.waited)
        if turn < 0:
            continue  # it compiled the kernels and touched the memory
        found.append({"turn": turn, "ranks": comm.size, "waited": waited, "times": times})
        calm += waited <= CALM
        if calm == rounds:
            break
    kept = calmest(found, rounds, ())
    return {
        "times": {
            name: [found[turn]["times"][name] for turn in kept] for name in ("1 rank", "all ranks", "1 rank each")
        },
        "rounds_made": len(found),
        "rounds_disturbed": sum(share > CALM for share in kept.values()),
    }


if __name__ == "__main__":
    answer(sys.argv[1:], case)
