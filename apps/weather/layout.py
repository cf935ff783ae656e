"""What follows from the settings of a slab: the blocks of its ranks, and the cost of a run."""

from __future__ import annotations

from hpckit.apps.atmosphere.base import require_top
from hpckit.apps.atmosphere.output import variables
from hpckit.apps.atmosphere.profiles import profile_of
from hpckit.apps.common.layout import grid_dry_run, sent_bytes
from hpckit.apps.weather.config import Config
from hpckit.kernels.euler.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun
from hpckit.run.steps import frame_count, step_count


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    grid = config.grid
    decomposition = Decomposition((grid.nz, grid.nx), Topology(("z", "x"), (1, ranks), ("x",)), halo=(0, HALO))
    require_top(profile_of(config.base), grid.nz, grid.dz)
    dt = min(grid.dx, grid.dz) / config.time.max_speed * config.time.cfl
    steps = step_count(config, dt)
    row, width = 4 * 8 * grid.nz, max(decomposition.owned(rank)[1] for rank in range(ranks))
    return grid_dry_run(
        config,
        decomposition,
        (grid.dz, grid.dx),
        halo_bytes=sent_bytes([decomposition], 4 * 8),
        memory_per_rank=row * (width + 2 * HALO) + 4 * HALO * row + 4 * 8 * grid.nz * width,
        points=len(variables("uw", config.output.fields)) * grid.nx * grid.nz,
        frames=frame_count(config, dt, steps),
        steps=steps,
        note=f"dt {dt:.4g} s; one halo exchange a step",
    )
