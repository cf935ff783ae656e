"""Chooses the form of the relaxation by the state it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.forms import double_form_for


def relax(state: Any, column: Any, base: Any, side_x: Any, side_y: Any, lid: Any, dt: float, back: int) -> Any:
    """Relax toward the base state in place; returns what was added to the sum of rho'; see `reference.relax`.

    On a GPU that is a number there: `float` waits for it.
    """
    form = double_form_for(__package__, state, column, base, side_x, side_y, lid)
    around = max(state.shape[3] - side_x.shape[-1], 2)  # the halo is what the state has beyond the rates
    wanted = (FIELDS, len(lid), side_y.shape[-1] + around, side_x.shape[-1] + around)
    if (
        state.shape != wanted
        or around % 2
        or len(side_x) != 2
        or len(side_y) != 2
        or base.shape != (4, len(lid))
        or column.shape != (3, len(lid))
    ):
        raise ValueError(f"these rates belong to a state of {wanted} and a base of [4, {len(lid)}]")
    return form.relax(state, column, base, side_x, side_y, lid, dt, back)
