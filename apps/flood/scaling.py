"""The scaling model of the flood."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.scaling import Load, halos, most_cells, plane_growth, sums
from hpckit.apps.flood.config import Config
from hpckit.apps.flood.layout import AXES, first_rate
from hpckit.kernels.flood.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

UNIT = "cells"
STAGES = 2  # of a step, each with its halos
AGREED = 3 * 8  # bytes of a step's all-reduce: the rates of both stages, and the minimum depth


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The settings of about that many steps (the waves set dt), with frames and metrics at the ends only."""
    end = steps * config.time.cfl / first_rate(config)
    return {"time.end": end, "time.monitor": steps, "output.every": 2 * end, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """The settings of an area that grows along x and y."""
    return plane_growth(ranks, config.grid, AXES)


def load(config: Config, ranks: int) -> Load:
    """The halos of three fields in each stage, and the all-reduce of the rates."""
    grid = config.grid
    shape = (grid.ny, grid.nx)
    topology = Topology.over(ranks, shape, dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = Decomposition(shape, topology, halo=HALO)
    return Load(most_cells(decomposition), halos([decomposition], 3 * 8, STAGES) + sums(ranks, AGREED))
