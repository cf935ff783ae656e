"""Chooses the form of the six kinds of water by the arrays it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.rain.dispatch import by_cell
from hpckit.kernels.euler.rain.ice.constants import AT_GROUND, KINDS
from hpckit.kernels.forms import double_form_for


def microphysics(
    theta: Any, water: Any, rho: Any, exner: Any, pressure: Any, thickness: Any, dt: float, fallen: Any, heated: Any
) -> None:
    """All that water does over dt in place; see `reference.microphysics`."""
    form = double_form_for(__package__, theta, water, rho, exner, pressure, thickness, fallen, heated)
    ground = theta.shape[1:]
    if water.shape != (KINDS, *theta.shape) or any(each.shape != theta.shape for each in (rho, exner, pressure)):
        raise ValueError(f"cells of {theta.shape} need water of {(KINDS, *theta.shape)} and other fields like theta")
    if (
        thickness.shape not in (theta.shape[:1], theta.shape)
        or fallen.shape != (AT_GROUND, *ground)
        or heated.shape != (2, *ground)
    ):
        raise ValueError(
            f"cells of {theta.shape} need a thickness of {theta.shape[:1]}, fallen of {(AT_GROUND, *ground)} and"
            f" heated of {(2, *ground)}"
        )
    form.microphysics(theta, water, rho, exner, pressure, by_cell(thickness, 1), dt, fallen, heated)
