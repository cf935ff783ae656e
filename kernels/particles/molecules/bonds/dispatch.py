"""Chooses the form of the kernels of bonds by the arrays they are given: NumPy's, or those of a GPU."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for

__all__ = ["add_bonds", "attach", "index_slots"]


def index_slots(ids: Any, slots: int, head: Any, following: Any) -> None:
    """See `reference.index_slots`."""
    form_for(__package__, ids).index_slots(ids, slots, head, following)


def attach(positions: Any, *given: Any) -> int:
    """See `reference.attach`; waits for a GPU."""
    return form_for(__package__, positions).attach(positions, *given)


def add_bonds(name: str, measure: bool, slots: int, positions: Any, *given: Any) -> None:
    """See `reference.add_bonds`."""
    form_for(__package__, positions).add_bonds(name, measure, slots, positions, *given)
