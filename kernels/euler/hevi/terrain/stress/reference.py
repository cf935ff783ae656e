"""Mixing over terrain (`kernels.euler.hevi.terrain`), NumPy: definition, oracle of the compiled forms.

Stress, eddy viscosity and fluxes of scalars are those of the flat box (`kernels.euler.hevi.stress.reference`), of the
Cartesian wind and its gradients in space. With z_x the slope of a level,

    dq/dx = q_x - z_x / J q_zeta,    dq/dz = q_zeta / J,
    J div F = (J F_x)_x + (J F_y)_y + (F_z - z_x F_x - z_y F_y)_zeta

so that what leaves a cell enters the next. No stress and no flux passes ground and lid. In the middle of a level q_zeta
is a difference of the levels around it, next to ground and lid to one side. What the stress brings to J rho w becomes
that of Omega, as in `terrain.reference`. Of wind and theta those of the base state at the height of each cell are left
out, so it stays as it is.

rows: `constants`, a work space. mu: rho K, float64[nz, ny + 8, nx + 8]. Other arguments: as in the flat box.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import GRAVITY, REACH
from hpckit.kernels.euler.hevi import reference as flat
from hpckit.kernels.euler.hevi.constants import DRY, HALO, PER_CELL, PER_FACE, THETA, U, V, W
from hpckit.kernels.euler.hevi.terrain.constants import (
    J_U,
    J_V,
    PER_W,
    SIZE,
    SLOPE_U,
    SLOPE_V,
    SLOPE_X,
    SLOPE_Y,
    STEEP,
    Ground,
)
from hpckit.kernels.euler.hevi.terrain.stress.constants import GRADIENTS, OFF_THETA, OFF_U

OWNED = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
AROUND = (slice(None), slice(HALO - 1, 1 - HALO), slice(HALO - 1, 1 - HALO))
Spacing = tuple[float, float]


def viscosity(
    state: np.ndarray,
    work: np.ndarray,
    ground: Ground,
    levels: np.ndarray,
    spacing: Spacing,
    coefficient: float,
    prandtl: float,
    share: float,
    rows: np.ndarray,
    mu: np.ndarray,
) -> float:
    """Fill mu = rho K in the owned cells and one around them; returns the greatest K of the owned cells (m2/s).

    share: K (1/dx2 + 1/dy2 + (1 + z_x2 + z_y2) / (J dzeta)2) is at most this (1/s), so that an explicit step is stable.
    """
    (dx, dy), metric, (u, v, w) = spacing, ground.metric, (work[each] for each in (U, V, W))
    per_cell, theta = levels[PER_CELL, :-1, None, None], work[THETA] * work[DRY]  # of density
    u_x, v_y, w_z, u_y, v_x, u_z, w_x, v_z, w_y = _gradients(np.array([u, v, w]), metric, levels, spacing)
    square = 2 * (u_x**2 + v_y**2 + w_z**2)
    for edges, first, second in (((u_y + v_x) ** 2, 2, 1), ((u_z + w_x) ** 2, 2, 0), ((v_z + w_y) ** 2, 1, 0)):
        both = edges + np.roll(edges, -1, first)  # those at the ground are 0, and stand for the lid's
        square += 0.25 * (both + np.roll(both, -1, second))
    size, slope_x, slope_y = metric[SIZE], _mean(metric[SLOPE_U], 2, -1), _mean(metric[SLOPE_V], 1, -1)
    stable = GRAVITY * (_along_column(theta, levels) / size) / theta / prandtl
    length = coefficient * (dx * dy * size / per_cell) ** (1 / 3)
    mixing = length**2 * np.sqrt(np.maximum(square - stable, 0.0))
    rate = 1 / dx**2 + 1 / dy**2 + (1 + slope_x**2 + slope_y**2) * (per_cell / size) ** 2
    mixing = np.minimum(mixing, share / rate)
    mu[AROUND] = ((state[RHO] + ground.base[0]) / size * mixing)[AROUND]
    return float(mixing[OWNED].max())


def mix(
    state: np.ndarray,
    work: np.ndarray,
    mu: np.ndarray,
    ground: Ground,
    levels: np.ndarray,
    spacing: Spacing,
    dt: float,
    prandtl: float,
    cross: float,
    rows: np.ndarray,
    slow: np.ndarray,
) -> None:
    """Add what the stress and the flux of theta bring over dt (s) to the owned cells of a state.

    mu: of the owned cells and one around them. slow: as the state, a work space.
    """
    (dx, dy), (base, metric, wind, _) = spacing, ground
    off = np.array([work[U] - wind[0], work[V] - wind[1], work[W], work[THETA] - base[1] / base[0]])
    u_x, v_y, w_z, u_y, v_x, u_z, w_x, v_z, w_y = _gradients(off[:3], metric, levels, spacing)
    below_mu = np.concatenate([mu[:1], mu[:-1]])
    corner, upright = _mean(_mean(mu, 2), 1), 0.5 * (below_mu + mu)
    across, along = _mean(upright, 2), _mean(upright, 1)
    normal = 1 + cross
    xx, yy, zz = normal * mu * u_x, normal * mu * v_y, normal * mu * w_z
    xy, yx = corner * (u_y + cross * v_x), corner * (v_x + cross * u_y)
    xz, zx = across * (u_z + cross * w_x), across * (w_x + cross * u_z)
    yz, zy = along * (v_z + cross * w_y), along * (w_y + cross * v_z)
    rows[:GRADIENTS], rows[OFF_U : OFF_THETA + 1] = (xx, yy, zz, xy, yx, xz, zx, yz, zy), off
    per_cell, per_face = levels[PER_CELL, :-1, None, None], levels[PER_FACE, :-1, None, None]
    size, corner_size, between = metric[SIZE], _mean(metric[J_U], 1), 1 / metric[PER_W]

    def rises(upward: np.ndarray) -> np.ndarray:
        upward[0] = 0.0
        return np.diff(upward, axis=0, append=0.0) * per_cell

    def below(a: np.ndarray) -> np.ndarray:
        return 0.5 * (np.concatenate([a[:1], a[:-1]]) + a)

    up = xz - _mean(metric[SLOPE_X], 2) * below(_mean(xx, 2)) - _mean(metric[SLOPE_Y], 2) * below(_mean(xy, 1, -1))
    slow[RHO_U] = _low(size * xx, 2, dx) + _high(corner_size * xy, 1, dy) + rises(up)
    up = yz - _mean(metric[SLOPE_X], 1) * below(_mean(yx, 2, -1)) - _mean(metric[SLOPE_Y], 1) * below(_mean(yy, 1))
    slow[RHO_V] = _high(corner_size * yx, 2, dx) + _low(size * yy, 1, dy) + rises(up)
    up = zz - _mean(metric[SLOPE_U], 2, -1) * _mean(_mean(zx, 2, -1), 0, -1)
    up -= _mean(metric[SLOPE_V], 1, -1) * _mean(_mean(zy, 1, -1), 0, -1)
    slow[RHO_W] = _high(_mean(between, 2) * zx, 2, dx) + _high(_mean(between, 1) * zy, 1, dy)
    slow[RHO_W, 1:] += np.diff(up, axis=0) * per_face[1:]
    slow[RHO_W] *= metric[PER_W]
    for momentum, dim, each, slope in ((RHO_U, 2, J_U, SLOPE_X), (RHO_V, 1, J_V, SLOPE_Y)):
        slow[RHO_W] -= metric[slope] * flat.at_faces(_mean(slow[momentum] / metric[each], dim, -1), levels)[:-1]
    slow[RHO_W, 0] = 0.0
    slow[RHO], slow[RHO_THETA] = 0.0, _spread(off[3], mu, metric, levels, spacing) / prandtl
    state[(slice(None), *OWNED)] += dt * slow[(slice(None), *OWNED)]


def mix_carried(
    q: np.ndarray,
    out: np.ndarray,
    state: np.ndarray,
    mu: np.ndarray,
    ground: Ground,
    levels: np.ndarray,
    spacing: Spacing,
    dt: float,
) -> None:
    """Diffuse mixing ratios, float64[n, nz, ny + 6, nx + 6], with rho K over dt (s) into the owned cells of `out`."""
    some = HALO - REACH
    inner = (slice(None), slice(REACH, -REACH), slice(REACH, -REACH))
    for each, result in zip(q, out, strict=True):
        seen = np.pad(each, ((0, 0), (some, some), (some, some)))
        change = _spread(seen, mu, ground.metric, levels, spacing) / (state[RHO] + ground.base[0])
        result[inner] = each[inner] + dt * change[OWNED]


def _gradients(winds: np.ndarray, metric: np.ndarray, levels: np.ndarray, spacing: Spacing) -> tuple[np.ndarray, ...]:
    """The gradients of the wind, in the order of `constants`; those at the edges of ground and lid are 0."""
    (dx, dy), (u, v, w) = spacing, winds
    rise_u, rise_v = _along_column(u, levels), _along_column(v, levels)
    per_cell, per_face = levels[PER_CELL, :-1, None, None], levels[PER_FACE, :-1, None, None]
    size, corner = metric[SIZE], _mean(metric[J_U], 1)
    high = np.concatenate([w[1:], np.zeros_like(w[:1])])
    low = np.concatenate([w[:1], w[:-1]])
    rise_w = (high - low) / (1 / per_cell + 1 / np.concatenate([per_cell[:1], per_cell[:-1]]))
    tall_x, tall_y = _mean(1 / metric[PER_W], 2), _mean(1 / metric[PER_W], 1)
    u_z, v_z = np.diff(u, axis=0, prepend=0.0) * per_face / tall_x, np.diff(v, axis=0, prepend=0.0) * per_face / tall_y
    w_x = _low(w, 2, dx) - _mean(metric[SLOPE_X], 2) / tall_x * _mean(rise_w, 2)
    w_y = _low(w, 1, dy) - _mean(metric[SLOPE_Y], 1) / tall_y * _mean(rise_w, 1)
    for each in (u_z, v_z, w_x, w_y):
        each[0] = 0.0
    return (
        _high(u, 2, dx) - _mean(metric[SLOPE_U], 2, -1) / size * _mean(rise_u, 2, -1),
        _high(v, 1, dy) - _mean(metric[SLOPE_V], 1, -1) / size * _mean(rise_v, 1, -1),
        (high - w) * per_cell / size,
        _low(u, 1, dy) - _mean(metric[SLOPE_V], 2) / corner * _mean(rise_u, 1),
        _low(v, 2, dx) - _mean(metric[SLOPE_U], 1) / corner * _mean(rise_v, 2),
        u_z,
        w_x,
        v_z,
        w_y,
    )


def _spread(q: np.ndarray, mu: np.ndarray, metric: np.ndarray, levels: np.ndarray, spacing: Spacing) -> np.ndarray:
    """What diffusion brings to J rho q of cells, per s."""
    (dx, dy), rise = spacing, _along_column(q, levels)
    x = _mean(mu, 2) * (metric[J_U] * _low(q, 2, dx) - metric[SLOPE_U] * _mean(rise, 2))
    y = _mean(mu, 1) * (metric[J_V] * _low(q, 1, dy) - metric[SLOPE_V] * _mean(rise, 1))
    z = metric[STEEP] * np.diff(q, axis=0, prepend=0.0) * levels[PER_FACE, :-1, None, None]
    for slope, dim, width in ((SLOPE_X, 2, dx), (SLOPE_Y, 1, dy)):
        z -= metric[slope] * flat.at_faces(_mean(_low(q, dim, width), dim, -1), levels)[:-1]
    z *= 0.5 * (np.concatenate([mu[:1], mu[:-1]]) + mu)
    z[0] = 0.0
    return _high(x, 2, dx) + _high(y, 1, dy) + np.diff(z, axis=0, append=0.0) * levels[PER_CELL, :-1, None, None]


def _along_column(a: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The derivative by zeta in the middle of levels."""
    gap = np.zeros(len(a) + 1)
    gap[1:-1] = 1 / levels[PER_FACE, 1:-1]
    return (np.concatenate([a[1:], a[-1:]]) - np.concatenate([a[:1], a[:-1]])) / (gap[1:] + gap[:-1])[:, None, None]


def _mean(a: np.ndarray, dim: int, ahead: int = 1) -> np.ndarray:
    """With the cell before it along a dim, or (ahead -1) with that after it."""
    return 0.5 * (np.roll(a, ahead, dim) + a)


def _low(a: np.ndarray, dim: int, width: float) -> np.ndarray:
    """The difference to the cell before."""
    return (a - np.roll(a, 1, dim)) / width


def _high(a: np.ndarray, dim: int, width: float) -> np.ndarray:
    """The difference to the cell after."""
    return (np.roll(a, -1, dim) - a) / width
