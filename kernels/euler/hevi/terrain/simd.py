"""The split dynamics over terrain, Numba: row by row along x, as the flat kernels, with metric terms by cell."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GAMMA, GRAVITY, HALO
from hpckit.kernels.euler.hevi import simd as flat
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, FACES_BACK, PER_CELL, PER_FACE, Stage
from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS
from hpckit.kernels.euler.hevi.numerics import diagonal_of, lower_of, upper_of
from hpckit.kernels.euler.hevi.rows import add_mean, add_mixed, back, explicit_part, fill, settle
from hpckit.kernels.euler.numerics import outside, power

u8 = np.uint64
FIRST = HALO - FACES_BACK  # of the cells of `work`


@jit(borrowed=True)
def prepare(state, ground, levels, work):
    base, metric = ground.base, ground.metric
    nz, tall, wide = state.shape[1:]
    end = wide - FIRST + 1
    for k in range(nz):
        for j in range(FIRST, tall - FIRST + 1):
            _speeds(
                state[0, k, j, FIRST:end], state[0, k, j, FIRST - 1 : end - 1], state[0, k, j - 1, FIRST:end],
                base[0, k, j, FIRST:end], base[0, k, j, FIRST - 1 : end - 1], base[0, k, j - 1, FIRST:end],
                state[1, k, j, FIRST:end], state[2, k, j, FIRST:end], state[4, k, j, FIRST:end],
                base[1, k, j, FIRST:end], work[0, k, j, FIRST:end], work[1, k, j, FIRST:end], work[3, k, j, FIRST:end],
            )  # fmt: skip
            heat, base_heat, base_p = state[4, k, j, FIRST:end], base[1, k, j, FIRST:end], base[2, k, j, FIRST:end]
            p, stiff = work[8, k, j, FIRST:end], work[5, k, j, FIRST:end]
            if _pressure(heat, base_heat, base_p, p, stiff):
                _pressure_far(heat, base_heat, base_p, p, stiff)
            fill(work[4, k, j, FIRST:end], 0.0)
            fill(work[6, k, j, FIRST:end], 1.0)
            fill(work[7, k, j, FIRST:end], 0.0)
    for k in range(nz):
        low = max(k - 1, 0)
        for j in range(FIRST, tall - FIRST):
            _rise(
                state[3, k, j, FIRST : end - 1], state[0, low, j, FIRST : end - 1], state[0, k, j, FIRST : end - 1],
                base[0, low, j, FIRST : end - 1], base[0, k, j, FIRST : end - 1], metric[5, k, j, FIRST : end - 1],
                metric[6, k, j, FIRST : end - 1], metric[7, k, j, FIRST : end - 1], work[0, low, j, FIRST:end],
                work[0, k, j, FIRST:end], work[1, low, j, FIRST : end - 1], work[1, k, j, FIRST : end - 1],
                work[1, low, j + 1, FIRST : end - 1], work[1, k, j + 1, FIRST : end - 1], levels[BELOW, k],
                levels[ABOVE, k], work[2, k, j, FIRST : end - 1],
            )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _speeds(
    rho, west, south, base, base_west, base_south, momentum_u, momentum_v, heat, base_heat, u, v, theta
):  # fmt: skip
    for i in range(u8(len(rho))):
        here = rho[i] + base[i]
        u[i] = momentum_u[i] / (0.5 * ((west[i] + base_west[i]) + here))
        v[i] = momentum_v[i] / (0.5 * ((south[i] + base_south[i]) + here))
        theta[i] = (heat[i] + base_heat[i]) / here


@jit(noalias=True, borrowed=True)
def _pressure(heat, base_heat, base_p, p, stiff):
    far = 0
    for i in range(u8(len(heat))):
        e = heat[i] / base_heat[i]
        excess = base_p[i] * power(e, False)
        far |= outside(e)
        p[i] = excess
        stiff[i] = GAMMA * (base_p[i] + excess) / (heat[i] + base_heat[i])
    return far


@jit(noalias=True, borrowed=True)
def _pressure_far(heat, base_heat, base_p, p, stiff):
    for i in range(u8(len(heat))):
        p[i] = base_p[i] * power(heat[i] / base_heat[i], True)
        stiff[i] = GAMMA * (base_p[i] + p[i]) / (heat[i] + base_heat[i])


@jit(noalias=True, borrowed=True)
def _rise(
    omega, rho_low, rho, base_low, base, per_w, slope_x, slope_y, u_low, u, v_low, v, v_north_low, v_north, below,
    above, w,
):  # fmt: skip
    """The true vertical wind at the low faces of a level; u: a cell ahead."""
    for i in range(u8(len(w))):
        density = below * (rho_low[i] + base_low[i]) + above * (rho[i] + base[i])
        mean_u = below * (0.5 * (u_low[i] + u_low[i + u8(1)])) + above * (0.5 * (u[i] + u[i + u8(1)]))
        mean_v = below * (0.5 * (v_low[i] + v_north_low[i])) + above * (0.5 * (v[i] + v_north[i]))
        w[i] = omega[i] / (per_w[i] * density) + slope_x[i] * mean_u + slope_y[i] * mean_v


def tendencies(state, work, ground, column, levels, weights, stage, slow):
    calm = np.zeros((2, state.shape[1]))
    plain = Stage(stage.dx, stage.dy, 0.0)
    flat.tendencies(state, work[:FLAT_WORKS], column, levels, calm, weights, plain, slow)
    if stage.coriolis:
        _turn(state, ground, stage.coriolis, slow)
    _sloped(ground.metric, levels, slow)
    _forces(state, work, ground, levels, stage.dx, stage.dy, slow)


@jit(borrowed=True)
def _turn(state, ground, coriolis, slow):
    """The Coriolis force on what the base state's wind leaves of the momenta."""
    base, wind = ground.base[0], ground.wind
    nz, tall, wide = state.shape[1:]
    lo, hi = HALO, wide - HALO
    for k in range(nz):
        for j in range(HALO, tall - HALO + 1):
            if j < tall - HALO:
                _turned(
                    state[2, k, j, lo - 1 : hi + 1], state[2, k, j + 1, lo - 1 : hi + 1],
                    base[k, j - 1, lo - 1 : hi + 1], base[k, j, lo - 1 : hi + 1], base[k, j + 1, lo - 1 : hi + 1],
                    wind[1, k, j, lo - 1 : hi + 1], wind[1, k, j + 1, lo - 1 : hi + 1], coriolis,
                    slow[1, k, j, lo : hi + 1],
                )  # fmt: skip
            _turned_back(
                state[1, k, j - 1, lo : hi + 1], state[1, k, j, lo : hi + 1], base[k, j - 1, lo - 1 : hi + 1],
                base[k, j, lo - 1 : hi + 1], wind[0, k, j - 1, lo : hi + 1], wind[0, k, j, lo : hi + 1], coriolis,
                slow[2, k, j, lo:hi],
            )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _turned(v, v_north, base_south, base, base_north, wind, wind_north, coriolis, out):
    for i in range(u8(len(out))):
        e = i + u8(1)
        west = v[i] - 0.5 * (base_south[i] + base[i]) * wind[i]
        east = v[e] - 0.5 * (base_south[e] + base[e]) * wind[e]
        north_west = v_north[i] - 0.5 * (base[i] + base_north[i]) * wind_north[i]
        north_east = v_north[e] - 0.5 * (base[e] + base_north[e]) * wind_north[e]
        out[i] += coriolis * (0.25 * ((west + east) + (north_west + north_east)))


