"""What passes the faces of a row, and what it does to a momentum, Numba: pieces of the kernel of slow tendencies."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.hevi.numerics import carried, weno
from hpckit.kernels.euler.hevi.rows import LANES

u8 = np.uint64


@inlined
def passed(flux, q, around, i, row, follows):
    """What a mass flux carries through the face in the middle of six cells, of which `row` are the weights.

    around: their places. follows: None, or the weights follow the flow where it is not 0.
    """
    a, b, c, d, e, f = (
        q[around[0] + i], q[around[1] + i], q[around[2] + i], q[around[3] + i], q[around[4] + i], q[around[5] + i]
    )  # fmt: skip
    if follows is None or follows == 0.0:
        through = carried(flux, a, b, c, d, e, f, row[0], row[1], row[2], row[3], row[4], row[5])
    else:
        through = weno(flux, a, b, c, d, e, f)
    return through


@inlined
def weights_of(weights, row):
    """A row of weights as numbers."""
    return weights[row, 0], weights[row, 1], weights[row, 2], weights[row, 3], weights[row, 4], weights[row, 5]


@inlined
def shared(row, share):
    """A row of weights, each times a share."""
    return share * row[0], share * row[1], share * row[2], share * row[3], share * row[4], share * row[5]


@inlined
def along(
    state, q, p, dry, slow, x, y, z, places, back, x_faces, y_faces, z_faces, side, up, out, count, across, upward,
    half, rates, follows, follows_up, wet,
):  # fmt: skip
    """The tendency of a momentum along x or y in a row.

    q: its speed. places: of the momenta along x, y and z and of the cell near; back: of those a cell behind in that
    direction. side, up: of what passes of it in y and z. rates: 1 / width along x, y, z and that direction.
    """
    m, o, s, c = places
    m_back, o_back, s_back, c_back = back
    per_dx, per_dy, per_cell, per_width = rates
    mean, mean_z = 0.5, half
    if follows is None:  # the weights take the halves of means of momenta, and the same bits come from fewer products
        mean, mean_z, across, upward = 1.0, 1.0, shared(across, 0.5), shared(upward, half)
    for i in range(u8(len(x) - LANES)):
        flux = mean * (state[m_back + i] + state[m + i])
        x[i] = passed(flux, q, x_faces, i, across, follows)
    for i in range(u8(count)):
        flux = mean * (state[o_back + i] + state[o + i])
        new_y = passed(flux, q, y_faces, i, across, follows)
        flux_z = mean_z * (state[s_back + i] + state[s + i])
        new_z = passed(flux_z, q, z_faces, i, upward, follows_up)
        change = (x[i] - x[i + u8(1)]) * per_dx + (y[side + i] - new_y) * per_dy
        change += (z[up + i] - new_z) * per_cell
        y[side + i] = new_y
        z[up + i] = new_z
        gradient = (p[c + i] - p[c_back + i]) * per_width
        if wet is None:
            slow[out + i] = change - gradient
        else:
            slow[out + i] = change - 0.5 * (dry[c_back + i] + dry[c + i]) * gradient
