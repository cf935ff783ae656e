"""The scaling model of the box."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.scaling import Load, growth, halos, most_cells
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.layout import AXES, TRACER_HALOS, halos_of
from hpckit.apps.weather3d.sides import periodic_axes
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

UNIT = "cells"


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The settings with frames and metrics at the start and the end only."""
    end = steps * config.full_step
    return {"time.end": end, "time.monitor": steps, "output.every": 2 * end, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """The settings of an area that grows along x and y."""
    grid, periodic = config.grid, periodic_axes(config)
    closed = [name in periodic for name in AXES]
    _, y, x = growth(ranks, (grid.nz, grid.ny, grid.nx), closed, tuple(AXES.values()))
    return {
        "grid.nx": grid.nx * x,
        "grid.width": grid.width * x,
        "grid.ny": grid.ny * y,
        "grid.length": grid.length * y,
    }


def load(config: Config, ranks: int) -> Load:
    """One exchange of the state a step, another where there is mixing, and those of the tracers.

    With split dynamics one of the state for each of the three stages, and one of the pressure for most substeps.
    """
    grid = config.grid
    shape = (grid.nz, grid.ny, grid.nx)
    topology = Topology.over(ranks, shape, AXES, periodic_axes(config), halos_of(config))
    exchanges = 1 + bool(config.diffusion) + bool(config.smagorinsky.coefficient)
    decomposition = Decomposition(shape, topology, halo=halos_of(config))
    if config.dynamics.kind == "hevi":
        traffic = halos([decomposition], 8 * FIELDS, 2 + exchanges)
        traffic += halos([Decomposition(shape, topology, halo=(0, 1, 1))], 8, sum(config.substeps) - 3)
        return Load(most_cells(decomposition), traffic)
    traffic = halos([decomposition], 8 * FIELDS, exchanges)
    if config.tracers:
        traffic += halos([Decomposition(shape, topology, halo=TRACER_HALOS)], 8 * len(config.tracers), exchanges)
    return Load(most_cells(decomposition), traffic)
