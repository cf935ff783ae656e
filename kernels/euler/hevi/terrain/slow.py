"""The slow tendencies of the split dynamics over terrain, Numba: row by row along x, with metric terms by cell.

Each part does some rows, which follow those of its last call: what a part reads of the one before is still in the
cache. `work` and `slow` may have room for few of them (`rows.place`).
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GAMMA, GRAVITY
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, FACES_BACK, HALO, NO_WATER, PER_FACE, LargeStage
from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS
from hpckit.kernels.euler.hevi.rows import fill, place
from hpckit.kernels.euler.hevi.slow import slow_part
from hpckit.kernels.euler.hevi.terrain.coriolis import add_coriolis
from hpckit.kernels.euler.numerics import outside, power

u8 = np.uint64
FIRST = HALO - FACES_BACK  # of the cells of `work`


def prepare(state, water, ground, levels, work):
    """As the reference."""
    find(state, water, ground.base, levels, work, FIRST, state.shape[2] - FIRST + 1)
    rise(state, ground.base, ground.metric, levels, work, FIRST, state.shape[2] - FIRST)


@jit(borrowed=True)
def find(state, water, base, levels, work, first, last):
    """What rows of `work` hold, but the vertical wind."""
    nz, _, wide = state.shape[1:]
    end = wide - FIRST + 1
    for k in range(nz):
        for j in range(first, last):
            o = place(j, work.shape[2])
            _speeds(
                state[0, k, j, FIRST:end], state[0, k, j, FIRST - 1 : end - 1], state[0, k, j - 1, FIRST:end],
                base[0, k, j, FIRST:end], base[0, k, j, FIRST - 1 : end - 1], base[0, k, j - 1, FIRST:end],
                state[1, k, j, FIRST:end], state[2, k, j, FIRST:end], state[4, k, j, FIRST:end],
                base[1, k, j, FIRST:end], work[0, k, o, FIRST:end], work[1, k, o, FIRST:end], work[3, k, o, FIRST:end],
            )  # fmt: skip
            heat, base_heat, base_p = state[4, k, j, FIRST:end], base[1, k, j, FIRST:end], base[2, k, j, FIRST:end]
            p, stiff = work[8, k, o, FIRST:end], work[5, k, o, FIRST:end]
            if _pressure(heat, base_heat, base_p, p, stiff):
                _pressure_far(heat, base_heat, base_p, p, stiff)
            fill(work[4, k, o, FIRST:end], 0.0)
            fill(work[6, k, o, FIRST:end], 1.0)
            if water.size:
                _load(
                    state[0, k, j, FIRST:end], water[k, j, FIRST:end], base[0, k, j, FIRST:end],
                    base[3, k, j, FIRST:end], work[6, k, o, FIRST:end], work[7, k, o, FIRST:end],
                )  # fmt: skip


@jit(borrowed=True)
def rise(state, base, metric, levels, work, first, last):
    """The vertical wind of rows whose neighbors in the north are found."""
    nz, _, wide = state.shape[1:]
    end = wide - FIRST + 1
    for k in range(nz):
        low = max(k - 1, 0)
        for j in range(first, last):
            o, north = place(j, work.shape[2]), place(j + 1, work.shape[2])
            _rise(
                state[3, k, j, FIRST : end - 1], state[0, low, j, FIRST : end - 1], state[0, k, j, FIRST : end - 1],
                base[0, low, j, FIRST : end - 1], base[0, k, j, FIRST : end - 1], metric[5, k, j, FIRST : end - 1],
                metric[6, k, j, FIRST : end - 1], metric[7, k, j, FIRST : end - 1], work[0, low, o, FIRST:end],
                work[0, k, o, FIRST:end], work[1, low, o, FIRST : end - 1], work[1, k, o, FIRST : end - 1],
                work[1, low, north, FIRST : end - 1], work[1, k, north, FIRST : end - 1], levels[BELOW, k],
                levels[ABOVE, k], work[2, k, o, FIRST : end - 1],
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
        slope = GAMMA * (base_p[i] + excess) / (heat[i] + base_heat[i])
        p[i] = excess - slope * heat[i]
        stiff[i] = slope
    return far


@jit(noalias=True, borrowed=True)
def _pressure_far(heat, base_heat, base_p, p, stiff):
    for i in range(u8(len(heat))):
        excess = base_p[i] * power(heat[i] / base_heat[i], True)
        slope = GAMMA * (base_p[i] + excess) / (heat[i] + base_heat[i])
        p[i] = excess - slope * heat[i]
        stiff[i] = slope


@jit(noalias=True, borrowed=True)
def _load(rho, water, base_rho, base_water, dry, load):
    for i in range(u8(len(rho))):
        dry[i] = 1.0 / (1.0 + water[i])
        load[i] = rho[i] * (1.0 + water[i]) + base_rho[i] * (water[i] - base_water[i])


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
    """As the reference."""
    calm, end = np.zeros((2, state.shape[1])), state.shape[2] - HALO
    plain = LargeStage(stage.dx, stage.dy, 0.0, False)
    slow_part(state, NO_WATER, column, levels, work[:FLAT_WORKS], calm, weights, plain, slow, state, NO_WATER, True)
    if stage.coriolis:
        add_coriolis(state, ground.base[0], ground.wind, stage.coriolis, slow, HALO, end + 1)
    slope(ground.metric, levels, slow, HALO, end)
    add_forces(state[0], work, ground.metric, ground.tilt, levels, stage, slow, HALO, end + 1)


@jit(borrowed=True)
def slope(metric, levels, slow, first, last):
    """The tendency of J rho w becomes that of Omega."""
    nz, rows, wide = slow.shape[1:]
    lo, hi = HALO, wide - HALO
    for k in range(1, nz):
        for j in range(first, last):
            o, north = place(j, rows), place(j + 1, rows)
            _contravariant(
                slow[1, k - 1, o, lo : hi + 1], slow[1, k, o, lo : hi + 1], metric[0, k - 1, j, lo : hi + 1],
                metric[0, k, j, lo : hi + 1], slow[2, k - 1, o, lo:hi], slow[2, k, o, lo:hi],
                slow[2, k - 1, north, lo:hi], slow[2, k, north, lo:hi], metric[1, k - 1, j, lo:hi],
                metric[1, k, j, lo:hi], metric[1, k - 1, j + 1, lo:hi], metric[1, k, j + 1, lo:hi],
                metric[5, k, j, lo:hi], metric[6, k, j, lo:hi], metric[7, k, j, lo:hi], levels[BELOW, k],
                levels[ABOVE, k], slow[3, k, o, lo:hi],
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
def add_forces(rho, work, metric, tilt, levels, stage, slow, first, last):
    """Of p' and of what weighs on the momenta and on Omega."""
    dry, load, dx, dy, wet, rows = work[6], work[7], stage.dx, stage.dy, stage.wet, work.shape[2]
    nz, tall, wide = rho.shape
    lo, hi = HALO, wide - HALO
    for k in range(nz):
        m = min(max(k - 1, 0), nz - 3)
        for j in range(first, last):
            o, o_south, o_north = place(j, rows), place(j - 1, rows), place(j + 1, rows)
            p = work[8, m : m + 3, o]
            if j < tall - HALO:
                _push(
                    work[8, k, o, lo - 1 : hi], work[8, k, o, lo : hi + 1], p[0, lo - 1 : hi], p[1, lo - 1 : hi],
                    p[2, lo - 1 : hi], p[0, lo : hi + 1], p[1, lo : hi + 1], p[2, lo : hi + 1],
                    metric[0, k, j, lo : hi + 1], metric[2, k, j, lo : hi + 1], dry[k, o, lo - 1 : hi],
                    dry[k, o, lo : hi + 1], tilt[0, k], tilt[1, k], dx, wet, slow[1, k, o, lo : hi + 1],
                )  # fmt: skip
            south = work[8, m : m + 3, o_south]
            _push(
                work[8, k, o_south, lo:hi], work[8, k, o, lo:hi], south[0, lo:hi], south[1, lo:hi], south[2, lo:hi],
                p[0, lo:hi], p[1, lo:hi], p[2, lo:hi], metric[1, k, j, lo:hi], metric[3, k, j, lo:hi],
                dry[k, o_south, lo:hi], dry[k, o, lo:hi], tilt[0, k], tilt[1, k], dy, wet, slow[2, k, o, lo:hi],
            )  # fmt: skip
            if k and j < tall - HALO:
                _lift(
                    work[8, k - 1, o, lo - 1 : hi + 1], work[8, k, o, lo - 1 : hi + 1], work[8, k - 1, o_south, lo:hi],
                    work[8, k, o_south, lo:hi], work[8, k - 1, o_north, lo:hi], work[8, k, o_north, lo:hi],
                    load[k - 1, o, lo:hi], load[k, o, lo:hi], rho[k - 1, j, lo:hi], rho[k, j, lo:hi],
                    metric[4, k, j, lo:hi], metric[5, k, j, lo:hi], metric[6, k, j, lo:hi], metric[7, k, j, lo:hi],
                    dry[k - 1, o, lo:hi], dry[k, o, lo:hi], dx, dy,
                    levels[BELOW, k], levels[ABOVE, k], levels[PER_FACE, k], wet, slow[3, k, o, lo:hi],
                )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _push(
    low, high, a_low, b_low, c_low, a, b, c, size, slope, dry_low, dry, first, second, width, wet, out
):  # fmt: skip
    """The force along a level: a to c are three levels of the pressure, around the face's own."""
    per_width = 1.0 / width
    for i in range(u8(len(out))):
        upward = 0.5 * (
            (first * (b_low[i] - a_low[i]) + second * (c_low[i] - b_low[i]))
            + (first * (b[i] - a[i]) + second * (c[i] - b[i]))
        )
        share = 0.5 * (dry_low[i] + dry[i]) if wet else 1.0
        out[i] += share * (slope[i] * upward - size[i] * ((high[i] - low[i]) * per_width))


@jit(noalias=True, borrowed=True)
def _lift(
    under, p, under_south, south, under_north, north, load_low, load, rho_low, rho, steep, per_w, slope_x, slope_y,
    dry_low, dry, dx, dy, below, above, per_face, wet, out,
):  # fmt: skip
    """The force on Omega; under and p: a cell ahead."""
    half_x, half_y = 0.5 / dx, 0.5 / dy
    for i in range(u8(len(out))):
        here, far = i + u8(1), i + u8(2)
        across = below * ((under[far] - under[i]) * half_x) + above * ((p[far] - p[i]) * half_x)
        along = below * ((under_north[i] - under_south[i]) * half_y) + above * ((north[i] - south[i]) * half_y)
        pull = steep[i] * ((p[here] - under[here]) * per_face)
        lift = slope_x[i] * across + slope_y[i] * along
        if wet:
            pull += GRAVITY * per_w[i] * (below * load_low[i] + above * load[i])
            weight = GRAVITY * per_w[i] * (below * rho_low[i] + above * rho[i])
            out[i] += weight + (below * dry_low[i] + above * dry[i]) * (lift - pull)
        else:
            out[i] += lift - pull
