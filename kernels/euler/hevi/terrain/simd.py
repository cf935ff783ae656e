"""The split dynamics over terrain, Numba: row by row along x, as the flat kernels, with metric terms by cell."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.euler.hevi import simd as flat
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, ELSEWHERE, HALO, LargeStage
from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS
from hpckit.kernels.euler.hevi.rows import (
    add_means,
    ask,
    ask_each,
    either,
    fill_ends,
    forward,
    kept,
    kept_rows,
    place,
    settle,
    tiles,
)
from hpckit.kernels.euler.hevi.slow import NORTH, kinds, room, slow_rows
from hpckit.kernels.euler.hevi.terrain.constants import FACES_KEPT
from hpckit.kernels.euler.hevi.terrain.coriolis import add_coriolis
from hpckit.kernels.euler.hevi.terrain.slow import FIRST, add_forces, find, prepare, rise, slope, tendencies
from hpckit.kernels.euler.hevi.turns import whole

__all__ = ["prepare", "tendencies"]
u8 = np.uint64
NUMBERS = 34  # of a cell, that its slow tendencies and its first substep read or leave


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


def linearize_and_sweep(
    state, water, ground, column, weights, stage, old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z,
    numbers, turns, ends, kept_faces, walls,
):  # fmt: skip
    (rows, low), wet = kept_rows(new.shape[1]), 1.0 if numbers.wet else None
    nz, nx = new.shape[1], new.shape[3] - 2 * HALO
    plain = LargeStage(stage.dx, stage.dy, 0.0, False)
    linear = state, water, column, np.zeros((2, nz)), weights, stage, plain, *room(state, False)
    given = old, new, work, work[:FLAT_WORKS], ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    more = rows, low, np.empty((nz, nx + 1)), kept_faces, tiles(nx), wet, turns, ends
    _linearize_and_sweep(*linear, kinds(weights, plain)[0], *given, *more, flat.rows_at_once(nx, nz, NUMBERS), walls)


def rows_kept(columns, levels):
    return flat.rows_kept(columns, levels, NUMBERS)


@jit(borrowed=True)
def _linearize_and_sweep(
    state, water, column, calm, weights, stage, plain, x, y, z, u, v, w, theta, p, dry, weight, follows, old, new, work,
    flat_work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, across, kept_faces, tile,
    wet, turns, ends, at_once, walls,
):  # fmt: skip
    """As the flat one. What needs the next row's tendencies is a row behind them."""
    tall = state.shape[2]
    begin, end, done, found = HALO - 1, tall - HALO + 1, 0, FIRST
    times = -((begin - end) // at_once)
    for time in range(times):
        first, last = begin + (end - begin) * time // times, begin + (end - begin) * (time + 1) // times
        until = min(last + NORTH, tall - FIRST)
        find(state, water, ground.base, levels, work, found + (time > 0), until + 1)
        rise(state, ground.base, ground.metric, levels, work, found, until)
        found = until
        slow_rows(
            state, water, column, levels, flat_work, calm, weights, plain, slow, old, pressure, x, y, z, u, v, w, theta,
            p, dry, weight, follows, None, True, first, last,
        )  # fmt: skip
        if stage.coriolis:
            add_coriolis(state, ground.base[0], ground.wind, stage.coriolis, slow, max(first, HALO), last)
        low_row, high_row = max(first - 1, HALO), last - 1 if last < end else last
        slope(ground.metric, levels, slow, low_row, min(high_row, tall - HALO))
        add_forces(state[0], work, ground.metric, ground.tilt, levels, stage, slow, low_row, high_row)
        flat.shut(slow, walls, tall, low_row, high_row)
        flat.begin_rows(old, work, pressure, first, last)
        most, next_turn = last - flat.BEHIND - HALO if last < end else tall, done
        while next_turn < len(turns) and turns[next_turn, 0] + turns[next_turn, 1] <= most:
            next_turn += 1
        _first_sweep(
            old, new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, across,
            kept_faces, tile, wet, turns[done:next_turn], ends,
        )  # fmt: skip
        done = next_turn


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
    rows_near = slow.shape[2]
    near, beyond, before = (
        place(row + HALO, rows_near) * wide + HALO, place(row + HALO + 1, rows_near) * wide + HALO,
        place(row + HALO - 1, rows_near) * wide + HALO,
    )  # fmt: skip
    next_near = rows_near * wide
    at, own = (row + HALO) * wide + HALO, (row + 1) * far + 1  # of the lowest cell in the state and in the pressure
    south, north = kept_faces[substep, _place(row, substep, ny)], kept_faces[substep, _place(row + 1, substep, ny)]
    if south_too:
        _accelerate(
            old_v, v, slow_v, size_v, slope_v, dry, excess, tilt, at, near, before, own, own - far, cells, next_near,
            next_p, wide, far, nx, per_dy, dt, wet, south,
        )  # fmt: skip
    _accelerate(
        old_u, u, slow_u, size_u, slope_u, dry, excess, tilt, at, near, near - 1, own, own - 1, cells, next_near,
        next_p, wide, far, nx + 1, per_dx, dt, wet, across,
    )  # fmt: skip
    if north_too:
        _accelerate(
            old_v, v, slow_v, size_v, slope_v, dry, excess, tilt, at + wide, beyond, near, own + far, own, cells,
            next_near, next_p, wide, far, nx, per_dy, dt, wet, north,
        )  # fmt: skip
    if share != 0.0:
        add_means(x, y, u, v, share, row, ny, south_too, north_too, at, wide, cells, nz, nx)
    for first in range(0, nx, tile):
        n, ahead = min(tile, nx - first), tile if first + tile < nx else wide - first
        cell, middle = at + first, own + first
        forward(
            u, v, begin_w, begin_rho, begin_heat, slow_w, slow_heat, theta, stiff, dry, steep, per_w, slope_x, slope_y,
            across[:, first:], south[:, first:], north[:, first:], rows, low, levels, per_dx, per_dy, dt, implicit, n,
            cell, wide, cells, near + first, beyond + first, before + first, next_near, ahead, 1.0, wet,
        )  # fmt: skip
        settle(
            rows, low, old_w, old_heat, stiff, levels, dt, implicit, numbers.damping, share, n, cell, cells,
            near + first, next_near, excess, middle, next_p, z, row * nx + first, ny * nx, new_rho, new_w, new_heat,
        )  # fmt: skip
    fill_ends(pressure, row + 1, ends)


@jit(noalias=True, borrowed=True)
def _accelerate(
    old, new, slow, size, slope, dry, p, tilt, at, near, before, high, low, next_cell, next_near, next_p, wide, far,
    count, per_width, dt, wet, along,
):  # fmt: skip
    """Momenta of a plane at faces between the cells `before` and `near`, which stand at low and high in the pressure.

    near, before: in slow and dry, as `at` elsewhere. old: None where it is `new`. along: the gradients there.
    """
    nz = tilt.shape[1]
    for k in range(nz):
        m = min(max(k - 1, 0), nz - 3) * next_p
        c, g, e, right, left = (
            u8(at + k * next_cell), u8(near + k * next_near), u8(before + k * next_near), u8(high + k * next_p),
            u8(low + k * next_p),
        )  # fmt: skip
        a, b, d = u8(high + m), u8(high + m + next_p), u8(high + m + 2 * next_p)
        a_low, b_low, d_low = u8(low + m), u8(low + m + next_p), u8(low + m + 2 * next_p)
        first, second = tilt[0, k], tilt[1, k]
        ask_each((new, size, slope), at + wide + k * next_cell, count)
        ask(slow, near + wide + k * next_near, count)
        if old is not None:
            ask(old, at + wide + k * next_cell, count)
        ask(p, high + far + k * next_p, count)
        if wet is not None:
            ask(dry, near + wide + k * next_near, count)
        for i in range(u8(count)):
            upward = 0.5 * (
                (first * (p[b_low + i] - p[a_low + i]) + second * (p[d_low + i] - p[b_low + i]))
                + (first * (p[b + i] - p[a + i]) + second * (p[d + i] - p[b + i]))
            )
            gradient = (p[right + i] - p[left + i]) * per_width
            along[k, i] = gradient
            share = 1.0
            if wet is not None:
                share = 0.5 * (dry[e + i] + dry[g + i])
            force = slow[g + i] + share * (slope[c + i] * upward - size[c + i] * gradient)
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
