"""The time loop of the weather apps: steps, metrics, frames, early stop, and what the summary says."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from hpckit.apps.atmosphere.blow_up import Checked, courant, require_sound
from hpckit.comm.observe.timer import PhaseTimer, t_eff
from hpckit.io.checkpoint.state import Restored
from hpckit.run.context import Run
from hpckit.run.steps import is_frame, step_count


class Model(Checked, Protocol):
    """What the loop advances."""

    @property
    def dt(self) -> float:
        """The full time step, s."""

    @property
    def cells(self) -> int:
        """Cells of the whole grid."""

    @property
    def wait_seconds(self) -> float:
        """Time spent in MPI waits so far."""

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s)."""

    def watch(self) -> Any:
        """Collective: mass, energy, extremes."""

    def output(self) -> dict[str, np.ndarray]:
        """The fields that are written."""

    def restore(self, restored: Restored) -> None:
        """Go on from a checkpoint."""


@dataclass(frozen=True)
class Ran:
    """How a loop went: the first and the last watch, steps of the whole run and of this attempt, wall seconds, whether
    it came to its end.
    """

    first: Any
    last: Any
    steps: int
    steps_now: int
    seconds: float
    complete: bool


def time_loop(model: Model, run: Run, write: Callable[[float, dict[str, np.ndarray]], None]) -> Ran:
    """From the start, or a checkpoint, to the end or to an early stop; frames go to `write`.

    Raises `BlowUpError` on all ranks alike.
    """
    config, timer, full = model.config, run.timer, model.dt
    steps = step_count(config, full)
    if run.restored is not None:
        model.restore(run.restored)
    done = model.steps_done
    first = watch = model.watch()
    require_sound(model, first, full)
    if run.restored is not None:
        first = replace(watch, **run.restored.values["first"])
    else:
        _report(model, run, first, 0.0, full)
        write(0.0, model.output())
    timer.reset()
    waited = model.wait_seconds
    begin = clock.perf_counter()
    for step in range(done + 1, steps + 1):
        dt = full if step < steps else config.time.end - (steps - 1) * full
        time = config.time.end if step == steps else step * full
        run.advance(step, partial(model.step, dt, timer), model.saved, model.restore)
        monitor, frame = step % config.time.monitor == 0 or step == steps, is_frame(config, full, step, steps)
        if monitor:
            with timer("diagnostics"):
                watch = model.watch()
                require_sound(model, watch, full)
                _report(model, run, watch, time, dt)
            rate = model.cells * (step - done) / (clock.perf_counter() - begin) / 1e6
            run.progress(step, time, config.time.end, f"{rate:.3g} million cell-steps/s")
        if frame:
            with timer("output"):
                write(time, model.output())
        if step < steps and run.edge(step, lambda: model.saved(first=asdict(first))):
            if not monitor:
                watch = model.watch()
            if not frame:
                write(time, model.output())
            break
    model.state.device.wait()
    seconds = clock.perf_counter() - begin
    timer.seconds["wait"] = model.wait_seconds - waited
    timer.seconds["halo"] = timer.seconds.get("halo", 0.0) - timer.seconds["wait"]
    return Ran(first, watch, model.steps_done, model.steps_done - done, seconds, model.steps_done == steps)


def finish(model: Model, run: Run, ran: Ran, bytes_per_cell_step: int, more: Mapping[str, Any] | None = None) -> None:
    """Collective: the summary of a run; `more` is added to it."""
    cell_steps = model.cells * ran.steps_now
    run.finish(
        {
            "steps": ran.steps,
            "cells": model.cells,
            "wall_seconds": ran.seconds,
            "simulated_seconds": model.config.time.end if ran.complete else ran.steps * model.dt,
            "cell_steps_per_second": cell_steps / ran.seconds,
            "bytes_per_cell_step": bytes_per_cell_step,
            "t_eff": t_eff(cell_steps * bytes_per_cell_step, ran.seconds),
            "conserved": {
                name: {"initial": before, "final": after, "relative_change": (after - before) / before}
                for name, before, after in (
                    ("mass", ran.first.mass, ran.last.mass),
                    ("energy", ran.first.energy, ran.last.energy),
                )
            },
            "decomposition": model.decomposition,
            **(more or {}),
        },
        status="done" if ran.complete else "stopped",
    )


def _report(model: Model, run: Run, watch: Any, time: float, dt: float) -> None:
    run.metric(
        step=model.steps_done,
        time=time,
        dt=dt,
        cfl=courant(model, watch, dt),
        mass=watch.mass,
        energy=watch.energy,
        w_max=watch.w_max,
        theta_min=watch.theta_min,
        theta_max=watch.theta_max,
        **getattr(watch, "more", {}),
    )
