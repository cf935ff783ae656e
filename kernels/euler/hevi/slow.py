"""The slow tendencies of the split dynamics, Numba: rows along x in lanes, what passes a face found once.

Some rows at a time, level by level. The speeds of six levels lie near, in rows that start at a line of the cache: they
are found three levels ahead, and memory does not see them. What passed the tops of a level waits for the next level,
and what passed the north sides of its last row for the next rows. All is one function of flat arrays, since a call with
as many arrays costs as much as a row of arithmetic.
"""

from __future__ import annotations

import itertools

import numpy as np

from hpckit.kernels.aligned import LINE, lined
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.euler.constants import GAMMA, GRAVITY
from hpckit.kernels.euler.hevi.constants import (
    ABOVE,
    BELOW,
    DRY,
    FACES_BACK,
    HALO,
    PER_CELL,
    PER_FACE,
    STIFFNESS,
    THETA,
    WATER,
    WEIGHT,
)
from hpckit.kernels.euler.hevi.faces import along, passed, weights_of
from hpckit.kernels.euler.hevi.numerics import carried, weno
from hpckit.kernels.euler.hevi.rows import LANES, ask, place
from hpckit.kernels.euler.numerics import outside, power

u8 = np.uint64
ROWS = 17  # at most at a time
AHEAD, NEAR = 3, 6  # levels: how far ahead speeds are found, and how many of them stay near
SOUTH, NORTH = 2, 3  # rows around those of a time, near


def slow_part(state, water, column, levels, work, wind, weights, stage, slow, start, pressure, given):
    """The tendencies. given: whether `work` is filled; else what substeps read of it is, here, and `pressure`."""
    rest = *room(state, stage.wet), *kinds(weights, stage), given
    _slow_part(state, water, column, levels, work, wind, weights, stage, slow, start, pressure, *rest)


def kinds(weights, stage):
    """Whether weights follow the flow, and whether air is moist; each None or a number: kernels are made apart."""
    return tuple(1.0 if each else None for each in (weights[2, 6], stage.wet))


