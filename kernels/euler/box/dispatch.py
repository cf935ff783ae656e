"""Chooses the form of the kernels of a box by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler.box import simd
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import HALO, WHOLE
from hpckit.kernels.euler.slab.dispatch import require_whole

NO_FLUX = np.zeros((0, 0, 0))  # for sweeps whose mass flux nobody needs
NO_ROWS = np.zeros((FIELDS, 0, HALO, 0))  # for halos that stand in the state
NO_SEAMS = np.zeros((0, 0, FIELDS, 2, HALO))  # for sweeps in one part


def sweep_x(
    state: Any,
    column: Any,
    dx: float,
    dt: float,
    beta: float,
    mass_flux: Any = NO_FLUX,
    begin: int = 0,
    end: int | None = None,
    part: int = WHOLE,
    seams: Any = NO_SEAMS,
    closed: bool = False,
) -> int:
    """Advance the x direction by dt in place, in the rows of y from `begin` to `end`; see `reference.sweep_x`.

    part: WHOLE, or INNER and then OUTER with the same `seams`, float64[nz, ny, 5, 2, 6]: INNER needs no halo, and does
    nothing where `has_inner` is False. closed: whether rows close on themselves, periodic and whole, instead of using
    the halo.
    """
    _check(state, column, mass_flux, seams)
    _check_flux(state, mass_flux, (0, 0, 1))
    ny = state.shape[2] - 2 * HALO
    wanted = (state.shape[1], ny, FIELDS, 2, HALO)
    if part != WHOLE and seams.shape != wanted:
        raise ValueError(f"the seams of a sweep in parts are {wanted}, not {seams.shape}")
    if closed and part != WHOLE:
        raise ValueError("rows that close on themselves are swept in one part")
    if is_device_array(state):
        require_whole(part == WHOLE and not closed and begin == 0 and end in (None, state.shape[2] - 2 * HALO))
        return _form(state).sweep_x(state, column, dx, dt, beta, mass_flux)
    return simd.sweep_x(state, column, dx, dt, beta, mass_flux, *_range(begin, end, ny), part, seams, closed)


def sweep_y(
    state: Any,
    column: Any,
    dy: float,
    dt: float,
    beta: float,
    mass_flux: Any = NO_FLUX,
    begin: int = 0,
    end: int | None = None,
    low: Any = NO_ROWS,
    high: Any = NO_ROWS,
) -> int:
    """Advance the y direction by dt in place, in the columns of x from `begin` to `end`; see `reference.sweep_y`.

    low, high: the rows of the halo where they stand elsewhere than in the state, float64[5, nz, 6, nx + 12].
    """
    _check(state, column, mass_flux, low, high)
    _check_flux(state, mass_flux, (0, 1, 0))
    wanted = (FIELDS, state.shape[1], HALO, state.shape[3])
    for rows in (low, high):
        if rows.size and rows.shape != wanted:
            raise ValueError(f"rows of the halo in y are {wanted}, not {rows.shape}")
    if is_device_array(state):
        require_whole(begin == 0 and end in (None, state.shape[3] - 2 * HALO) and not low.size + high.size)
        return _form(state).sweep_y(state, column, dy, dt, beta, mass_flux)
    lines = _range(begin, end, state.shape[3] - 2 * HALO)
    return simd.sweep_y(state, column, dy, dt, beta, mass_flux, *lines, low, high)


def sweep_z(
    state: Any,
    faces: Any,
    ghost: Any,
    dz: float,
    dt: float,
    beta: float,
    mass_flux: Any = NO_FLUX,
    begin: int = 0,
    end: int | None = None,
) -> int:
    """Advance the z direction by dt in place, in the rows of y from `begin` to `end`; see `reference.sweep_z`."""
    _check(state, faces, ghost, mass_flux)
    _check_flux(state, mass_flux, (1, 0, 0))
    if is_device_array(state):
        require_whole(begin == 0 and end in (None, state.shape[2] - 2 * HALO))
        return _form(state).sweep_z(state, faces, ghost, dz, dt, beta, mass_flux)
    return simd.sweep_z(state, faces, ghost, dz, dt, beta, mass_flux, *_range(begin, end, state.shape[2] - 2 * HALO))


def turn(state: Any, column: Any, wind: Any, angle: float) -> None:
    """Turn the horizontal momentum against the base wind by an angle in place; see `reference.turn`."""
    _check(state, column, wind)
    _form(state).turn(state, column, wind, angle)


def diffuse(state: Any, column: Any, base: Any, spacing: tuple[float, float, float], amount: float, work: Any) -> None:
    """Diffuse u, v, w and theta in place; see `reference.diffuse`."""
    _check(state, column, base, work)
    _form(state).diffuse(state, column, base, spacing, amount, work)


def diagnose(state: Any, column: Any, height: Any) -> Any:
    """What a run watches, float64[11]; see `reference.diagnose`."""
    _check(state, column, height)
    return _form(state).diagnose(state, column, height)


def _form(state: Any) -> Any:
    """The module for a state of this kind."""
    if is_device_array(state):
        from hpckit.kernels.euler.box import cuda

        return cuda
    return simd


def _check(state: Any, *arrays: Any) -> None:
    for array in () if is_device_array(state) else (state, *arrays):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the kernels of a box take C-contiguous float64 NumPy arrays, not {given}")
    if state.ndim != 4 or state.shape[0] != FIELDS or min(state.shape[2:]) < 3 * HALO:
        raise ValueError(
            f"a state is [{FIELDS}, nz, ny + {2 * HALO}, nx + {2 * HALO}] with ny and nx of at least {HALO},"
            f" not {state.shape}"
        )


def _check_flux(state: Any, mass_flux: Any, more: tuple[int, int, int]) -> None:
    """Faces are one more than cells along the sweep."""
    nz, ny, nx = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    wanted = (nz + more[0], ny + more[1], nx + more[2])
    if mass_flux.size and mass_flux.shape != wanted:
        raise ValueError(f"the mass flux of this sweep is {wanted}, not {mass_flux.shape}")


def _range(begin: int, end: int | None, owned: int) -> tuple[int, int]:
    """A part of the owned rows or columns."""
    if end is None:
        end = owned
    if not 0 <= begin <= end <= owned:
        raise ValueError(f"a sweep goes from begin to end within 0 and {owned}, not from {begin} to {end}")
    return begin, end
