"""Rows and planes of the split dynamics, Numba: what flat ground and terrain do alike.

A plane is a row of columns, cells [nz, nx]: its kernels take flat arrays and the place of its first cell, and loop over
levels themselves, since a call with a slice of each array costs as much as a row of arithmetic.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.aligned import lined
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.compile.vectors import prefetch_second
from hpckit.kernels.euler.constants import GRAVITY
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, PER_CELL, PER_FACE, SMALLEST
from hpckit.kernels.euler.hevi.numerics import swept

u8 = np.uint64
LANES = 8  # numbers in a line of the cache; what crosses faces in x is found of a multiple of it: none is left over


def working_rows(number, levels, count):
    """Rows to work in, from a line of the cache on."""
    width = -(-count // LANES) * LANES
    size = number * levels * width
    return lined(np.empty(size + LANES), size).reshape(number, levels, width)


@inlined
def ask(array, at, count):
    """Have the cache fetch a row of the plane or level that comes next.

    The rows of a plane are too short and too far apart for the processor to foresee: without this, half of a substep's
    time on a grid of 64 x 64 x 40 is waiting for memory. The row may lie beyond the array's end.
    """
    for i in range(0, count + LANES - 1, LANES):
        prefetch_second(array, at + i)


@inlined
def ask_each(arrays, at, count):
    """The same of several arrays, in one loop: a loop for each has three times as many instructions."""
    for i in range(0, count + LANES - 1, LANES):
        for array in arrays:
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
def either(old, new, at):
    """A number of the old state, which is `new` where it is None."""
    return new[at] if old is None else old[at]


@inlined
def kept(old, value):
    """What is too small to matter is 0 at the start of a stage: what a stage spreads further stays a normal number."""
    return value if old is None else settled(value)


@jit(noalias=True, borrowed=True)
def forward(
    u, v, w, rho, heat, slow, slow_heat, theta, stiff, dry, steep, per_w, slope_x, slope_y, pressure, south, north,
    factor, value, new_rho, new_heat, p, mixed, warm, levels, per_dx, per_dy, dt, implicit, wet, count, at, own,
    wide, next_cell, next_p, apart, sloped,
):  # fmt: skip
    """What is explicit of a plane, level by level, and its tridiagonal system forward.

    Rho' and Theta but for the new W, the pressure that they and the old ones make, rho' that weighs on a face, theta at
    faces: a level each of the rows to work in. sloped: None over flat ground, where nothing of terrain is looked at.
    apart: None where the new state is the old one. own: the first cell in `pressure`, whose gradients along y are south
    and north. What comes next is asked for here and there: at once it would fill all that waits for memory.
    """
    nz, explicit = levels.shape[1] - 1, 1.0 - implicit
    size, half_x, half_y = (dt * implicit) ** 2, 0.5 * per_dx, 0.5 * per_dy
    for k in range(nz):
        gate, low_k = 1.0 if k < nz - 1 else 0.0, max(k - 1, 0)
        here, over = at + k * next_cell, at + min(k + 1, nz - 1) * next_cell
        c, east, west, up, down = u8(here), u8(here + 1), u8(here - 1), u8(here + wide), u8(here - wide)
        b, top = u8(at + low_k * next_cell), u8(over)
        per_cell, per_lower, per_face = levels[PER_CELL, k], levels[PER_CELL, low_k], levels[PER_FACE, k]
        below, above, below_up, above_up = (
            levels[BELOW, k], levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1]
        )  # fmt: skip
        through = explicit * per_cell
        ask_each((slow_heat, slow), here + wide, count)
        if apart is not None:  # else `settle` asks for them
            ask_each((rho, heat, w), here + wide, count)
        ask(theta, here + 2 * wide, count)
        if sloped is not None:
            ask_each((steep, per_w, slope_x, slope_y), here + wide, count)
        if k == 0:
            for i in range(u8(count)):
                warm[0, i] = theta[c + i]
                factor[0, i] = 0.0
                value[0, i] = 0.0
        e, f = u8(own + k * next_p + 1), u8(own + k * next_p - 1)
        e_low, f_low = u8(own + low_k * next_p + 1), u8(own + low_k * next_p - 1)
        for i in range(u8(count)):
            center, lower, upper = theta[c + i], w[c + i], gate * w[top + i]
            u_low, u_high, v_low, v_high = u[c + i], u[east + i], v[c + i], v[up + i]
            middle, high = warm[k, i], below_up * center + above_up * theta[top + i]
            old_rho, old_heat, stiffness = rho[c + i], heat[c + i], stiff[c + i]
            out = (u_high - u_low) * per_dx + (v_high - v_low) * per_dy + (upper - lower) * through
            found_rho = old_rho - dt * out
            out_x = u_high * (center + theta[east + i]) - u_low * (theta[west + i] + center)
            out_y = v_high * (center + theta[up + i]) - v_low * (theta[down + i] + center)
            out = out_x * half_x + out_y * half_y + (high * upper - middle * lower) * through
            found_heat = old_heat + dt * (slow_heat[c + i] - out)
            found_p = stiffness * (implicit * found_heat + explicit * old_heat)
            found_mixed = implicit * found_rho + explicit * old_rho
            new_rho[k, i] = found_rho
            new_heat[k, i] = found_heat
            p[k, i] = found_p
            mixed[k, i] = found_mixed
            warm[k + 1, i] = high
            if k > 0:
                tension, gravity, force = per_face, GRAVITY, slow[c + i]
                share = below * dry[b + i] + above * dry[c + i] if wet else 1.0
                if sloped is not None:
                    tension *= steep[c + i]
                    gravity *= per_w[c + i]
                    across = below * (pressure[e_low + i] - pressure[f_low + i])
                    across += above * (pressure[e + i] - pressure[f + i])
                    along = below * (south[k - 1, i] + north[k - 1, i]) + above * (south[k, i] + north[k, i])
                    force += share * (slope_x[c + i] * (across * half_x) + slope_y[c + i] * (0.5 * along))
                tension *= share
                weight = gravity * (below * mixed[k - 1, i] + above * found_mixed)
                right = lower + dt * (force - tension * (found_p - p[k - 1, i]) - weight)
                new_factor, new_value = swept(
                    size, tension, gravity, stiff[b + i], stiffness, per_lower, per_cell, warm[k - 1, i], middle, high,
                    below, above, right, factor[k - 1, i], value[k - 1, i],
                )  # fmt: skip
                factor[k, i] = new_factor
                value[k, i] = new_value


@jit(noalias=True, borrowed=True)
def settle(
    factor, value, rho, heat, warm, old_w, old_heat, stiff, levels, dt, implicit, damping, share, count, at,
    next_cell, pressure, middle, next_middle, flux, face, next_face, new_rho, new_w, new_heat, wide, high,
):  # fmt: skip
    """The tridiagonal system of a plane backward, and all of its cells with the new W. high: a row to work in.

    old_w, old_heat: None where they are the new ones. middle, face: the places of the first cell in `pressure` and
    `flux`.
    """
    nz, explicit = levels.shape[1] - 1, 1.0 - implicit
    for i in range(u8(count)):
        high[i] = 0.0
    for k in range(nz - 1, -1, -1):
        c, q, step = u8(at + k * next_cell), u8(middle + k * next_middle), dt * implicit * levels[PER_CELL, k]
        ask_each((new_rho, new_w, new_heat, stiff), at + wide + k * next_cell, count)
        if share != 0.0:
            f = u8(face + k * next_face)
            ask(flux, face + k * next_face + count, count)
            for i in range(u8(count)):
                new = value[k, i] - factor[k, i] * high[i]
                flux[f + i] += share * (implicit * new + explicit * either(old_w, new_w, c + i))
        for i in range(u8(count)):
            upper = high[i]
            lower = value[k, i] - factor[k, i] * upper
            before = either(old_heat, new_heat, c + i)
            new_rho[c + i] = kept(old_heat, rho[k, i] - (upper - lower) * step)
            new = kept(old_heat, heat[k, i] - (warm[k + 1, i] * upper - warm[k, i] * lower) * step)
            pressure[q + i] = stiff[c + i] * (new + damping * (new - before))
            new_heat[c + i] = new
            new_w[c + i] = kept(old_heat, lower)
            high[i] = lower
