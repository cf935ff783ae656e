"""Charges and fields on a mesh in the form for their arrays: those of the processor, or of a GPU."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for
from hpckit.kernels.particles.mesh.reference import SIDE, WIDTH

__all__ = ["SIDE", "WIDTH", "fold", "gather", "lay_beside", "spread"]


def spread(positions: Any, *given: Any) -> Any:
    """See `reference.spread`; on a GPU the count is there, and nothing waits for it."""
    return form_for(__package__, positions).spread(positions, *given)


def fold(grid: Any, start: Any, whole: Any) -> None:
    """See `reference.fold`."""
    form_for(__package__, grid).fold(grid, start, whole)


def lay_beside(fields: Any, start: Any, shape: Any, beside: Any) -> None:
    """See `reference.lay_beside`."""
    form_for(__package__, fields).lay_beside(fields, start, shape, beside)


def gather(positions: Any, *given: Any) -> None:
    """See `reference.gather`."""
    form_for(__package__, positions).gather(positions, *given)
