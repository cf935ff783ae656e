"""Chooses the form of mixing over terrain by the state it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.hevi.constants import HALO, LEVELS
from hpckit.kernels.euler.hevi.terrain.constants import METRICS, WORKS, Ground
from hpckit.kernels.euler.hevi.terrain.stress.constants import ROWS
from hpckit.kernels.forms import double_form_for

Spacing = tuple[float, float]


def viscosity(
    state: Any, work: Any, ground: Ground, levels: Any, spacing: Spacing, coefficient: float, prandtl: float,
    share: float, rows: Any, mu: Any,
) -> Any:  # fmt: skip
    """Fill rho K, return the greatest K, on a GPU as a number there; see `reference.viscosity`."""
    form = _form(state, work, ground, levels, mu, rows)
    return form.viscosity(state, work, ground, levels, spacing, coefficient, prandtl, share, rows, mu)


def mix(
    state: Any, work: Any, mu: Any, ground: Ground, levels: Any, spacing: Spacing, dt: float, prandtl: float,
    cross: float, rows: Any, slow: Any,
) -> None:  # fmt: skip
    """Apply stress and flux of theta over dt in place; see `reference.mix`."""
    form = _form(state, work, ground, levels, mu, rows)
    if slow.shape != state.shape:
        raise ValueError(f"the tendencies must be {state.shape}, not {slow.shape}")
    form.mix(state, work, mu, ground, levels, spacing, dt, prandtl, cross, rows, slow)


def mix_carried(
    q: Any, out: Any, state: Any, mu: Any, ground: Ground, levels: Any, spacing: Spacing, dt: float
) -> None:
    """Diffuse mixing ratios over dt into `out`; see `reference.mix_carried`."""
    form = double_form_for(__package__, q, out, state, mu, *ground, levels)
    nz, tall, wide = mu.shape
    wanted = (len(q), nz, tall - 2 * (HALO - REACH), wide - 2 * (HALO - REACH))
    if q.shape != wanted or out.shape != wanted:
        raise ValueError(f"mixing ratios of this box are {wanted}, not {q.shape} and {out.shape}")
    form.mix_carried(q, out, state, mu, ground, levels, spacing, dt)


def _form(state: Any, work: Any, ground: Ground, levels: Any, mu: Any, rows: Any) -> Any:
    form = double_form_for(__package__, state, work, *ground, levels, mu, rows)
    cells = state.shape[1:]
    wanted = [(FIELDS, *cells), (WORKS, *cells), (METRICS, *cells), (LEVELS, cells[0] + 1), cells, (ROWS, *cells)]
    if [each.shape for each in (state, work, ground.metric, levels, mu, rows)] != wanted:
        raise ValueError(f"state, work space, terrain, levels and rho K of this box are {wanted}")
    return form
