"""Rows and planes of the split dynamics, Numba: what flat ground and terrain do alike.

A plane is a row of columns, cells [nz, nx]: its kernels take flat arrays and the place of its first cell, and loop over
levels themselves, since a call with a slice of each array costs as much as a row of arithmetic.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.aligned import lined
from hpckit.kernels.compile.intrinsics import prefetch_second
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.euler.constants import GRAVITY
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, FIXED, MIRRORED, PER_CELL, PER_FACE, SMALLEST, WRAPPED
from hpckit.kernels.euler.hevi.numerics import swept

u8 = np.uint64
SOON = 4  # levels ahead for which the cache is asked; a loop of few numbers a level asks further: SOON_PUSHED
SOON_PUSHED = 12
LANES = 8  # numbers in a line of the cache; what crosses faces in x is found of a multiple of it: none is left over
TILE = 64  # columns at a time, at most
# Places of the rows kept of a level, and of the next level.
RISEN_RHO, RISEN_HEAT, FACTOR, VALUE, WARM, NEXT = (row * TILE for row in range(6))


def tiles(count):
    """How wide the parts of a row of so many columns are: as few as there can be, as equal as lines of the cache let.

    What is worked on then stays in the second-level cache however long rows are.
    """
    parts = -(-count // TILE)
    return -(-count // (parts * LANES)) * LANES


def kept_rows(levels):
    """What the way up through a part of a plane leaves to the way down: rows of a level after those of the last one.

    They are as wide as the widest part: where all stand is one place and constants, not a pointer each. A level lies
    before the first, for what a face reads of the one below. And two rows: pressure and rho' of the level below, W of
    the face over a level.
    """
    size = (levels + 2) * NEXT
    return lined(np.empty(size + LANES), size), lined(np.empty(2 * TILE + LANES), 2 * TILE)


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
def later(at, k, on, levels, step, ahead):
    """Where a row stands `on` levels over level k, or behind the last of them in the part that comes next.

    at: the lowest; step: to the next level; ahead: to the next part. Whole parts are too much to ask for: their second
    level cache loses them again while other substeps have their turns.
    """
    return at + (k + on) * step if k + on < levels else at + ahead + (k + on - levels) * step


@inlined
def place(row, rows):
    """Where a row of the state stands in an array of so many rows: after the first ones, rows take turns in the rest.

    In an array of as many rows as the state has, that is where it stands in the state.
    """
    return row if row < FIXED else FIXED + (row - FIXED) % (rows - FIXED)


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
def add_means(x, y, u, v, share, row, rows, south, north, at, wide, next_cell, nz, nx):
    """Add shares of the momenta of a row of columns to the mean mass fluxes x and y.

    south, north: whether the row has its faces before and beyond it along y. at: its first cell.
    """
    face, next_face = row * nx, (rows + 1) * nx
    if south:
        add(y, v, share, face, at, next_face, next_cell, nz, nx)
    if north:
        add(y, v, share, face + nx, at + wide, next_face, next_cell, nz, nx)
    add(x, u, share, row * (nx + 1), at, rows * (nx + 1), next_cell, nz, nx + 1)


@jit(borrowed=True)
def fill_ends(pressure, row, ends):
    """The pressure beyond the ends of a row: WRAPPED, MIRRORED, or what comes from elsewhere."""
    last = pressure.shape[2] - 1
    if ends == WRAPPED:
        for k in range(pressure.shape[0]):
            pressure[k, row, 0], pressure[k, row, last] = pressure[k, row, last - 1], pressure[k, row, 1]
    elif ends == MIRRORED:
        for k in range(pressure.shape[0]):
            pressure[k, row, 0], pressure[k, row, last] = pressure[k, row, 1], pressure[k, row, last - 1]


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
    u, v, w, rho, heat, slow, slow_heat, theta, stiff, dry, steep, per_w, slope_x, slope_y, across, south, north, rows,
    low, levels, per_dx, per_dy, dt, implicit, count, at, wide, next_cell, near, beyond, before, next_near, ahead,
    sloped, wet,
):  # fmt: skip
    """What is explicit of a part of a plane, level by level, and its tridiagonal system forward, into `rows`.

    Rho' and Theta but for the new W, the pressure that they and the old ones make, rho' that weighs on a face, theta at
    faces. sloped: None over flat ground, where nothing of terrain is looked at; wet: None in dry air. across, south,
    north: gradients of the pressure at faces along x and along y. near, beyond, before: places of the first cell and of
    those beyond and before it along y in slow, slow_heat, theta, stiff and dry. ahead: from here to the part that comes
    next. The cache is asked level by level: at once it would fill all that waits for memory. Nothing rises through the
    ground: there the pivot's `gate` is 0, and what it multiplies is only finite.
    """
    nz, explicit = levels.shape[1] - 1, 1.0 - implicit
    size, half_x, half_y = (dt * implicit) ** 2, 0.5 * per_dx, 0.5 * per_dy
    for i in range(u8(count)):
        rows[u8(NEXT + WARM) + i] = theta[u8(near) + i]
        rows[u8(WARM) + i] = 0.0
        rows[u8(FACTOR) + i] = 0.0
        rows[u8(VALUE) + i] = 0.0
        low[i] = 0.0
        low[u8(TILE) + i] = 0.0
    for k in range(nz):
        shut, gate, low_k = 1.0 if k < nz - 1 else 0.0, 1.0 if k else 0.0, max(k - 1, 0)
        here, high_k, r = at + k * next_cell, min(k + 1, nz - 1), u8((k + 1) * NEXT)
        c, east, up, top = u8(here), u8(here + 1), u8(here + wide), u8(at + high_k * next_cell)
        own = near + k * next_near
        a, a_east, a_west, a_up, a_down = (
            u8(own), u8(own + 1), u8(own - 1), u8(beyond + k * next_near), u8(before + k * next_near)
        )  # fmt: skip
        a_low, a_top = u8(near + low_k * next_near), u8(near + high_k * next_near)
        per_cell, per_lower, per_face = levels[PER_CELL, k], levels[PER_CELL, low_k], levels[PER_FACE, k]
        below, above, below_up, above_up = (
            levels[BELOW, k], levels[ABOVE, k], levels[BELOW, k + 1], levels[ABOVE, k + 1]
        )  # fmt: skip
        through = explicit * per_cell
        soon = later(at, k, SOON, nz, next_cell, ahead)
        ask_each((rho, heat, w), soon, count)
        soon_near = later(near, k, SOON, nz, next_near, ahead)
        ask_each((slow_heat, slow, stiff), soon_near, count)
        ask(theta, soon_near + wide, count)
        if sloped is not None:
            ask_each((steep, per_w, slope_x, slope_y), soon, count)
        for i in range(u8(count)):
            center, lower, upper = theta[a + i], w[c + i], shut * w[top + i]
            u_low, u_high, v_low, v_high = u[c + i], u[east + i], v[c + i], v[up + i]
            middle, high = rows[r + u8(WARM) + i], below_up * center + above_up * theta[a_top + i]
            old_rho, old_heat, stiffness = rho[c + i], heat[c + i], stiff[a + i]
            out = (u_high - u_low) * per_dx + (v_high - v_low) * per_dy + (upper - lower) * through
            found_rho = old_rho - dt * out
            out_x = u_high * (center + theta[a_east + i]) - u_low * (theta[a_west + i] + center)
            out_y = v_high * (center + theta[a_up + i]) - v_low * (theta[a_down + i] + center)
            out = out_x * half_x + out_y * half_y + (high * upper - middle * lower) * through
            found_heat = old_heat + dt * (slow_heat[a + i] - out)
            found_p = stiffness * (implicit * found_heat + explicit * old_heat)
            found_mixed = implicit * found_rho + explicit * old_rho
            tension, gravity, force = per_face, GRAVITY, slow[a + i]
            share = 1.0
            if wet is not None:
                share = below * dry[a_low + i] + above * dry[a + i]
            if sloped is not None:
                tension *= steep[c + i]
                gravity *= per_w[c + i]
                tilt_x = below * (across[low_k, i] + across[low_k, i + u8(1)])
                tilt_x += above * (across[k, i] + across[k, i + u8(1)])
                tilt_y = below * (south[low_k, i] + north[low_k, i]) + above * (south[k, i] + north[k, i])
                force += share * (slope_x[c + i] * (0.5 * tilt_x) + slope_y[c + i] * (0.5 * tilt_y))
            tension *= share
            # In this order what is the same in a level is found once.
            right = (lower + dt * force) - (dt * tension) * (found_p - low[i])
            right -= ((dt * gravity) * below) * low[u8(TILE) + i] + ((dt * gravity) * above) * found_mixed
            factor, value = swept(
                size, tension, gravity, stiff[a_low + i], stiffness, per_lower, per_cell, rows[r + u8(WARM - NEXT) + i],
                middle, high, below, above, right, rows[r + u8(FACTOR - NEXT) + i], rows[r + u8(VALUE - NEXT) + i],
                gate,
            )  # fmt: skip
            low[i] = found_p
            low[u8(TILE) + i] = found_mixed
            rows[r + u8(RISEN_RHO) + i] = found_rho
            rows[r + u8(RISEN_HEAT) + i] = found_heat
            rows[r + u8(FACTOR) + i] = factor
            rows[r + u8(VALUE) + i] = value
            rows[r + u8(NEXT + WARM) + i] = high


@jit(noalias=True, borrowed=True)
def settle(
    rows, low, old_w, old_heat, stiff, levels, dt, implicit, damping, share, count, at, next_cell, near, next_near,
    pressure, middle, next_middle, flux, face, next_face, new_rho, new_w, new_heat,
):  # fmt: skip
    """The tridiagonal system of a part of a plane backward, and all of its cells with the new W.

    old_w, old_heat: None where they are the new ones. near, middle, face: the places of the first cell in `stiff`,
    `pressure` and `flux`.
    """
    nz, explicit = levels.shape[1] - 1, 1.0 - implicit
    for i in range(u8(count)):
        low[i] = 0.0
    for k in range(nz - 1, -1, -1):
        c, q, step = u8(at + k * next_cell), u8(middle + k * next_middle), dt * implicit * levels[PER_CELL, k]
        r, a = u8((k + 1) * NEXT), u8(near + k * next_near)
        if old_heat is not None:  # else `forward` has just read them
            ask_each((new_rho, new_w, new_heat), at + max(k - SOON, 0) * next_cell, count)
        if share != 0.0:
            f = u8(face + k * next_face)
            ask(flux, face + k * next_face + count, count)
            for i in range(u8(count)):
                new = rows[r + u8(VALUE) + i] - rows[r + u8(FACTOR) + i] * low[i]
                flux[f + i] += share * (implicit * new + explicit * either(old_w, new_w, c + i))
        for i in range(u8(count)):
            upper = low[i]
            lower = rows[r + u8(VALUE) + i] - rows[r + u8(FACTOR) + i] * upper
            before = either(old_heat, new_heat, c + i)
            new_rho[c + i] = kept(old_heat, rows[r + u8(RISEN_RHO) + i] - (upper - lower) * step)
            carry = rows[r + u8(NEXT + WARM) + i] * upper - rows[r + u8(WARM) + i] * lower
            new = kept(old_heat, rows[r + u8(RISEN_HEAT) + i] - carry * step)
            pressure[q + i] = stiff[a + i] * (new + damping * (new - before))
            new_heat[c + i] = new
            new_w[c + i] = kept(old_heat, lower)
            low[i] = lower
