"""What a scaling study knows of the flood."""

from __future__ import annotations

from typing import Any

from hpckit.apps.flood.config import Config
from hpckit.apps.flood.model import first_rate
from hpckit.apps.flood.run import AXES
from hpckit.kernels.flood.constants import HALO
from hpckit.plan.decomposition import Decomposition
from hpckit.plan.factor import best_factorization
from hpckit.plan.topology import Topology
from hpckit.scaling import Load, growth, halos, most_cells, sums

UNIT = "cells"
STAGES = 2  # of a step, each with its halos
AGREED = 3 * 8  # bytes that all ranks agree on in a step: the rates of both stages, and the least depth


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """About as many steps, as they follow the waves; frames at the start and the end alone."""
    end = steps * config.time.cfl / first_rate(config)
    return {"time.end": end, "output.every": 2 * end, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """Wider along x and y."""
    grid = config.grid
    y, x = growth(ranks, (grid.ny, grid.nx), [axis in grid.periodic for axis in AXES])
    return {
        "grid.nx": grid.nx * x,
        "grid.width": grid.width * x,
        "grid.ny": grid.ny * y,
        "grid.height": grid.height * y,
    }


def load(config: Config, ranks: int) -> Load:
    """The halos of three fields for each stage, and what the ranks agree on."""
    grid = config.grid
    topology = Topology(AXES, _sizes(config, ranks), grid.periodic)
    decomposition = Decomposition((grid.ny, grid.nx), topology, halo=HALO)
    return Load(most_cells(decomposition), halos([decomposition], 3 * 8, STAGES) + sums(ranks, AGREED))


def _sizes(config: Config, ranks: int) -> tuple[int, ...]:
    grid = config.grid
    closed = [axis in grid.periodic for axis in AXES]
    return best_factorization(ranks, (grid.ny, grid.nx), None, closed, (HALO, HALO))
