"""Split-explicit, vertically implicit dynamics of a box, Numba: row by row along x; columns in lanes.

Each helper works on rows of contiguous cells. A cell's bits depend on its operands alone, so they are the same on any
number of ranks.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GAMMA, GRAVITY, HALO
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, FACES_BACK, PER_CELL, PER_FACE, SMALLEST, WATER
from hpckit.kernels.euler.hevi.numerics import carried, diagonal_of, lower_of, upper_of
from hpckit.kernels.euler.hevi.rows import add_mean, add_mixed, back, explicit_part, fill, mean, settle, take
from hpckit.kernels.euler.numerics import outside, power

u8 = np.uint64
FIRST = HALO - FACES_BACK  # of the cells of `work`


@jit(borrowed=True)
def prepare(state, water, column, levels, work):
    nz, tall, wide = state.shape[1:]
    end = wide - FIRST + 1
    for k in range(nz):
        base_rho, base_heat, base_p = column[0, k], column[1, k], column[2, k]
        low = max(k - 1, 0)
        gate = 1.0 if k else 0.0
        for j in range(FIRST, tall - FIRST + 1):
            rho = state[0, k, j, FIRST:end]
            _speeds(
                rho, state[0, k, j, FIRST - 1 : end - 1], state[0, k, j - 1, FIRST:end], state[0, low, j, FIRST:end],
                state[1, k, j, FIRST:end], state[2, k, j, FIRST:end], state[3, k, j, FIRST:end],
                state[4, k, j, FIRST:end], base_rho, column[0, low], base_heat, levels[BELOW, k], levels[ABOVE, k],
                gate, work[0, k, j, FIRST:end], work[1, k, j, FIRST:end], work[2, k, j, FIRST:end],
                work[3, k, j, FIRST:end],
            )  # fmt: skip
            p, stiff = work[4, k, j, FIRST:end], work[5, k, j, FIRST:end]
            if _pressure(state[4, k, j, FIRST:end], base_heat, base_p, p, stiff):
                _pressure_far(state[4, k, j, FIRST:end], base_heat, base_p, p, stiff)
            dry, weight = work[6, k, j, FIRST:end], work[7, k, j, FIRST:end]
            if water.size:
                _weight(rho, water[k, j, FIRST:end], base_rho, levels[WATER, k], dry, weight)
            else:
                fill(dry, 1.0)
                take(rho, weight)


@jit(noalias=True, borrowed=True)
def _speeds(
    rho, west, south, under, momentum_u, momentum_v, momentum_w, heat, base, base_under, base_heat, below, above, gate,
    u, v, w, theta,
):  # fmt: skip
    for i in range(u8(len(rho))):
        here = rho[i] + base
        u[i] = momentum_u[i] / (0.5 * ((west[i] + base) + here))
        v[i] = momentum_v[i] / (0.5 * ((south[i] + base) + here))
        w[i] = gate * (momentum_w[i] / (below * (under[i] + base_under) + above * here))
        theta[i] = (heat[i] + base_heat) / here


@jit(noalias=True, borrowed=True)
def _pressure(heat, base_heat, base_p, p, stiff):
    far, per_base = 0, 1.0 / base_heat
    for i in range(u8(len(heat))):
        e = heat[i] * per_base
        excess = base_p * power(e, False)
        far |= outside(e)
        p[i] = excess
        stiff[i] = GAMMA * (base_p + excess) / (heat[i] + base_heat)
    return far


@jit(noalias=True, borrowed=True)
def _pressure_far(heat, base_heat, base_p, p, stiff):
    per_base = 1.0 / base_heat
    for i in range(u8(len(heat))):
        p[i] = base_p * power(heat[i] * per_base, True)
        stiff[i] = GAMMA * (base_p + p[i]) / (heat[i] + base_heat)


@jit(noalias=True, borrowed=True)
def _weight(rho, water, base_rho, base_water, dry, weight):
    for i in range(u8(len(rho))):
        dry[i] = 1.0 / (1.0 + water[i])
        weight[i] = rho[i] * (1.0 + water[i]) + base_rho * (water[i] - base_water)


@jit
def tendencies(state, work, column, levels, wind, weights, stage, slow):
    wide = state.shape[3]
    many = wide - 2 * HALO + 2
    _along(state, work, column, levels, wind, weights, stage, slow, np.empty(many), np.empty((2, 4, many)))
    _upward(state, work, levels, weights, slow, np.zeros((2, 4, many)), np.zeros(wide))


@jit(borrowed=True)
def _along(state, work, column, levels, wind, weights, stage, slow, flux, north):
    """What passes the faces across x and y, and the forces along them."""
    nz, tall, wide = state.shape[1:]
    dx, dy = stage.dx, stage.dy
    lo, hi = HALO, wide - HALO  # owned cells of a row
    inner = weights[2]
    for k in range(nz):
        low = max(k - 1, 0)
        below, above = levels[BELOW, k], levels[ABOVE, k]
        for j in range(HALO, tall - HALO + 1):
            rho_u, rho_v = state[1, k, j], state[2, k, j]
            owned = j < tall - HALO
            # along x
            if owned:
                take(rho_u[lo : hi + 1], flux)
                _carry(work[3, k, j, lo - 3 : hi + 3], flux, hi + 1 - lo, inner)
                _difference(flux, slow[4, k, j, lo:hi], dx)
                take(rho_u[lo : hi + 1], flux)
                _difference(flux, slow[0, k, j, lo:hi], dx)
                mean(rho_u[lo - 1 : hi + 1], rho_u[lo : hi + 2], flux)
                _carry(work[0, k, j, lo - 3 : hi + 4], flux, hi + 2 - lo, inner)
                _difference(flux, slow[1, k, j, lo : hi + 1], dx)
                _gradient(
                    work[4, k, j, lo - 1 : hi], work[4, k, j, lo : hi + 1],
                    work[6, k, j, lo - 1 : hi], work[6, k, j, lo : hi + 1], dx, slow[1, k, j, lo : hi + 1],
                )  # fmt: skip
                _weighted(state[1, low, j, lo : hi + 1], rho_u[lo : hi + 1], below, above, flux)
                _carry(work[2, k, j, lo - 3 : hi + 3], flux, hi + 1 - lo, inner)
                _difference(flux, slow[3, k, j, lo:hi], dx)
            mean(state[1, k, j - 1, lo : hi + 1], rho_u[lo : hi + 1], flux)
            _carry(work[1, k, j, lo - 3 : hi + 3], flux, hi + 1 - lo, inner)
            _difference(flux, slow[2, k, j, lo:hi], dx)
            _gradient(
                work[4, k, j - 1, lo:hi], work[4, k, j, lo:hi], work[6, k, j - 1, lo:hi], work[6, k, j, lo:hi], dy,
                slow[2, k, j, lo:hi],
            )  # fmt: skip
            # along y: what passes the low faces of row j; the middles of the cells of rho v
            this, last = north[j & 1], north[1 - (j & 1)]
            take(rho_v[lo:hi], this[0])
            _carry_rows(work[3, k, j - 3 : j + 3, lo:hi], this[0], hi - lo, inner)
            mean(rho_v[lo - 1 : hi], rho_v[lo : hi + 1], this[1])
            _carry_rows(work[0, k, j - 3 : j + 3, lo : hi + 1], this[1], hi + 1 - lo, inner)
            _weighted(state[2, low, j, lo:hi], rho_v[lo:hi], below, above, this[3])
            _carry_rows(work[2, k, j - 3 : j + 3, lo:hi], this[3], hi - lo, inner)
            if j == HALO:
                mean(state[2, k, j - 1, lo:hi], rho_v[lo:hi], last[2])
                _carry_rows(work[1, k, j - 3 : j + 3, lo:hi], last[2], hi - lo, inner)
            else:
                _subtract(last[0], this[0], dy, slow[4, k, j - 1, lo:hi])
                _subtract(state[2, k, j - 1, lo:hi], rho_v[lo:hi], dy, slow[0, k, j - 1, lo:hi])
                _subtract(last[1], this[1], dy, slow[1, k, j - 1, lo : hi + 1])
                _subtract(last[3], this[3], dy, slow[3, k, j - 1, lo:hi])
            mean(rho_v[lo:hi], state[2, k, j + 1, lo:hi], this[2])
            _carry_rows(work[1, k, j - 2 : j + 4, lo:hi], this[2], hi - lo, inner)
            _subtract(last[2], this[2], dy, slow[2, k, j, lo:hi])
            if stage.coriolis != 0.0:
                calm = column[0, k]
                if owned:
                    _turn(
                        rho_v[lo - 1 : hi], rho_v[lo : hi + 1], state[2, k, j + 1, lo - 1 : hi],
                        state[2, k, j + 1, lo : hi + 1], calm * wind[1, k], stage.coriolis, slow[1, k, j, lo : hi + 1],
                    )  # fmt: skip
                _turn(
                    state[1, k, j - 1, lo:hi], rho_u[lo:hi], state[1, k, j - 1, lo + 1 : hi + 1],
                    rho_u[lo + 1 : hi + 1], calm * wind[0, k], -stage.coriolis, slow[2, k, j, lo:hi],
                )  # fmt: skip


@jit(borrowed=True)
def _upward(state, work, levels, weights, slow, up, still):
    """What passes the faces between levels, and the forces along z."""
    nz, tall, wide = state.shape[1:]
    lo, hi = HALO, wide - HALO
    for j in range(HALO, tall - HALO + 1):
        owned = j < tall - HALO
        for k in range(nz + 1):
            this, last = up[k & 1], up[1 - (k & 1)]
            wall = k == 0 or k == nz
            a, b, c = max(k - 3, 0), max(k - 2, 0), max(k - 1, 0)
            d, e, f = min(k, nz - 1), min(k + 1, nz - 1), min(k + 2, nz - 1)
            row = weights[max(min(k - 1, nz - 1 - k, 2), 0)]
            rho_w = still if wall else state[3, d, j]
            south = still if wall else state[3, d, j - 1]
            mean(south[lo:hi], rho_w[lo:hi], this[1])
            _carry_six(
                work[1, a, j, lo:hi], work[1, b, j, lo:hi], work[1, c, j, lo:hi], work[1, d, j, lo:hi],
                work[1, e, j, lo:hi], work[1, f, j, lo:hi], this[1], row,
            )  # fmt: skip
            if k:
                _subtract_times(last[1], this[1], levels[PER_CELL, k - 1], slow[2, k - 1, j, lo:hi])
            if not owned:
                continue
            take(rho_w[lo:hi], this[2])
            _carry_six(
                work[3, a, j, lo:hi], work[3, b, j, lo:hi], work[3, c, j, lo:hi], work[3, d, j, lo:hi],
                work[3, e, j, lo:hi], work[3, f, j, lo:hi], this[2], row,
            )  # fmt: skip
            mean(rho_w[lo - 1 : hi], rho_w[lo : hi + 1], this[0])
            _carry_six(
                work[0, a, j, lo : hi + 1], work[0, b, j, lo : hi + 1], work[0, c, j, lo : hi + 1],
                work[0, d, j, lo : hi + 1], work[0, e, j, lo : hi + 1], work[0, f, j, lo : hi + 1], this[0], row,
            )  # fmt: skip
            if k:
                per_cell = levels[PER_CELL, k - 1]
                under = state[3, k - 1, j]
                _subtract_times(last[2], this[2], per_cell, slow[4, k - 1, j, lo:hi])
                _subtract_times(under[lo:hi], rho_w[lo:hi], per_cell, slow[0, k - 1, j, lo:hi])
                _subtract_times(last[0], this[0], per_cell, slow[1, k - 1, j, lo : hi + 1])
            if k == nz:
                continue
            # the middle of level k, between the faces k and k + 1, for w
            row = weights[min(k, nz - 1 - k, 2)]
            over = still if k + 1 == nz else state[3, k + 1, j]
            mean(rho_w[lo:hi], over[lo:hi], this[3])
            _carry_six(
                work[2, b, j, lo:hi], work[2, c, j, lo:hi], work[2, d, j, lo:hi],
                (still if k + 1 >= nz else work[2, min(k + 1, nz - 1), j])[lo:hi],
                (still if k + 2 >= nz else work[2, min(k + 2, nz - 1), j])[lo:hi],
                (still if k + 3 >= nz else work[2, min(k + 3, nz - 1), j])[lo:hi], this[3], row,
            )  # fmt: skip
            if k:
                _subtract_times(last[3], this[3], levels[PER_FACE, k], slow[3, k, j, lo:hi])
                _lift(
                    work[4, k - 1, j, lo:hi], work[4, k, j, lo:hi], work[6, k - 1, j, lo:hi], work[6, k, j, lo:hi],
                    work[7, k - 1, j, lo:hi], work[7, k, j, lo:hi], levels[BELOW, k], levels[ABOVE, k],
                    levels[PER_FACE, k], slow[3, k, j, lo:hi],
                )  # fmt: skip
            else:
                fill(slow[3, 0, j, lo:hi], 0.0)


@jit(noalias=True, borrowed=True)
def _weighted(a, b, below, above, out):
    for i in range(u8(len(a))):
        out[i] = below * a[i] + above * b[i]


@jit(noalias=True, borrowed=True)
def _carry(q, flux, count, row):
    """Times what a row carries through its faces: six cells from q[i] on."""
    even0, even1, even2, odd0, odd1, odd2 = row[0], row[1], row[2], row[3], row[4], row[5]
    for i in range(u8(count)):
        flux[i] = carried(
            flux[i], q[i], q[i + u8(1)], q[i + u8(2)], q[i + u8(3)], q[i + u8(4)], q[i + u8(5)],
            even0, even1, even2, odd0, odd1, odd2,
        )  # fmt: skip


@jit(borrowed=True)
def _carry_rows(q, flux, count, row):
    """The same across rows: six of them."""
    _carry_six(q[0], q[1], q[2], q[3], q[4], q[5], flux, row)


@jit(noalias=True, borrowed=True)
def _carry_six(a, b, c, d, e, f, flux, row):
    even0, even1, even2, odd0, odd1, odd2 = row[0], row[1], row[2], row[3], row[4], row[5]
    for i in range(u8(len(a))):
        flux[i] = carried(flux[i], a[i], b[i], c[i], d[i], e[i], f[i], even0, even1, even2, odd0, odd1, odd2)


@jit(noalias=True, borrowed=True)
def _difference(flux, out, width):
    per_width = 1.0 / width
    for i in range(u8(len(out))):
        out[i] = (flux[i] - flux[i + u8(1)]) * per_width


@jit(noalias=True, borrowed=True)
def _subtract(low, high, width, out):
    _subtract_times(low, high, 1.0 / width, out)


@jit(noalias=True, borrowed=True)
def _subtract_times(low, high, per_width, out):
    for i in range(u8(len(out))):
        out[i] += (low[i] - high[i]) * per_width


@jit(noalias=True, borrowed=True)
def _gradient(low, high, dry_low, dry_high, width, out):
    per_width = 1.0 / width
    for i in range(u8(len(out))):
        out[i] -= 0.5 * (dry_low[i] + dry_high[i]) * ((high[i] - low[i]) * per_width)


@jit(noalias=True, borrowed=True)
def _turn(a, b, c, d, calm, coriolis, out):
    for i in range(u8(len(out))):
        out[i] += coriolis * (0.25 * ((a[i] + b[i]) + (c[i] + d[i])) - calm)


@jit(noalias=True, borrowed=True)
def _lift(p_low, p_high, dry_low, dry_high, weight_low, weight_high, below, above, per_face, out):
    for i in range(u8(len(out))):
        force = (p_high[i] - p_low[i]) * per_face + GRAVITY * (below * weight_low[i] + above * weight_high[i])
        out[i] -= (below * dry_low[i] + above * dry_high[i]) * force


@jit(borrowed=True)
def begin(start, state, work, fast, pressure):
    nz, tall, wide = state.shape[1:]
    first, end = HALO - 1, wide - HALO + 1
    for k in range(nz):
        for j in range(HALO - 1, tall - HALO + 1):
            for field in range(5):
                _minus(start[field, k, j, first:end], state[field, k, j, first:end], fast[field, k, j, first:end])
            _times(work[5, k, j, first:end], fast[4, k, j, first:end], pressure[k, j - HALO + 1])


@jit(noalias=True, borrowed=True)
def _minus(a, b, out):
    for i in range(u8(len(out))):
        out[i] = a[i] - b[i]


@jit(noalias=True, borrowed=True)
def _times(a, b, out):
    for i in range(u8(len(out))):
        out[i] = a[i] * b[i]


@jit
def substep(work, slow, fast, pressure, levels, flux_x, flux_y, flux_z, state, numbers):
    columns = np.zeros((5, fast.shape[1] + 1, fast.shape[3] - 2 * HALO))
    _substep(work, slow, fast, pressure, levels, flux_x, flux_y, flux_z, state, numbers, columns)


@jit(borrowed=True)
def _substep(work, slow, fast, pressure, levels, flux_x, flux_y, flux_z, state, numbers, columns):
    nz, tall, wide = fast.shape[1:]
    lo, hi = HALO, wide - HALO
    dt, implicit, share = numbers.dt, numbers.implicit, numbers.share
    factor, value, rho, heat, p = columns[0], columns[1], columns[2], columns[3], columns[4]
    for j in range(HALO, tall - HALO + 1):
        at = j - HALO + 1  # of the pressure
        for k in range(nz):
            if j == HALO:
                _push(
                    pressure[k, 0, 1:-1], pressure[k, 1, 1:-1], work[6, k, j - 1, lo:hi], work[6, k, j, lo:hi],
                    slow[2, k, j, lo:hi], dt, numbers.dy, fast[2, k, j, lo:hi],
                )  # fmt: skip
                if share != 0.0:
                    add_mean(flux_y[k, 0], state[2, k, j, lo:hi], fast[2, k, j, lo:hi], share)
            if j == tall - HALO:
                continue
            _push(
                pressure[k, at, :-1], pressure[k, at, 1:], work[6, k, j, lo - 1 : hi], work[6, k, j, lo : hi + 1],
                slow[1, k, j, lo : hi + 1], dt, numbers.dx, fast[1, k, j, lo : hi + 1],
            )  # fmt: skip
            _push(
                pressure[k, at, 1:-1], pressure[k, at + 1, 1:-1], work[6, k, j, lo:hi], work[6, k, j + 1, lo:hi],
                slow[2, k, j + 1, lo:hi], dt, numbers.dy, fast[2, k, j + 1, lo:hi],
            )  # fmt: skip
            if share != 0.0:
                add_mean(flux_x[k, j - HALO], state[1, k, j, lo : hi + 1], fast[1, k, j, lo : hi + 1], share)
                add_mean(flux_y[k, j - HALO + 1], state[2, k, j + 1, lo:hi], fast[2, k, j + 1, lo:hi], share)
        if j == tall - HALO:
            break
        for k in range(nz):
            top = k == nz - 1
            above = min(k + 1, nz - 1)
            explicit_part(
                fast[1, k, j, lo : hi + 1], fast[2, k, j, lo:hi], fast[2, k, j + 1, lo:hi], fast[3, k, j, lo:hi],
                fast[3, above, j, lo:hi], work[3, k, j - 1, lo:hi], work[3, k, j, lo - 1 : hi + 1],
                work[3, k, j + 1, lo:hi], work[3, max(k - 1, 0), j, lo:hi], work[3, above, j, lo:hi],
                fast[0, k, j, lo:hi], fast[4, k, j, lo:hi], slow[0, k, j, lo:hi], slow[4, k, j, lo:hi],
                work[5, k, j, lo:hi], numbers.dx, numbers.dy, dt, implicit, levels[PER_CELL, k], levels[BELOW, k],
                levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1], 0.0 if top else 1.0, rho[k], heat[k],
                p[k],
            )  # fmt: skip
        for k in range(1, nz):
            above = min(k + 1, nz - 1)
            _eliminate(
                work[5, k - 1, j, lo:hi], work[5, k, j, lo:hi], work[6, k - 1, j, lo:hi], work[6, k, j, lo:hi],
                work[3, max(k - 2, 0), j, lo:hi], work[3, k - 1, j, lo:hi], work[3, k, j, lo:hi],
                work[3, above, j, lo:hi], p[k - 1], p[k], rho[k - 1], rho[k], fast[0, k - 1, j, lo:hi],
                fast[0, k, j, lo:hi], fast[3, k, j, lo:hi], slow[3, k, j, lo:hi], levels[PER_FACE, k],
                levels[PER_CELL, k - 1], levels[PER_CELL, k], levels[BELOW, k - 1], levels[ABOVE, k - 1],
                levels[BELOW, k], levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1], dt, implicit,
                factor[k - 1], value[k - 1], factor[k], value[k],
            )  # fmt: skip
        for k in range(nz - 1, -1, -1):  # value holds the new W'' from here on
            above = min(k + 1, nz - 1)
            if k:
                back(factor[k], value[k + 1], value[k])
            if share != 0.0:
                add_mixed(
                    flux_z[k, j - HALO], state[3, k, j, lo:hi], value[k], fast[3, k, j, lo:hi], implicit, share
                )  # fmt: skip
            settle(
                value[k], value[k + 1], work[3, max(k - 1, 0), j, lo:hi], work[3, k, j, lo:hi],
                work[3, above, j, lo:hi], work[5, k, j, lo:hi], rho[k], heat[k], levels[PER_CELL, k], levels[BELOW, k],
                levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1], dt * implicit, numbers.damping,
                fast[0, k, j, lo:hi], fast[3, k, j, lo:hi], fast[4, k, j, lo:hi], pressure[k, at, 1:-1],
            )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _push(p_low, p_high, dry_low, dry_high, slow, dt, width, momentum):
    per_width = 1.0 / width
    for i in range(u8(len(momentum))):
        gradient = 0.5 * (dry_low[i] + dry_high[i]) * ((p_high[i] - p_low[i]) * per_width)
        momentum[i] += dt * (slow[i] - gradient)


@jit(noalias=True, borrowed=True)
def _eliminate(
    stiff_low, stiff, dry_low, dry, theta_2, theta_1, theta, theta_above, p_low, p, rho_low, rho, old_low, old, w, slow,
    per_face, down, up, below_1, above_1, below, above, below_up, above_up, dt, implicit, factor_low, value_low, factor,
    value,
):  # fmt: skip
    """One level of the tridiagonal system, forward."""
    size, explicit = (dt * implicit) ** 2, 1.0 - implicit
    for i in range(u8(len(factor))):
        tension = (below * dry_low[i] + above * dry[i]) * per_face
        low, high = below_1 * theta_2[i] + above_1 * theta_1[i], below_up * theta[i] + above_up * theta_above[i]
        middle = below * theta_1[i] + above * theta[i]
        lower = lower_of(size, tension, stiff_low[i], down, low, below, GRAVITY)
        upper = upper_of(size, tension, stiff[i], up, high, above, GRAVITY)
        diagonal = diagonal_of(size, tension, stiff_low[i], stiff[i], down, up, middle, below, above, GRAVITY)
        mixed_low, mixed = implicit * rho_low[i] + explicit * old_low[i], implicit * rho[i] + explicit * old[i]
        weight = GRAVITY * (below * mixed_low + above * mixed)
        right = w[i] + dt * (slow[i] - tension * (p[i] - p_low[i]) - weight)
        pivot = 1.0 / (diagonal - lower * factor_low[i])
        factor[i] = upper * pivot
        value[i] = (right - lower * value_low[i]) * pivot


@jit(borrowed=True)
def finish(state, fast):
    nz, tall, wide = state.shape[1:]
    for field in range(5):
        for k in range(nz):
            for j in range(HALO, tall - HALO):
                _settled(fast[field, k, j, HALO : wide - HALO], state[field, k, j, HALO : wide - HALO])


@jit(noalias=True, borrowed=True)
def _settled(a, out):
    for i in range(u8(len(out))):
        new = out[i] + a[i]
        out[i] = 0.0 if abs(new) < SMALLEST else new
