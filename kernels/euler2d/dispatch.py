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
    if is_device_array(state):
        from hpckit.kernels.euler2d import cuda

        _check_shape(state)
        return cuda.sweep_x(state, column, dx, dt, beta, source, inflow, at_left, at_right)
    _check(state, column, inflow, source)
    return simd.sweep_x(state, column, dx, dt, beta, source, inflow, at_left, at_right)


def sweep_z(state: Any, faces: Any, ghost: Any, dz: float, dt: float, beta: float, source: Any) -> int:
    """Advance the z direction by dt in place; see `reference.sweep_z`."""
    if is_device_array(state):
        from hpckit.kernels.euler2d import cuda

        _check_shape(state)
        return cuda.sweep_z(state, faces, ghost, dz, dt, beta, source)
    _check(state, faces, ghost, source)
    return simd.sweep_z(state, faces, ghost, dz, dt, beta, source)


def diagnose(state: Any, column: Any, height: Any) -> Any:
    """What a run watches, float64[10]; see `reference.diagnose`."""
    if is_device_array(state):
        from hpckit.kernels.euler2d import cuda

        _check_shape(state)
        return cuda.diagnose(state, column, height)
    _check(state, column, height)
    return simd.diagnose(state, column, height)


def _check(state: Any, *arrays: Any) -> None:
    for array in (state, *arrays):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the slab kernels take C-contiguous float64 NumPy arrays, not {given}")
    _check_shape(state)


def _check_shape(state: Any) -> None:
    if state.ndim != 3 or state.shape[0] != 4 or state.shape[2] < 3 * HALO:
        raise ValueError(f"a state is [4, nz, nx + {2 * HALO}] with nx of at least {HALO}, not {state.shape}")
