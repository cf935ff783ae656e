"""The shallow-water app's run: time loop, metrics, output, summary."""

from __future__ import annotations

import math
import time as clock
from dataclasses import asdict
from functools import partial
from typing import Any

from hpckit.apps.shallow_water import setups
from hpckit.apps.shallow_water.config import Config
from hpckit.apps.shallow_water.model import AXES, Model, Watch, decompose, time_step, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import t_eff
from hpckit.io.fields.writer import FieldWriter
from hpckit.kernels.shallow_water.constants import AT_ONCE, HALO
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from hpckit.run.steps import frame_count, is_frame, step_count

BYTES_PER_CELL_STEP = 3 * 48  # three tendencies, each of which reads and writes h, u and v once
VARIABLES: dict[str, dict[str, Any]] = {
    "elevation": {"units": "m", "long_name": "height of the surface above rest"},
    "vorticity": {"units": "s-1", "long_name": "relative vorticity"},
    "u": {"units": "m s-1", "long_name": "velocity along x", "location": ("center", "face")},
    "v": {"units": "m s-1", "long_name": "velocity along y", "location": ("face", "center")},
}


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `InputError` for settings that cannot be, `BlowUpError` where the solution is lost, on every rank alike.
    """
    grid = config.grid
    begin = clock.perf_counter()
    with Mesh(run.comm, shape=(grid.ny, grid.nx), periodic=grid.periodic, halo=HALO, y=0, x=0) as mesh:
        with run.compiling():
            warm_up(config, run.device)
            model = Model(config, mesh, run.device)
        run.say(f"kernels and start state ready in {clock.perf_counter() - begin:.1f} s")
        coords = dict(
            zip(("y", "x", "y_face", "x_face"), (*setups.centers(config), *setups.faces(config)), strict=True)
        )
        with FieldWriter(
            run.directory.output,
            mesh,
            model.decomposition,
            coords=coords,
            units=dict.fromkeys(coords, "m"),
            variables=VARIABLES,
            attributes={"title": run.title, "source": "hpckit shallow_water"},
            driver=config.output.driver,
            compression=config.output.compression,
            resume=run.kept("fields"),
        ) as writer:
            run.keep("fields", writer.kept)
            first, last, steps_now, seconds = _loop(model, run, writer)
        dt = time_step(config)
        steps = model.steps_done
        complete = steps == step_count(config, dt)
        cell_steps = grid.nx * grid.ny * steps_now
        run.finish(
            {
                "steps": steps,
                "cells": grid.nx * grid.ny,
                "wall_seconds": seconds,
                "simulated_seconds": config.time.end if complete else steps * dt,
                "cell_steps_per_second": cell_steps / seconds,
                "bytes_per_cell_step": BYTES_PER_CELL_STEP,
                "t_eff": t_eff(cell_steps * BYTES_PER_CELL_STEP, seconds),
                "conserved": _conserved(config, first, last),
                "decomposition": model.decomposition,
            },
            status="done" if complete else "stopped",
        )


def _conserved(config: Config, first: Watch, last: Watch) -> dict[str, dict[str, float]]:
    """Mass, and without friction and wind the energy."""
    physics = config.physics
    pairs = {"mass": (first.mass, last.mass)}
    if not any((physics.viscosity, physics.drag, physics.drag_quadratic, config.wind.stress)):
        pairs["energy"] = (first.energy, last.energy)
    return {
        name: {"initial": before, "final": after, "relative_change": (after - before) / before}
        for name, (before, after) in pairs.items()
    }


def _loop(model: Model, run: Run, writer: FieldWriter) -> tuple[Watch, Watch, int, float]:
    """From the start, or a checkpoint, to the end or to an early stop: first and last watch, steps, wall seconds."""
    config, timer, full = model.config, run.timer, time_step(model.config)
    steps, cells = step_count(config, full), config.grid.nx * config.grid.ny
    if run.restored is not None:
        model.restore(run.restored)
    done = model.steps_done
    first = watch = model.watch()
    model.require_sound(first, full)
    if run.restored is not None:
        first = Watch(**run.restored.values["first"])
    else:
        _report(model, run, first, 0.0, full)
        writer.write(0.0, model.output())
    timer.reset()
    waited = model.exchange.wait_seconds
    begin = clock.perf_counter()
    step = done
    while step < steps:
        many = _steps_at_once(model, run, full, step, steps)
        step += many
        dt = full if step < steps else config.time.end - (steps - 1) * full
        time = config.time.end if step == steps else step * full
        run.advance(step, partial(model.step, dt, timer, many), model.saved, model.restore)
        frame = is_frame(config, full, step, steps)
        if step % config.time.monitor == 0 or frame:
            with timer("diagnostics"):
                watch = model.watch()
                model.require_sound(watch, full)
                _report(model, run, watch, time, dt)
            rate = cells * (step - done) / (clock.perf_counter() - begin) / 1e6
            run.progress(step, time, config.time.end, f"{rate:.3g} million cell-steps/s")
        if frame:
            with timer("output"):
                writer.write(time, model.output())
        if step < steps and run.edge(step, lambda: model.saved(first=asdict(first))):
            if not frame:
                watch = model.watch()
                writer.write(time, model.output())
            break
    model.h.device.wait()
    seconds = clock.perf_counter() - begin
    timer.seconds["wait"] = model.exchange.wait_seconds - waited
    timer.seconds["halo"] = max(0.0, timer.seconds.get("halo", 0.0) - timer.seconds["wait"])
    return first, watch, model.steps_done - done, seconds


def _steps_at_once(model: Model, run: Run, full: float, done: int, steps: int) -> int:
    """How many steps may be taken at once: up to the next look at the state, or to the last but one."""
    config = model.config
    for many in range(1, model.at_once):
        step = done + many
        seen = step % config.time.monitor == 0 or is_frame(config, full, step, steps) or run.saves_after(step)
        if seen or step + 1 >= steps:
            return many
    return model.at_once


def _report(model: Model, run: Run, watch: Watch, time: float, dt: float) -> None:
    run.metric(
        step=model.steps_done,
        time=time,
        dt=dt,
        cfl=model.cfl(watch, dt),
        mass=watch.mass,
        energy=watch.energy,
        enstrophy=watch.enstrophy,
        speed_max=watch.speed_max,
        depth_min=watch.depth_min,
    )


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would take on that many ranks; raises what it would raise before its start."""
    grid, shape = config.grid, (config.grid.ny, config.grid.nx)
    topology = Topology.over(ranks, shape, dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = decompose(config, topology, AT_ONCE)
    at_once = decomposition.halo[0] // HALO
    located = [decomposition.at(where) for where in (("center", "center"), ("center", "face"), ("face", "center"))]
    plans = [halo_plan(one) for one in located]
    dt = time_step(config)
    steps = step_count(config, dt)
    frames = frame_count(config, dt, steps)
    blocks = sorted({decomposition.owned(rank) for rank in range(ranks)})
    local = [math.prod(decomposition.local_shape(rank)) for rank in range(ranks)]
    points = sum(math.prod(one.global_shape) for one in (located[0], *located))
    return DryRun(
        ranks=ranks,
        decomposition=[
            f"{grid.ny} x {grid.nx} cells (y, x) of {grid.dy:g} m x {grid.dx:g} m, {grid.sides}",
            f"{' x '.join(map(str, topology.sizes))} ranks, blocks of {' or '.join(f'{a} x {b}' for a, b in blocks)}",
        ],
        halo_bytes=max(sum(plan.nbytes(rank, 8) for plan in plans) for rank in range(ranks)) // at_once,
        memory_per_rank=4 * 8 * max(local),
        output_bytes=frames * (4 if config.output.single else 8) * points,
        frames=frames,
        steps=steps,
        notes=[
            f"dt {dt:.4g} s; one halo exchange for {at_once} step{'s' if at_once > 1 else ''};"
            " output bytes are before compression"
        ],
    )
