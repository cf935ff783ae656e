"""The weather app's run: mesh, output, time loop, summary."""

from __future__ import annotations

import time as clock

import numpy as np

from hpckit.apps.atmosphere.base import require_top
from hpckit.apps.atmosphere.loop import finish, time_loop
from hpckit.apps.atmosphere.profiles import profile_of
from hpckit.apps.weather.config import Config
from hpckit.apps.weather.model import Model, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.io.fields.writer import FieldWriter
from hpckit.kernels.euler.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from hpckit.run.steps import frame_count, step_count

# Two sweeps, four fields of 8 bytes, each read once and written once, the write after a read of the cache line.
BYTES_PER_CELL_STEP = 2 * 4 * 8 * 3
VARIABLES = {
    "theta": {"units": "K", "long_name": "potential temperature, deviation from the base state"},
    "u": {"units": "m s-1", "long_name": "wind along x", "standard_name": "x_wind"},
    "w": {"units": "m s-1", "long_name": "vertical wind", "standard_name": "upward_air_velocity"},
    "rho": {"units": "kg m-3", "long_name": "density, deviation from the base state"},
}


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `InputError` for settings that cannot be, `BlowUpError` where the solution is lost, on every rank alike.
    """
    grid = config.grid
    begin = clock.perf_counter()
    with Mesh(run.comm, z=1, x=0, periodic=("x",)) as mesh:
        with run.compiling():
            warm_up(config, run.device)
            model = Model(config, mesh, run.device)
        run.say(f"kernels and start state ready in {clock.perf_counter() - begin:.1f} s")
        coords = {"z": model.base.height, "x": (np.arange(grid.nx) + 0.5) * grid.dx}
        with FieldWriter(
            run.directory.output,
            mesh,
            model.decomposition,
            coords=coords,
            units={"z": "m", "x": "m"},
            variables=VARIABLES,
            attributes={"title": run.title, "source": "hpckit weather"},
            driver=config.output.driver,
            compression=config.output.compression,
            resume=run.kept("fields"),
        ) as writer:
            run.keep("fields", writer.kept)
            ran = time_loop(model, run, writer.write)
    finish(model, run, ran, BYTES_PER_CELL_STEP)


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would take on that many ranks; raises what it would raise before its start."""
    grid = config.grid
    topology = Topology(("z", "x"), (1, ranks), ("x",))
    decomposition = Decomposition((grid.nz, grid.nx), topology, halo=(0, HALO))
    require_top(profile_of(config.base), grid.nz, grid.dz)
    dt = min(grid.dx, grid.dz) / config.time.max_speed * config.time.cfl
    steps = step_count(config, dt)
    frames = frame_count(config, dt, steps)
    widths = [decomposition.owned(rank)[1] for rank in range(ranks)]
    row = 4 * 8 * grid.nz
    itemsize = 4 if config.output.single else 8
    return DryRun(
        ranks=ranks,
        decomposition=[
            f"{grid.nz} x {grid.nx} cells (z, x) of {grid.dz:g} m x {grid.dx:g} m",
            f"x split over {ranks} ranks, {' or '.join(map(str, sorted(set(widths))))} cells each",
        ],
        halo_bytes=2 * HALO * row if ranks > 1 else 0,
        memory_per_rank=row * (max(widths) + 2 * HALO) + 4 * HALO * row + 4 * 8 * grid.nz * max(widths),
        output_bytes=frames * len(VARIABLES) * itemsize * grid.nx * grid.nz,
        frames=frames,
        steps=steps,
        notes=[f"dt {dt:.4g} s; one halo exchange a step; output bytes are before compression"],
    )
