"""The weather app's run: mesh, output, metrics and dry run."""

from __future__ import annotations

from typing import Any

from hpckit.apps.atmosphere.base import require_top
from hpckit.apps.atmosphere.loop import AtmosphereRun
from hpckit.apps.atmosphere.output import variables
from hpckit.apps.atmosphere.profiles import profile_of
from hpckit.apps.common.grid import grid_dry_run, run_on_grid, sent_bytes
from hpckit.apps.weather.config import METRICS, Config
from hpckit.apps.weather.model import Model, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.kernels.euler.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from hpckit.run.steps import frame_count, step_count

# Two sweeps, four fields of 8 bytes, each read once and written once, the write after a read of the cache line.
BYTES_PER_CELL_STEP = 2 * 4 * 8 * 3


class Weather(AtmosphereRun):
    """The run of the slab."""

    app, bytes_per_cell_step, metrics = "weather", BYTES_PER_CELL_STEP, METRICS

    def __init__(self, run: Run, model: Any) -> None:
        super().__init__(run, model)
        self.variables = variables("uw", self.config.output.fields)


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`; raises the errors of `run_on_grid`."""
    with Mesh(run.comm, z=1, x=0, periodic=("x",)) as mesh:
        run_on_grid(Weather, Model, warm_up, config, run, mesh)


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
