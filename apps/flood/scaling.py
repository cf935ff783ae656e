"""What a scaling study knows of the flood."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.scaling import Load, halos, most_cells, plane_growth, sums
from hpckit.apps.flood.config import Config
from hpckit.apps.flood.model import first_rate
from hpckit.apps.flood.run import AXES
from hpckit.kernels.flood.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

UNIT = "cells"
STAGES = 2  # of a step, each with its halos
AGREED = 3 * 8  # bytes that all ranks agree on in a step: the rates of both stages, and the least depth


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """About as many steps, as they follow the waves; frames and metrics at the start and the end alone."""
    end = steps * config.time.cfl / first_rate(config)
    return {"time.end": end, "time.monitor": steps, "output.every": 2 * end, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """Wider along x and y."""
    return plane_growth(ranks, config.grid, AXES)


def load(config: Config, ranks: int) -> Load:
    """The halos of three fields for each stage, and what the ranks agree on."""
    grid = config.grid
    shape = (grid.ny, grid.nx)
    topology = Topology.over(ranks, shape, dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = Decomposition(shape, topology, halo=HALO)
    return Load(most_cells(decomposition), halos([decomposition], 3 * 8, STAGES) + sums(ranks, AGREED))
