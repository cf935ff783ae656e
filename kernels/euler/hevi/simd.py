"""Split-explicit, vertically implicit dynamics of a box, Numba: row by row along x; columns in lanes.

Each helper works on rows of contiguous cells. A cell's bits depend on its operands alone, so they are the same on any
number of ranks.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import GAMMA, GRAVITY, HALO
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, FACES_BACK, PER_CELL, PER_FACE, WATER
from hpckit.kernels.euler.hevi.numerics import carried, swept, weno
from hpckit.kernels.euler.hevi.rows import add_means, ask, explicit_part, fill, settle, settled
from hpckit.kernels.euler.numerics import outside, power

u8 = np.uint64
FIRST = HALO - FACES_BACK  # of the cells of `work`
ROWS = 16  # of the tendencies at a time


@jit(borrowed=True)
def prepare(state, water, column, levels, work):
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
def _weight(rho, water, base_rho, base_water, dry, weight):
    for i in range(u8(len(rho))):
        dry[i] = 1.0 / (1.0 + water[i])
        weight[i] = rho[i] * (1.0 + water[i]) + base_rho * (water[i] - base_water)


@jit
def tendencies(state, work, column, levels, wind, weights, stage, slow):
    many = state.shape[3] - 2 * HALO + 2
    x, y, z = np.zeros((4, many)), np.zeros((2, 4, many)), np.zeros((2, ROWS, 4, many))
    _tendencies(state, work, column, levels, wind, weights, stage, slow, x, y, z, np.zeros(many))


@jit(borrowed=True)
def _tendencies(state, work, column, levels, wind, weights, stage, slow, x, y, z, still):
    """Some rows at a time, level by level: what passes each face is found once, and stays in the cache till used."""
    nz, tall, wide = state.shape[1:]
    plane, end, inner = tall * wide, tall - HALO, weights[2]
    per_dx, per_dy = 1.0 / stage.dx, 1.0 / stage.dy
    n = wide - 2 * HALO  # owned cells of a row
    mass_x, mass_y, mass_z = state[1].reshape(-1), state[2].reshape(-1), state[3].reshape(-1)
    u, v, w, theta = work[0].reshape(-1), work[1].reshape(-1), work[2].reshape(-1), work[3].reshape(-1)
    p, dry = work[4].reshape(-1), work[6].reshape(-1)
    rho, weight = state[0].reshape(-1), work[7].reshape(-1)
    new_u, new_v = slow[1].reshape(-1), slow[2].reshape(-1)
    new_w, new_heat = slow[3].reshape(-1), slow[4].reshape(-1)
    for first in range(HALO, end + 1, ROWS):
        for k in range(nz):
            top = k == nz - 1
            below, above = levels[BELOW, k], levels[ABOVE, k]
            per_cell, per_face = levels[PER_CELL, k], levels[PER_FACE, k]
            for j in range(first, min(first + ROWS, end + 1)):
                at = k * plane + j * wide + HALO
                low = at - plane if k else at
                owned = j < end
                # What the next level reads first: mass_z a level above it, speeds three above.
                for each in (mass_x, mass_y, p, new_u, new_v, new_w, new_heat):
                    ask(each, at + plane, n)
                ask(mass_z, at + 2 * plane, n)
                for each in (u, v, w, theta):
                    ask(each, at + 4 * plane, n)
                if stage.wet:
                    ask(dry, at + plane, n)
                    ask(weight, at + plane, n)
                    ask(rho, at + plane, n)
                this, last = y[j & 1], y[1 - (j & 1)]
                if j == first:
                    _faces_y(mass_y, u, v, w, theta, at - wide, low - wide, wide, n, below, above, inner, last)
                _faces_y(mass_y, u, v, w, theta, at, low, wide, n, below, above, inner, this)
                up, down = z[k & 1, j - first], z[1 - (k & 1), j - first]
                if k == 0:
                    fill(down.reshape(-1), 0.0)
                if top:
                    fill(up[0], 0.0)
                    fill(up[1], 0.0)
                    fill(up[3], 0.0)
                else:
                    row = weights[max(min(k, nz - 2 - k, 2), 0)]
                    _faces_z(mass_z, u, v, theta, at, wide, plane, k, nz, n, levels[BELOW, k + 1],
                             levels[ABOVE, k + 1], row, up)  # fmt: skip
                row = weights[min(k, nz - 1 - k, 2)]
                over = mass_z[at + plane : at + plane + n] if not top else still[:n]
                _middle_z(
                    mass_z, over, w, w[at + plane : at + plane + n] if not top else still[:n],
                    w[at + 2 * plane : at + 2 * plane + n] if k < nz - 2 else still[:n],
                    w[at + 3 * plane : at + 3 * plane + n] if k < nz - 3 else still[:n],
                    at, at - min(k, 1) * plane, at - min(k, 2) * plane, n, row, up[2],
                )  # fmt: skip
                _passes(mass_x, v, at - wide, at, 0.5, 0.5, at, 1, n + 1, 0.0, inner, x[1])
                if owned:
                    _passes(mass_x, u, at - 1, at, 0.5, 0.5, at, 1, n + 2, 0.0, inner, x[0])
                    _passes(mass_x, w, low, at, below, above, at, 1, n + 1, 0.0, inner, x[2])
                    _passes(mass_x, theta, at, at, 0.5, 0.5, at, 1, n + 1, 0.5, inner, x[3])
                    _warm(x[3], last[3], this[3], down[3], up[3], at, n, per_dx, per_dy, per_cell, new_heat)
                    _along(x[0], last[0], this[0], down[0], up[0], p, dry, at, 1, n + 1, 1, per_dx, per_dy, per_dx,
                           per_cell, stage.wet, new_u)  # fmt: skip
                    if k:
                        _lift(x[2], last[2], this[2], down[2], up[2], p, dry, weight, rho, low, at, n, per_dx,
                              per_dy, per_face, below, above, stage.wet, new_w)  # fmt: skip
                    else:
                        fill(new_w[at : at + n], 0.0)
                _along(x[1], last[1], this[1], down[1], up[1], p, dry, at, wide, n, 1, per_dx, per_dy, per_dy,
                       per_cell, stage.wet, new_v)  # fmt: skip
                if stage.coriolis != 0.0:
                    calm = column[0, k]
                    if owned:
                        _turn(
                            mass_y[at - 1 : at + n], mass_y[at : at + n + 1], mass_y[at + wide - 1 : at + wide + n],
                            mass_y[at + wide : at + wide + n + 1], calm * wind[1, k], stage.coriolis,
                            new_u[at : at + n + 1],
                        )  # fmt: skip
                    south = at - wide
                    _turn(
                        mass_x[south : south + n], mass_x[at : at + n], mass_x[south + 1 : south + n + 1],
                        mass_x[at + 1 : at + n + 1], calm * wind[0, k], -stage.coriolis, new_v[at : at + n],
                    )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _passes(mass, q, low, high, share_low, share_high, at, step, count, less, row, out):
    """What a mean of two mass fluxes carries of q through the faces between the cells at - step and at.

    less: of the sum of the two cells at the face, which is left to the acoustic substeps.
    """
    even0, even1, even2, odd0, odd1, odd2 = row[0], row[1], row[2], row[3], row[4], row[5]
    m, n = u8(low), u8(high)
    a, b, c, d, e, f = (
        u8(at - 3 * step), u8(at - 2 * step), u8(at - step), u8(at), u8(at + step), u8(at + 2 * step)
    )  # fmt: skip
    if row[6] != 0.0:
        for i in range(u8(count)):
            flux = share_low * mass[m + i] + share_high * mass[n + i]
            whole = weno(flux, q[a + i], q[b + i], q[c + i], q[d + i], q[e + i], q[f + i])
            out[i] = whole - less * (flux * (q[c + i] + q[d + i]))
        return
    even0 -= less
    for i in range(u8(count)):
        flux = share_low * mass[m + i] + share_high * mass[n + i]
        out[i] = carried(
            flux, q[a + i], q[b + i], q[c + i], q[d + i], q[e + i], q[f + i], even0, even1, even2, odd0, odd1, odd2
        )


@jit(borrowed=True)
def _faces_y(mass, u, v, w, theta, at, low, wide, n, below, above, row, out):
    """What passes the high faces in y of a row; of v the middle of its cells."""
    north = at + wide
    _passes(mass, u, north - 1, north, 0.5, 0.5, north, wide, n + 1, 0.0, row, out[0])
    _passes(mass, v, at, north, 0.5, 0.5, north, wide, n, 0.0, row, out[1])
    _passes(mass, w, low + wide, north, below, above, north, wide, n, 0.0, row, out[2])
    _passes(mass, theta, north, north, 0.5, 0.5, north, wide, n, 0.5, row, out[3])


@jit(noalias=True, borrowed=True)
def _faces_z(mass, u, v, theta, at, wide, plane, k, nz, n, below, above, row, out):
    """What passes the high faces of level k of u, v and theta; of theta without its mean, below and above."""
    even0, even1, even2, odd0, odd1, odd2 = row[0], row[1], row[2], row[3], row[4], row[5]
    a, b, c = u8(at - min(k, 2) * plane), u8(at - min(k, 1) * plane), u8(at)
    d, e, f = u8(at + plane), u8(at + min(2, nz - 1 - k) * plane), u8(at + min(3, nz - 1 - k) * plane)
    west, south = u8(at + plane - 1), u8(at + plane - wide)
    if row[6] != 0.0:
        for i in range(u8(n + 1)):
            flux = 0.5 * mass[west + i] + 0.5 * mass[d + i]
            out[0, i] = weno(flux, u[a + i], u[b + i], u[c + i], u[d + i], u[e + i], u[f + i])
        for i in range(u8(n)):
            flux = 0.5 * mass[south + i] + 0.5 * mass[d + i]
            out[1, i] = weno(flux, v[a + i], v[b + i], v[c + i], v[d + i], v[e + i], v[f + i])
        for i in range(u8(n)):
            flux = mass[d + i]
            whole = weno(flux, theta[a + i], theta[b + i], theta[c + i], theta[d + i], theta[e + i], theta[f + i])
            out[3, i] = whole - flux * (below * theta[c + i] + above * theta[d + i])
        return
    for i in range(u8(n + 1)):
        flux = 0.5 * mass[west + i] + 0.5 * mass[d + i]
        out[0, i] = carried(
            flux, u[a + i], u[b + i], u[c + i], u[d + i], u[e + i], u[f + i], even0, even1, even2, odd0, odd1, odd2
        )
    for i in range(u8(n)):
        flux = 0.5 * mass[south + i] + 0.5 * mass[d + i]
        out[1, i] = carried(
            flux, v[a + i], v[b + i], v[c + i], v[d + i], v[e + i], v[f + i], even0, even1, even2, odd0, odd1, odd2
        )
    for i in range(u8(n)):
        whole = carried(
            mass[d + i], theta[a + i], theta[b + i], theta[c + i], theta[d + i], theta[e + i], theta[f + i], even0,
            even1, even2, odd0, odd1, odd2,
        )  # fmt: skip
        out[3, i] = whole - mass[d + i] * (below * theta[c + i] + above * theta[d + i])


@jit(noalias=True, borrowed=True)
def _middle_z(mass, over, w, w_1, w_2, w_3, at, at_1, at_2, n, row, out):
    """What passes the middle of a level of w. over, w_1, w_2, w_3: rows above; at, at_1, at_2: places below."""
    even0, even1, even2, odd0, odd1, odd2 = row[0], row[1], row[2], row[3], row[4], row[5]
    a, b, c = u8(at_2), u8(at_1), u8(at)
    if row[6] != 0.0:
        for i in range(u8(n)):
            flux = 0.5 * mass[c + i] + 0.5 * over[i]
            out[i] = weno(flux, w[a + i], w[b + i], w[c + i], w_1[i], w_2[i], w_3[i])
        return
    for i in range(u8(n)):
        out[i] = carried(
            0.5 * mass[c + i] + 0.5 * over[i], w[a + i], w[b + i], w[c + i], w_1[i], w_2[i], w_3[i], even0, even1,
            even2, odd0, odd1, odd2,
        )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _warm(x, south, north, down, up, at, n, per_dx, per_dy, per_cell, heat):
    """Tendency of rho theta of a row."""
    c = u8(at)
    for i in range(u8(n)):
        along = (x[i] - x[i + u8(1)]) * per_dx + (south[i] - north[i]) * per_dy
        heat[c + i] = along + (down[i] - up[i]) * per_cell


@jit(noalias=True, borrowed=True)
def _along(x, south, north, down, up, p, dry, at, back, n, ahead, per_dx, per_dy, per_width, per_cell, wet, out):
    """Tendency of a horizontal momentum of a row, without the Coriolis force. back: to the cell before its faces."""
    c, before = u8(at), u8(at - back)
    for i in range(u8(n)):
        along = (x[i] - x[i + u8(ahead)]) * per_dx + (south[i] - north[i]) * per_dy
        change = along + (down[i] - up[i]) * per_cell
        share = 0.5 * (dry[before + i] + dry[c + i]) if wet else 1.0
        out[c + i] = change - share * ((p[c + i] - p[before + i]) * per_width)


@jit(noalias=True, borrowed=True)
def _lift(
    x, south, north, down, up, p, dry, weight, rho, low, at, n, per_dx, per_dy, per_face, below, above, wet, out
):  # fmt: skip
    """Tendency of rho w of a row. low: the level below. Air that is dry weighs what the substeps say it does."""
    c, under = u8(at), u8(low)
    for i in range(u8(n)):
        along = (x[i] - x[i + u8(1)]) * per_dx + (south[i] - north[i]) * per_dy
        change = along + (down[i] - up[i]) * per_face
        force = (p[c + i] - p[under + i]) * per_face
        if wet:
            force += GRAVITY * (below * weight[under + i] + above * weight[c + i])
            change += GRAVITY * (below * rho[under + i] + above * rho[c + i])
            force *= below * dry[under + i] + above * dry[c + i]
        out[c + i] = change - force


@jit(noalias=True, borrowed=True)
def _turn(a, b, c, d, calm, coriolis, out):
    for i in range(u8(len(out))):
        out[i] += coriolis * (0.25 * ((a[i] + b[i]) + (c[i] + d[i])) - calm)


@jit(borrowed=True)
def begin(start, work, pressure):
    nz, tall, wide = start.shape[1:]
    first, end = HALO - 1, wide - HALO + 1
    for k in range(nz):
        for j in range(HALO - 1, tall - HALO + 1):
            _times(work[5, k, j, first:end], start[4, k, j, first:end], pressure[k, j - HALO + 1])


@jit(noalias=True, borrowed=True)
def _times(a, b, out):
    for i in range(u8(len(out))):
        out[i] = a[i] * b[i]


@jit
def substep(old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers):
    columns = np.zeros((5, new.shape[1] + 1, new.shape[3] - 2 * HALO))
    _substep(old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, columns)


@jit(borrowed=True)
def _substep(old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers, columns):
    """A row of columns after the other: momenta along x and beyond it along y, then its columns."""
    nz, tall, wide = new.shape[1:]
    nx, cells, far = wide - 2 * HALO, tall * wide, wide - 2 * HALO + 2
    dt, implicit, share, wet = numbers.dt, numbers.implicit, numbers.share, numbers.wet
    factor, value, rho, heat, p = columns[0], columns[1], columns[2], columns[3], columns[4]
    old_rho, old_u, old_v = old[0].reshape(-1), old[1].reshape(-1), old[2].reshape(-1)
    old_w, old_heat = old[3].reshape(-1), old[4].reshape(-1)
    new_rho, u, v = new[0].reshape(-1), new[1].reshape(-1), new[2].reshape(-1)
    new_w, new_heat = new[3].reshape(-1), new[4].reshape(-1)
    slow_u, slow_v, slow_w = slow[1].reshape(-1), slow[2].reshape(-1), slow[3].reshape(-1)
    slow_heat = slow[4].reshape(-1)
    theta, stiff, dry = work[3].reshape(-1), work[5].reshape(-1), work[6].reshape(-1)
    excess, x, y, z = pressure.reshape(-1), flux_x.reshape(-1), flux_y.reshape(-1), flux_z.reshape(-1)
    next_p, per_dx, per_dy = pressure.shape[1] * far, 1.0 / numbers.dx, 1.0 / numbers.dy
    for j in range(HALO, tall - HALO):
        at, own = j * wide + HALO, (j - HALO + 1) * far + 1  # of the lowest cell in the state and in the pressure
        if j == HALO:
            _push(
                old_v, v, slow_v, dry, excess, at, at - wide, own, own - far, cells, next_p, nz, nx, wide, far, per_dy,
                dt, wet,
            )  # fmt: skip
        _push(
            old_u, u, slow_u, dry, excess, at, at - 1, own, own - 1, cells, next_p, nz, nx + 1, wide, far, per_dx, dt,
            wet,
        )  # fmt: skip
        _push(
            old_v, v, slow_v, dry, excess, at + wide, at, own + far, own, cells, next_p, nz, nx, wide, far, per_dy, dt,
            wet,
        )  # fmt: skip
        if share != 0.0:
            add_means(x, y, u, v, share, j - HALO, tall - 2 * HALO, at, wide, cells, nz, nx)
        _forward(
            u, v, old_w, old_rho, old_heat, slow_heat, slow_w, theta, stiff, dry, rho, heat, p, levels, per_dx, per_dy,
            dt, implicit, wet, at, wide, cells, factor, value, factor[nz], value[nz],
        )  # fmt: skip
        settle(
            factor, value, rho, heat, old_w, old_heat, theta, stiff, levels, dt, implicit, numbers.damping, share, at,
            cells, excess, own, next_p, z, (j - HALO) * nx, (tall - 2 * HALO) * nx, new_rho, new_w, new_heat, wide,
            p[nz],
        )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _push(
    old, new, slow, dry, p, at, before, high, low, next_cell, next_p, nz, count, wide, far, per_width, dt, wet
):  # fmt: skip
    """Momenta of a plane at faces between the cells `before` and `at`, which stand at low and high in the pressure.

    old may be new, here and in `settle`: a number is read before it is written, and no other depends on it.
    """
    for k in range(nz):
        c, b, right, left = (
            u8(at + k * next_cell), u8(before + k * next_cell), u8(high + k * next_p), u8(low + k * next_p)
        )  # fmt: skip
        for each in (old, new, slow):
            ask(each, at + wide + k * next_cell, count)
        ask(p, high + far + k * next_p, count)
        if wet:
            ask(dry, at + wide + k * next_cell, count)
            for i in range(u8(count)):
                gradient = 0.5 * (dry[b + i] + dry[c + i]) * ((p[right + i] - p[left + i]) * per_width)
                new[c + i] = settled(old[c + i] + dt * (slow[c + i] - gradient))
        else:
            for i in range(u8(count)):
                new[c + i] = settled(old[c + i] + dt * (slow[c + i] - (p[right + i] - p[left + i]) * per_width))


@jit(noalias=True, borrowed=True)
def _forward(
    u, v, w, old, old_heat, slow_heat, slow, theta, stiff, dry, rho, heat, p, levels, per_dx, per_dy, dt, implicit,
    wet, at, wide, next_cell, factor, value, last_factor, last_value,
):  # fmt: skip
    """What is explicit of a plane, and its tridiagonal system forward, while a level is near.

    last_factor, last_value: rows to work in.
    """
    nz, size, explicit = levels.shape[1] - 1, (dt * implicit) ** 2, 1.0 - implicit
    for i in range(u8(len(last_factor))):
        last_factor[i] = 0.0
        last_value[i] = 0.0
    for k in range(nz):
        explicit_part(
            u, v, w, old, old_heat, slow_heat, theta, stiff, levels, per_dx, per_dy, dt, implicit, at, wide,
            next_cell, rho, heat, p, k,
        )  # fmt: skip
        if k == 0:
            continue
        c, b = u8(at + k * next_cell), u8(at + (k - 1) * next_cell)
        under, over = u8(at + max(k - 2, 0) * next_cell), u8(at + min(k + 1, nz - 1) * next_cell)
        per_face, down, up = levels[PER_FACE, k], levels[PER_CELL, k - 1], levels[PER_CELL, k]
        below_1, above_1, below, above = levels[BELOW, k - 1], levels[ABOVE, k - 1], levels[BELOW, k], levels[ABOVE, k]
        below_up, above_up = levels[BELOW, k + 1], levels[ABOVE, k + 1]
        ask(slow, at + wide + k * next_cell, len(last_factor))
        for i in range(u8(len(last_factor))):
            tension = (below * dry[b + i] + above * dry[c + i]) * per_face if wet else per_face
            low, middle = (
                below_1 * theta[under + i] + above_1 * theta[b + i],
                below * theta[b + i] + above * theta[c + i],
            )
            high = below_up * theta[c + i] + above_up * theta[over + i]
            mixed_low = implicit * rho[k - 1, i] + explicit * old[b + i]
            mixed = implicit * rho[k, i] + explicit * old[c + i]
            weight = GRAVITY * (below * mixed_low + above * mixed)
            right = w[c + i] + dt * (slow[c + i] - tension * (p[k, i] - p[k - 1, i]) - weight)
            new_factor, new_value = swept(
                size, tension, GRAVITY, stiff[b + i], stiff[c + i], down, up, low, middle, high, below, above, right,
                last_factor[i], last_value[i],
            )  # fmt: skip
            factor[k, i] = new_factor
            value[k, i] = new_value
            last_factor[i] = new_factor
            last_value[i] = new_value
