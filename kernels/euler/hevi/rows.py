"""Rows and planes of the split dynamics, Numba: what flat ground and terrain do alike.

A plane is a row of columns, cells [nz, nx]: its kernels take flat arrays and the place of its first cell, and loop over
levels themselves, since a call with a slice of each array costs as much as a row of arithmetic.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.compile.vectors import prefetch_second
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, PER_CELL, SMALLEST

u8 = np.uint64
LINE = 8  # numbers in a line of the cache


@inlined
def ask(array, at, count):
    """Have the cache fetch a row of the plane or level that comes next.

    The rows of a plane are too short and too far apart for the processor to foresee: without this, half of a substep's
    time on a grid of 64 x 64 x 40 is waiting for memory. The row may lie beyond the array's end.
    """
    for i in range(0, count + LINE - 1, LINE):
        prefetch_second(array, at + i)


@inlined
def settled(value):
    """What is too small to matter is 0."""
    return 0.0 if abs(value) < SMALLEST else value


@jit(noalias=True, borrowed=True)
def fill(out, value):
    """The same value everywhere."""
    for i in range(u8(len(out))):
        out[i] = value


@jit(noalias=True, borrowed=True)
def add(flux, momentum, share, face, at, next_face, next_cell, levels, count):
    """Add a share of a momentum to a mean mass flux. face, at: the places of the first."""
    for k in range(levels):
        to, cell = u8(face + k * next_face), u8(at + k * next_cell)
        ask(flux, face + k * next_face + count, count)
        for i in range(u8(count)):
            flux[to + i] += share * momentum[cell + i]


@jit(borrowed=True)
def add_means(x, y, u, v, share, row, rows, at, wide, next_cell, nz, nx):
    """Add shares of the momenta of a row of columns to the mean mass fluxes x and y.

    The row has its faces beyond it along y; row 0 has those before it, too. at: its first cell.
    """
    face, next_face = row * nx, (rows + 1) * nx
    if row == 0:
        add(y, v, share, face, at, next_face, next_cell, nz, nx)
    add(y, v, share, face + nx, at + wide, next_face, next_cell, nz, nx)
    add(x, u, share, row * (nx + 1), at, rows * (nx + 1), next_cell, nz, nx + 1)


@inlined
def explicit_part(
    u, v, w, rho, heat, slow_heat, theta, stiff, levels, per_dx, per_dy, dt, implicit, at, wide, next_cell,
    new_rho, new_heat, p, k,
):  # fmt: skip
    """Rho' and Theta of a level of a plane but for the new W, and the pressure that they and the old ones make."""
    nz, count, explicit = levels.shape[1] - 1, new_rho.shape[1], 1.0 - implicit
    gate = 1.0 if k < nz - 1 else 0.0
    here, over, under = at + k * next_cell, at + min(k + 1, nz - 1) * next_cell, at + max(k - 1, 0) * next_cell
    c, east, west, north, south = u8(here), u8(here + 1), u8(here - 1), u8(here + wide), u8(here - wide)
    top, bottom = u8(over), u8(under)
    per_cell, below, above = levels[PER_CELL, k], levels[BELOW, k], levels[ABOVE, k]
    below_up, above_up = levels[BELOW, k + 1], levels[ABOVE, k + 1]
    for each in (rho, heat, slow_heat, stiff, w):
        ask(each, here + wide, count)
    ask(theta, here + 2 * wide, count)
    for i in range(u8(count)):
        warm, lower, upper = theta[c + i], w[c + i], gate * w[top + i]
        u_low, u_high, v_low, v_high = u[c + i], u[east + i], v[c + i], v[north + i]
        div = (u_high - u_low) * per_dx + (v_high - v_low) * per_dy
        new_rho[k, i] = rho[c + i] + dt * (-div - explicit * ((upper - lower) * per_cell))
        warm_x = u_high * (0.5 * (warm + theta[east + i])) - u_low * (0.5 * (theta[west + i] + warm))
        warm_y = v_high * (0.5 * (warm + theta[north + i])) - v_low * (0.5 * (theta[south + i] + warm))
        warm_z = (below_up * warm + above_up * theta[top + i]) * upper
        warm_z -= (below * theta[bottom + i] + above * warm) * lower
        carry = warm_x * per_dx + warm_y * per_dy + explicit * (warm_z * per_cell)
        new = heat[c + i] + dt * (slow_heat[c + i] - carry)
        new_heat[k, i] = new
        p[k, i] = stiff[c + i] * (implicit * new + explicit * heat[c + i])


@jit(noalias=True, borrowed=True)
def settle(
    factor, value, rho, heat, old_w, old_heat, theta, stiff, levels, dt, implicit, damping, share, at, next_cell,
    pressure, middle, next_middle, flux, face, next_face, new_rho, new_w, new_heat, wide, high,
):  # fmt: skip
    """The tridiagonal system of a plane backward, and all of its cells with the new W. high: a row to work in.

    middle, face: the places of the first cell in `pressure` and `flux`.
    """
    nz, step, explicit = levels.shape[1] - 1, dt * implicit, 1.0 - implicit
    for i in range(u8(len(high))):
        high[i] = 0.0
    for k in range(nz - 1, -1, -1):
        over, under = at + min(k + 1, nz - 1) * next_cell, at + max(k - 1, 0) * next_cell
        c, top, bottom, q = u8(at + k * next_cell), u8(over), u8(under), u8(middle + k * next_middle)
        per_cell, below, above = levels[PER_CELL, k], levels[BELOW, k], levels[ABOVE, k]
        below_up, above_up = levels[BELOW, k + 1], levels[ABOVE, k + 1]
        for each in (new_rho, new_w, new_heat):
            ask(each, at + wide + k * next_cell, len(high))
        if share != 0.0:
            f = u8(face + k * next_face)
            ask(flux, face + k * next_face + len(high), len(high))
            for i in range(u8(len(high))):
                new = value[k, i] - factor[k, i] * high[i]
                flux[f + i] += share * (implicit * new + explicit * old_w[c + i])
        for i in range(u8(len(high))):
            upper = high[i]
            lower = value[k, i] - factor[k, i] * upper
            warm_low = below * theta[bottom + i] + above * theta[c + i]
            warm_high = below_up * theta[c + i] + above_up * theta[top + i]
            new_rho[c + i] = settled(rho[k, i] - step * ((upper - lower) * per_cell))
            new = settled(heat[k, i] - step * ((warm_high * upper - warm_low * lower) * per_cell))
            pressure[q + i] = stiff[c + i] * (new + damping * (new - old_heat[c + i]))
            new_heat[c + i] = new
            new_w[c + i] = settled(lower)
            high[i] = lower
