"""The scaling model of the rotating layer."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.scaling import Load, halos, most_cells, plane_growth
from hpckit.apps.shallow_water.config import Config
from hpckit.apps.shallow_water.layout import AXES, decompose, time_step
from hpckit.kernels.shallow_water.constants import AT_ONCE, HALO
from hpckit.plan.topology import Topology

UNIT = "cells"
PLACES = (("center", "center"), ("center", "face"), ("face", "center"))  # of depth, u and v


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The settings with frames and metrics at the start and the end only."""
    end = steps * time_step(config)
    return {"time.end": end, "time.monitor": steps, "output.every": 2 * end, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """The settings of an area that grows along x and y."""
    return plane_growth(ranks, config.grid, AXES)


def load(config: Config, ranks: int) -> Load:
    """One exchange of the three fields for as many steps as the halo is thick."""
    grid = config.grid
    topology = Topology.over(ranks, (grid.ny, grid.nx), dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = decompose(config, topology, AT_ONCE)
    at_once = decomposition.halo[0] // HALO
    return Load(most_cells(decomposition), halos((decomposition.at(place) for place in PLACES), 8, 1 / at_once))
