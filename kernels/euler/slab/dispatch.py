"""Chooses the form of the slab kernels by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler.constants import HALO, WHOLE
from hpckit.kernels.euler.lines import TILE
from hpckit.kernels.euler.slab import simd

FLOAT64 = np.dtype(np.float64)  # quicker to compare with than the type
NO_SEAMS = np.zeros((0, 4, 2, HALO))  # for sweeps in one part


def sweep_x(
    state: Any,
    column: Any,
    dx: float,
    dt: float,
    beta: float,
    source: Any,
    inflow: Any,
    at_left: bool,
    at_right: bool,
    part: int = WHOLE,
    seams: Any = NO_SEAMS,
) -> int:
    """Advance the x direction by dt in place; see `reference.sweep_x`.

    part: WHOLE, or INNER and then OUTER with the same `seams`, float64[nz, 4, 2, 6]: INNER needs no halo, and does
    nothing where `has_inner` is False.
    """
    _check(state, column, inflow, source, seams)
    if part != WHOLE and seams.shape != (state.shape[1], 4, 2, HALO):
        raise ValueError(f"the seams of a sweep in parts are {(state.shape[1], 4, 2, HALO)}, not {seams.shape}")
    if is_device_array(state):
        require_whole(part == WHOLE)
        return _form(state).sweep_x(state, column, dx, dt, beta, source, inflow, at_left, at_right)
    return simd.sweep_x(state, column, dx, dt, beta, source, inflow, at_left, at_right, part, seams)


def sweep_z(
    state: Any,
    faces: Any,
    ghost: Any,
    dz: float,
    dt: float,
    beta: float,
    source: Any,
    begin: int = 0,
    end: int | None = None,
) -> int:
    """Advance the z direction by dt in place, in the owned columns from `begin` to `end`; see `reference.sweep_z`."""
    _check(state, faces, ghost, source)
    owned = state.shape[2] - 2 * HALO
    end = owned if end is None else end
    if not 0 <= begin <= end <= owned:
        raise ValueError(f"a sweep goes from begin to end within 0 and {owned}, not from {begin} to {end}")
    if is_device_array(state):
        require_whole(end - begin == owned)
        return _form(state).sweep_z(state, faces, ghost, dz, dt, beta, source)
    return simd.sweep_z(state, faces, ghost, dz, dt, beta, source, begin, end)


def has_inner(cells: int) -> bool:
    """Whether rows of that many cells along x have a part, INNER, that needs no halo: three tiles or more."""
    return cells > 2 * TILE


def diagnose(state: Any, column: Any, height: Any) -> Any:
    """What a run watches, float64[10]; see `reference.diagnose`."""
    _check(state, column, height)
    return _form(state).diagnose(state, column, height)


def require_whole(whole: bool) -> None:
    """Raises `ValueError` where a sweep in place on a GPU is asked for in parts."""
    if not whole:
        raise ValueError("a sweep in place on a GPU does all cells; in parts it goes to another array: `euler2d.cuda`")


def _form(state: Any) -> Any:
    """The module for a state of this kind."""
    if is_device_array(state):
        from hpckit.kernels.euler.slab import cuda

        return cuda
    return simd


def _check(state: Any, *arrays: Any) -> None:
    for array in () if is_device_array(state) else (state, *arrays):
        if not isinstance(array, np.ndarray) or array.dtype != FLOAT64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the slab kernels take C-contiguous float64 NumPy arrays, not {given}")
    if state.ndim != 3 or state.shape[0] != 4 or state.shape[2] < 3 * HALO:
        raise ValueError(f"a state is [4, nz, nx + {2 * HALO}] with nx of at least {HALO}, not {state.shape}")
