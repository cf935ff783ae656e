"""What physics adds to a step of the box, on one rank."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from mpi4py import MPI

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import Model, mesh_for
from hpckit.bench.ranks import answer
from hpckit.bench.measure import interleave
from hpckit.timing import PhaseTimer


def case(key: str, sizes: list[int], ways: dict[str, dict[str, Any]], steps: int, rounds: int) -> dict[str, Any]:
    """Times of some steps of a box of these sizes (x, y, z), in turn with the settings of each way."""
    grid = dict(zip(("nx", "ny", "nz"), sizes, strict=True))
    models = {}
    for way, physics in ways.items():
        config = Config.model_validate({"grid": grid, "base": {"kind": "stable"}, **physics})
        models[way] = Model(config, mesh_for(config, MPI.COMM_SELF))
    times = interleave({way: partial(_advance, model, steps) for way, model in models.items()}, rounds)
    cells = sizes[0] * sizes[1] * sizes[2]
    for model in models.values():
        model.mesh.close()
    return {"key": key, "steps": steps, "cells": cells, "times": times}


def _advance(model: Model, steps: int) -> None:
    for _ in range(steps):
        model.step(model.dt, PhaseTimer())


if __name__ == "__main__":
    answer(sys.argv[1:], case)
