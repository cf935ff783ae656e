"""The weather app's run: time loop, metrics, output, summary."""

from __future__ import annotations

import math
import time as clock

import numpy as np

from hpckit.apps.weather.base import base_state
from hpckit.apps.weather.config import Config
from hpckit.apps.weather.model import Model, Watch, warm_up
from hpckit.apps.weather.profiles import profile_of
from hpckit.io.fields import FieldWriter
from hpckit.kernels.euler2d.constants import HALO
from hpckit.mesh import Mesh
from hpckit.plan.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run_context import DryRun, Run
from hpckit.timing import t_eff

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
    warm_up()
    with Mesh(run.comm, z=1, x=0, periodic=("x",)) as mesh:
        model = Model(config, mesh)
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
        ) as writer:
            first, last, steps, seconds = _loop(model, run, writer)
    ended = config.time.end if steps == step_count(config, model.dt) else steps * model.dt
    cell_steps = grid.nx * grid.nz * steps
    run.finish(
        {
            "steps": steps,
            "cells": grid.nx * grid.nz,
            "wall_seconds": seconds,
            "simulated_seconds": ended,
            "cell_steps_per_second": cell_steps / seconds,
            "bytes_per_cell_step": BYTES_PER_CELL_STEP,
            "t_eff": t_eff(cell_steps * BYTES_PER_CELL_STEP, seconds),
            "conserved": {
                name: {"initial": before, "final": after, "relative_change": (after - before) / before}
                for name, before, after in (("mass", first.mass, last.mass), ("energy", first.energy, last.energy))
            },
            "decomposition": model.decomposition,
        },
        status="done" if steps == step_count(config, model.dt) else "stopped",
    )


def _loop(model: Model, run: Run, writer: FieldWriter) -> tuple[Watch, Watch, int, float]:
    """From the start to the end, or to an early stop: first and last watch, steps, wall seconds."""
    config, timer, full = model.config, run.timer, model.dt
    steps = step_count(config, full)
    first = watch = model.watch()
    model.require_sound(first, full)
    _report(model, run, first, 0.0, full)
    writer.write(0.0, model.output())
    timer.reset()
    waited = model.exchange.wait_seconds
    begin = clock.perf_counter()
    for step in range(1, steps + 1):
        dt = full if step < steps else config.time.end - (steps - 1) * full
        time = config.time.end if step == steps else step * full
        model.step(dt, timer)
        stop = False
        if step % config.time.monitor == 0 or step == steps:
            with timer("diagnostics"):
                watch = model.watch()
                model.require_sound(watch, full)
                _report(model, run, watch, time, dt)
                stop = step < steps and run.stop_requested()
            rate = config.grid.nx * config.grid.nz * step / (clock.perf_counter() - begin) / 1e6
            run.progress(step, time, config.time.end, f"{rate:.3g} million cell-steps/s")
        if stop or is_frame(config, full, step, steps):
            with timer("output"):
                writer.write(time, model.output())
        if stop:
            break
    seconds = clock.perf_counter() - begin
    timer.seconds["wait"] = model.exchange.wait_seconds - waited
    timer.seconds["halo"] = timer.seconds.get("halo", 0.0) - timer.seconds["wait"]
    return first, watch, model.steps_done, seconds


def _report(model: Model, run: Run, watch: Watch, time: float, dt: float) -> None:
    run.metric(
        step=model.steps_done,
        time=time,
        dt=dt,
        cfl=model.cfl(watch, dt),
        mass=watch.mass,
        energy=watch.energy,
        w_max=watch.w_max,
        theta_min=watch.theta_min,
        theta_max=watch.theta_max,
    )


def step_count(config: Config, dt: float) -> int:
    """Steps of dt to the end, the last one as short as it must be."""
    return math.ceil(config.time.end / dt - 1e-9)


def is_frame(config: Config, dt: float, step: int, steps: int) -> bool:
    """Whether a frame follows `step`: the first step at or past each multiple of output.every, and the last one."""
    every = config.output.every
    return step == steps or math.floor(step * dt / every + 1e-9) > math.floor((step - 1) * dt / every + 1e-9)


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would take on that many ranks; raises what it would raise before its start."""
    grid = config.grid
    topology = Topology(("z", "x"), (1, ranks), ("x",))
    decomposition = Decomposition((grid.nz, grid.nx), topology, halo=(0, HALO))
    base_state(profile_of(config.base), grid.nz, grid.dz)
    dt = min(grid.dx, grid.dz) / config.time.max_speed * config.time.cfl
    steps = step_count(config, dt)
    frames = 1 + sum(is_frame(config, dt, step, steps) for step in range(1, steps + 1))
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
