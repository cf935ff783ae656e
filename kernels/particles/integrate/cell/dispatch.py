"""Chooses the form of the kernels of tilted cells by the arrays they are given: NumPy's, or those of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.forms import form_for

__all__ = ["deform", "straighten", "stream", "wrap_cell"]

ORIGIN = np.zeros(3)


def straighten(positions: Any, slots: int, lower: Any, slopes: Any, out: Any) -> None:
    """See `reference.straighten`; the cell comes as NumPy arrays."""
    form_for(__package__, positions).straighten(positions, slots, lower, slopes, out)


def wrap_cell(positions: Any, images: Any, slots: int, lower: Any, lengths: Any, tilt: Any, periodic: Any) -> int:
    """See `reference.wrap_cell`, which a GPU does not count for; the cell comes as NumPy arrays."""
    return form_for(__package__, positions).wrap_cell(positions, images, slots, lower, lengths, tilt, periodic)


def deform(records: Any, slots: int, matrix: Any, center: Any = ORIGIN, target: Any = ORIGIN) -> None:
    """See `reference.deform`; matrix, center and target come as NumPy arrays."""
    form_for(__package__, records).deform(records, slots, matrix, center, target)


def stream(velocities: Any, positions: Any, slots: int, matrix: Any, center: Any, speed: Any) -> None:
    """See `reference.stream`; matrix, center and speed come as NumPy arrays."""
    form_for(__package__, velocities).stream(velocities, positions, slots, matrix, center, speed)