@jit(noalias=True, borrowed=True)
def _turned_back(u_south, u, base_south, base, wind_south, wind, coriolis, out):
    """Bases start a cell before the faces of u."""
    for i in range(u8(len(out))):
        e, f = i + u8(1), i + u8(2)
        south_west = u_south[i] - 0.5 * (base_south[i] + base_south[e]) * wind_south[i]
        west = u[i] - 0.5 * (base[i] + base[e]) * wind[i]
        south_east = u_south[e] - 0.5 * (base_south[e] + base_south[f]) * wind_south[e]
        east = u[e] - 0.5 * (base[e] + base[f]) * wind[e]
        out[i] -= coriolis * (0.25 * ((south_west + west) + (south_east + east)))


@jit(borrowed=True)
def _sloped(metric, levels, slow):
    """The tendency of J rho w becomes that of Omega."""
    nz, tall, wide = slow.shape[1:]
    lo, hi = HALO, wide - HALO
    for k in range(1, nz):
        for j in range(HALO, tall - HALO):
            _contravariant(
                slow[1, k - 1, j, lo : hi + 1], slow[1, k, j, lo : hi + 1], metric[0, k - 1, j, lo : hi + 1],
                metric[0, k, j, lo : hi + 1], slow[2, k - 1, j, lo:hi], slow[2, k, j, lo:hi],
                slow[2, k - 1, j + 1, lo:hi], slow[2, k, j + 1, lo:hi], metric[1, k - 1, j, lo:hi],
                metric[1, k, j, lo:hi], metric[1, k - 1, j + 1, lo:hi], metric[1, k, j + 1, lo:hi],
                metric[5, k, j, lo:hi], metric[6, k, j, lo:hi], metric[7, k, j, lo:hi], levels[BELOW, k],
                levels[ABOVE, k], slow[3, k, j, lo:hi],
            )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _contravariant(
    u_low, u, size_u_low, size_u, v_low, v, v_north_low, v_north, size_v_low, size_v, size_v_north_low, size_v_north,
    per_w, slope_x, slope_y, below, above, out,
):  # fmt: skip
    for i in range(u8(len(out))):
        e = i + u8(1)
        mean_u = below * (0.5 * (u_low[i] / size_u_low[i] + u_low[e] / size_u_low[e]))
        mean_u += above * (0.5 * (u[i] / size_u[i] + u[e] / size_u[e]))
        mean_v = below * (0.5 * (v_low[i] / size_v_low[i] + v_north_low[i] / size_v_north_low[i]))
        mean_v += above * (0.5 * (v[i] / size_v[i] + v_north[i] / size_v_north[i]))
        out[i] = out[i] * per_w[i] - (slope_x[i] * mean_u + slope_y[i] * mean_v)


