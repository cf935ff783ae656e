"""Mixing over terrain, Numba: level by level and row by row, the arithmetic of a cell from `numerics`."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GRAVITY, REACH
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, DRY, HALO, PER_CELL, PER_FACE
from hpckit.kernels.euler.hevi.terrain.slow import slope
from hpckit.kernels.euler.hevi.terrain.stress.numerics import (
    across_u,
    across_v,
    across_w,
    along_x,
    along_y,
    corners,
    edges_xz,
    edges_yz,
    middles,
    per_gap_of,
    squares,
    stability,
    steepness,
    upward,
    upward_u,
    upward_v,
    upward_w,
)

u8 = np.uint64
NEAR = HALO - 1


@jit
def viscosity(state, work, ground, levels, spacing, coefficient, prandtl, share, rows, mu):
    most = np.zeros(mu.shape[2])
    _gradients(work[:3], ground.metric, levels, spacing, rows)
    _viscosity(state[0], work[3], work[DRY], ground.base[0], ground.metric, levels, spacing, coefficient, prandtl,
               share, rows, mu, most)  # fmt: skip
    return most.max()


@jit(borrowed=True)
def _gradients(air, metric, levels, spacing, rows):
    nz, tall, _ = air.shape[1:]
    per_dx, per_dy = 1.0 / spacing[0], 1.0 / spacing[1]
    for k in range(nz):
        for j in range(NEAR, tall - NEAR + 1):
            _gradients_of(air, metric, per_dx, per_dy, levels[PER_CELL, k], per_gap_of(levels, k, nz), k, j, rows)
            if k:
                per_thick = 1.0 / (1.0 / levels[PER_CELL, k - 1] + 1.0 / levels[PER_CELL, k])
                _shears_of(air, metric, per_dx, per_dy, levels[PER_FACE, k], per_thick, k, j, rows)
            else:
                rows[5:9, k, j] = 0.0


@jit(noalias=True, borrowed=True)
def _gradients_of(air, metric, per_dx, per_dy, per_cell, per_gap, level, row, rows):
    one, k, j = u8(1), u8(level), u8(row)
    low, high = u8(max(level - 1, 0)), u8(min(level + 1, air.shape[1] - 1))
    gate = 1.0 if level + 1 < air.shape[1] else 0.0
    for i in range(u8(NEAR), u8(air.shape[3] - NEAR + 1)):
        u_x, v_y, w_z = middles(air, metric, per_dx, per_dy, per_cell, per_gap, gate, low, k, high, j, i, one)
        u_y, v_x = corners(air, metric, per_dx, per_dy, per_gap, low, k, high, j, i, one)
        rows[0, k, j, i] = u_x
        rows[1, k, j, i] = v_y
        rows[2, k, j, i] = w_z
        rows[3, k, j, i] = u_y
        rows[4, k, j, i] = v_x


@jit(noalias=True, borrowed=True)
def _shears_of(air, metric, per_dx, per_dy, per_face, per_thick, level, row, rows):
    one, k, j = u8(1), u8(level), u8(row)
    b, high, gate = k - one, u8(min(level + 1, air.shape[1] - 1)), 1.0 if level + 1 < air.shape[1] else 0.0
    for i in range(u8(NEAR), u8(air.shape[3] - NEAR + 1)):
        u_z, w_x = edges_xz(air, metric, per_dx, per_face, per_thick, gate, b, k, high, j, i, one)
        v_z, w_y = edges_yz(air, metric, per_dy, per_face, per_thick, gate, b, k, high, j, i, one)
        rows[5, k, j, i] = u_z
        rows[6, k, j, i] = w_x
        rows[7, k, j, i] = v_z
        rows[8, k, j, i] = w_y


@jit(borrowed=True)
def _viscosity(density, theta, dry, base, metric, levels, spacing, coefficient, prandtl, share, rows, mu, most):
    nz, tall, _ = mu.shape
    flat = 1.0 / spacing[0] ** 2 + 1.0 / spacing[1] ** 2
    for k in range(nz):
        per_cell = levels[PER_CELL, k]
        area = spacing[0] * spacing[1] / per_cell
        for j in range(NEAR, tall - NEAR):
            owned = HALO <= j < tall - HALO
            _viscosities(
                density, theta, dry, base, metric, per_cell, per_gap_of(levels, k, nz), area,
                coefficient * coefficient, 1.0 / prandtl, share, flat, k, j, owned, rows, mu, most,
            )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _viscosities(
    density, theta, dry, base, metric, per_cell, per_gap, area, square, per_prandtl, share, flat, level, row, owned,
    rows, mu, most,
):  # fmt: skip
    one, k, j, wide = u8(1), u8(level), u8(row), mu.shape[2]
    low, high = u8(max(level - 1, 0)), u8(min(level + 1, mu.shape[0] - 1))
    gate = 1.0 if level + 1 < mu.shape[0] else 0.0
    for i in range(u8(NEAR), u8(wide - NEAR)):
        size = metric[8, k, j, i]
        turning = squares(rows, gate, k, high, j, i, one)
        turning -= GRAVITY * stability(theta, dry, metric, per_gap, low, k, high, j, i) * per_prandtl
        length = (area * size) ** (1.0 / 3.0)
        mixing = square * (length * length) * np.sqrt(turning if turning > 0.0 else 0.0)
        limit = share / (flat + steepness(metric, per_cell, k, j, i, one))
        mixing = mixing if mixing < limit else limit
        mu[k, j, i] = (density[k, j, i] + base[k, j, i]) / size * mixing
        if owned and HALO <= i < wide - HALO:
            most[i] = mixing if mixing > most[i] else most[i]


@jit
def mix(state, work, mu, ground, levels, spacing, dt, prandtl, cross, rows, slow):
    _deviations(work, ground.base, ground.wind, rows[9:13])
    _gradients(rows[9:12], ground.metric, levels, spacing, rows[:9])
    _stresses(mu, cross, rows)
    _momenta(rows, ground.metric, levels, spacing, slow)
    slope(ground.metric, levels, slow, HALO, slow.shape[2] - HALO)
    nz, tall, wide = mu.shape
    _warmth(rows[12], mu, ground.metric, levels, spacing, 1.0 / prandtl, slow[4], np.zeros(wide - 2 * HALO))
    for field in range(1, 5):
        for k in range(nz):
            for j in range(HALO, tall - HALO):
                _add(slow[field, k, j, HALO : wide - HALO], dt, state[field, k, j, HALO : wide - HALO])


@jit(noalias=True, borrowed=True)
def _add(change, dt, out):
    for i in range(u8(len(out))):
        out[i] += dt * change[i]


@jit(borrowed=True)
def _deviations(work, base, wind, off):
    nz, tall, wide = work.shape[1:]
    near = slice(NEAR - 2, wide - NEAR + 2)
    for k in range(nz):
        for j in range(NEAR - 2, tall - NEAR + 2):
            _minus(work[0, k, j, near], wind[0, k, j, near], off[0, k, j, near])
            _minus(work[1, k, j, near], wind[1, k, j, near], off[1, k, j, near])
            _copy(work[2, k, j, near], off[2, k, j, near])
            _warmer(work[3, k, j, near], base[0, k, j, near], base[1, k, j, near], off[3, k, j, near])


@jit(noalias=True, borrowed=True)
def _copy(a, out):
    for i in range(u8(len(out))):
        out[i] = a[i]


@jit(noalias=True, borrowed=True)
def _minus(a, b, out):
    for i in range(u8(len(out))):
        out[i] = a[i] - b[i]


@jit(noalias=True, borrowed=True)
def _warmer(theta, rho, heat, out):
    for i in range(u8(len(out))):
        out[i] = theta[i] - heat[i] / rho[i]


@jit(borrowed=True)
def _stresses(mu, cross, rows):
    nz, tall, _ = mu.shape
    for k in range(nz):
        for j in range(NEAR, tall - NEAR):
            _stresses_of(mu, cross, k, j, rows)


@jit(noalias=True, borrowed=True)
def _stresses_of(mu, cross, level, row, rows):
    """Gradients become stresses. At the ground, where shears are 0, the level below is its own."""
    one, k, j, b = u8(1), u8(level), u8(row), u8(max(level - 1, 0))
    south, normal = j - one, 1.0 + cross
    for i in range(u8(NEAR), u8(mu.shape[2] - NEAR)):
        west, here, under = i - one, mu[k, j, i], mu[b, j, i]
        rows[0, k, j, i] *= normal * here
        rows[1, k, j, i] *= normal * here
        rows[2, k, j, i] *= normal * here
        four = 0.25 * ((mu[k, j, west] + here) + (mu[k, south, west] + mu[k, south, i]))
        a, c = rows[3, k, j, i], rows[4, k, j, i]
        rows[3, k, j, i] = four * (a + cross * c)
        rows[4, k, j, i] = four * (c + cross * a)
        four = 0.25 * ((mu[k, j, west] + mu[b, j, west]) + (here + under))
        a, c = rows[5, k, j, i], rows[6, k, j, i]
        rows[5, k, j, i] = four * (a + cross * c)
        rows[6, k, j, i] = four * (c + cross * a)
        four = 0.25 * ((mu[k, south, i] + mu[b, south, i]) + (here + under))
        a, c = rows[7, k, j, i], rows[8, k, j, i]
        rows[7, k, j, i] = four * (a + cross * c)
        rows[8, k, j, i] = four * (c + cross * a)


@jit(borrowed=True)
def _momenta(rows, metric, levels, spacing, slow):
    nz, tall, _ = slow.shape[1:]
    per_dx, per_dy = 1.0 / spacing[0], 1.0 / spacing[1]
    for k in range(nz):
        for j in range(HALO, tall - HALO + 1):
            _horizontal(rows, metric, per_dx, per_dy, levels[PER_CELL, k], k, j, slow)
            if k:
                _vertical(rows, metric, per_dx, per_dy, levels[PER_FACE, k], k, j, slow)
            else:
                slow[3, k, j] = 0.0


@jit(noalias=True, borrowed=True)
def _horizontal(rows, metric, per_dx, per_dy, per_cell, level, row, slow):
    nz, _, wide = slow.shape[1:]
    one, k, j = u8(1), u8(level), u8(row)
    b, high = u8(max(level - 1, 0)), u8(min(level + 1, nz - 1))
    under, over = 1.0 if level else 0.0, 1.0 if level + 1 < nz else 0.0
    for i in range(u8(HALO), u8(wide - HALO + 1)):
        rise = over * upward_u(rows, metric, k, high, j, i, one) - under * upward_u(rows, metric, b, k, j, i, one)
        slow[1, k, j, i] = across_u(rows, metric, per_dx, per_dy, k, j, i, one) + rise * per_cell
        rise = over * upward_v(rows, metric, k, high, j, i, one) - under * upward_v(rows, metric, b, k, j, i, one)
        slow[2, k, j, i] = across_v(rows, metric, per_dx, per_dy, k, j, i, one) + rise * per_cell


@jit(noalias=True, borrowed=True)
def _vertical(rows, metric, per_dx, per_dy, per_face, level, row, slow):
    """A row of the cells above the ground."""
    nz, _, wide = slow.shape[1:]
    one, k, j, high = u8(1), u8(level), u8(row), u8(min(level + 1, nz - 1))
    b, gate = k - one, 1.0 if level + 1 < nz else 0.0
    for i in range(u8(HALO), u8(wide - HALO)):
        rise = upward_w(rows, metric, gate, k, high, j, i, one) - upward_w(rows, metric, 1.0, b, k, j, i, one)
        slow[3, k, j, i] = across_w(rows, metric, per_dx, per_dy, k, j, i, one) + rise * per_face


@jit(borrowed=True)
def _warmth(theta, mu, metric, levels, spacing, rate, out, change):
    nz, tall, wide = mu.shape
    inner = slice(HALO, wide - HALO)
    for k in range(nz):
        for j in range(HALO, tall - HALO):
            _spread(theta, mu, metric, levels, spacing, k, j, j, HALO, change)
            _times(rate, change, out[k, j, inner])


@jit(noalias=True, borrowed=True)
def _times(rate, a, out):
    for i in range(u8(len(out))):
        out[i] = rate * a[i]


@jit(noalias=True, borrowed=True)
def _spread(q, mu, metric, levels, spacing, level, row, row_of_q, first, change):
    """What diffusion brings to J rho q of a row, per s. first: the first owned cell of q along x."""
    nz, one, k, j, y = mu.shape[0], u8(1), u8(level), u8(row), u8(row_of_q)
    low, high = u8(max(level - 1, 0)), u8(min(level + 1, nz - 1))
    under, over = 1.0 if level else 0.0, 1.0 if level + 1 < nz else 0.0
    per_dx, per_dy, per_cell, per_gap = (
        1.0 / spacing[0],
        1.0 / spacing[1],
        levels[PER_CELL, level],
        per_gap_of(levels, level, nz),
    )
    below, above, per_face = levels[BELOW, level], levels[ABOVE, level], levels[PER_FACE, level]
    below_up, above_up, per_face_up = levels[BELOW, level + 1], levels[ABOVE, level + 1], levels[PER_FACE, level + 1]
    for at in range(u8(len(change))):
        i, x = at + u8(HALO), at + u8(first)
        e, f, n, m = i + one, x + one, j + one, y + one
        across = along_x(q, mu, metric, per_dx, per_gap, low, k, high, j, e, y, f, one)
        across -= along_x(q, mu, metric, per_dx, per_gap, low, k, high, j, i, y, x, one)
        along = along_y(q, mu, metric, per_dy, per_gap, low, k, high, n, i, m, x, one)
        along -= along_y(q, mu, metric, per_dy, per_gap, low, k, high, j, i, y, x, one)
        rise = over * upward(q, mu, metric, per_dx, per_dy, per_face_up, below_up, above_up, k, high, j, i, y, x, one)
        rise -= under * upward(q, mu, metric, per_dx, per_dy, per_face, below, above, low, k, j, i, y, x, one)
        change[at] = across * per_dx + along * per_dy + rise * per_cell


@jit
def mix_carried(q, out, state, mu, ground, levels, spacing, dt):
    change = np.zeros(q.shape[3] - 2 * REACH)
    nz, tall, wide = q.shape[1:]
    inner = slice(REACH, wide - REACH)
    for k in range(nz):
        for j in range(REACH, tall - REACH):
            row = j + HALO - REACH
            rho, base = state[0, k, row, HALO : HALO + len(change)], ground.base[0, k, row, HALO : HALO + len(change)]
            for part in range(len(q)):
                _spread(q[part], mu, ground.metric, levels, spacing, k, row, j, REACH, change)
                _carry(q[part, k, j, inner], change, rho, base, dt, out[part, k, j, inner])


@jit(noalias=True, borrowed=True)
def _carry(q, change, rho, base, dt, out):
    for i in range(u8(len(out))):
        out[i] = q[i] + dt * change[i] / (rho[i] + base[i])
