"""What follows from the settings of a layer: its time step, the blocks of its ranks, and the cost of a run."""

from __future__ import annotations

import math

from hpckit.apps.common.layout import grid_dry_run, local_cells, sent_bytes
from hpckit.apps.shallow_water import setups
from hpckit.apps.shallow_water.config import Config
from hpckit.kernels.shallow_water.constants import AT_ONCE, HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun
from hpckit.run.steps import frame_count, step_count

AXES = ("y", "x")
STABLE_DIFFUSION = 2.5  # SSP-RK3 is stable for decay rate times dt up to 2.51


def decompose(config: Config, topology: Topology, most_at_once: int) -> Decomposition:
    """The cells of each rank, with a halo for as many steps as the blocks allow."""
    shape = (config.grid.ny, config.grid.nx)
    thinnest = min(n // parts for n, parts in zip(shape, topology.sizes, strict=True))
    return Decomposition(shape, topology, halo=HALO * max(1, min(most_at_once, thinnest // HALO)))


def inverse_width(config: Config) -> float:
    """The Courant number over speed times dt, 1/m."""
    return math.hypot(1 / config.grid.dx, 1 / config.grid.dy)


def time_step(config: Config) -> float:
    """The full time step, s: `cfl` for long waves on the deepest water, or the viscous limit."""
    physics, time = config.physics, config.time
    waves = math.sqrt(physics.gravity * setups.deepest(config))
    dt = time.cfl / ((waves + time.max_speed) * inverse_width(config))
    if physics.viscosity:
        dt = min(dt, time.cfl * STABLE_DIFFUSION / (4 * physics.viscosity * inverse_width(config) ** 2))
    return dt


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    grid, shape = config.grid, (config.grid.ny, config.grid.nx)
    topology = Topology.over(ranks, shape, dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = decompose(config, topology, AT_ONCE)
    at_once = decomposition.halo[0] // HALO
    located = [decomposition.at(where) for where in (("center", "center"), ("center", "face"), ("face", "center"))]
    dt = time_step(config)
    steps = step_count(config, dt)
    return grid_dry_run(
        config,
        decomposition,
        (grid.dy, grid.dx),
        sides=f", {grid.sides}",
        halo_bytes=sent_bytes(located) // at_once,
        memory_per_rank=4 * 8 * local_cells(decomposition),
        points=sum(math.prod(one.global_shape) for one in (located[0], *located)),
        frames=frame_count(config, dt, steps),
        steps=steps,
        note=f"dt {dt:.4g} s; one halo exchange for {at_once} step{'s' if at_once > 1 else ''}",
    )