@jit(borrowed=True)
def _forces(state, work, ground, levels, dx, dy, slow):
    """Of p' and rho' on the momenta and on Omega."""
    metric, tilt = ground.metric, ground.tilt
    nz, tall, wide = state.shape[1:]
    lo, hi = HALO, wide - HALO
    for k in range(nz):
        m = min(max(k - 1, 0), nz - 3)
        for j in range(HALO, tall - HALO + 1):
            p = work[8, m : m + 3, j]
            if j < tall - HALO:
                _push(
                    work[8, k, j, lo - 1 : hi], work[8, k, j, lo : hi + 1], p[0, lo - 1 : hi], p[1, lo - 1 : hi],
                    p[2, lo - 1 : hi], p[0, lo : hi + 1], p[1, lo : hi + 1], p[2, lo : hi + 1],
                    metric[0, k, j, lo : hi + 1], metric[2, k, j, lo : hi + 1], tilt[0, k], tilt[1, k], dx,
                    slow[1, k, j, lo : hi + 1],
                )  # fmt: skip
            south = work[8, m : m + 3, j - 1]
            _push(
                work[8, k, j - 1, lo:hi], work[8, k, j, lo:hi], south[0, lo:hi], south[1, lo:hi], south[2, lo:hi],
                p[0, lo:hi], p[1, lo:hi], p[2, lo:hi], metric[1, k, j, lo:hi], metric[3, k, j, lo:hi], tilt[0, k],
                tilt[1, k], dy, slow[2, k, j, lo:hi],
            )  # fmt: skip
            if k and j < tall - HALO:
                _lift(
                    work[8, k - 1, j, lo - 1 : hi + 1], work[8, k, j, lo - 1 : hi + 1], work[8, k - 1, j - 1, lo:hi],
                    work[8, k, j - 1, lo:hi], work[8, k - 1, j + 1, lo:hi], work[8, k, j + 1, lo:hi],
                    state[0, k - 1, j, lo:hi], state[0, k, j, lo:hi], metric[4, k, j, lo:hi], metric[5, k, j, lo:hi],
                    metric[6, k, j, lo:hi], metric[7, k, j, lo:hi], dx, dy, levels[BELOW, k], levels[ABOVE, k],
                    levels[PER_FACE, k], slow[3, k, j, lo:hi],
                )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _push(low, high, a_low, b_low, c_low, a, b, c, size, slope, first, second, width, out):
    """The force along a level: a to c are three levels of the pressure, around the face's own."""
    per_width = 1.0 / width
    for i in range(u8(len(out))):
        upward = 0.5 * (
            (first * (b_low[i] - a_low[i]) + second * (c_low[i] - b_low[i]))
            + (first * (b[i] - a[i]) + second * (c[i] - b[i]))
        )
        out[i] += slope[i] * upward - size[i] * ((high[i] - low[i]) * per_width)


