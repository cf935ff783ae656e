"""Chooses the form of the flood kernels by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array, may_share_memory
from hpckit.kernels.flood import simd
from hpckit.kernels.flood.constants import HALO


def stage(
    new: Any, now: Any, start: Any, bottom: Any, weight: float, gravity: float, dx: float, dy: float, dt: float,
    coriolis: float = 0.0, manning: float = 0.0, drag: float = 0.0, dry: float = 1e-6,
) -> Any:  # fmt: skip
    """One stage of a time step into `new`; see `reference.stage`. Returns float64[2]: wave rate and least depth."""
    _check(bottom, now, start, new)
    if may_share_memory(new, now) or may_share_memory(new, start):
        raise ValueError("a stage writes to memory of its own, not to that of its input")
    return _form(now).stage(
        new, now, start, bottom, float(weight), float(gravity), float(dx), float(dy), float(dt),
        float(coriolis), float(manning), float(drag), float(dry),
    )  # fmt: skip


def diagnose(state: Any, bottom: Any, gravity: float, dry: float = 1e-6) -> Any:
    """What a run watches, float64[6]; see `reference.diagnose`."""
    _check(bottom, state)
    return _form(state).diagnose(state, bottom, float(gravity), float(dry))


def _form(state: Any) -> Any:
    """The module for arrays of this kind."""
    if is_device_array(state):
        from hpckit.kernels.flood import cuda

        return cuda
    return simd


def _check(bottom: Any, *states: Any) -> None:
    for array in () if is_device_array(bottom) else (bottom, *states):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the flood kernels take C-contiguous float64 NumPy arrays, not {given}")
    if bottom.ndim != 2 or min(bottom.shape) <= 2 * HALO:
        raise ValueError(f"bottom is [ny + {2 * HALO}, nx + {2 * HALO}], not {bottom.shape}")
    for state in states:
        if state.shape != (3, *bottom.shape):
            raise ValueError(f"a state is {(3, *bottom.shape)} over a bottom of {bottom.shape}, not {state.shape}")
