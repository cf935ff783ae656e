"""Chooses the form of warm rain by the arrays it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import double_form_for


def kessler(
    theta: Any, water: Any, rho: Any, exner: Any, pressure: Any, thickness: Any, dt: float, rained: Any
) -> None:
    """Rain over dt in place; see `reference.kessler`."""
    form = double_form_for(__package__, theta, water, rho, exner, pressure, thickness, rained)
    _check(theta, water, rho, exner, pressure)
    if thickness.shape != theta.shape[:1] or rained.shape != theta.shape[1:]:
        raise ValueError(f"thickness is {theta.shape[:1]} and rained {theta.shape[1:]} for cells of {theta.shape}")
    form.kessler(theta, water, rho, exner, pressure, thickness, dt, rained)


def saturate(theta: Any, water: Any, exner: Any, pressure: Any) -> None:
    """Saturation adjustment in place; see `reference.saturate`."""
    form = double_form_for(__package__, theta, water, exner, pressure)
    _check(theta, water, exner, pressure)
    form.saturate(theta, water, exner, pressure)


def _check(theta: Any, water: Any, *others: Any) -> None:
    if water.shape != (3, *theta.shape) or any(each.shape != theta.shape for each in others):
        raise ValueError(f"cells of {theta.shape} need water of {(3, *theta.shape)} and other fields like theta")
