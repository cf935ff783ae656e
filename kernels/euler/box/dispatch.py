"""Chooses the form of the kernels of a box by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.slab.dispatch import Lines, range_of, require_out
from hpckit.kernels.forms import double_form_for
from hpckit.kernels.parts import INNER, OUTER, WHOLE

NO_FLUX = np.zeros((0, 0, 0))  # for sweeps whose mass flux is not needed
NO_SEAMS = np.zeros((0, 0, FIELDS, 2, HALO))  # for sweeps in one part


def sweep_x(
    state: Any, out: Any, column: Any, mass_flux: Any, sweep: Sweep, status: Any, lines: Lines | None = None,
    part: int = WHOLE, seams: Any = NO_SEAMS,
) -> None:  # fmt: skip
    """Advance the x direction by dt, by default in all rows; see `reference.sweep_x`."""
    form = _form(state, column, mass_flux, seams)
    _check_sweep(state, out, mass_flux, (0, 0, 1))
    wanted = (state.shape[1], state.shape[2] - 2 * HALO, FIELDS, 2, HALO)
    if part in (INNER, OUTER) and not is_device_array(state) and seams.shape != wanted:
        raise ValueError(f"the seams of a sweep in parts are {wanted}, not {seams.shape}")
    lines = range_of(state, lines, state.shape[2] - 2 * HALO)
    form.sweep_x(state, out, column, mass_flux, sweep, status, lines, part, seams)


def sweep_y(
    state: Any, out: Any, column: Any, mass_flux: Any, sweep: Sweep, status: Any, lines: Lines | None = None,
    part: int = WHOLE,
) -> None:  # fmt: skip
    """Advance the y direction by dt, by default in all columns of x; see `reference.sweep_y`."""
    form = _form(state, column, mass_flux)
    _check_sweep(state, out, mass_flux, (0, 1, 0))
    lines = range_of(state, lines, state.shape[3] - 2 * HALO)
    form.sweep_y(state, out, column, mass_flux, sweep, status, lines, part)


def sweep_z(
    state: Any, out: Any, faces: Any, ghost: Any, mass_flux: Any, sweep: Sweep, status: Any, lines: Lines | None = None
) -> None:
    """Advance the z direction by dt, by default in all rows of y; see `reference.sweep_z`."""
    form = _form(state, faces, ghost, mass_flux)
    _check_sweep(state, out, mass_flux, (1, 0, 0))
    lines = range_of(state, lines, state.shape[2] - 2 * HALO)
    form.sweep_z(state, out, faces, ghost, mass_flux, sweep, status, lines)


def turn(state: Any, column: Any, wind: Any, angle: float) -> None:
    """Turn the horizontal momentum against the base wind by an angle in place; see `reference.turn`."""
    _form(state, column, wind).turn(state, column, wind, angle)


def diffuse(state: Any, column: Any, base: Any, spacing: tuple[float, float, float], amount: float, work: Any) -> None:
    """Diffuse u, v, w and theta in place; see `reference.diffuse`."""
    _form(state, column, base, work).diffuse(state, column, base, spacing, amount, work)


def diagnose(state: Any, column: Any, height: Any) -> Any:
    """What a run watches, float64[11]; see `reference.diagnose`."""
    return _form(state, column, height).diagnose(state, column, height)


def _form(state: Any, *arrays: Any) -> Any:
    form = double_form_for(__package__, state, *arrays)
    if state.ndim != 4 or state.shape[0] != FIELDS or min(state.shape[2:]) < 3 * HALO:
        raise ValueError(
            f"a state is [{FIELDS}, nz, ny + {2 * HALO}, nx + {2 * HALO}] with ny and nx of at least {HALO},"
            f" not {state.shape}"
        )
    return form


def _check_sweep(state: Any, out: Any, mass_flux: Any, more: tuple[int, int, int]) -> None:
    """The result is like the state; faces are one more than cells along the sweep."""
    require_out(__package__, state, out)
    nz, ny, nx = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    wanted = (nz + more[0], ny + more[1], nx + more[2])
    if mass_flux.size and mass_flux.shape != wanted:
        raise ValueError(f"the mass flux of this sweep is {wanted}, not {mass_flux.shape}")
