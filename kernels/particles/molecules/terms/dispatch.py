"""Chooses the form of the kernels of angles, dihedrals and impropers by their arrays: NumPy's, or those of a GPU."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for
from hpckit.kernels.particles.molecules.terms.simd import find_terms, order_terms

__all__ = ["add_terms", "attach_terms", "find_terms", "once", "order_terms"]


def attach_terms(positions: Any, *given: Any) -> int:
    """See `reference.attach_terms`, of a GPU alone; waits for it."""
    return form_for(__package__, positions).attach_terms(positions, *given)


def once(own: int, bounds: Any, *given: Any) -> tuple[Any, Any]:
    """See `cuda.once`, of a GPU alone; waits for it."""
    return form_for(__package__, bounds).once(own, bounds, *given)


def add_terms(name: str, kind: str, measure: bool, own: int, positions: Any, *given: Any) -> None:
    """See `reference.add_terms`."""
    form_for(__package__, positions).add_terms(name, kind, measure, own, positions, *given)
