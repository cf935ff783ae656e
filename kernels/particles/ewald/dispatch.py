"""The waves of an Ewald sum in the form for their arrays: those of the processor, or of a GPU."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for

__all__ = ["structure", "wave_forces"]


def structure(positions: Any, *given: Any) -> None:
    """See `reference.structure`."""
    form_for(__package__, positions).structure(positions, *given)


def wave_forces(positions: Any, *given: Any) -> None:
    """See `reference.wave_forces`."""
    form_for(__package__, positions).wave_forces(positions, *given)