@jit(noalias=True, borrowed=True)
def _lift(
    under, p, under_south, south, under_north, north, rho_low, rho, steep, per_w, slope_x, slope_y, dx, dy, below,
    above, per_face, out,
):  # fmt: skip
    """The force on Omega; under and p: a cell ahead."""
    half_x, half_y = 0.5 / dx, 0.5 / dy
    for i in range(u8(len(out))):
        here, far = i + u8(1), i + u8(2)
        across = below * ((under[far] - under[i]) * half_x) + above * ((p[far] - p[i]) * half_x)
        along = below * ((under_north[i] - under_south[i]) * half_y) + above * ((north[i] - south[i]) * half_y)
        pull = steep[i] * ((p[here] - under[here]) * per_face)
        pull += GRAVITY * per_w[i] * (below * rho_low[i] + above * rho[i])
        out[i] += (slope_x[i] * across + slope_y[i] * along) - pull


@jit
def substep(work, ground, slow, fast, pressure, levels, flux_x, flux_y, flux_z, state, numbers):
    nz, nx = fast.shape[1], fast.shape[3] - 2 * HALO
    columns = np.zeros((7, nz + 1, nx))
    _substep(work, ground, slow, fast, pressure, levels, flux_x, flux_y, flux_z, state, numbers, columns)


@jit(borrowed=True)
def _substep(work, ground, slow, fast, pressure, levels, flux_x, flux_y, flux_z, state, numbers, columns):
    metric, tilt = ground.metric, ground.tilt
    nz, tall, wide = fast.shape[1:]
    lo, hi = HALO, wide - HALO
    dt, implicit, share = numbers.dt, numbers.implicit, numbers.share
    factor, value, rho, heat, p, south, north = (
        columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6],
    )  # fmt: skip
    for j in range(HALO, tall - HALO):
        at = j - HALO + 1  # of the pressure
        for k in range(nz):
            m = min(max(k - 1, 0), nz - 3)
            q = pressure[m : m + 3]
            if j == HALO:
                _slope(pressure[k, 0, 1:-1], pressure[k, 1, 1:-1], numbers.dy, south[k])
                _accelerate(
                    south[k], q[0, 0, 1:-1], q[1, 0, 1:-1], q[2, 0, 1:-1], q[0, 1, 1:-1], q[1, 1, 1:-1], q[2, 1, 1:-1],
                    metric[1, k, j, lo:hi], metric[3, k, j, lo:hi], tilt[0, k], tilt[1, k], dt, slow[2, k, j, lo:hi],
                    fast[2, k, j, lo:hi],
                )  # fmt: skip
                if share != 0.0:
                    add_mean(flux_y[k, 0], state[2, k, j, lo:hi], fast[2, k, j, lo:hi], share)
            else:
                _swap(south[k], north[k])
            _accelerate_x(
                pressure[k, at, :-1], pressure[k, at, 1:], q[0, at, :-1], q[1, at, :-1], q[2, at, :-1], q[0, at, 1:],
                q[1, at, 1:], q[2, at, 1:], metric[0, k, j, lo : hi + 1], metric[2, k, j, lo : hi + 1], tilt[0, k],
                tilt[1, k], dt, numbers.dx, slow[1, k, j, lo : hi + 1], fast[1, k, j, lo : hi + 1],
            )  # fmt: skip
            _slope(pressure[k, at, 1:-1], pressure[k, at + 1, 1:-1], numbers.dy, north[k])
            _accelerate(
                north[k], q[0, at, 1:-1], q[1, at, 1:-1], q[2, at, 1:-1], q[0, at + 1, 1:-1], q[1, at + 1, 1:-1],
                q[2, at + 1, 1:-1], metric[1, k, j + 1, lo:hi], metric[3, k, j + 1, lo:hi], tilt[0, k], tilt[1, k], dt,
                slow[2, k, j + 1, lo:hi], fast[2, k, j + 1, lo:hi],
            )  # fmt: skip
            if share != 0.0:
                add_mean(flux_x[k, j - HALO], state[1, k, j, lo : hi + 1], fast[1, k, j, lo : hi + 1], share)
                add_mean(flux_y[k, j - HALO + 1], state[2, k, j + 1, lo:hi], fast[2, k, j + 1, lo:hi], share)
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
                work[5, k - 1, j, lo:hi], work[5, k, j, lo:hi], metric[4, k, j, lo:hi], metric[5, k, j, lo:hi],
                metric[6, k, j, lo:hi], metric[7, k, j, lo:hi], pressure[k - 1, at], pressure[k, at], south[k - 1],
                south[k], north[k - 1], north[k], work[3, max(k - 2, 0), j, lo:hi], work[3, k - 1, j, lo:hi],
                work[3, k, j, lo:hi], work[3, above, j, lo:hi], p[k - 1], p[k], rho[k - 1], rho[k],
                fast[0, k - 1, j, lo:hi], fast[0, k, j, lo:hi], fast[3, k, j, lo:hi], slow[3, k, j, lo:hi], numbers.dx,
                levels[PER_FACE, k], levels[PER_CELL, k - 1], levels[PER_CELL, k], levels[BELOW, k - 1],
                levels[ABOVE, k - 1], levels[BELOW, k], levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1],
                dt, implicit, factor[k - 1], value[k - 1], factor[k], value[k],
            )  # fmt: skip
        for k in range(nz - 1, -1, -1):  # value holds the new Omega'' from here on
            above = min(k + 1, nz - 1)
            if k:
                back(factor[k], value[k + 1], value[k])
            if share != 0.0:
                add_mixed(flux_z[k, j - HALO], state[3, k, j, lo:hi], value[k], fast[3, k, j, lo:hi], implicit, share)
            settle(
                value[k], value[k + 1], work[3, max(k - 1, 0), j, lo:hi], work[3, k, j, lo:hi],
                work[3, above, j, lo:hi], work[5, k, j, lo:hi], rho[k], heat[k], levels[PER_CELL, k], levels[BELOW, k],
                levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1], dt * implicit, numbers.damping,
                fast[0, k, j, lo:hi], fast[3, k, j, lo:hi], fast[4, k, j, lo:hi], pressure[k, at, 1:-1],
            )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _slope(low, high, width, out):
    per_width = 1.0 / width
    for i in range(u8(len(out))):
        out[i] = (high[i] - low[i]) * per_width


