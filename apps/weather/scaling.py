"""The scaling model of the slab."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.scaling import Load, halos, most_cells
from hpckit.apps.weather.config import Config
from hpckit.kernels.euler.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

UNIT = "cells"
STATE = 4 * 8  # bytes of a cell: density, momenta, theta


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The settings with frames and metrics at the start and the end only."""
    grid, times = config.grid, config.time
    end = steps * min(grid.dx, grid.dz) / times.max_speed * times.cfl
    return {"time.end": end, "time.monitor": steps, "output.every": 2 * end, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """The settings of a slab that grows along x, the split axis."""
    return {"grid.nx": config.grid.nx * ranks, "grid.width": config.grid.width * ranks}


def load(config: Config, ranks: int) -> Load:
    """The largest block, and one exchange of the state per step."""
    shape = (config.grid.nz, config.grid.nx)
    decomposition = Decomposition(shape, Topology(("z", "x"), (1, ranks), ("x",)), halo=(0, HALO))
    return Load(most_cells(decomposition), halos([decomposition], STATE))
