"""Shallow water on a C-grid, Numba: the three stages of a step in one pass over memory, in place.

Strips of x are carried upward. Each new row lets the first stage complete the row below it, that one lets the second
stage complete the row below, and so on, so that rings of a few rows, which fit the second-level cache, hold all that
the stages need, and a row is written three rows after it was read. A row of a stage takes two loops: the first makes
potential vorticity, mass fluxes and Bernoulli function; the second completes row r - 1 and leaves what row r already
knows (its southern half) in `carry`. The second loop is one cell behind the first: lane i of what a stage writes is
cell i - 1 of what it read.

Loops run over whole blocks of LANES cells, also where a strip ends early: without a scalar tail the bits of a cell do
not depend on where its row is cut. Lanes beyond the ends hold leftovers and are never stored. Indices are unsigned: to
Numba a signed one may be negative, and its wrap-around turns vector loads into gathers.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.jit import inlined, jit
from hpckit.kernels.shallow_water.constants import (
    BROKEN,
    CORNER,
    COURANT_SPEED,
    DEPTH_MIN,
    ENERGY,
    ENSTROPHY,
    FACE,
    HALO,
    MASS,
    SPEED,
    STRESS,
    WATER,
    F,
)
from hpckit.kernels.shallow_water.numerics import friction, kinetic_energy, settle, vorticity

u8 = np.uint64
LANES = 32
STRIP = 32 * LANES - 3 * HALO  # cells of a strip: beside it the halo, and the cells by which the stages fall behind
FIRST = 8  # where lane 0 stands in a row
PITCH = 32 * LANES + 24  # from row to row
P, R, U, V, B, Z = (u8(k * PITCH + FIRST) for k in range(6))  # scratch: q h v, q h u, h u, h v, Bernoulli, vorticity


@jit
def step(h, u, v, bottom, rows, columns, gravity, dx, dy, dt, viscosity, drag, drag_quadratic):
    """As `reference.step`."""
    numbers = (gravity, 1.0 / dx, 1.0 / dy, viscosity, drag, drag_quadratic)
    _strips(h, u, v, bottom, rows, columns, dt, numbers, _full_row)


@jit
def step_free(h, u, v, f, gravity, dx, dy, dt):
    """As `reference.step_free`."""
    rows = np.ones((5, h.shape[0]))
    rows[F] = f
    numbers = (gravity, 1.0 / dx, 1.0 / dy, 0.0, 0.0, 0.0)
    _strips(h, u, v, np.zeros((0, 0)), rows, np.zeros((3, 0)), dt, numbers, _free_row)


@inlined
def _strips(h, u, v, bottom, rows, columns, dt, numbers, row_of_stage):
    """All strips, each from its lowest row to its highest; row_of_stage: `_free_row` or `_full_row`."""
    cells = h.shape[1] - 2 * HALO
    memory = np.ones(50 * PITCH + 8)
    memory = memory[(-memory.ctypes.data % 64) // 8 :]  # rows begin where cache lines do
    start, one, two = memory[: 16 * PITCH], memory[16 * PITCH : 22 * PITCH], memory[22 * PITCH : 28 * PITCH]
    done, work, edges = (
        memory[28 * PITCH : 31 * PITCH],
        memory[31 * PITCH : 38 * PITCH],
        memory[38 * PITCH : 41 * PITCH],
    )
    carry = memory[41 * PITCH : 50 * PITCH].reshape((3, 3 * PITCH))
    kept = np.zeros((3, h.shape[0], HALO))  # the last cells of the strip to the left, as they were
    for begin in range(0, cells, STRIP):
        width = min(STRIP, cells - begin) + 2 * HALO
        blocks = u8((width + 3 + LANES - 1) // LANES)
        for k in range(3):
            _load(edges, u8(k * PITCH), columns, k, begin, min(width, columns.shape[1]))
        for r in range(h.shape[0]):
            at = _at(r, 4, 4)
            for k, field in enumerate((h, u, v)):
                _load(start, at + u8(k * PITCH), field, r, begin, width)
                _swap_kept(start, at + u8(k * PITCH), kept[k, r], begin, width)
            _load(start, at + u8(3 * PITCH), bottom, r, begin, min(width, bottom.shape[1]))
            if r >= 1:
                row_of_stage(start, _at(r - 1, 4, 4), at, start, _at(r - 1, 4, 4), one, _at(r - 1, 2, 3), carry[0],
                             edges, work, blocks, 0, 0.0, 1.0, dt, numbers, rows, r)  # fmt: skip
            if r >= 3:
                row_of_stage(one, _at(r - 2, 2, 3), _at(r - 1, 2, 3), start, _at(r - 2, 4, 4), two, _at(r - 2, 2, 3),
                             carry[1], edges, work, blocks, 1, 0.75, 0.25, dt, numbers, rows, r - 1)  # fmt: skip
            if r >= 5:
                row_of_stage(two, _at(r - 3, 2, 3), _at(r - 2, 2, 3), start, _at(r - 3, 4, 4), done, u8(0),
                             carry[2], edges, work, blocks, 2, 1.0 / 3.0, 2.0 / 3.0, dt, numbers, rows, r - 2
                             )  # fmt: skip
            if r >= 2 * HALO:
                for k, field in enumerate((h, u, v)):
                    _store(field, r - HALO, begin, done, u8(k * PITCH), width)


@inlined
def _at(row, length, fields):
    """Where a row stands in a ring of `length` rows (a power of 2) of `fields` fields."""
    return u8(row & (length - 1)) * u8(fields * PITCH)


@jit(noalias=True)
def _load(ring, at, field, row, begin, width):
    for i in range(u8(width)):
        ring[at + u8(FIRST) + i] = field[u8(row), u8(begin) + i]


@jit(noalias=True)
def _swap_kept(ring, at, kept, begin, width):
    """Put back what the strip to the left overwrote, and keep what this one will."""
    for i in range(u8(HALO)):
        if begin > 0:
            ring[at + u8(FIRST) + i] = kept[i]
        kept[i] = ring[at + u8(FIRST + width - 2 * HALO) + i]


@jit(noalias=True)
def _store(field, row, begin, done, at, width):
    for i in range(u8(HALO), u8(width - HALO)):
        field[u8(row), u8(begin) + i] = done[at + u8(FIRST + HALO) + i]


@jit(noalias=True)
def _free_row(now, below, above, start, old, new, to, carry, edges, work, blocks, shift, old_weight, weight,
              dt, numbers, rows, r):  # fmt: skip
    _row(now, below, above, start, old, new, to, carry, edges, work, blocks, shift, old_weight, weight,
         dt, numbers, rows, u8(r), False)  # fmt: skip


@jit(noalias=True)
def _full_row(now, below, above, start, old, new, to, carry, edges, work, blocks, shift, old_weight, weight,
              dt, numbers, rows, r):  # fmt: skip
    _row(now, below, above, start, old, new, to, carry, edges, work, blocks, shift, old_weight, weight,
         dt, numbers, rows, u8(r), True)  # fmt: skip


@inlined
def _row(now, below, above, start, old, new, to, carry, edges, work, blocks, shift, old_weight, weight,
         dt, numbers, rows, r, full):  # fmt: skip
    """One row of one stage: new = now + old_weight * (start - now) + weight * dt * tendency(now), row r - 1.

    below, above: where rows r - 1 and r stand in `now`, each h, u, v; old: row r - 1 in `start`, where the bottom is
    the fourth field; to: row r - 1 in `new`. shift: how many cells `now` is behind `start`. full: with bottom, walls,
    friction and forcing. Weights add up to 1, and in this form what is at rest stays so to the bit. Factors of averages
    stand in the coefficients.
    """
    gravity, per_dx, per_dy, viscosity, drag, drag_quadratic = numbers
    one, two, lanes, pitch, lane0 = u8(1), u8(2), u8(LANES), u8(PITCH), u8(FIRST)
    step = weight * dt
    half, by_x, by_y = 0.5 * step, step * per_dx, step * per_dy
    mass_x, mass_y = 0.5 * by_x, 0.5 * by_y
    curl_x, curl_y = viscosity * by_x, viscosity * by_y
    f, corner_row, stress = rows[u8(F), r], rows[u8(CORNER), r], rows[u8(STRESS), r - one]
    row_u, row_v = rows[u8(WATER), r - one], rows[u8(FACE), r - one]
    hm, hc = below + lane0, above + lane0
    um, uc, vm, vc = hm + pitch, hc + pitch, hm + two * pitch, hc + two * pitch
    e0 = lane0 - one - u8(shift)  # the cell of `start` that a lane of the second loop completes
    h0 = old + e0
    u0, v0, b0 = h0 + pitch, h0 + two * pitch, h0 + u8(3) * pitch
    h1 = to + lane0
    u1, v1 = h1 + pitch, h1 + two * pitch
    ph, pu, pv = lane0, lane0 + pitch, lane0 + two * pitch
    for block in range(blocks):
        first = block * lanes
        for lane in range(lanes):
            i = first + lane
            h_sw, h_se, h_nw, h_ne = now[hm + i - one], now[hm + i], now[hc + i - one], now[hc + i]
            u_s, u_n, v_w, v_e = now[um + i], now[uc + i], now[vc + i - one], now[vc + i]
            zeta = vorticity(u_s, u_n, v_w, v_e, per_dx, per_dy)
            energy = gravity * h_se
            if full:
                zeta = zeta * (corner_row * edges[two * pitch + e0 + one + i])
                work[Z + i] = zeta
                energy = gravity * (h_se + start[b0 + one + i])
            west, east = h_sw + h_nw, h_se + h_ne
            q = (f + zeta) / (west + east)
            flux_v, flux_u = east * v_e, (h_nw + h_ne) * u_n
            work[P + i] = q * (flux_v + west * v_w)
            work[R + i] = q * (flux_u + (h_sw + h_se) * u_s)
            work[U + i] = flux_u
            work[V + i] = flux_v
            u_e, v_s = now[um + i + one], now[vm + i]
            energy += kinetic_energy(u_s, u_e, v_s, v_e)
            if full:
                energy -= viscosity * ((u_e - u_s) * per_dx + (v_e - v_s) * per_dy)
            work[B + i] = energy
    for block in range(blocks):
        first = block * lanes
        for lane in range(lanes):
            i = first + lane
            near = work[B + i - one]
            to_u, to_v, to_h = half * work[P + i - one], by_y * near, mass_y * work[V + i - one]
            h_c, u_c, v_c = now[hm + i - one], now[um + i - one], now[vm + i - one]
            du = (carry[pu + i] + to_u) - by_x * (near - work[B + i - two])
            dv = carry[pv + i] - to_v
            dh = carry[ph + i] - to_h
            next_v = to_v - half * (work[R + i - one] + work[R + i])
            if full:
                curl = curl_y * work[Z + i - one]
                h_w, v_nw, v_n = now[hm + i - two], now[vc + i - two], now[vc + i - one]
                across = (now[vm + i - two] + v_c) + (v_nw + v_n)
                du = du - curl + step * friction(u_c, across, h_w + h_c, stress, drag, drag_quadratic)
                to_u += curl
                next_v += curl_x * (work[Z + i] - work[Z + i - one])
                across = (u_c + now[um + i]) + (now[uc + i - one] + now[uc + i])
                next_v += step * friction(v_n, across, h_c + now[hc + i - one], 0.0, drag, drag_quadratic)
            new_u = settle((u_c + old_weight * (start[u0 + i] - u_c)) + du)
            new_v = settle((v_c + old_weight * (start[v0 + i] - v_c)) + dv)
            if full:
                new_u *= row_u * edges[pitch + e0 + i]
                new_v *= row_v * edges[e0 + i]
            new[h1 + i] = (h_c + old_weight * (start[h0 + i] - h_c)) + dh
            new[u1 + i] = new_u
            new[v1 + i] = new_v
            carry[pu + i] = to_u
            carry[pv + i] = next_v
            carry[ph + i] = to_h - mass_x * (work[U + i] - work[U + i - one])


@jit
def diagnose(h, u, v, bottom, f, gravity, dx, dy):
    """As `reference.diagnose`."""
    out = np.zeros(7)
    out[DEPTH_MIN] = np.inf
    for r in range(HALO, h.shape[0] - HALO):
        mass = energy = enstrophy = 0.0
        for c in range(HALO, h.shape[1] - HALO):
            depth = h[r, c]
            kinetic = kinetic_energy(u[r, c], u[r, c + 1], v[r, c], v[r + 1, c])
            level = bottom[r, c] if bottom.size else 0.0
            corner = 0.25 * ((h[r - 1, c - 1] + h[r, c - 1]) + (h[r - 1, c] + depth))
            absolute = f[r] + vorticity(u[r - 1, c], u[r, c], v[r, c - 1], v[r, c], 1.0 / dx, 1.0 / dy)
            total, square = depth * (kinetic + gravity * (0.5 * depth + level)), 0.5 * absolute * absolute / corner
            if not (np.isfinite(total + square) and depth > 0.0):
                out[BROKEN] += 1.0
                continue
            mass += depth
            energy += total
            enstrophy += square
            speed = np.sqrt(2.0 * kinetic)
            out[SPEED] = max(out[SPEED], speed)
            out[COURANT_SPEED] = max(out[COURANT_SPEED], speed + np.sqrt(gravity * depth))
            out[DEPTH_MIN] = min(out[DEPTH_MIN], depth)
        out[MASS] += mass
        out[ENERGY] += energy
        out[ENSTROPHY] += enstrophy
    return out
