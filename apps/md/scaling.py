"""The scaling model of molecular dynamics."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.common.scaling import Load, Traffic
from hpckit.apps.md.config import Config
from hpckit.apps.md.model import plans_of, topology_of
from hpckit.apps.md.start import Start
from hpckit.errors import InputError

UNIT = "particles"
REBUILD = 10  # steps between two rebuilds of a liquid, if moves decide


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The settings with the final state as the only frame."""
    return {"time.steps": steps, "output.every": 0, "analysis.every": 0, "analysis.motion_every": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """More lattice cells along all dims. Raises `InputError` for particles of a file."""
    if config.system.file:
        raise InputError("particles of a file do not grow with the ranks", do="--strong, or a lattice (system.cells)")
    cells = np.array(config.system.cells, float)
    sizes = topology_of(config, cells, ranks).sizes
    return {"system.cells": [n * size for n, size in zip(config.system.cells, sizes, strict=True)]}


def load(config: Config, ranks: int) -> Load:
    """Ghosts, their forces and a mesh of charges in each step, and migration at each rebuild, by the plans of the run
    (`plans_of`).
    """
    start = Start(config)
    if ranks == 1:
        return Load(start.count)
    plans, neighbors = plans_of(config, start, ranks), config.neighbors
    steps = max(neighbors.every, neighbors.delay, REBUILD if neighbors.check else 1)
    return Load(start.count / ranks, (Traffic(plans.of_a_step()), Traffic((plans.migration,), calls=1 / steps)))
