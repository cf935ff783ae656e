"""Chooses the form of the kernels of constraints by the arrays they are given: NumPy's, or those of a GPU."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for

__all__ = ["hold_distances", "hold_speeds", "sums_of"]


def hold_distances(own: int, positions: Any, *given: Any) -> Any:
    """See `reference.hold_distances`; of a GPU a number there, without waiting."""
    return form_for(__package__, positions).hold_distances(own, positions, *given)


def hold_speeds(own: int, positions: Any, *given: Any) -> None:
    """See `reference.hold_speeds`."""
    form_for(__package__, positions).hold_speeds(own, positions, *given)


def sums_of(per_velocity: Any, per_force: float, velocities: Any, *given: Any) -> None:
    """See `reference.sums_of`."""
    form_for(__package__, velocities).sums_of(per_velocity, per_force, velocities, *given)
