"""Chooses the form of the slab kernels by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler2d import simd
from hpckit.kernels.euler2d.constants import HALO


def sweep_x(
    state: Any, column: Any, dx: float, dt: float, beta: float, source: Any, inflow: Any, at_left: bool, at_right: bool
) -> int:
    """Advance the x direction by dt in place; see `reference.sweep_x`."""
    _check(state, column, inflow, source)
    return _form(state).sweep_x(state, column, dx, dt, beta, source, inflow, at_left, at_right)


def sweep_z(state: Any, faces: Any, ghost: Any, dz: float, dt: float, beta: float, source: Any) -> int:
    """Advance the z direction by dt in place; see `reference.sweep_z`."""
    _check(state, faces, ghost, source)
    return _form(state).sweep_z(state, faces, ghost, dz, dt, beta, source)


def diagnose(state: Any, column: Any, height: Any) -> Any:
    """What a run watches, float64[10]; see `reference.diagnose`."""
    _check(state, column, height)
    return _form(state).diagnose(state, column, height)


def _form(state: Any) -> Any:
    """The module for a state of this kind."""
    if is_device_array(state):
        from hpckit.kernels.euler2d import cuda

        return cuda
    return simd


def _check(state: Any, *arrays: Any) -> None:
    for array in () if is_device_array(state) else (state, *arrays):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the slab kernels take C-contiguous float64 NumPy arrays, not {given}")
    if state.ndim != 3 or state.shape[0] != 4 or state.shape[2] < 3 * HALO:
        raise ValueError(f"a state is [4, nz, nx + {2 * HALO}] with nx of at least {HALO}, not {state.shape}")
