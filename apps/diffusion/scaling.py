"""The scaling model of the heat equation."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.scaling import Load, growth, halos, most_cells
from hpckit.apps.diffusion.config import Config
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

UNIT = "cells"


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The settings with frames and metrics at the start and the end only."""
    return {"time.steps": steps, "time.monitor": steps, "output.frames": 1, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """The settings of a body that grows along all dims."""
    grid = config.grid
    sizes = growth(ranks, grid.shape, [axis in grid.periodic for axis in grid.axes])
    return {
        "grid.shape": [n * size for n, size in zip(grid.shape, sizes, strict=True)],
        "grid.lengths": [length * size for length, size in zip(grid.lengths, sizes, strict=True)],
    }


def load(config: Config, ranks: int) -> Load:
    """The largest block, and one halo exchange per step."""
    grid = config.grid
    topology = Topology.over(ranks, grid.shape, dict.fromkeys(grid.axes, 0), grid.periodic)
    decomposition = Decomposition(grid.shape, topology, halo=1)
    return Load(most_cells(decomposition), halos([decomposition], 8))
