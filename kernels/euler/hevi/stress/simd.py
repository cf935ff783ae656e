"""Mixing of a staggered box, Numba: row by row, each stress once."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GRAVITY, HALO, REACH
from hpckit.kernels.euler.hevi.constants import PER_CELL, PER_FACE
from hpckit.kernels.euler.hevi.stress.numerics import (
    carried_change,
    four_xy,
    four_xz,
    four_yz,
    shears_xy,
    shears_xz,
    shears_yz,
)


@jit
def viscosity(state, work, column, levels, spacing, coefficient, prandtl, share, mu):
    nz, tall, wide = mu.shape
    dx, dy = spacing
    rest = np.zeros((4, nz))
    xy = np.zeros((2, wide))
    xz, yz = np.zeros((2, tall, wide)), np.zeros((2, tall + 1, wide))
    most = 0.0
    for k in range(nz):
        per_cell, high, low = levels[PER_CELL, k], min(k + 1, nz - 1), max(k - 1, 0)
        gap = (1.0 / levels[PER_FACE, k] if k else 0.0) + (1.0 / levels[PER_FACE, k + 1] if k + 1 < nz else 0.0)
        length = coefficient * (dx * dy / per_cell) ** (1.0 / 3.0)
        limit = share / (1.0 / dx**2 + 1.0 / dy**2 + per_cell**2)
        size, per_gap, base = length * length, 1.0 / gap, column[0, k]
        below, above = k & 1, 1 - (k & 1)
        if k + 1 < nz:
            for j in range(HALO - 1, tall - HALO + 2):
                for i in range(HALO - 1, wide - HALO + 2):
                    u_z, w_x = shears_xz(work, rest, levels, dx, k + 1, j, i)
                    v_z, w_y = shears_yz(work, rest, levels, dy, k + 1, j, i)
                    xz[above, j, i] = (u_z + w_x) ** 2
                    yz[above, j, i] = (v_z + w_y) ** 2
        else:
            xz[above] = 0.0
            yz[above] = 0.0
        for j in range(HALO - 1, tall - HALO + 2):
            this, last = j & 1, 1 - (j & 1)
            for i in range(HALO - 1, wide - HALO + 2):
                u_y, v_x = shears_xy(work, dx, dy, k, j, i)
                xy[this, i] = (u_y + v_x) ** 2
            if j == HALO - 1:
                continue
            y = j - 1
            for i in range(HALO - 1, wide - HALO + 1):
                u_x = (work[0, k, y, i + 1] - work[0, k, y, i]) / dx
                v_y = (work[1, k, y + 1, i] - work[1, k, y, i]) / dy
                top = work[2, high, y, i] if k + 1 < nz else 0.0
                w_z = (top - work[2, k, y, i]) * per_cell
                square = 2.0 * ((u_x * u_x + v_y * v_y) + w_z * w_z)
                square += 0.25 * ((xy[last, i] + xy[last, i + 1]) + (xy[this, i] + xy[this, i + 1]))
                square += 0.25 * ((xz[below, y, i] + xz[below, y, i + 1]) + (xz[above, y, i] + xz[above, y, i + 1]))
                square += 0.25 * ((yz[below, y, i] + yz[below, y + 1, i]) + (yz[above, y, i] + yz[above, y + 1, i]))
                theta_z = (work[3, high, y, i] - work[3, low, y, i]) * per_gap
                stable = GRAVITY * theta_z / work[3, k, y, i]
                mixing = min(size * np.sqrt(max(square - stable / prandtl, 0.0)), limit)
                mu[k, y, i] = (state[0, k, y, i] + base) * mixing
                if HALO <= y < tall - HALO and HALO <= i < wide - HALO:
                    most = max(most, mixing)
    return most


@jit
def mix(state, work, mu, rest, levels, spacing, dt, prandtl, cross):
    nz, tall, wide = mu.shape
    dx, dy = spacing
    lo, hi = HALO, wide - HALO
    along_x, along_y, up = np.zeros((4, wide)), np.zeros((2, 4, wide)), np.zeros((2, 4, tall, wide))
    per_dx, per_dy, per_pr, normal = dt / dx, dt / dy, 1.0 / prandtl, 1.0 + cross
    for k in range(nz + 1):
        # what passes the faces below level k; of w the middle of level k, up to which level k - 1 reaches
        this, last = k & 1, 1 - (k & 1)
        for j in range(HALO, tall - HALO):
            if 0 < k < nz:
                per_face, base = levels[PER_FACE, k], rest[3, k] - rest[3, k - 1]
                for i in range(lo, hi):
                    u_z, w_x = shears_xz(work, rest, levels, dx, k, j, i)
                    v_z, w_y = shears_yz(work, rest, levels, dy, k, j, i)
                    up[this, 0, j, i] = four_xz(mu, k, j, i) * (u_z + cross * w_x)
                    up[this, 1, j, i] = four_yz(mu, k, j, i) * (v_z + cross * w_y)
                    warmer = (work[3, k, j, i] - work[3, k - 1, j, i]) - base
                    up[this, 3, j, i] = 0.5 * (mu[k, j, i] + mu[k - 1, j, i]) * warmer * per_face * per_pr
            else:
                up[this, 0, j, lo:hi] = 0.0
                up[this, 1, j, lo:hi] = 0.0
                up[this, 3, j, lo:hi] = 0.0
            if k < nz:
                for i in range(lo, hi):
                    top = work[2, min(k + 1, nz - 1), j, i] if k + 1 < nz else 0.0
                    up[this, 2, j, i] = normal * mu[k, j, i] * ((top - work[2, k, j, i]) * levels[PER_CELL, k])
            if k:
                rate = dt * levels[PER_CELL, k - 1]
                for i in range(lo, hi):
                    state[1, k - 1, j, i] += rate * (up[this, 0, j, i] - up[last, 0, j, i])
                    state[2, k - 1, j, i] += rate * (up[this, 1, j, i] - up[last, 1, j, i])
                    state[4, k - 1, j, i] += rate * (up[this, 3, j, i] - up[last, 3, j, i])
                if k < nz:
                    rate = dt * levels[PER_FACE, k]
                    for i in range(lo, hi):
                        state[3, k, j, i] += rate * (up[this, 2, j, i] - up[last, 2, j, i])
        if k == nz:
            break
        for j in range(HALO, tall - HALO + 1):
            new, old = j & 1, 1 - (j & 1)
            if j == HALO:  # the middle of the row before
                for i in range(lo, hi):
                    v_y = (work[1, k, j, i] - work[1, k, j - 1, i]) / dy
                    along_y[old, 1, i] = normal * mu[k, j - 1, i] * v_y
            for i in range(lo, hi):
                u_y, v_x = shears_xy(work, dx, dy, k, j, i)
                along_y[new, 0, i] = four_xy(mu, k, j, i) * (u_y + cross * v_x)
                v_y = (work[1, k, j + 1, i] - work[1, k, j, i]) / dy
                along_y[new, 1, i] = normal * mu[k, j, i] * v_y
                flux = 0.5 * (mu[k, j - 1, i] + mu[k, j, i])
                along_y[new, 3, i] = flux * ((work[3, k, j, i] - work[3, k, j - 1, i]) / dy) * per_pr
                if k:
                    v_z, w_y = shears_yz(work, rest, levels, dy, k, j, i)
                    along_y[new, 2, i] = four_yz(mu, k, j, i) * (w_y + cross * v_z)
            if j > HALO:
                for i in range(lo, hi):
                    state[1, k, j - 1, i] += per_dy * (along_y[new, 0, i] - along_y[old, 0, i])
                    state[4, k, j - 1, i] += per_dy * (along_y[new, 3, i] - along_y[old, 3, i])
                    if k:
                        state[3, k, j - 1, i] += per_dy * (along_y[new, 2, i] - along_y[old, 2, i])
            if j == tall - HALO:
                break
            for i in range(lo, hi):
                state[2, k, j, i] += per_dy * (along_y[new, 1, i] - along_y[old, 1, i])
            for i in range(lo - 1, hi + 1):
                u_x = (work[0, k, j, i + 1] - work[0, k, j, i]) / dx
                along_x[0, i] = normal * mu[k, j, i] * u_x
            for i in range(lo, hi + 1):
                u_y, v_x = shears_xy(work, dx, dy, k, j, i)
                along_x[1, i] = four_xy(mu, k, j, i) * (v_x + cross * u_y)
                flux = 0.5 * (mu[k, j, i - 1] + mu[k, j, i])
                along_x[3, i] = flux * ((work[3, k, j, i] - work[3, k, j, i - 1]) / dx) * per_pr
                if k:
                    u_z, w_x = shears_xz(work, rest, levels, dx, k, j, i)
                    along_x[2, i] = four_xz(mu, k, j, i) * (w_x + cross * u_z)
            for i in range(lo, hi):
                state[1, k, j, i] += per_dx * (along_x[0, i] - along_x[0, i - 1])
                state[2, k, j, i] += per_dx * (along_x[1, i + 1] - along_x[1, i])
                state[4, k, j, i] += per_dx * (along_x[3, i + 1] - along_x[3, i])
                if k:
                    state[3, k, j, i] += per_dx * (along_x[2, i + 1] - along_x[2, i])


@jit
def mix_carried(q, out, state, mu, column, levels, spacing, dt):
    dx, dy = spacing
    for number in range(q.shape[0]):
        each = q[number]
        for k in range(q.shape[1]):
            for j in range(REACH, q.shape[2] - REACH):
                for i in range(REACH, q.shape[3] - REACH):
                    rho = state[0, k, j + HALO - REACH, i + HALO - REACH] + column[0, k]
                    change = carried_change(each, mu, levels, dx, dy, k, j, i)
                    out[number, k, j, i] = each[k, j, i] + dt * change / rho
