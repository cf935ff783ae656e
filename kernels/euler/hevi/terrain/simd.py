"""The split dynamics over terrain, Numba: row by row along x, as the flat kernels, with metric terms by cell."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.euler.constants import GAMMA, GRAVITY
from hpckit.kernels.euler.hevi import simd as flat
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, ELSEWHERE, FACES_BACK, HALO, PER_FACE, LargeStage
from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS
from hpckit.kernels.euler.hevi.rows import (
    add_means,
    ask,
    ask_each,
    either,
    fill,
    fill_ends,
    forward,
    kept,
    kept_rows,
    settle,
    tiles,
)
from hpckit.kernels.euler.hevi.terrain.constants import FACES_KEPT
from hpckit.kernels.euler.hevi.terrain.coriolis import add_coriolis
from hpckit.kernels.euler.hevi.turns import whole
from hpckit.kernels.euler.numerics import outside, power

u8 = np.uint64
FIRST = HALO - FACES_BACK  # of the cells of `work`


@jit(borrowed=True)
def prepare(state, water, ground, levels, work):
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
            if water.size:
                _load(
                    state[0, k, j, FIRST:end], water[k, j, FIRST:end], base[0, k, j, FIRST:end],
                    base[3, k, j, FIRST:end], work[6, k, j, FIRST:end], work[7, k, j, FIRST:end],
                )  # fmt: skip
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
    calm = np.zeros((2, state.shape[1]))
    plain = LargeStage(stage.dx, stage.dy, 0.0, False)
    flat.tendencies(state, work[:FLAT_WORKS], column, levels, calm, weights, plain, slow)
    if stage.coriolis:
        add_coriolis(state, ground.base[0], ground.wind, stage.coriolis, slow)
    _sloped(ground.metric, levels, slow)
    _forces(state[0], work, ground, levels, stage, slow)


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
def _forces(rho, work, ground, levels, stage, slow):
    """Of p' and of what weighs on the momenta and on Omega."""
    metric, tilt, dry, dx, dy, wet = ground.metric, ground.tilt, work[6], stage.dx, stage.dy, stage.wet
    load = work[7]
    nz, tall, wide = rho.shape
    lo, hi = HALO, wide - HALO
    for k in range(nz):
        m = min(max(k - 1, 0), nz - 3)
        for j in range(HALO, tall - HALO + 1):
            p = work[8, m : m + 3, j]
            if j < tall - HALO:
                _push(
                    work[8, k, j, lo - 1 : hi], work[8, k, j, lo : hi + 1], p[0, lo - 1 : hi], p[1, lo - 1 : hi],
                    p[2, lo - 1 : hi], p[0, lo : hi + 1], p[1, lo : hi + 1], p[2, lo : hi + 1],
                    metric[0, k, j, lo : hi + 1], metric[2, k, j, lo : hi + 1], dry[k, j, lo - 1 : hi],
                    dry[k, j, lo : hi + 1], tilt[0, k], tilt[1, k], dx, wet, slow[1, k, j, lo : hi + 1],
                )  # fmt: skip
            south = work[8, m : m + 3, j - 1]
            _push(
                work[8, k, j - 1, lo:hi], work[8, k, j, lo:hi], south[0, lo:hi], south[1, lo:hi], south[2, lo:hi],
                p[0, lo:hi], p[1, lo:hi], p[2, lo:hi], metric[1, k, j, lo:hi], metric[3, k, j, lo:hi],
                dry[k, j - 1, lo:hi], dry[k, j, lo:hi], tilt[0, k], tilt[1, k], dy, wet, slow[2, k, j, lo:hi],
            )  # fmt: skip
            if k and j < tall - HALO:
                _lift(
                    work[8, k - 1, j, lo - 1 : hi + 1], work[8, k, j, lo - 1 : hi + 1], work[8, k - 1, j - 1, lo:hi],
                    work[8, k, j - 1, lo:hi], work[8, k - 1, j + 1, lo:hi], work[8, k, j + 1, lo:hi],
                    load[k - 1, j, lo:hi], load[k, j, lo:hi], rho[k - 1, j, lo:hi], rho[k, j, lo:hi],
                    metric[4, k, j, lo:hi], metric[5, k, j, lo:hi], metric[6, k, j, lo:hi], metric[7, k, j, lo:hi],
                    dry[k - 1, j, lo:hi], dry[k, j, lo:hi], dx, dy,
                    levels[BELOW, k], levels[ABOVE, k], levels[PER_FACE, k], wet, slow[3, k, j, lo:hi],
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


def substep(old, new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers):
    nz, ny, nx = new.shape[1], *(n - 2 * HALO for n in new.shape[2:])
    rest = work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    sweep(old, new, *rest, whole(ny), ELSEWHERE, np.empty((1, FACES_KEPT, nz, nx + 1)))


def sweep(old, new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, turns, ends, kept_faces):
    """As the flat one. kept_faces: gradients along y that rows hand on, float64[substeps, FACES_KEPT, nz, nx + 1]."""
    nx, wet = new.shape[3] - 2 * HALO, 1.0 if numbers.wet else None
    rest = new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, *kept_rows(new.shape[1])
    rest = *rest, np.empty((new.shape[1], nx + 1)), kept_faces, tiles(nx), wet, turns, ends
    if old is new:
        _sweep(*rest)
    else:
        _first_sweep(old, *rest)


@jit(borrowed=True)
def _first_sweep(
    old, new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, across, kept_faces,
    tile, wet, turns, ends,
):  # fmt: skip
    old_rho, old_u, old_v, old_w, old_heat = (
        old[0].reshape(-1), old[1].reshape(-1), old[2].reshape(-1), old[3].reshape(-1), old[4].reshape(-1)
    )  # fmt: skip
    rho, w, heat = new[0].reshape(-1), new[3].reshape(-1), new[4].reshape(-1)
    for turn in turns:
        if turn[0] == 0:
            _row(
                old_u, old_v, old_w, old_heat, old_rho, old_w, old_heat, new, work, ground, slow, pressure, levels,
                flux_x, flux_y, flux_z, numbers, rows, low, across, kept_faces, tile, wet, turn[0], turn[1], turn[2],
                turn[3], ends,
            )  # fmt: skip
        else:
            _row(
                None, None, None, None, rho, w, heat, new, work, ground, slow, pressure, levels, flux_x, flux_y,
                flux_z, numbers, rows, low, across, kept_faces, tile, wet, turn[0], turn[1], turn[2], turn[3], ends,
            )  # fmt: skip


@jit(borrowed=True)
def _sweep(
    new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, across, kept_faces, tile,
    wet, turns, ends,
):  # fmt: skip
    rho, w, heat = new[0].reshape(-1), new[3].reshape(-1), new[4].reshape(-1)
    for turn in turns:
        _row(
            None, None, None, None, rho, w, heat, new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z,
            numbers, rows, low, across, kept_faces, tile, wet, turn[0], turn[1], turn[2], turn[3], ends,
        )  # fmt: skip


@inlined
def _place(face, substep, rows):
    """Where the gradients at a face are kept: those between `rims` and `core` until the row beyond has its turn."""
    width = max(substep, 1)
    return 2 if face == width else 3 if face == rows - width else face & 1


@jit(borrowed=True)
def _row(
    old_u, old_v, old_w, old_heat, begin_rho, begin_w, begin_heat, new, work, ground, slow, pressure, levels, flux_x,
    flux_y, flux_z, numbers, rows, low, across, kept_faces, tile, wet, substep, row, south_too, north_too, ends,
):  # fmt: skip
    """As the flat one; the gradients of the pressure along x and y, the latter of two planes, serve Omega too.

    Momenta of a whole row come first, as their gradients are those of the pressure before any of its columns.
    """
    tilt, metric = ground.tilt, ground.metric
    nz, tall, wide = new.shape[1:]
    ny, nx, cells, far = tall - 2 * HALO, wide - 2 * HALO, tall * wide, wide - 2 * HALO + 2
    dt, implicit, share = numbers.dt, numbers.implicit, numbers.share
    new_rho, u, v, new_w, new_heat = (
        new[0].reshape(-1), new[1].reshape(-1), new[2].reshape(-1), new[3].reshape(-1), new[4].reshape(-1)
    )  # fmt: skip
    slow_u, slow_v, slow_w = slow[1].reshape(-1), slow[2].reshape(-1), slow[3].reshape(-1)
    slow_heat = slow[4].reshape(-1)
    theta, stiff, dry = work[3].reshape(-1), work[5].reshape(-1), work[6].reshape(-1)
    size_u, size_v, slope_u, slope_v = (
        metric[0].reshape(-1), metric[1].reshape(-1), metric[2].reshape(-1), metric[3].reshape(-1)
    )  # fmt: skip
    steep, per_w, slope_x, slope_y = (
        metric[4].reshape(-1), metric[5].reshape(-1), metric[6].reshape(-1), metric[7].reshape(-1)
    )  # fmt: skip
    excess, x, y, z = pressure.reshape(-1), flux_x.reshape(-1), flux_y.reshape(-1), flux_z.reshape(-1)
    next_p, per_dx, per_dy = pressure.shape[1] * far, 1.0 / numbers.dx, 1.0 / numbers.dy
    at, own = (row + HALO) * wide + HALO, (row + 1) * far + 1  # of the lowest cell in the state and in the pressure
    south, north = kept_faces[substep, _place(row, substep, ny)], kept_faces[substep, _place(row + 1, substep, ny)]
    if south_too:
        _accelerate(
            old_v, v, slow_v, size_v, slope_v, dry, excess, tilt, at, at - wide, own, own - far, cells, next_p, wide,
            far, nx, per_dy, dt, wet, south,
        )  # fmt: skip
    _accelerate(
        old_u, u, slow_u, size_u, slope_u, dry, excess, tilt, at, at - 1, own, own - 1, cells, next_p, wide, far,
        nx + 1, per_dx, dt, wet, across,
    )  # fmt: skip
    if north_too:
        _accelerate(
            old_v, v, slow_v, size_v, slope_v, dry, excess, tilt, at + wide, at, own + far, own, cells, next_p, wide,
            far, nx, per_dy, dt, wet, north,
        )  # fmt: skip
    if share != 0.0:
        add_means(x, y, u, v, share, row, ny, south_too, north_too, at, wide, cells, nz, nx)
    for first in range(0, nx, tile):
        n, ahead = min(tile, nx - first), tile if first + tile < nx else wide - first
        cell, middle = at + first, own + first
        forward(
            u, v, begin_w, begin_rho, begin_heat, slow_w, slow_heat, theta, stiff, dry, steep, per_w, slope_x, slope_y,
            across[:, first:], south[:, first:], north[:, first:], rows, low, levels, per_dx, per_dy, dt, implicit, n,
            cell, wide, cells, cell, cell + wide, cell - wide, cells, ahead, 1.0, wet,
        )  # fmt: skip
        settle(
            rows, low, old_w, old_heat, stiff, levels, dt, implicit, numbers.damping, share, n, cell, cells, cell,
            cells, excess, middle, next_p, z, row * nx + first, ny * nx, new_rho, new_w, new_heat,
        )  # fmt: skip
    fill_ends(pressure, row + 1, ends)


@jit(noalias=True, borrowed=True)
def _accelerate(
    old, new, slow, size, slope, dry, p, tilt, at, before, high, low, next_cell, next_p, wide, far, count, per_width,
    dt, wet, along,
):  # fmt: skip
    """Momenta of a plane at faces between the cells `before` and `at`, which stand at low and high in the pressure.

    old: None where it is `new`. along: the gradients there.
    """
    nz = tilt.shape[1]
    for k in range(nz):
        m = min(max(k - 1, 0), nz - 3) * next_p
        c, e, right, left = (
            u8(at + k * next_cell), u8(before + k * next_cell), u8(high + k * next_p), u8(low + k * next_p)
        )  # fmt: skip
        a, b, d = u8(high + m), u8(high + m + next_p), u8(high + m + 2 * next_p)
        a_low, b_low, d_low = u8(low + m), u8(low + m + next_p), u8(low + m + 2 * next_p)
        first, second = tilt[0, k], tilt[1, k]
        ask_each((new, slow, size, slope), at + wide + k * next_cell, count)
        if old is not None:
            ask(old, at + wide + k * next_cell, count)
        ask(p, high + far + k * next_p, count)
        if wet is not None:
            ask(dry, at + wide + k * next_cell, count)
        for i in range(u8(count)):
            upward = 0.5 * (
                (first * (p[b_low + i] - p[a_low + i]) + second * (p[d_low + i] - p[b_low + i]))
                + (first * (p[b + i] - p[a + i]) + second * (p[d + i] - p[b + i]))
            )
            gradient = (p[right + i] - p[left + i]) * per_width
            along[k, i] = gradient
            share = 1.0
            if wet is not None:
                share = 0.5 * (dry[e + i] + dry[c + i])
            force = slow[c + i] + share * (slope[c + i] * upward - size[c + i] * gradient)
            new[c + i] = kept(old, either(old, new, c + i) + dt * force)


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
