"""Split-explicit, vertically implicit dynamics of a box, Numba: row by row along x; columns in lanes.

Each helper works on rows of contiguous cells. A cell's bits depend on its operands alone, so they are the same on any
number of ranks.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GAMMA
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, ELSEWHERE, FACES_BACK, FIXED, HALO, NO_WATER, WATER
from hpckit.kernels.euler.hevi.rows import (
    SOON_PUSHED,
    add_means,
    ask,
    either,
    fill_ends,
    forward,
    kept,
    kept_rows,
    later,
    place,
    settle,
    tiles,
)
from hpckit.kernels.euler.hevi.slow import NORTH, ROWS, kinds, room, slow_part, slow_rows
from hpckit.kernels.euler.hevi.turns import MOST, whole
from hpckit.kernels.euler.numerics import outside, power

u8 = np.uint64
BEHIND = 4  # rows between substeps and the tendencies that come next, which read the state before them
FIRST = HALO - FACES_BACK  # of the cells of `work`
NUMBERS = 18  # of a cell, that its slow tendencies and its first substep read or leave
WITHIN, FEWEST = 9 << 20, 8  # bytes of rows of them that stay in the cache, and rows, of fewer the tendencies cost more


@jit(borrowed=True)
def prepare(state, water, column, levels, work, sounds=True):
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
            if not sounds:
                if water.size:
                    _dryness(water[k, j, FIRST:end], work[6, k, j, FIRST:end])
                continue
            p, stiff = work[4, k, j, FIRST:end], work[5, k, j, FIRST:end]
            if _pressure(state[4, k, j, FIRST:end], base_heat, base_p, p, stiff):
                _pressure_far(state[4, k, j, FIRST:end], base_heat, base_p, p, stiff)
            if water.size:
                dry, weight = work[6, k, j, FIRST:end], work[7, k, j, FIRST:end]
                _weight(rho, water[k, j, FIRST:end], base_rho, levels[WATER, k], dry, weight)


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
        slope = GAMMA * (base_p + excess) / (heat[i] + base_heat)
        p[i] = excess - slope * heat[i]
        stiff[i] = slope
    return far


@jit(noalias=True, borrowed=True)
def _pressure_far(heat, base_heat, base_p, p, stiff):
    per_base = 1.0 / base_heat
    for i in range(u8(len(heat))):
        excess = base_p * power(heat[i] * per_base, True)
        slope = GAMMA * (base_p + excess) / (heat[i] + base_heat)
        p[i] = excess - slope * heat[i]
        stiff[i] = slope


@jit(noalias=True, borrowed=True)
def _dryness(water, dry):
    for i in range(u8(len(water))):
        dry[i] = 1.0 / (1.0 + water[i])


@jit(noalias=True, borrowed=True)
def _weight(rho, water, base_rho, base_water, dry, weight):
    for i in range(u8(len(rho))):
        dry[i] = 1.0 / (1.0 + water[i])
        weight[i] = rho[i] * (1.0 + water[i]) + base_rho * (water[i] - base_water)


def tendencies(state, work, column, levels, wind, weights, stage, slow):
    slow_part(state, NO_WATER, column, levels, work, wind, weights, stage, slow, state, NO_WATER, True)


def linearize(state, water, column, levels, work, wind, weights, stage, slow, start, pressure):
    slow_part(state, water, column, levels, work, wind, weights, stage, slow, start, pressure, False)


def begin(start, work, pressure):
    begin_rows(start, work, pressure, HALO - 1, start.shape[2] - HALO + 1)


@jit(borrowed=True)
def begin_rows(start, work, pressure, first, last):
    left, end = HALO - 1, start.shape[3] - HALO + 1
    for k in range(start.shape[1]):
        for j in range(first, last):
            stiff = work[5, k, place(j, work.shape[2]), left:end]
            _times(stiff, start[4, k, j, left:end], pressure[k, j - HALO + 1])


@jit(noalias=True, borrowed=True)
def _times(a, b, out):
    for i in range(u8(len(out))):
        out[i] = a[i] * b[i]


def substep(old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers):
    turns = whole(new.shape[2] - 2 * HALO)
    sweep(old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, turns, ELSEWHERE)


def sweep(old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, turns, ends):
    """Rows of some substeps in turn (`turns`); ends: what fills the pressure beyond the ends of rows.

    The first substep starts from `old`.
    """
    tile = tiles(new.shape[3] - 2 * HALO)
    (rows, low), wet = kept_rows(new.shape[1]), 1.0 if numbers.wet else None
    rest = new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, tile, wet, turns, ends
    if old is new:  # what is written under `noalias` is not read by another name
        _sweep(*rest)
    else:
        _first_sweep(old, *rest)


def linearize_and_sweep(
    state, water, column, wind, weights, stage, old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers,
    turns, ends, walls,
):  # fmt: skip
    (rows, low), wet = kept_rows(new.shape[1]), 1.0 if numbers.wet else None
    linear = state, water, column, wind, weights, stage, *room(state, stage.wet), *kinds(weights, stage)
    given = old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low
    nz, nx = new.shape[1], new.shape[3] - 2 * HALO
    _linearize_and_sweep(*linear, *given, tiles(nx), wet, turns, ends, rows_at_once(nx, nz), walls)


def rows_at_once(columns, levels, numbers=NUMBERS):
    """Of how many rows tendencies are found before the substeps that read them: of as many as the cache holds."""
    fit = WITHIN // (8 * numbers * columns * levels)
    return min(fit, ROWS) if fit >= FEWEST else ROWS


def rows_kept(columns, levels, numbers=NUMBERS):
    """How many rows at least `slow` and `work` have, where all substeps of a stage come with its tendencies.

    Those that keep their place; of the others those that wait for substeps (the last of which reads a row before its
    own), those that are found at once, and those that are found ahead for them.
    """
    return FIXED + MOST + BEHIND + rows_at_once(columns, levels, numbers) + NORTH


@jit(borrowed=True)
def _linearize_and_sweep(
    state, water, column, wind, weights, stage, x, y, z, u, v, w, theta, p, dry, weight, follows, moist, old, new, work,
    slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, tile, wet, turns, ends, at_once, walls,
):  # fmt: skip
    tall = state.shape[2]
    begin, end, done = HALO - 1, tall - HALO + 1, 0
    times = -((begin - end) // at_once)
    for time in range(times):
        first, last = begin + (end - begin) * time // times, begin + (end - begin) * (time + 1) // times
        slow_rows(
            state, water, column, levels, work, wind, weights, stage, slow, old, pressure, x, y, z, u, v, w, theta, p,
            dry, weight, follows, moist, False, first, last,
        )  # fmt: skip
        shut(slow, walls, tall, first, last)
        # Rows that come read the state, which may be `new`, from three rows before them on.
        most, until = last - BEHIND - HALO if last < end else tall, done
        while until < len(turns) and turns[until, 0] + turns[until, 1] <= most:
            until += 1
        _first_sweep(
            old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, tile, wet,
            turns[done:until], ends,
        )  # fmt: skip
        done = until


@jit(borrowed=True)
def shut(slow, walls, tall, first, last):
    """No tendency of the momentum through walls in some rows; walls: in the west, east, south, north."""
    west, east, south, north = walls
    nz, rows, wide = slow.shape[1:]
    for j in range(first, last):
        whole_row = (south and j == HALO) or (north and j == tall - HALO)
        row = place(j, rows)
        for k in range(nz):
            if west:
                slow[1, k, row, HALO] = 0.0
            if east:
                slow[1, k, row, wide - HALO] = 0.0
            if whole_row:
                for i in range(wide):
                    slow[2, k, row, i] = 0.0


@jit(borrowed=True)
def _first_sweep(
    old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, tile, wet, turns, ends
):
    old_rho, old_u, old_v, old_w, old_heat = (
        old[0].reshape(-1), old[1].reshape(-1), old[2].reshape(-1), old[3].reshape(-1), old[4].reshape(-1)
    )  # fmt: skip
    rho, w, heat = new[0].reshape(-1), new[3].reshape(-1), new[4].reshape(-1)
    for turn in turns:
        if turn[0] == 0:
            _row(
                old_u, old_v, old_w, old_heat, old_rho, old_w, old_heat, new, work, slow, pressure, levels, flux_x,
                flux_y, flux_z, numbers, rows, low, tile, wet, turn[1], turn[2], turn[3], ends,
            )  # fmt: skip
        else:
            _row(
                None, None, None, None, rho, w, heat, new, work, slow, pressure, levels, flux_x, flux_y, flux_z,
                numbers, rows, low, tile, wet, turn[1], turn[2], turn[3], ends,
            )  # fmt: skip


@jit(borrowed=True)
def _sweep(new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, rows, low, tile, wet, turns, ends):
    rho, w, heat = new[0].reshape(-1), new[3].reshape(-1), new[4].reshape(-1)
    for turn in turns:
        _row(
            None, None, None, None, rho, w, heat, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers,
            rows, low, tile, wet, turn[1], turn[2], turn[3], ends,
        )  # fmt: skip


@jit(borrowed=True)
def _row(
    old_u, old_v, old_w, old_heat, begin_rho, begin_w, begin_heat, new, work, slow, pressure, levels, flux_x, flux_y,
    flux_z, numbers, rows, low, tile, wet, row, south, north, ends,
):  # fmt: skip
    """A part of a row of columns after the other: momenta along x and beyond it along y, then its columns.

    old_u to old_heat: None where they are new ones; begin_rho to begin_heat are the old ones in any case. south, north:
    whether momenta along y at these faces are advanced, too.
    """
    nz, tall, wide = new.shape[1:]
    nx, cells, far, j = wide - 2 * HALO, tall * wide, wide - 2 * HALO + 2, row + HALO
    rows_near = slow.shape[2]
    here, beyond, before = place(j, rows_near) * wide, place(j + 1, rows_near) * wide, place(j - 1, rows_near) * wide
    next_near = rows_near * wide
    dt, implicit, share = numbers.dt, numbers.implicit, numbers.share
    new_rho, u, v, new_w, new_heat = (
        new[0].reshape(-1), new[1].reshape(-1), new[2].reshape(-1), new[3].reshape(-1), new[4].reshape(-1)
    )  # fmt: skip
    slow_u, slow_v, slow_w = slow[1].reshape(-1), slow[2].reshape(-1), slow[3].reshape(-1)
    slow_heat = slow[4].reshape(-1)
    theta, stiff, dry = work[3].reshape(-1), work[5].reshape(-1), work[6].reshape(-1)
    excess, x, y, z = pressure.reshape(-1), flux_x.reshape(-1), flux_y.reshape(-1), flux_z.reshape(-1)
    none = dry.reshape((1, -1))
    next_p, per_dx, per_dy = pressure.shape[1] * far, 1.0 / numbers.dx, 1.0 / numbers.dy
    for first in range(0, nx, tile):
        n = min(tile, nx - first)
        # of the lowest cell in the state and in the pressure
        at, own = j * wide + HALO + first, (row + 1) * far + 1 + first
        near, near_beyond, near_before = here + HALO + first, beyond + HALO + first, before + HALO + first
        ahead = tile if first + tile < nx else wide - first
        if south:
            _push(
                old_v, v, slow_v, dry, excess, at, near, near_before, own, own - far, cells, next_near, next_p, nz, n,
                ahead, per_dy, dt, wet, n,
            )  # fmt: skip
        # The face before this part was that after the last one.
        begun = 0 if first == 0 else 1
        _push(
            old_u, u, slow_u, dry, excess, at + begun, near + begun, near + begun - 1, own + begun, own + begun - 1,
            cells, next_near, next_p, nz, n + 1 - begun, ahead, per_dx, dt, wet, 0,
        )  # fmt: skip
        if north:
            _push(
                old_v, v, slow_v, dry, excess, at + wide, near_beyond, near, own + far, own, cells, next_near, next_p,
                nz, n, ahead, per_dy, dt, wet, n,
            )  # fmt: skip
        forward(
            u, v, begin_w, begin_rho, begin_heat, slow_w, slow_heat, theta, stiff, dry, dry, dry, dry, dry, none,
            none, none, rows, low, levels, per_dx, per_dy, dt, implicit, n, at, wide, cells, near, near_beyond,
            near_before, next_near, ahead, None, wet,
        )  # fmt: skip
        settle(
            rows, low, old_w, old_heat, stiff, levels, dt, implicit, numbers.damping, share, n, at, cells, near,
            next_near, excess, own, next_p, z, row * nx + first, (tall - 2 * HALO) * nx, new_rho, new_w, new_heat,
        )  # fmt: skip
    fill_ends(pressure, row + 1, ends)
    if share != 0.0:
        add_means(x, y, u, v, share, row, tall - 2 * HALO, south, north, j * wide + HALO, wide, cells, nz, nx)


@jit(noalias=True, borrowed=True)
def _push(
    old, new, slow, dry, p, at, near, before, high, low, next_cell, next_near, next_p, nz, count, ahead, per_width, dt,
    wet, asked,
):  # fmt: skip
    """Momenta of a part of a plane at faces between the cells `before` and `near`, high and low in the pressure.

    near, before: in slow and dry, as `at` in the momenta. old: None where it is `new`. ahead: from here to the part
    that comes next; asked: how much of what is in cells to ask for there.
    """
    for k in range(nz):
        c, a, b, right, left = (
            u8(at + k * next_cell), u8(near + k * next_near), u8(before + k * next_near), u8(high + k * next_p),
            u8(low + k * next_p),
        )  # fmt: skip
        soon, soon_near = (
            later(at, k, SOON_PUSHED, nz, next_cell, ahead), later(near, k, SOON_PUSHED, nz, next_near, ahead)
        )  # fmt: skip
        ask(new, soon, count)
        ask(slow, soon_near, count)
        if old is not None:
            ask(old, soon, count)
        ask(p, later(high, k, SOON_PUSHED, nz, next_p, ahead), asked)
        if wet is not None:
            ask(dry, soon_near, asked)
            for i in range(u8(count)):
                gradient = 0.5 * (dry[b + i] + dry[a + i]) * ((p[right + i] - p[left + i]) * per_width)
                new[c + i] = kept(old, either(old, new, c + i) + dt * (slow[a + i] - gradient))
        else:
            for i in range(u8(count)):
                gradient = (p[right + i] - p[left + i]) * per_width
                new[c + i] = kept(old, either(old, new, c + i) + dt * (slow[a + i] - gradient))