def room(state, wet):
    """The memory of `slow_rows`: a row, what passed the north sides of the last row and the tops of the last level, and
    rows of levels that are near.
    """
    nz, _, wide = state.shape[1:]
    n = -(-(wide - 2 * HALO + 1 + FACES_BACK) // LANES) * LANES
    plane = NEAR * (ROWS + SOUTH + NORTH) * (n + LANES)
    sizes = n + LANES, 4 * nz * n, 4 * ROWS * n, *(plane + LANES,) * (7 if wet else 5)
    memory = lined(np.empty(sum(sizes) + LINE // 8), sum(sizes))
    rows = [memory[first:last] for first, last in itertools.pairwise((0, *itertools.accumulate(sizes)))]
    return rows + [memory[:0]] * (10 - len(rows))


@jit(borrowed=True)
def _slow_part(
    state, water, column, levels, work, wind, weights, stage, slow, start, pressure, x, y, z, u, v, w, theta, p, dry,
    weight, follows, wet, given,
):  # fmt: skip
    tall = state.shape[2]
    begin, end = HALO - 1, tall - HALO + 1
    times = -((begin - end) // ROWS)
    for time in range(times):  # as many rows each time: those around them are found twice
        first, last = begin + (end - begin) * time // times, begin + (end - begin) * (time + 1) // times
        slow_rows(
            state, water, column, levels, work, wind, weights, stage, slow, start, pressure, x, y, z, u, v, w, theta, p,
            dry, weight, follows, wet, given, first, last,
        )  # fmt: skip


@jit(borrowed=True)
def slow_rows(
    state, water, column, levels, work, wind, weights, stage, slow, start, pressure, x, y, z, u, v, w, theta, p, dry,
    weight, follows, wet, given, first, last,
):  # fmt: skip
    """The same of some rows, ROWS at most, that follow those of the call before; the first is that before the owned."""
    nz, tall, wide = state.shape[1:]
    rows = slow.shape[2]  # that it has room for, and `work`
    flat_state, flat_work, flat_slow, flat_water = (
        state.reshape(-1), work.reshape(-1), slow.reshape(-1), water.reshape(-1)
    )  # fmt: skip
    heat, first_p = start[4].reshape(-1), pressure.reshape(-1)
    for k in range(-AHEAD, nz):
        if k + AHEAD < nz:
            if not given:
                _find(
                    flat_state, flat_water, flat_work, heat, first_p, u, v, w, theta, p, dry, weight, column, levels,
                    nz, tall, wide, rows, len(x) - LANES, k + AHEAD, first, last, wet,
                )  # fmt: skip
            else:
                _take(
                    flat_work, u, v, w, theta, p, dry, weight, nz, rows, wide, len(x) - LANES, k + AHEAD,
                    first - SOUTH, last + NORTH, wet,
                )  # fmt: skip
        if k >= 0:
            _rows(
                flat_state, u, v, w, theta, p, dry, weight, flat_slow, x, y, z, levels, column, wind, weights, stage,
                nz, tall, wide, rows, k, first, last, follows, wet,
            )  # fmt: skip


@inlined
def near(level, row, span):
    """The place of the first owned cell of a row near; span: of a row without what is before that cell."""
    return ((level % NEAR) * (ROWS + SOUTH + NORTH) + row) * (span + LANES) + LANES


@jit(noalias=True, borrowed=True)
def _find(
    state, water, work, begin, first_p, u, v, w, theta, p, dry, weight, column, levels, nz, tall, wide, rows, span, k,
    first, last, wet,
):  # fmt: skip
    """Speeds, theta and what is not linear of the pressure of some rows of a level and of those around them.

    Substeps' numbers go into `work`, and the pressure at the start, whose rho theta is `begin`, into `first_p`.
    Cells beyond the halo are found, too, where they fill a line of the cache: nothing reads them. Those that would lie
    before the first field or behind the last are left out.
    """
    plane, cells, own_plane, own_cells = tall * wide, nz * tall * wide, rows * wide, nz * rows * wide
    base, base_heat, base_p, base_under = column[0, k], column[1, k], column[2, k], column[0, max(k - 1, 0)]
    below, above, gate, per_base = levels[BELOW, k], levels[ABOVE, k], 1.0 * (k > 0), 1.0 / column[1, k]
    base_water = levels[WATER, k]
    far_p = wide - 2 * HALO + 2
    for j in range(first - SOUTH, last + NORTH):
        at = k * plane + j * wide + HALO
        for each in range(3):
            ask(state, each * cells + at + plane, span)
        # What is read of the cell before a row, and of the last field.
        beyond = max(wide + LANES + 1 - at, 0), max(at + span - plane * nz, 0)
        left, a = at - LANES + beyond[0], u8(near(k, j - first + SOUTH, span) - LANES + beyond[0])
        r, west, south, under = u8(left), u8(left - 1), u8(left - wide), u8(left - min(k, 1) * plane)
        m, o, s, h = u8(cells + left), u8(2 * cells + left), u8(3 * cells + left), u8(4 * cells + left)
        for i in range(u8(span + LANES - beyond[0] - beyond[1])):
            here = state[r + i] + base
            x, y = 0.5 * ((state[west + i] + base) + here), 0.5 * ((state[south + i] + base) + here)
            z = below * (state[under + i] + base_under) + above * here
            xy, zh = x * y, z * here
            per = 1.0 / (xy * zh)  # one division, which takes as long as twenty products, for four
            per_xy, per_zh = per * zh, per * xy
            u[a + i] = state[m + i] * (y * per_xy)
            v[a + i] = state[o + i] * (x * per_xy)
            w[a + i] = gate * (state[s + i] * (here * per_zh))
            theta[a + i] = (state[h + i] + base_heat) * (z * per_zh)
        for each in range(3, 5):
            ask(state, each * cells + at + plane, span)
        if j < HALO - 1 or j > tall - HALO:
            continue
        out = k * own_plane + place(j, rows) * wide + HALO - 1
        a, h, to = u8(near(k, j - first + SOUTH, span) - 1), u8(4 * cells + at - 1), u8(STIFFNESS * own_cells + out)
        far = 0
        for i in range(u8(span)):
            heat = state[h + i]
            e = heat * per_base
            far |= outside(e)
            excess = base_p * power(e, False)
            slope = GAMMA * (base_p + excess) / (heat + base_heat)
            p[a + i] = excess - slope * heat
            work[to + i] = slope
        if far:
            for i in range(u8(span)):
                heat = state[h + i]
                excess = base_p * power(heat * per_base, True)
                slope = GAMMA * (base_p + excess) / (heat + base_heat)
                p[a + i] = excess - slope * heat
                work[to + i] = slope
        if first <= j < last:
            low, own = at - 1, (k * (tall - 2 * HALO + 2) + j - HALO + 1) * far_p
            b, q = u8(low), u8(own)
            ask(begin, low + plane, far_p)
            ask(first_p, own + (tall - 2 * HALO + 2) * far_p, far_p)
            for i in range(u8(far_p)):
                first_p[q + i] = work[to + i] * begin[b + i]
        to = u8(THETA * own_cells + out)
        for i in range(u8(span)):
            work[to + i] = theta[a + i]
        if wet is not None:
            r, to = u8(at - 1), u8(DRY * own_cells + out)
            for i in range(u8(span)):
                share = 1.0 / (1.0 + water[r + i])
                dry[a + i] = share
                weight[a + i] = state[r + i] * (1.0 + water[r + i]) + base * (water[r + i] - base_water)
                work[to + i] = share


@jit(noalias=True, borrowed=True)
def _take(work, u, v, w, theta, p, dry, weight, nz, rows, wide, span, k, first, last, wet):
    """The same rows from `work`."""
    plane, cells = rows * wide, nz * rows * wide
    for j in range(first, last):
        at, a = k * plane + place(j, rows) * wide, u8(near(k, j - first, span) - HALO)
        b, c, d, e, f, g = (
            u8(at), u8(cells + at), u8(2 * cells + at), u8(3 * cells + at), u8(4 * cells + at), u8(DRY * cells + at)
        )  # fmt: skip
        for i in range(u8(wide)):
            u[a + i] = work[b + i]
            v[a + i] = work[c + i]
            w[a + i] = work[d + i]
            theta[a + i] = work[e + i]
            p[a + i] = work[f + i]
        if wet is not None:
            h = u8(WEIGHT * cells + at)
            for i in range(u8(wide)):
                dry[a + i] = work[g + i]
                weight[a + i] = work[h + i]


@jit(noalias=True, borrowed=True)
def _rows(
    state, u, v, w, theta, p, dry, weight, slow, x, y, z, levels, column, wind, weights, stage, nz, tall, wide, rows,
    k, first, last, follows, wet,
):  # fmt: skip
    """The tendencies of a level of the rows from `first` until `last`; of the row before the owned ones for its north.

    x: a row; y: what passed the north sides of the last row; z: what passed the tops of the last level.
    follows: whether weights follow the flow; wet: whether air is moist; each None or a number: kernels are made apart.
    """
    plane, n, span = tall * wide, wide - 2 * HALO, len(x) - LANES
    cells, pitch, own_plane, own_cells = nz * plane, span + LANES, rows * wide, nz * rows * wide
    per_dx, per_dy, per_cell, per_face = 1.0 / stage.dx, 1.0 / stage.dy, levels[PER_CELL, k], levels[PER_FACE, k]
    below, above, below_up, above_up = levels[BELOW, k], levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1]
    at_top, at_middle = max(min(k, nz - 2 - k, 2), 0), min(k, nz - 1 - k, 2)
    across, upward, middle = weights_of(weights, 2), weights_of(weights, at_top), weights_of(weights, at_middle)
    # Of theta without the mean of the two cells at the face, which is left to the acoustic substeps.
    less = (across[0] - 0.5, across[1], across[2], across[3], across[4], across[5])
    follows_up = None if follows is None else weights[at_top, 6]
    follows_middle = None if follows is None else weights[at_middle, 6]
    # No air passes the lid, and there w is 0; none is above it.
    gate_1, gate_2, gate_3 = 1.0 * (k < nz - 1), 1.0 * (k < nz - 2), 1.0 * (k < nz - 3)
    half = 0.5 * gate_1
    over, under = min(1, nz - 1 - k) * plane, min(k, 1) * plane
    if k == 0:
        for i in range(len(z)):
            z[i] = 0.0
    for j in range(first, last):
        at, row = k * plane + j * wide + HALO, j - first + SOUTH
        to = (
            k * own_plane + place(max(j, HALO), rows) * wide + HALO
        )  # the row that comes next is written over that before
        low, north, aside, lifted = at - under, at + wide, k * 4 * span, (j - first) * 4 * span
        # Places of momenta along x, y and z.
        m, m_west, m_south, m_low = u8(cells + at), u8(cells + at - 1), u8(cells + at - wide), u8(cells + low)
        o, o_west, o_low = u8(2 * cells + north), u8(2 * cells + north - 1), u8(2 * cells + low + wide)
        o_south = u8(2 * cells + at)
        s, s_west, s_south = (
            u8(3 * cells + at + over), u8(3 * cells + at + over - 1), u8(3 * cells + at + over - wide)
        )  # fmt: skip
        s_low = u8(3 * cells + at)
        # Places near: of the cell, of those west, south and below of it, and of those around faces.
        here = near(k, row, span)
        c, c_west, c_south, c_low = u8(here), u8(here - 1), u8(here - pitch), u8(near(max(k - 1, 0), row, span))
        north_1, top_1, top_2, top_3 = (
            u8(here + pitch), u8(near(min(k + 1, nz - 1), row, span)), u8(near(min(k + 2, nz - 1), row, span)),
            u8(near(min(k + 3, nz - 1), row, span)),
        )  # fmt: skip
        x_faces = (u8(here - 3), u8(here - 2), c_west, c, u8(here + 1), u8(here + 2))
        y_faces = (u8(here - 2 * pitch), c_south, c, north_1, u8(here + 2 * pitch), u8(here + 3 * pitch))
        z_faces = (u8(near(max(k - 2, 0), row, span)), c_low, c, top_1, top_2, top_3)
        # Before each tendency the next level's row of it is asked for: at once they would fill what waits for memory.
        if j < tall - HALO:
            ask(slow, own_cells + to + own_plane, n)
            along(
                state, u, p, dry, slow, x, y, z, (m, o, s, c), (m_west, o_west, s_west, c_west), x_faces, y_faces,
                z_faces, u8(aside), u8(lifted), u8(own_cells + to), n + 1, across, upward, half,
                (per_dx, per_dy, per_cell, per_dx), follows, follows_up, wet,
            )  # fmt: skip
            side, up, out = u8(aside + span), u8(lifted + span), u8(4 * own_cells + to)
            ask(slow, 4 * own_cells + to + own_plane, n)
            for i in range(u8(span)):
                flux = state[m + i]
                passing = passed(flux, theta, x_faces, i, less, follows)
                if follows is not None:
                    passing -= 0.5 * (flux * (theta[c_west + i] + theta[c + i]))
                x[i] = passing
            for i in range(u8(n)):
                flux = state[o + i]
                new_y = passed(flux, theta, y_faces, i, less, follows)
                if follows is not None:
                    new_y -= 0.5 * (flux * (theta[c + i] + theta[north_1 + i]))
                flux_z = gate_1 * state[s + i]
                new_z = passed(flux_z, theta, z_faces, i, upward, follows_up)
                new_z -= flux_z * (below_up * theta[c + i] + above_up * theta[top_1 + i])
                change = (x[i] - x[i + u8(1)]) * per_dx + (y[side + i] - new_y) * per_dy
                slow[out + i] = change + (z[up + i] - new_z) * per_cell
                y[side + i] = new_y
                z[up + i] = new_z
            side, up, out = u8(aside + 2 * span), u8(lifted + 2 * span), u8(3 * own_cells + to)
            ask(slow, 3 * own_cells + to + own_plane, n)
            for i in range(u8(span)):
                flux = below * state[m_low + i] + above * state[m + i]
                x[i] = passed(flux, w, x_faces, i, across, follows)
            rho, rho_low = u8(at), u8(low)
            for i in range(u8(n)):
                flux = below * state[o_low + i] + above * state[o + i]
                new_y = passed(flux, w, y_faces, i, across, follows)
                flux_z = 0.5 * state[s_low + i] + half * state[s + i]
                w_1, w_2, w_3 = gate_1 * w[top_1 + i], gate_2 * w[top_2 + i], gate_3 * w[top_3 + i]
                w_low, w_here = w[z_faces[0] + i], w[c + i]
                if follows is None or follows_middle == 0.0:
                    new_z = carried(
                        flux_z, w_low, w[c_low + i], w_here, w_1, w_2, w_3, middle[0], middle[1], middle[2], middle[3],
                        middle[4], middle[5],
                    )  # fmt: skip
                else:
                    new_z = weno(flux_z, w_low, w[c_low + i], w_here, w_1, w_2, w_3)
                change = (x[i] - x[i + u8(1)]) * per_dx + (y[side + i] - new_y) * per_dy
                change += (z[up + i] - new_z) * per_face
                y[side + i] = new_y
                z[up + i] = new_z
                force = (p[c + i] - p[c_low + i]) * per_face
                if wet is not None:
                    force += GRAVITY * (below * weight[c_low + i] + above * weight[c + i])
                    change += GRAVITY * (below * state[rho_low + i] + above * state[rho + i])
                    force *= below * dry[c_low + i] + above * dry[c + i]
                slow[out + i] = change - force
            if k == 0:  # rho w of the ground stays 0
                for i in range(u8(n)):
                    slow[out + i] = 0.0
        # v has a row more.
        ask(slow, 2 * own_cells + to + own_plane, n)
        along(
            state, v, p, dry, slow, x, y, z, (m, o, s, c), (m_south, o_south, s_south, c_south), x_faces, y_faces,
            z_faces, u8(aside + 3 * span), u8(lifted + 3 * span), u8(2 * own_cells + to), n, across, upward, half,
            (per_dx, per_dy, per_cell, per_dy), follows, follows_up, wet,
        )  # fmt: skip
        if stage.coriolis != 0.0 and j >= HALO:
            # On what the wind has beyond that of the base state, at the same faces.
            base, calm_u, calm_v = column[0, k], wind[0, k], wind[1, k]
            low_rho, rho, high_rho = u8(at - wide - 1), u8(at - 1), u8(north - 1)
            if j < tall - HALO:
                a, b, out = u8(2 * cells + at - 1), u8(2 * cells + north - 1), u8(own_cells + to)
                for i in range(u8(n + 1)):
                    e = i + u8(1)
                    around = 0.25 * ((state[a + i] + state[a + e]) + (state[b + i] + state[b + e]))
                    more = (state[low_rho + i] + state[low_rho + e]) + (state[high_rho + i] + state[high_rho + e])
                    more += 2.0 * (state[rho + i] + state[rho + e])
                    slow[out + i] += stage.coriolis * (around - (base + 0.125 * more) * calm_v)
            a, b, out = u8(cells + at - wide), u8(cells + at), u8(2 * own_cells + to)
            for i in range(u8(n)):
                e, f = i + u8(1), i + u8(2)
                around = 0.25 * ((state[a + i] + state[b + i]) + (state[a + e] + state[b + e]))
                more = (state[low_rho + i] + state[rho + i]) + (state[low_rho + f] + state[rho + f])
                more += 2.0 * (state[low_rho + e] + state[rho + e])
                slow[out + i] -= stage.coriolis * (around - (base + 0.125 * more) * calm_u)
