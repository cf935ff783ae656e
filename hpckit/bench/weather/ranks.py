"""What each rank of `hpckit bench weather` runs: the apps' models on all ranks and on every rank alone, in turn; and on
one rank what physics adds to a step of the box.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from mpi4py import MPI

from hpckit.apps.atmosphere.loop import WeatherModel
from hpckit.apps.weather import model as slab
from hpckit.apps.weather.config import PRESETS
from hpckit.apps.weather.config import Config as SlabConfig
from hpckit.apps.weather3d import model as box
from hpckit.apps.weather3d.config import Config as BoxConfig
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.bench.measure import interleave
from hpckit.bench.ranks import against_one, answer
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer

SPLIT: dict[str, Any] = {  # of split dynamics: a bubble in stable air on 1000 m x 500 m
    "grid": {"width": 128e3, "length": 128e3, "height": 20e3},
    "dynamics": {"kind": "hevi"},
    "base": {"kind": "stable"},
}


def make(comm: MPI.Comm, sizes: list[int], physics: dict[str, Any] | None = None) -> WeatherModel:
    """The model of a case on the ranks of `comm`: a slab of two sizes, a box of three, which may have more physics."""
    if len(sizes) == 2:
        grid = dict(zip(("nx", "nz"), sizes, strict=True))
        config = SlabConfig.model_validate({**PRESETS["collision"][1], "grid": grid})
        return slab.Model(config, Mesh(comm, z=1, x=0, periodic=("x",)))
    grid = dict(zip(("nx", "ny", "nz"), sizes, strict=True))
    settings = physics or {}
    box_config = BoxConfig.model_validate({**settings, "grid": grid | settings.get("grid", {})})
    kind = SplitModel if box_config.dynamics.kind == "hevi" else box.Model
    return kind(box_config, box.mesh_for(box_config, comm))


def case(key: str, sizes: list[int], steps: int, rounds: int) -> dict[str, Any]:
    """Times of a case on all ranks, on every rank alone in turn, and on every rank alone at once."""
    settings = SPLIT if key.startswith("hevi") else None
    models = make(MPI.COMM_WORLD, sizes, settings), make(MPI.COMM_SELF, sizes, settings)
    together, alone = (partial(model.step, model.dt, PhaseTimer()) for model in models)
    timed = against_one(MPI.COMM_WORLD, together, alone, steps, rounds)
    for model in models:
        model.mesh.close()
    return {"key": key, "steps": steps, "cells": models[0].cells, **timed}


def physics_case(
    key: str, sizes: list[int], ways: dict[str, dict[str, Any]], steps: int, rounds: int
) -> dict[str, Any]:
    """Times of some steps of a box of these sizes (x, y, z) in stable air, in turn with the settings of each way.

    `dt` says how long the steps of each way are, s.
    """
    models = {way: make(MPI.COMM_SELF, sizes, {"base": {"kind": "stable"}, **more}) for way, more in ways.items()}
    times = interleave({way: partial(_advance, model, steps) for way, model in models.items()}, rounds)
    for model in models.values():
        model.mesh.close()
    cells, lengths = sizes[0] * sizes[1] * sizes[2], {way: model.dt for way, model in models.items()}
    return {"key": key, "steps": steps, "cells": cells, "times": times, "dt": lengths}


def _advance(model: WeatherModel, steps: int) -> None:
    for _ in range(steps):
        model.step(model.dt, PhaseTimer())


if __name__ == "__main__":
    answer(sys.argv[1:], lambda *one: physics_case(*one) if isinstance(one[2], dict) else case(*one))
