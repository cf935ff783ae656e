"""The slow tendencies of the split dynamics, Numba: rows along x in lanes, what passes a face found once.

Some rows at a time, level by level: what passed their tops waits in the cache for the next level, and what passed the
north side of a level's last row for the next rows. All is one function of flat arrays, since a call with as many arrays
costs as much as a row of arithmetic.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.euler.constants import GRAVITY, HALO
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, PER_CELL, PER_FACE
from hpckit.kernels.euler.hevi.numerics import carried, weno
from hpckit.kernels.euler.hevi.rows import ask, fill

u8 = np.uint64
ROWS = 16  # at a time
LANES = 8  # what crosses faces in x is found of a multiple of it: no face is left over by vectors


@jit(borrowed=True)
def tendencies_of(state, work, column, levels, wind, weights, stage, slow, x, y, z, follows, wet):
    """All tendencies. x, y, z: a row, rows [nz, 4, …] and [ROWS, 4, …] to work in; follows, wet: as of `rows_of`."""
    fill(z.reshape(-1), 0.0)
    nz, tall, wide = state.shape[1:]
    flat_state, flat_work, flat_slow, flat_z = state.reshape(-1), work.reshape(-1), slow.reshape(-1), z.reshape(-1)
    for first in range(HALO - 1, tall - HALO + 1, ROWS):
        last = min(first + ROWS, tall - HALO + 1)
        for k in range(nz):
            if k == 0:
                fill(flat_z, 0.0)
            rows_of(
                flat_state, flat_work, flat_slow, x, y[k].reshape(-1), flat_z, levels, column, wind, weights, stage,
                nz, tall, wide, k, first, last, follows, wet,
            )  # fmt: skip


@inlined
def passed(flux, q, a, b, c, d, e, f, i, row, follows):
    """What a mass flux carries through the face in the middle of six cells, of which `row` are the weights.

    follows: None, or the weights follow the flow where it is not 0.
    """
    if follows is None or follows == 0.0:
        through = carried(
            flux, q[a + i], q[b + i], q[c + i], q[d + i], q[e + i], q[f + i], row[0], row[1], row[2], row[3], row[4],
            row[5],
        )  # fmt: skip
    else:
        through = weno(flux, q[a + i], q[b + i], q[c + i], q[d + i], q[e + i], q[f + i])
    return through


@inlined
def six(at, step):
    """The places of the six cells around the low face of the cell `at`."""
    return u8(at - 3 * step), u8(at - 2 * step), u8(at - step), u8(at), u8(at + step), u8(at + 2 * step)


@inlined
def weights_of(weights, row):
    """A row of weights as numbers."""
    return weights[row, 0], weights[row, 1], weights[row, 2], weights[row, 3], weights[row, 4], weights[row, 5]


@jit(noalias=True, borrowed=True)
def rows_of(
    state, work, slow, x, y, z, levels, column, wind, weights, stage, nz, tall, wide, k, first, last, follows, wet
):  # fmt: skip
    """The tendencies of a level of the rows from `first` until `last`; of the row before the owned ones for its north.

    x: a row; y: what passed the north sides of the last row, of a level; z: what passed the tops of the last level.
    follows: whether weights follow the flow; wet: whether air is moist; each None or a number: kernels are made apart.
    """
    plane, n, pad = tall * wide, wide - 2 * HALO, len(x)
    cells = nz * plane
    of_v, of_w, of_theta, of_p, of_dry, of_weight = cells, 2 * cells, 3 * cells, 4 * cells, 6 * cells, 7 * cells
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
    over, over_2, over_3 = min(1, nz - 1 - k) * plane, min(2, nz - 1 - k) * plane, min(3, nz - 1 - k) * plane
    under, under_2 = min(k, 1) * plane, min(k, 2) * plane
    for j in range(first, last):
        at = k * plane + j * wide + HALO
        to = at if j >= HALO else at + wide  # the row that comes next is written over it
        low, north, lifted = at - under, at + wide, (j - first) * 4 * pad
        # What the next level reads first: momenta along z a level above it, speeds three above.
        for each in range(1, 4):
            ask(state, each * cells + at + (1 + each // 3) * plane, n)
        for each in range(4):
            ask(work, each * cells + at + 4 * plane, n)
            ask(slow, (1 + each) * cells + at + plane, n)
        ask(work, of_p + at + plane, n)
        if wet is not None:
            ask(work, of_dry + at + plane, n)
            ask(work, of_weight + at + plane, n)
            ask(state, at + plane, n)
        # Places of momenta along x, y and z, and of the pressure.
        m, m_west, m_south, m_low = u8(cells + at), u8(cells + at - 1), u8(cells + at - wide), u8(cells + low)
        o, o_west, o_low = u8(2 * cells + north), u8(2 * cells + north - 1), u8(2 * cells + low + wide)
        o_south = u8(2 * cells + at)
        s, s_west, s_south = (
            u8(3 * cells + at + over), u8(3 * cells + at + over - 1), u8(3 * cells + at + over - wide)
        )  # fmt: skip
        s_low = u8(3 * cells + at)
        p, p_west, p_south, p_low = u8(of_p + at), u8(of_p + at - 1), u8(of_p + at - wide), u8(of_p + low)
        dry, dry_west, dry_south, dry_low = (
            u8(of_dry + at), u8(of_dry + at - 1), u8(of_dry + at - wide), u8(of_dry + low)
        )  # fmt: skip
        if j < tall - HALO:
            # u
            a, b, c, d, e, f = six(at, 1)
            for i in range(u8(pad)):
                flux = 0.5 * state[m_west + i] + 0.5 * state[m + i]
                x[i] = passed(flux, work, a, b, c, d, e, f, i, across, follows)
            a, b, c, d, e, f = six(north, wide)
            a_z, b_z, c_z = u8(at - under_2), u8(at - under), u8(at)
            d_z, e_z, f_z = u8(at + over), u8(at + over_2), u8(at + over_3)
            up, out = u8(lifted), u8(cells + to)
            for i in range(u8(n + 1)):
                flux = 0.5 * state[o_west + i] + 0.5 * state[o + i]
                new_y = passed(flux, work, a, b, c, d, e, f, i, across, follows)
                flux_z = half * state[s_west + i] + half * state[s + i]
                new_z = passed(flux_z, work, a_z, b_z, c_z, d_z, e_z, f_z, i, upward, follows_up)
                change = (x[i] - x[i + u8(1)]) * per_dx + (y[i] - new_y) * per_dy
                change += (z[up + i] - new_z) * per_cell
                y[i] = new_y
                z[up + i] = new_z
                gradient = (work[p + i] - work[p_west + i]) * per_dx
                if wet is None:
                    slow[out + i] = change - gradient
                else:
                    slow[out + i] = change - 0.5 * (work[dry_west + i] + work[dry + i]) * gradient
            # theta
            a, b, c, d, e, f = six(of_theta + at, 1)
            for i in range(u8(pad)):
                flux = state[m + i]
                passing = passed(flux, work, a, b, c, d, e, f, i, less, follows)
                if follows is not None:
                    passing -= 0.5 * (flux * (work[c + i] + work[d + i]))
                x[i] = passing
            a, b, c, d, e, f = six(of_theta + north, wide)
            a_z, b_z, c_z = u8(of_theta + at - under_2), u8(of_theta + at - under), u8(of_theta + at)
            d_z, e_z, f_z = u8(of_theta + at + over), u8(of_theta + at + over_2), u8(of_theta + at + over_3)
            side, up, out = u8(pad), u8(lifted + pad), u8(4 * cells + to)
            for i in range(u8(n)):
                flux = state[o + i]
                new_y = passed(flux, work, a, b, c, d, e, f, i, less, follows)
                if follows is not None:
                    new_y -= 0.5 * (flux * (work[c + i] + work[d + i]))
                flux_z = gate_1 * state[s + i]
                new_z = passed(flux_z, work, a_z, b_z, c_z, d_z, e_z, f_z, i, upward, follows_up)
                new_z -= flux_z * (below_up * work[c_z + i] + above_up * work[d_z + i])
                change = (x[i] - x[i + u8(1)]) * per_dx + (y[side + i] - new_y) * per_dy
                slow[out + i] = change + (z[up + i] - new_z) * per_cell
                y[side + i] = new_y
                z[up + i] = new_z
            # w; at the ground it stays 0
            a, b, c, d, e, f = six(of_w + at, 1)
            for i in range(u8(pad)):
                flux = below * state[m_low + i] + above * state[m + i]
                x[i] = passed(flux, work, a, b, c, d, e, f, i, across, follows)
            a, b, c, d, e, f = six(of_w + north, wide)
            a_z, b_z, c_z = u8(of_w + at - under_2), u8(of_w + at - under), u8(of_w + at)
            d_z, e_z, f_z = u8(of_w + at + over), u8(of_w + at + over_2), u8(of_w + at + over_3)
            side, up, out = u8(2 * pad), u8(lifted + 2 * pad), u8(3 * cells + to)
            weight, weight_low, rho, rho_low = u8(of_weight + at), u8(of_weight + low), u8(at), u8(low)
            for i in range(u8(n)):
                flux = below * state[o_low + i] + above * state[o + i]
                new_y = passed(flux, work, a, b, c, d, e, f, i, across, follows)
                flux_z = 0.5 * state[s_low + i] + half * state[s + i]
                w_1, w_2, w_3 = gate_1 * work[d_z + i], gate_2 * work[e_z + i], gate_3 * work[f_z + i]
                if follows is None or follows_middle == 0.0:
                    new_z = carried(
                        flux_z, work[a_z + i], work[b_z + i], work[c_z + i], w_1, w_2, w_3, middle[0], middle[1],
                        middle[2], middle[3], middle[4], middle[5],
                    )  # fmt: skip
                else:
                    new_z = weno(flux_z, work[a_z + i], work[b_z + i], work[c_z + i], w_1, w_2, w_3)
                change = (x[i] - x[i + u8(1)]) * per_dx + (y[side + i] - new_y) * per_dy
                change += (z[up + i] - new_z) * per_face
                y[side + i] = new_y
                z[up + i] = new_z
                force = (work[p + i] - work[p_low + i]) * per_face
                if wet is not None:
                    force += GRAVITY * (below * work[weight_low + i] + above * work[weight + i])
                    change += GRAVITY * (below * state[rho_low + i] + above * state[rho + i])
                    force *= below * work[dry_low + i] + above * work[dry + i]
                slow[out + i] = change - force
            if k == 0:
                for i in range(u8(n)):
                    slow[out + i] = 0.0
        # v, with a row more
        a, b, c, d, e, f = six(of_v + at, 1)
        for i in range(u8(pad)):
            flux = 0.5 * state[m_south + i] + 0.5 * state[m + i]
            x[i] = passed(flux, work, a, b, c, d, e, f, i, across, follows)
        a, b, c, d, e, f = six(of_v + north, wide)
        a_z, b_z, c_z = u8(of_v + at - under_2), u8(of_v + at - under), u8(of_v + at)
        d_z, e_z, f_z = u8(of_v + at + over), u8(of_v + at + over_2), u8(of_v + at + over_3)
        side, up, out = u8(3 * pad), u8(lifted + 3 * pad), u8(2 * cells + to)
        for i in range(u8(n)):
            flux = 0.5 * state[o_south + i] + 0.5 * state[o + i]
            new_y = passed(flux, work, a, b, c, d, e, f, i, across, follows)
            flux_z = half * state[s_south + i] + half * state[s + i]
            new_z = passed(flux_z, work, a_z, b_z, c_z, d_z, e_z, f_z, i, upward, follows_up)
            change = (x[i] - x[i + u8(1)]) * per_dx + (y[side + i] - new_y) * per_dy
            change += (z[up + i] - new_z) * per_cell
            y[side + i] = new_y
            z[up + i] = new_z
            gradient = (work[p + i] - work[p_south + i]) * per_dy
            if wet is None:
                slow[out + i] = change - gradient
            else:
                slow[out + i] = change - 0.5 * (work[dry_south + i] + work[dry + i]) * gradient
        if stage.coriolis != 0.0 and j >= HALO:
            calm_u, calm_v = column[0, k] * wind[0, k], column[0, k] * wind[1, k]
            if j < tall - HALO:
                a, b, out = u8(2 * cells + at - 1), u8(2 * cells + north - 1), u8(cells + at)
                for i in range(u8(n + 1)):
                    e = i + u8(1)
                    around = 0.25 * ((state[a + i] + state[a + e]) + (state[b + i] + state[b + e]))
                    slow[out + i] += stage.coriolis * (around - calm_v)
            a, b, out = u8(cells + at - wide), u8(cells + at), u8(2 * cells + at)
            for i in range(u8(n)):
                e = i + u8(1)
                around = 0.25 * ((state[a + i] + state[b + i]) + (state[a + e] + state[b + e]))
                slow[out + i] -= stage.coriolis * (around - calm_u)
