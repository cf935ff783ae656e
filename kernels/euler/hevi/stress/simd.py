"""Mixing of a staggered box, Numba: row by row, each stress once."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GRAVITY, REACH
from hpckit.kernels.euler.hevi.constants import DRY, HALO, PER_CELL, PER_FACE

u8 = np.uint64


@jit
def viscosity(state, work, column, levels, spacing, coefficient, prandtl, share, mu):
    _, tall, wide = mu.shape
    xy, most = np.zeros((2, wide)), np.zeros(wide)
    xz, yz = np.zeros((2, tall, wide)), np.zeros((2, tall + 1, wide))
    _viscosity(state[0], work, column, levels, spacing, coefficient, prandtl, share, mu, xy, xz, yz, most)
    return most[HALO : wide - HALO].max()


@jit(borrowed=True)
def _viscosity(density, work, column, levels, spacing, coefficient, prandtl, share, mu, xy, xz, yz, most):
    nz, tall = mu.shape[:2]
    dx, dy = spacing
    per_dx, per_dy = 1.0 / dx, 1.0 / dy
    for k in range(nz):
        per_cell = levels[PER_CELL, k]
        gap = (1.0 / levels[PER_FACE, k] if k else 0.0) + (1.0 / levels[PER_FACE, k + 1] if k + 1 < nz else 0.0)
        length = coefficient * (dx * dy / per_cell) ** (1.0 / 3.0)
        limit = share / (1.0 / dx**2 + 1.0 / dy**2 + per_cell**2)
        below, above = k & 1, 1 - (k & 1)
        if k + 1 < nz:
            _squares_up(work, per_dx, per_dy, levels[PER_FACE, k + 1], k + 1, xz[above], yz[above])
        else:
            xz[above] = 0.0
            yz[above] = 0.0
        for j in range(HALO - 1, tall - HALO + 2):
            _squares_along(work, per_dx, per_dy, k, j, xy[j & 1])
            if j >= HALO:
                y = j - 1
                _row(
                    density, work, xy[j & 1], xy[1 - (j & 1)], xz[below, y], xz[above, y], yz[below, y : y + 2],
                    yz[above, y : y + 2], k, y, per_dx, per_dy, per_cell, 1.0 / gap, 1.0 / prandtl, length * length,
                    limit, column[0, k], mu, most, HALO <= y < tall - HALO,
                )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _squares_up(work, per_dx, per_dy, per_face, level, xz, yz):
    """Squared deformation at the edges along y and x below a level."""
    tall, wide = xz.shape
    k = u8(level)
    for j in range(u8(HALO - 1), u8(tall - HALO + 2)):
        for i in range(u8(HALO - 1), u8(wide - HALO + 2)):
            u_z = (work[0, k, j, i] - work[0, k - u8(1), j, i]) * per_face
            v_z = (work[1, k, j, i] - work[1, k - u8(1), j, i]) * per_face
            both_x = u_z + (work[2, k, j, i] - work[2, k, j, i - u8(1)]) * per_dx
            both_y = v_z + (work[2, k, j, i] - work[2, k, j - u8(1), i]) * per_dy
            xz[j, i] = both_x * both_x
            yz[j, i] = both_y * both_y


@jit(noalias=True, borrowed=True)
def _squares_along(work, per_dx, per_dy, level, row, xy):
    """The same at the corners of a row."""
    k, j = u8(level), u8(row)
    for i in range(u8(HALO - 1), u8(len(xy) - HALO + 2)):
        both = (work[0, k, j, i] - work[0, k, j - u8(1), i]) * per_dy
        both += (work[1, k, j, i] - work[1, k, j, i - u8(1)]) * per_dx
        xy[i] = both * both


@jit(noalias=True, borrowed=True)
def _row(
    density, work, xy_high, xy_low, xz_low, xz_high, yz_low, yz_high, level, row, per_dx, per_dy, per_cell, per_gap,
    per_prandtl, size, limit, base, mu, most, owned,
):  # fmt: skip
    """Rho times the eddy viscosity of a row, and the greatest viscosity of each of its cells so far."""
    nz, _, wide = mu.shape
    k, j, one = u8(level), u8(row), u8(1)
    high, low = u8(min(level + 1, nz - 1)), u8(max(level - 1, 0))
    gate = 1.0 if level + 1 < nz else 0.0
    for i in range(u8(HALO - 1), u8(wide - HALO + 1)):
        u_x = (work[0, k, j, i + one] - work[0, k, j, i]) * per_dx
        v_y = (work[1, k, j + one, i] - work[1, k, j, i]) * per_dy
        w_z = (gate * work[2, high, j, i] - work[2, k, j, i]) * per_cell
        square = 2.0 * ((u_x * u_x + v_y * v_y) + w_z * w_z)
        square += 0.25 * ((xy_low[i] + xy_low[i + one]) + (xy_high[i] + xy_high[i + one]))
        square += 0.25 * ((xz_low[i] + xz_low[i + one]) + (xz_high[i] + xz_high[i + one]))
        square += 0.25 * ((yz_low[0, i] + yz_low[1, i]) + (yz_high[0, i] + yz_high[1, i]))
        theta = work[3, k, j, i] * work[DRY, k, j, i]  # of density
        theta_z = (work[3, high, j, i] * work[DRY, high, j, i] - work[3, low, j, i] * work[DRY, low, j, i]) * per_gap
        square -= GRAVITY * theta_z / theta * per_prandtl
        mixing = size * np.sqrt(square if square > 0.0 else 0.0)
        mixing = mixing if mixing < limit else limit
        mu[k, j, i] = (density[k, j, i] + base) * mixing
        if owned:
            most[i] = mixing if mixing > most[i] else most[i]


@jit
def mix(state, work, mu, rest, levels, spacing, dt, prandtl, cross):
    _, tall, wide = mu.shape
    along_x, along_y, up = np.zeros((4, wide)), np.zeros((2, 4, wide)), np.zeros((2, 4, tall, wide))
    _mix(state, work, mu, rest, levels, spacing, dt, prandtl, cross, along_x, along_y, up)


@jit(borrowed=True)
def _mix(state, work, mu, rest, levels, spacing, dt, prandtl, cross, along_x, along_y, up):
    nz, tall = mu.shape[:2]
    per_x, per_y, per_pr = 1.0 / spacing[0], 1.0 / spacing[1], 1.0 / prandtl
    u, v, w, heat = state[1], state[2], state[3], state[4]
    for k in range(nz + 1):
        # what passes the faces below level k; of w the middle of level k, up to which level k - 1 reaches
        this, last = up[k & 1], up[1 - (k & 1)]
        for j in range(HALO, tall - HALO):
            if 0 < k < nz:
                _stress_up(work, mu, rest, per_x, per_y, levels[PER_FACE, k], per_pr, cross, k, j, this)
            else:
                this[0, j] = 0.0
                this[1, j] = 0.0
                this[3, j] = 0.0
            if k < nz:
                gate = 1.0 if k + 1 < nz else 0.0
                _stretch_up(work, mu, (1.0 + cross) * levels[PER_CELL, k], gate, k, j, this[2])
            if k:
                rate = dt * levels[PER_CELL, k - 1]
                _add(u, last[0, j], this[0, j], rate, k - 1, j, 0)
                _add(v, last[1, j], this[1, j], rate, k - 1, j, 0)
                _add(heat, last[3, j], this[3, j], rate, k - 1, j, 0)
                if k < nz:
                    _add(w, last[2, j], this[2, j], dt * levels[PER_FACE, k], k, j, 0)
        if k == nz:
            break
        per_face = levels[PER_FACE, k]
        for j in range(HALO, tall - HALO + 1):
            new, old = along_y[j & 1], along_y[1 - (j & 1)]
            if j == HALO:  # the middle of the row before
                _stress_across(work, mu, rest, per_x, per_y, per_face, per_pr, cross, k, j - 1, old)
            _stress_across(work, mu, rest, per_x, per_y, per_face, per_pr, cross, k, j, new)
            if j > HALO:
                _add(u, old[0], new[0], dt * per_y, k, j - 1, 0)
                _add(heat, old[3], new[3], dt * per_y, k, j - 1, 0)
                if k:
                    _add(w, old[2], new[2], dt * per_y, k, j - 1, 0)
            if j == tall - HALO:
                break
            _add(v, old[1], new[1], dt * per_y, k, j, 0)
            _stress_along(work, mu, rest, per_x, per_y, per_face, per_pr, cross, k, j, along_x)
            _add(u, along_x[0], along_x[0], dt * per_x, k, j, -1)
            _add(v, along_x[1], along_x[1], dt * per_x, k, j, 1)
            _add(heat, along_x[3], along_x[3], dt * per_x, k, j, 1)
            if k:
                _add(w, along_x[2], along_x[2], dt * per_x, k, j, 1)


@jit(noalias=True, borrowed=True)
def _add(state, low, high, rate, level, row, ahead):
    """What comes through two faces of each owned cell of a row: at it, or the high one a cell ahead or behind."""
    k, j, wide = u8(level), u8(row), state.shape[2]
    first, second = u8(HALO + min(ahead, 0)), u8(HALO + max(ahead, 0))
    for i in range(u8(wide - 2 * HALO)):
        state[k, j, u8(HALO) + i] += rate * (high[second + i] - low[first + i])


@jit(noalias=True, borrowed=True)
def _stress_up(work, mu, rest, per_x, per_y, per_face, per_pr, cross, level, row, out):
    """On u, v and theta of a row at the edges and faces below a level."""
    k, j, one, wide = u8(level), u8(row), u8(1), mu.shape[2]
    b = k - one
    shear_u, shear_v, base = rest[0, k] - rest[0, b], rest[1, k] - rest[1, b], rest[3, k] - rest[3, b]
    for i in range(u8(HALO), u8(wide - HALO)):
        u_z = ((work[0, k, j, i] - work[0, b, j, i]) - shear_u) * per_face
        w_x = (work[2, k, j, i] - work[2, k, j, i - one]) * per_x
        four = 0.25 * ((mu[k, j, i - one] + mu[b, j, i - one]) + (mu[k, j, i] + mu[b, j, i]))
        out[0, j, i] = four * (u_z + cross * w_x)
        v_z = ((work[1, k, j, i] - work[1, b, j, i]) - shear_v) * per_face
        w_y = (work[2, k, j, i] - work[2, k, j - one, i]) * per_y
        four = 0.25 * ((mu[k, j - one, i] + mu[b, j - one, i]) + (mu[k, j, i] + mu[b, j, i]))
        out[1, j, i] = four * (v_z + cross * w_y)
        warmer = (work[3, k, j, i] - work[3, b, j, i]) - base
        out[3, j, i] = 0.5 * (mu[k, j, i] + mu[b, j, i]) * warmer * per_face * per_pr


@jit(noalias=True, borrowed=True)
def _stretch_up(work, mu, rate, gate, level, row, out):
    """On w of a row in the middle of a level."""
    k, j, wide = u8(level), u8(row), mu.shape[2]
    high = u8(level + (1 if gate != 0.0 else 0))
    for i in range(u8(HALO), u8(wide - HALO)):
        out[j, i] = mu[k, j, i] * ((gate * work[2, high, j, i] - work[2, k, j, i]) * rate)


@jit(noalias=True, borrowed=True)
def _stress_across(work, mu, rest, per_x, per_y, per_face, per_pr, cross, level, row, out):
    """On u, w and theta at the low edges in y of a row, on v in its middle."""
    k, j, one, wide = u8(level), u8(row), u8(1), mu.shape[2]
    b = u8(max(level - 1, 0))
    normal, shear = (1.0 + cross) * per_y, rest[1, k] - rest[1, b]
    for i in range(u8(HALO), u8(wide - HALO)):
        u_y = (work[0, k, j, i] - work[0, k, j - one, i]) * per_y
        v_x = (work[1, k, j, i] - work[1, k, j, i - one]) * per_x
        four = 0.25 * ((mu[k, j, i - one] + mu[k, j, i]) + (mu[k, j - one, i - one] + mu[k, j - one, i]))
        out[0, i] = four * (u_y + cross * v_x)
        out[1, i] = mu[k, j, i] * ((work[1, k, j + one, i] - work[1, k, j, i]) * normal)
    for i in range(u8(HALO), u8(wide - HALO)):
        flux = 0.5 * (mu[k, j - one, i] + mu[k, j, i])
        out[3, i] = flux * ((work[3, k, j, i] - work[3, k, j - one, i]) * per_y) * per_pr
        v_z = ((work[1, k, j, i] - work[1, b, j, i]) - shear) * per_face
        w_y = (work[2, k, j, i] - work[2, k, j - one, i]) * per_y
        four = 0.25 * ((mu[k, j - one, i] + mu[b, j - one, i]) + (mu[k, j, i] + mu[b, j, i]))
        out[2, i] = four * (w_y + cross * v_z)


@jit(noalias=True, borrowed=True)
def _stress_along(work, mu, rest, per_x, per_y, per_face, per_pr, cross, level, row, out):
    """On v, w and theta at the low edges in x of a row and beyond it, on u in its middles and before them."""
    k, j, one, wide = u8(level), u8(row), u8(1), mu.shape[2]
    b = u8(max(level - 1, 0))
    normal, shear = (1.0 + cross) * per_x, rest[0, k] - rest[0, b]
    for i in range(u8(HALO - 1), u8(wide - HALO + 1)):
        out[0, i] = mu[k, j, i] * ((work[0, k, j, i + one] - work[0, k, j, i]) * normal)
        u_y = (work[0, k, j, i] - work[0, k, j - one, i]) * per_y
        v_x = (work[1, k, j, i] - work[1, k, j, i - one]) * per_x
        four = 0.25 * ((mu[k, j, i - one] + mu[k, j, i]) + (mu[k, j - one, i - one] + mu[k, j - one, i]))
        out[1, i] = four * (v_x + cross * u_y)
    for i in range(u8(HALO - 1), u8(wide - HALO + 1)):
        flux = 0.5 * (mu[k, j, i - one] + mu[k, j, i])
        out[3, i] = flux * ((work[3, k, j, i] - work[3, k, j, i - one]) * per_x) * per_pr
        u_z = ((work[0, k, j, i] - work[0, b, j, i]) - shear) * per_face
        w_x = (work[2, k, j, i] - work[2, k, j, i - one]) * per_x
        four = 0.25 * ((mu[k, j, i - one] + mu[b, j, i - one]) + (mu[k, j, i] + mu[b, j, i]))
        out[2, i] = four * (w_x + cross * u_z)


@jit
def mix_carried(q, out, state, mu, column, levels, spacing, dt):
    shares = np.zeros((6, q.shape[3] - 2 * REACH + 1))
    _mix_carried(q, out, state[0], mu, column, levels, spacing, dt, shares)


@jit(borrowed=True)
def _mix_carried(q, out, density, mu, column, levels, spacing, dt, shares):
    per_x, per_y = 0.5 / (spacing[0] * spacing[0]), 0.5 / (spacing[1] * spacing[1])
    nz, tall = q.shape[1:3]
    for k in range(nz):
        half = 0.5 * levels[PER_CELL, k]
        below, above = half * levels[PER_FACE, k], half * levels[PER_FACE, k + 1]
        for j in range(REACH, tall - REACH):
            _shares(density, mu, column[0, k], dt, per_x, per_y, below, above, k, j + HALO - REACH, shares)
            for number in range(q.shape[0]):
                _spread(q[number], out[number], shares, k, j)


@jit(noalias=True, borrowed=True)
def _shares(density, mu, base, dt, per_x, per_y, below, above, level, row, shares):
    """What a row shares with its neighbors in x (low faces), south, north, below and above; dt over its density."""
    k, j, first, one = u8(level), u8(row), u8(HALO), u8(1)
    low, high = u8(max(level - 1, 0)), u8(min(level + 1, mu.shape[0] - 1))
    for i in range(u8(shares.shape[1])):
        at = first + i
        shares[0, i] = (mu[k, j, at - one] + mu[k, j, at]) * per_x
    for i in range(u8(shares.shape[1] - 1)):
        at = first + i
        here = mu[k, j, at]
        shares[1, i] = (mu[k, j - one, at] + here) * per_y
        shares[2, i] = (mu[k, j + one, at] + here) * per_y
        shares[3, i] = (mu[low, j, at] + here) * below
        shares[4, i] = (mu[high, j, at] + here) * above
        shares[5, i] = dt / (density[k, j, at] + base)


@jit(noalias=True, borrowed=True)
def _spread(q, out, shares, level, row):
    k, j, first, one = u8(level), u8(row), u8(REACH), u8(1)
    low, high = u8(max(level - 1, 0)), u8(min(level + 1, q.shape[0] - 1))
    for i in range(u8(shares.shape[1] - 1)):
        at = first + i
        here = q[k, j, at]
        change = shares[0, i + one] * (q[k, j, at + one] - here) - shares[0, i] * (here - q[k, j, at - one])
        change += shares[2, i] * (q[k, j + one, at] - here) - shares[1, i] * (here - q[k, j - one, at])
        change += shares[4, i] * (q[high, j, at] - here) - shares[3, i] * (here - q[low, j, at])
        out[k, j, at] = here + shares[5, i] * change
