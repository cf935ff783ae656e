"""Numbers of time steps and frames of a run, by arithmetic, not counting: a run may have 1e15 steps."""

from __future__ import annotations

import math
from typing import Any

from hpckit.errors import InputError

MOST_STEPS = 2**53  # beyond it step * dt cannot distinguish neighboring steps


def count_steps(end: float, dt: float, slack: float = 0.0) -> int:
    """Steps of at most dt (s) to `end` (s), the last one shortened to fit; an excess below `slack` counts as 0.

    Raises `InputError` if dt is not a positive number or the count is above 2**53.
    """
    if not (math.isfinite(dt) and dt > 0):
        raise InputError(
            f"the time step would be {dt:g} s",
            likely="the cells are far too small or far too large, or a speed or diffusivity is unreasonable",
            do="look at the grid's extents and the settings under time",
        )
    count = float(end) / float(dt) - slack
    if not count <= MOST_STEPS:
        raise InputError(
            f"steps of {dt:.4g} s to {end:g} s are {count:.4g} steps: a run has at most {float(MOST_STEPS):.4g}",
            do="lower time.end, or take larger cells",
        )
    return math.ceil(count)


def step_count(config: Any, dt: float) -> int:
    """Steps of dt (s) to `config.time.end`. Raises `InputError` as `count_steps` does."""
    return count_steps(config.time.end, dt, 1e-9)


def is_frame(config: Any, dt: float, step: int, steps: int) -> bool:
    """Whether a frame follows `step`: the first step at or past each multiple of output.every, and the last one."""
    return step == steps or passes(config.output.every, dt, step)


def passes(every: float, dt: float, step: int) -> bool:
    """Whether `step`, of dt (s), is the first at or past a multiple of `every` (s)."""
    if dt >= every:
        return True
    return math.floor(step * dt / every + 1e-9) > math.floor((step - 1) * dt / every + 1e-9)


def frame_count(config: Any, dt: float, steps: int) -> int:
    """Frames of a whole run, the initial one included: as many as `is_frame` selects, without a loop over the steps."""
    if not steps:
        return 1
    every = config.output.every
    return 2 + (steps - 1 if dt >= every else math.floor((steps - 1) * dt / every + 1e-9))