@jit(noalias=True, borrowed=True)
def _swap(to, value):
    for i in range(u8(len(to))):
        to[i] = value[i]


@jit(noalias=True, borrowed=True)
def _accelerate(along, a_low, b_low, c_low, a, b, c, size, slope, first, second, dt, slow, momentum):
    """Rho v by the slow tendency and the pressure; along: its gradient along the level."""
    for i in range(u8(len(momentum))):
        upward = 0.5 * (
            (first * (b_low[i] - a_low[i]) + second * (c_low[i] - b_low[i]))
            + (first * (b[i] - a[i]) + second * (c[i] - b[i]))
        )
        momentum[i] += dt * (slow[i] + (slope[i] * upward - size[i] * along[i]))


@jit(noalias=True, borrowed=True)
def _accelerate_x(low, high, a_low, b_low, c_low, a, b, c, size, slope, first, second, dt, width, slow, momentum):
    """Rho u alike."""
    per_width = 1.0 / width
    for i in range(u8(len(momentum))):
        upward = 0.5 * (
            (first * (b_low[i] - a_low[i]) + second * (c_low[i] - b_low[i]))
            + (first * (b[i] - a[i]) + second * (c[i] - b[i]))
        )
        momentum[i] += dt * (slow[i] + (slope[i] * upward - size[i] * ((high[i] - low[i]) * per_width)))


