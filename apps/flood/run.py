"""The flood app's run: time loop, metrics, output, summary."""

from __future__ import annotations

import math
import time as clock
from dataclasses import asdict
from functools import partial
from typing import Any

from hpckit.apps.flood import setups
from hpckit.apps.flood.config import Config
from hpckit.apps.flood.model import AXES, Model, Watch, first_rate, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import t_eff
from hpckit.io.fields.writer import FieldWriter
from hpckit.kernels.flood.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from hpckit.run.steps import count_steps, frame_count, step_count

BYTES_PER_CELL_STEP = 2 * 48 + 24  # each stage reads and writes three fields, the second one reads the start too
VARIABLES: dict[str, dict[str, Any]] = {
    "depth": {"units": "m", "long_name": "depth of the water"},
    "surface": {"units": "m", "long_name": "height of the surface, of the ground where it is dry"},
    "u": {"units": "m s-1", "long_name": "velocity along x"},
    "v": {"units": "m s-1", "long_name": "velocity along y"},
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
        with FieldWriter(
            run.directory.output,
            mesh,
            model.decomposition,
            coords=dict(zip(AXES, setups.places(config), strict=True)),
            units=dict.fromkeys(AXES, "m"),
            variables=VARIABLES,
            attributes={"title": run.title, "source": "hpckit flood"},
            driver=config.output.driver,
            compression=config.output.compression,
            resume=run.kept("fields"),
        ) as writer:
            run.keep("fields", writer.kept)
            first, last, steps_now, seconds = _loop(model, run, writer)
        complete = model.time >= config.time.end
        cell_steps = grid.nx * grid.ny * steps_now
        if last.depth_error is not None:
            run.say(f"depth against the exact solution: mean error {last.depth_error:.3%} of the mean depth")
        run.finish(
            {
                "steps": model.steps_done,
                "cells": grid.nx * grid.ny,
                "wall_seconds": seconds,
                "simulated_seconds": model.time,
                "cell_steps_per_second": cell_steps / seconds,
                "bytes_per_cell_step": BYTES_PER_CELL_STEP,
                "t_eff": t_eff(cell_steps * BYTES_PER_CELL_STEP, seconds),
                "conserved": _conserved(config, first, last),
                "steps_taken_again": model.tries,
                **({} if last.depth_error is None else {"depth_error": last.depth_error}),
                "decomposition": model.decomposition,
            },
            status="done" if complete else "stopped",
        )


def _conserved(config: Config, first: Watch, last: Watch) -> dict[str, dict[str, float]]:
    """The mass, where no side is open."""
    if "open" in config.grid.sides.values() or not first.mass:
        return {}
    change = (last.mass - first.mass) / first.mass
    return {"mass": {"initial": first.mass, "final": last.mass, "relative_change": change}}


def _loop(model: Model, run: Run, writer: FieldWriter) -> tuple[Watch, Watch, int, float]:
    """From the start, or a checkpoint, to the end or to an early stop: first and last watch, steps, wall seconds.

    Steps end on frames.
    """
    config, timer = model.config, run.timer
    end, every, cells = config.time.end, config.output.every, config.grid.nx * config.grid.ny
    if run.restored is None:
        first = watch = model.watch()
        model.require_sound(first)
        _report(model, run, first, 0.0)
        writer.write(0.0, model.output())
        frames = 0
    else:
        model.restore(run.restored)
        first, watch = Watch(**run.restored.values["first"]), model.watch()
        frames = run.restored.values["frames"]
    timer.reset()
    waited, done = model.exchange.wait_seconds, model.steps_done
    begin = clock.perf_counter()
    while model.time < end:
        target = min(end, (frames + 1) * every)
        once = partial(model.step, target - model.time, timer)
        dt = run.advance(model.steps_done + 1, once, model.saved, model.restore)
        # The last step before a frame is as long as the rest: it ends on it to the bit.
        frame = model.time + dt >= target * (1 - 1e-14)
        model.time = target if frame else model.time + dt
        frames += frame
        if model.steps_done % config.time.monitor == 0 or frame:
            with timer("diagnostics"):
                watch = model.watch()
                model.require_sound(watch)
                _report(model, run, watch, dt)
            rate = cells * (model.steps_done - done) / (clock.perf_counter() - begin) / 1e6
            run.progress(model.steps_done, model.time, end, f"{rate:.3g} million cell-steps/s")
        if frame:
            with timer("output"):
                writer.write(model.time, model.output())
        kept = {"first": asdict(first), "frames": frames}
        if model.time < end and run.edge(model.steps_done, partial(model.saved, **kept)):
            if not frame:
                watch = model.watch()
                writer.write(model.time, model.output())
            break
    seconds = max(clock.perf_counter() - begin, 1e-9)
    timer.seconds["wait"] = model.exchange.wait_seconds - waited
    timer.seconds["halo"] = max(0.0, timer.seconds.get("halo", 0.0) - timer.seconds["wait"])
    return first, watch, model.steps_done - done, seconds


def _report(model: Model, run: Run, watch: Watch, dt: float) -> None:
    exact = {} if watch.depth_error is None else {"depth_error": watch.depth_error}
    run.metric(
        step=model.steps_done,
        time=model.time,
        dt=dt,
        cfl=model.rate * dt,
        mass=watch.mass,
        energy=watch.energy,
        speed_max=watch.speed_max,
        depth_max=watch.depth_max,
        wet_area=watch.wet_area,
        **exact,
    )


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would take on that many ranks; raises what it would raise before its start."""
    grid, shape = config.grid, (config.grid.ny, config.grid.nx)
    topology = Topology.over(ranks, shape, dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = Decomposition(shape, topology, halo=HALO)
    plan = halo_plan(decomposition)
    dt = min(config.time.cfl / first_rate(config), config.output.every)
    steps = step_count(config, dt)
    frames = frame_count(config, dt, steps)
    count_steps(config.time.end, config.output.every)
    blocks = sorted({decomposition.owned(rank) for rank in range(ranks)})
    local = [math.prod(decomposition.local_shape(rank)) for rank in range(ranks)]
    return DryRun(
        ranks=ranks,
        decomposition=[
            f"{grid.ny} x {grid.nx} cells (y, x) of {grid.dy:g} m x {grid.dx:g} m, x {grid.sides_x}, y {grid.sides_y}",
            f"{' x '.join(map(str, topology.sizes))} ranks, blocks of {' or '.join(f'{a} x {b}' for a, b in blocks)}",
        ],
        halo_bytes=max(3 * plan.nbytes(rank, 8) for rank in range(ranks)),
        memory_per_rank=10 * 8 * max(local),
        output_bytes=frames * (4 if config.output.single else 8) * len(VARIABLES) * math.prod(shape),
        frames=frames,
        steps=steps,
        notes=[f"steps follow the waves, about {dt:.3g} s each; two halo exchanges a step; output before compression"],
    )
