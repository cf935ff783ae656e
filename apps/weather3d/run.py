"""The weather3d app's run: mesh, output, time loop, summary."""

from __future__ import annotations

import time as clock

import numpy as np

from hpckit.apps.atmosphere.base import require_top
from hpckit.apps.atmosphere.loop import finish, time_loop
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import AXES, HALOS, Model, mesh_for, warm_up
from hpckit.apps.weather3d.setups import column_of
from hpckit.apps.weather3d.sides import periodic_axes
from hpckit.apps.weather3d.tracers import HALOS as TRACER_HALOS
from hpckit.io.fields.writer import FieldWriter
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from hpckit.run.steps import frame_count, step_count

# Three sweeps, five fields of 8 bytes, each read once and written once, the write after a read of the cache line.
BYTES_PER_CELL_STEP = 3 * FIELDS * 8 * 3
VARIABLES = {
    "theta": {"units": "K", "long_name": "potential temperature, deviation from the base state"},
    "u": {"units": "m s-1", "long_name": "wind along x", "standard_name": "x_wind"},
    "v": {"units": "m s-1", "long_name": "wind along y", "standard_name": "y_wind"},
    "w": {"units": "m s-1", "long_name": "vertical wind", "standard_name": "upward_air_velocity"},
    "rho": {"units": "kg m-3", "long_name": "density, deviation from the base state"},
}


def variables(config: Config) -> dict[str, dict[str, str]]:
    """The fields that are written, with their attributes."""
    carried = {tracer.name: {"units": "1", "long_name": f"mixing ratio of {tracer.name}"} for tracer in config.tracers}
    return VARIABLES | carried


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `InputError` for settings that cannot be, `BlowUpError` where the solution is lost, on every rank alike.
    """
    grid = config.grid
    begin = clock.perf_counter()
    with mesh_for(config, run.comm) as mesh:
        with run.compiling():
            warm_up(config, run.device)
            model = Model(config, mesh, run.device)
        run.say(f"kernels and start state ready in {clock.perf_counter() - begin:.1f} s")
        with FieldWriter(
            run.directory.output,
            mesh,
            model.decomposition,
            coords={
                "z": model.base.height,
                "y": (np.arange(grid.ny) + 0.5) * grid.dy,
                "x": (np.arange(grid.nx) + 0.5) * grid.dx,
            },
            units=dict.fromkeys("zyx", "m"),
            variables=variables(config),
            attributes={"title": run.title, "source": "hpckit weather3d"},
            driver=config.output.driver,
            compression=config.output.compression,
            resume=run.kept("fields"),
        ) as writer:
            run.keep("fields", writer.kept)
            ran = time_loop(model, run, writer.write)
    finish(model, run, ran, BYTES_PER_CELL_STEP, model.budgets(ran.first, ran.last))


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would take on that many ranks; raises what it would raise before its start."""
    grid = config.grid
    shape = (grid.nz, grid.ny, grid.nx)
    topology = Topology.over(ranks, shape, AXES, periodic_axes(config), HALOS)
    decomposition = Decomposition(shape, topology, halo=HALOS)
    require_top(column_of(config.base), grid.nz, grid.dz)
    dt = config.full_step
    steps = step_count(config, dt)
    frames = frame_count(config, dt, steps)
    plan, blocks = halo_plan(decomposition), [decomposition.owned(rank) for rank in range(ranks)]
    itemsize = 4 if config.output.single else 8
    local = max(int(np.prod(decomposition.local_shape(rank))) for rank in range(ranks))
    mixes = bool(config.diffusion) + bool(config.smagorinsky.coefficient)
    exchanges = 1 + mixes
    count = len(VARIABLES) + len(config.tracers)
    tracers = len(config.tracers)
    thick = Decomposition(shape, topology, halo=TRACER_HALOS)
    tracer_bytes = max(halo_plan(thick).nbytes(rank, 8 * tracers) for rank in range(ranks)) if tracers else 0
    # State and work space; of the tracers two copies, the density before a sweep and the mass fluxes.
    arrays = FIELDS * (2 if mixes else 1) + min(mixes, 1) + (2 * tracers + 4 if tracers else 0)
    owned = max(int(np.prod(block)) for block in blocks)
    columns = sorted({f"{ny} x {nx}" for _, ny, nx in blocks})
    return DryRun(
        ranks=ranks,
        decomposition=[
            f"{grid.nz} x {grid.ny} x {grid.nx} cells (z, y, x) of {grid.dz:g} m x {grid.dy:g} m x {grid.dx:g} m",
            f"y over {topology.sizes[1]} ranks, x over {topology.sizes[2]}, {' or '.join(columns)} columns each",
        ],
        halo_bytes=exchanges * max(plan.nbytes(rank, 8 * FIELDS) for rank in range(ranks)) + exchanges * tracer_bytes,
        memory_per_rank=8 * local * arrays + (8 + itemsize) * count * owned,
        output_bytes=frames * count * itemsize * grid.nx * grid.ny * grid.nz,
        frames=frames,
        steps=steps,
        notes=[f"dt {dt:.4g} s; the halo in x and that in y once a step; output bytes are before compression"],
    )