@jit(noalias=True, borrowed=True)
def _eliminate(
    stiff_low, stiff, steep, per_w, slope_x, slope_y, pressure_low, pressure, south_low, south, north_low, north,
    theta_2, theta_1, theta, theta_above, p_low, p, rho_low, rho, old_low, old, w, slow, dx, per_face, down, up,
    below_1, above_1, below, above, below_up, above_up, dt, implicit, factor_low, value_low, factor, value,
):  # fmt: skip
    """One level of the tridiagonal system, forward; pressure_low and pressure: a cell ahead."""
    size, explicit, half_x = (dt * implicit) ** 2, 1.0 - implicit, 0.5 / dx
    for i in range(u8(len(factor))):
        far = i + u8(2)
        tension, gravity = steep[i] * per_face, GRAVITY * per_w[i]
        low, high = below_1 * theta_2[i] + above_1 * theta_1[i], below_up * theta[i] + above_up * theta_above[i]
        middle = below * theta_1[i] + above * theta[i]
        lower = lower_of(size, tension, stiff_low[i], down, low, below, gravity)
        upper = upper_of(size, tension, stiff[i], up, high, above, gravity)
        diagonal = diagonal_of(size, tension, stiff_low[i], stiff[i], down, up, middle, below, above, gravity)
        mixed_low, mixed = implicit * rho_low[i] + explicit * old_low[i], implicit * rho[i] + explicit * old[i]
        weight = gravity * (below * mixed_low + above * mixed)
        across = (below * (pressure_low[far] - pressure_low[i]) + above * (pressure[far] - pressure[i])) * half_x
        along = below * (0.5 * (south_low[i] + north_low[i])) + above * (0.5 * (south[i] + north[i]))
        lift = slope_x[i] * across + slope_y[i] * along
        right = w[i] + dt * (slow[i] + lift - tension * (p[i] - p_low[i]) - weight)
        pivot = 1.0 / (diagonal - lower * factor_low[i])
        factor[i] = upper * pivot
        value[i] = (right - lower * value_low[i]) * pivot


@jit(borrowed=True)
def relax(state, ground, levels, lid, dt):
    base, metric, wind = ground.base, ground.metric, ground.wind
    nz, tall, wide = state.shape[1:]
    lo, hi = HALO, wide - HALO
    for k in range(nz):
        if lid[k] == 0.0:
            continue
        keep = 1.0 / (1.0 + dt * lid[k])
        low = max(k - 1, 0)
        for j in range(HALO, tall - HALO):
            _calm(
                state[0, k, j, lo - 1 : hi], state[0, k, j, lo:hi], state[0, k, j - 1, lo:hi], state[0, low, j, lo:hi],
                base[0, k, j, lo - 1 : hi], base[0, k, j, lo:hi], base[0, k, j - 1, lo:hi], base[0, low, j, lo:hi],
                base[1, k, j, lo:hi], wind[0, low, j, lo : hi + 1], wind[0, k, j, lo : hi + 1], wind[1, low, j, lo:hi],
                wind[1, k, j, lo:hi], wind[1, low, j + 1, lo:hi], wind[1, k, j + 1, lo:hi], metric[5, k, j, lo:hi],
                metric[6, k, j, lo:hi], metric[7, k, j, lo:hi], levels[BELOW, k], levels[ABOVE, k], keep,
                1.0 if k else 0.0, state[1, k, j, lo:hi], state[2, k, j, lo:hi], state[3, k, j, lo:hi],
                state[4, k, j, lo:hi],
            )  # fmt: skip


@jit(borrowed=True)
def _calm(
    west, rho, south, rho_low, base_west, base, base_south, base_low, base_heat, u_low, u, v_low, v, v_north_low,
    v_north, per_w, slope_x, slope_y, below, above, keep, gate, momentum_u, momentum_v, omega, heat,
):  # fmt: skip
    for i in range(u8(len(rho))):
        here = rho[i] + base[i]
        goal = 0.5 * ((west[i] + base_west[i]) + here) * u[i]
        momentum_u[i] = goal + keep * (momentum_u[i] - goal)
        goal = 0.5 * ((south[i] + base_south[i]) + here) * v[i]
        momentum_v[i] = goal + keep * (momentum_v[i] - goal)
        goal = rho[i] * (base_heat[i] / base[i])
        heat[i] = goal + keep * (heat[i] - goal)
        flow = slope_x[i] * (below * (0.5 * (u_low[i] + u_low[i + u8(1)])) + above * (0.5 * (u[i] + u[i + u8(1)])))
        flow += slope_y[i] * (
            below * (0.5 * (v_low[i] + v_north_low[i])) + above * (0.5 * (v[i] + v_north[i]))
        )  # fmt: skip
        goal = -gate * per_w[i] * (below * (rho_low[i] + base_low[i]) + above * here) * flow
        omega[i] = goal + keep * (omega[i] - goal)
