"""Chooses the form of the kernels of a cubed sphere by the state they are given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import double_form_for, form_for
from hpckit.kernels.sphere.constants import HALO, Physics, Tables


def copy(values: Any, places: Any, ghosts: Any, targets: Any) -> None:
    """See `reference.copy`."""
    form_for(__package__, values).copy(values, places, ghosts, targets)


def fill(state: Any, ghosts: Any, tables: Tables) -> None:
    """See `reference.fill`."""
    _form(state, tables, ghosts).fill(state, ghosts, tables)


def seam_flux(ghosts: Any, bottom_ghosts: Any, tables: Tables, physics: Physics, out: Any) -> None:
    """See `reference.seam_flux`."""
    double_form_for(__package__, ghosts, bottom_ghosts, out).seam_flux(ghosts, bottom_ghosts, tables, physics, out)


def stage(
    state: Any,
    base: Any,
    bottom: Any,
    seams: Any,
    tables: Tables,
    physics: Physics,
    dt: float,
    share: float,
    out: Any,
) -> None:
    """See `reference.stage`."""
    if not state.shape == base.shape == out.shape or bottom.shape != state.shape[1:]:
        raise ValueError(f"state {state.shape}, base {base.shape}, out {out.shape}, bottom {bottom.shape} do not fit")
    form = _form(state, tables, base, bottom, seams, out)
    form.stage(state, base, bottom, seams, tables, physics, dt, share, out)


def _form(state: Any, tables: Tables, *more: Any) -> Any:
    form = double_form_for(__package__, state, *more)
    panels, (high, wide) = len(tables.sides), tables.per_area.shape
    if state.shape[1:] != (panels, high + 2 * HALO, wide + 2 * HALO):
        raise ValueError(f"the state {state.shape} is not [components, {panels}, {high} + 6, {wide} + 6]")
    return form
