"""Chooses the form of the mixing by the state it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.forms import double_form_for

Spacing = tuple[float, float, float]


def eddy_viscosity(
    state: Any,
    column: Any,
    spacing: Spacing,
    coefficient: float,
    prandtl: float,
    limit: float,
    work: Any,
    viscosity: Any,
) -> Any:
    """Fill `work` and `viscosity`, return the greatest viscosity; see `reference.eddy_viscosity`.

    On a GPU it is a number there: `float` waits for it.
    """
    form = _form(state, column, work, viscosity)
    _check_shape("the work space", work, state.shape)
    _check_shape("the viscosity", viscosity, state.shape[1:])
    return form.eddy_viscosity(state, column, spacing, coefficient, prandtl, limit, work, viscosity)


def mix(state: Any, base: Any, spacing: Spacing, dt: float, prandtl: float, work: Any, viscosity: Any) -> None:
    """Apply stress and flux of theta over dt in place; see `reference.mix`."""
    form = _form(state, base, work, viscosity)
    _check_shape("the work space", work, state.shape)
    _check_shape("the viscosity", viscosity, state.shape[1:])
    form.mix(state, base, spacing, dt, prandtl, work, viscosity)


def mix_tracers(tracers: Any, out: Any, state: Any, column: Any, spacing: Spacing, dt: float, viscosity: Any) -> None:
    """Diffuse tracers over dt into `out`; see `reference.mix_tracers`."""
    form = _form(state, tracers, out, column, viscosity)
    _, nz, tall, wide = state.shape
    for name, array in (("the tracers", tracers), ("their new values", out)):
        _check_shape(name, array, (len(tracers), nz, tall - 2 * (HALO - REACH), wide - 2 * (HALO - REACH)))
    _check_shape("the viscosity", viscosity, state.shape[1:])
    form.mix_tracers(tracers, out, state, column, spacing, dt, viscosity)


def drag(state: Any, column: Any, coefficient: float, dz: float, dt: float) -> None:
    """Slow the wind of the lowest level over dt in place; see `reference.drag`."""
    form = _form(state, column)
    form.drag(state, column, coefficient, dz, dt)


def _form(state: Any, *arrays: Any) -> Any:
    form = double_form_for(__package__, state, *arrays)
    if state.ndim != 4 or len(state) != FIELDS or state.shape[1] < 2:
        raise ValueError(
            f"a state is [{FIELDS}, nz, ny + {2 * HALO}, nx + {2 * HALO}], nz at least 2; not {state.shape}"
        )
    return form


def _check_shape(name: str, array: Any, wanted: tuple[int, ...]) -> None:
    if array.shape != tuple(wanted):
        raise ValueError(f"{name} must be {tuple(wanted)}, not {array.shape}")
