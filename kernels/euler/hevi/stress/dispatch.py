"""Chooses the form of the staggered mixing by the state it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.hevi.constants import HALO, LEVELS, WORKS
from hpckit.kernels.forms import double_form_for


def viscosity(
    state: Any, work: Any, column: Any, levels: Any, spacing: tuple[float, float], coefficient: float, prandtl: float,
    share: float, mu: Any,
) -> Any:  # fmt: skip
    """Fill rho K, return the greatest K, on a GPU as a number there; see `reference.viscosity`."""
    form = _form(state, work, levels, mu)
    return form.viscosity(state, work, column, levels, spacing, coefficient, prandtl, share, mu)


def mix(
    state: Any, work: Any, mu: Any, rest: Any, levels: Any, spacing: tuple[float, float], dt: float, prandtl: float,
    cross: float,
) -> None:  # fmt: skip
    """Apply stress and flux of theta over dt in place; see `reference.mix`."""
    _form(state, work, levels, mu).mix(state, work, mu, rest, levels, spacing, dt, prandtl, cross)


def mix_carried(
    q: Any, out: Any, state: Any, mu: Any, column: Any, levels: Any, spacing: tuple[float, float], dt: float
) -> None:
    """Diffuse mixing ratios over dt into `out`; see `reference.mix_carried`."""
    form = double_form_for(__package__, q, out, state, mu, column, levels)
    nz, tall, wide = mu.shape
    wanted = (len(q), nz, tall - 2 * (HALO - REACH), wide - 2 * (HALO - REACH))
    if q.shape != wanted or out.shape != wanted:
        raise ValueError(f"mixing ratios of this box are {wanted}, not {q.shape} and {out.shape}")
    form.mix_carried(q, out, state, mu, column, levels, spacing, dt)


def _form(state: Any, work: Any, levels: Any, mu: Any) -> Any:
    form = double_form_for(__package__, state, work, levels, mu)
    cells = state.shape[1:]
    wanted = ((FIELDS, *cells), (WORKS, *cells), (LEVELS, cells[0] + 1), cells)
    if (state.shape, work.shape, levels.shape, mu.shape) != wanted:
        raise ValueError(f"state, work space, levels and rho K of this box are {wanted}")
    return form
