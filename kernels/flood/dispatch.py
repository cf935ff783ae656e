"""Chooses the form of the flood kernels by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array, may_share_memory, to_host
from hpckit.kernels.flood.constants import DEPTH_MIN, HALO, RATE, Physics
from hpckit.kernels.forms import double_form_for, form_for
from hpckit.kernels.parts import WHOLE


def stage(
    new: Any, now: Any, start: Any, bottom: Any, weight: float, dt: float, physics: Physics, found: Any,
    part: int = WHOLE,
) -> None:  # fmt: skip
    """One stage of a time step into `new`; see `reference.stage`."""
    form = _form(bottom, now, start, new)
    if may_share_memory(new, now) or may_share_memory(new, start):
        raise ValueError("a stage writes to memory of its own, not to that of its input")
    physics = Physics(*map(float, physics))
    form.stage(new, now, start, bottom, float(weight), float(dt), physics, found, part)


def found_by(state: Any) -> Any:
    """An array for what a stage finds, on the device of the state; `ends` reads it."""
    if is_device_array(state):
        return form_for(__package__, state).found_by(state)
    return np.zeros((1, 2))


def ends(found: Any) -> np.ndarray:
    """What a stage found, float64[2]: the greatest wave rate (1/s), the least depth (m); waits for the device."""
    each = to_host(found)
    if len(each) == 1:
        return each[0]
    both = np.empty(2)
    both[RATE], both[DEPTH_MIN] = each[:, RATE].max(), each[:, DEPTH_MIN].min()
    return both


def diagnose(state: Any, bottom: Any, physics: Physics) -> Any:
    """What a run watches, float64[6]; see `reference.diagnose`."""
    return _form(bottom, state).diagnose(state, bottom, Physics(*map(float, physics)))


def _form(bottom: Any, *states: Any) -> Any:
    form = double_form_for(__package__, bottom, *states)
    if bottom.ndim != 2 or min(bottom.shape) <= 2 * HALO:
        raise ValueError(f"bottom is [ny + {2 * HALO}, nx + {2 * HALO}], not {bottom.shape}")
    for state in states:
        if state.shape != (3, *bottom.shape):
            raise ValueError(f"a state is {(3, *bottom.shape)} over a bottom of {bottom.shape}, not {state.shape}")
    return form
