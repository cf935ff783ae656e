"""What a scaling study knows of molecular dynamics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.apps.common.scaling import Load, halos
from hpckit.apps.md.config import Config
from hpckit.apps.md.model import topology_of
from hpckit.apps.md.run import GHOST_BYTES
from hpckit.apps.md.start import Start
from hpckit.errors import InputError
from hpckit.plan.grid.decomposition import Decomposition

UNIT = "particles"
FINE = 4  # cells of the price's grid in the reach of the lists


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The state of the end is the one frame."""
    return {"time.steps": steps, "output.every": 0, "analysis.every": 0, "analysis.motion_every": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """More lattice cells along all dims. Raises `InputError` for particles of a file."""
    if config.system.file:
        raise InputError("particles of a file do not grow with the ranks", do="--strong, or a lattice (system.cells)")
    cells = np.array(config.system.cells, float)
    sizes = topology_of(config, cells, ranks).sizes
    return {"system.cells": [n * size for n, size in zip(config.system.cells, sizes, strict=True)]}


def load(config: Config, ranks: int) -> Load:
    """The positions of all ghosts every step: those within the reach of the lists, as the halo of a grid of their mean
    density.
    """
    start = Start(config)
    lengths = start.upper - start.lower
    cutoffs = [
        config.interaction.cutoff,
        *(pair.cutoff for pair in config.interaction.pairs if pair.cutoff is not None),
    ]
    cell = (max(cutoffs) + config.neighbors.skin) / FINE
    shape = [max(1, round(float(length) / cell)) for length in lengths]
    topology = topology_of(config, lengths, ranks)
    split = [FINE if size > 1 else 0 for size in topology.sizes]
    decomposition = Decomposition(shape, topology, halo=split)
    # Whole numbers of bytes: a grid point stands for part of a particle.
    itemsize = max(1, round(GHOST_BYTES * start.count / math.prod(shape)))
    return Load(start.count / ranks, halos([decomposition], itemsize))
