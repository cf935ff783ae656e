"""Shallow water on a C-grid, Numba: the three stages of a step in one pass over memory, in place.

Strips of x are carried upward. Each new row lets the first stage complete the row below it, that one lets the second
stage complete the row below, and so on, so that rings of a few rows, which fit the second-level cache, hold all that
the stages need, and a row is written three rows after it was read. A row of a stage is one loop, bound by its loads:
it completes row r - 1 and leaves what row r already knows (its southern half) in `carry`, where v and h of cell i - 1
stand at lane i, so that stores are aligned. Every stage asks for a third of the next row while it computes, without
which memory would wait for arithmetic and arithmetic for memory.

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
from hpckit.kernels.simd import prefetch

u8 = np.uint64
LANES = 32
STRIP = 32 * LANES - 2 * HALO  # cells of a strip, beside its halo
FIRST = 8  # where lane 0 stands in a row
PITCH = 32 * LANES + 24  # from row to row
LINE = 8  # numbers in a cache line


@jit
def step(h, u, v, bottom, rows, columns, gravity, dx, dy, dt, viscosity, drag, drag_quadratic):
    """As `reference.step`."""
    numbers = (gravity, 1.0 / dx, 1.0 / dy, dy / dx, viscosity, drag, drag_quadratic)
    _full_strips(h, u, v, bottom, rows, columns, dt, numbers, *_workspace(h.shape[0]))


@jit
def step_free(h, u, v, f, gravity, dx, dy, dt):
    """As `reference.step_free`."""
    rows, bottom, columns = np.ones((5, h.shape[0])), np.zeros((0, 0)), np.zeros((3, 0))
    rows[F] = f
    numbers = (gravity, 1.0 / dx, 1.0 / dy, dy / dx, 0.0, 0.0, 0.0)
    if dx == dy:
        _square_strips(h, u, v, bottom, rows, columns, dt, numbers, *_workspace(h.shape[0]))
    else:
        _free_strips(h, u, v, bottom, rows, columns, dt, numbers, *_workspace(h.shape[0]))


@inlined
def _workspace(rows):
    """Scratch for the rings, whose rows begin where cache lines do, and for the ends of strips."""
    memory = np.ones(43 * PITCH + LINE)
    return memory[(-memory.ctypes.data % 64) // 8 :], np.zeros((3, rows, HALO))


def _strips_kernel(full, square):
    """The walk over all strips, each from its lowest row to its highest, for one of the forms of `_row`."""
    first_row, next_row = ROWS[full, square]

    @jit(borrowed=True, key=(full, square))
    def strips(h, u, v, bottom, rows, columns, dt, numbers, memory, kept):
        """kept: the last cells of the strip to the left, as they were."""
        cells = h.shape[1] - 2 * HALO
        start, one, two = memory[: 16 * PITCH], memory[16 * PITCH : 22 * PITCH], memory[22 * PITCH : 28 * PITCH]
        done, edges = memory[28 * PITCH : 31 * PITCH], memory[31 * PITCH : 34 * PITCH]
        carry = memory[34 * PITCH : 43 * PITCH].reshape((3, 3 * PITCH))
        ahead_h, ahead_u, ahead_v = h.reshape(-1), u.reshape(-1), v.reshape(-1)
        for begin in range(0, cells, STRIP):
            width = min(STRIP, cells - begin) + 2 * HALO
            blocks = u8((width + LANES - 1) // LANES)
            for k in range(3):
                _load(edges, u8(k * PITCH), columns, k, begin, min(width, columns.shape[1]))
            for r in range(h.shape[0]):
                at, soon = _at(r, 4, 4), r + 1
                for k, field in enumerate((h, u, v)):
                    _load(start, at + u8(k * PITCH), field, r, begin, width)
                    _swap_kept(start, at + u8(k * PITCH), kept, k, r, begin, width)
                _load(start, at + u8(3 * PITCH), bottom, r, begin, min(width, bottom.shape[1]))
                if r >= 1:
                    first_row(start, _at(r - 1, 4, 4), at, start, _at(r - 1, 4, 4), one, _at(r - 1, 2, 3), carry[0],
                              edges, blocks, 0.0, 1.0, dt, numbers, rows, r,
                              ahead_h, soon * h.shape[1] + begin)  # fmt: skip
                if r >= 3:
                    next_row(one, _at(r - 2, 2, 3), _at(r - 1, 2, 3), start, _at(r - 2, 4, 4), two, _at(r - 2, 2, 3),
                             carry[1], edges, blocks, 0.75, 0.25, dt, numbers, rows, r - 1,
                             ahead_u, soon * u.shape[1] + begin)  # fmt: skip
                if r >= 5:
                    next_row(two, _at(r - 3, 2, 3), _at(r - 2, 2, 3), start, _at(r - 3, 4, 4), done, u8(0),
                             carry[2], edges, blocks, 1.0 / 3.0, 2.0 / 3.0, dt, numbers, rows, r - 2,
                             ahead_v, soon * v.shape[1] + begin)  # fmt: skip
                if r >= 2 * HALO:
                    _store(h, r - HALO, begin, done, u8(0), width, False)
                    _store(u, r - HALO, begin, done, u8(PITCH), width, True)
                    _store(v, r - HALO, begin, done, u8(2 * PITCH), width, True)

    return strips


@inlined
def _at(row, length, fields):
    """Where a row stands in a ring of `length` rows (a power of 2) of `fields` fields."""
    return u8(row & (length - 1)) * u8(fields * PITCH)


@jit(noalias=True, borrowed=True)
def _load(ring, at, field, row, begin, width):
    for i in range(u8(width)):
        ring[at + u8(FIRST) + i] = field[u8(row), u8(begin) + i]


@jit(noalias=True, borrowed=True)
def _swap_kept(ring, at, kept, k, row, begin, width):
    """Put back what the strip to the left overwrote, and keep what this one will."""
    for i in range(u8(HALO)):
        if begin > 0:
            ring[at + u8(FIRST) + i] = kept[u8(k), u8(row), i]
        kept[u8(k), u8(row), i] = ring[at + u8(FIRST + width - 2 * HALO) + i]


@jit(noalias=True, borrowed=True)
def _store(field, row, begin, done, at, width, settled):
    for i in range(u8(HALO), u8(width - HALO)):
        value = done[at + u8(FIRST) + i]
        field[u8(row), u8(begin) + i] = settle(value) if settled else value


def _row_kernel(full, square, first):
    """`_row` as a function of its own."""

    @jit(noalias=True, borrowed=True, key=(full, square, first))
    def row(now, below, above, start, old, new, to, carry, edges, blocks, old_weight, weight, dt, numbers, rows, r,
            ahead, ahead_at):  # fmt: skip
        _row(now, below, above, start, old, new, to, carry, edges, blocks, old_weight, weight, dt, numbers, rows,
             u8(r), ahead, ahead_at, full, square, first)  # fmt: skip

    return row


@inlined
def _row(now, below, above, start, old, new, to, carry, edges, blocks, old_weight, weight, dt, numbers, rows, r,
         ahead, ahead_at, full, square, first):  # fmt: skip
    """One row of one stage: new = now + old_weight * (start - now) + weight * dt * tendency(now), row r - 1.

    below, above: where rows r - 1 and r stand in `now`, each h, u, v; old: row r - 1 in `start`, where the bottom is
    the fourth field; to: row r - 1 in `new`. full: with bottom, walls, friction and forcing; square: dx is dy; first:
    of the first stage, where `now` is `start`. ahead, ahead_at: from where in memory the next rows will be read.

    Weights add up to 1, and in this form what is at rest stays so to the bit: there every difference is one of equal
    rounded numbers. Factors of averages stand in the coefficients: q holds half of the step, `energy` is the Bernoulli
    function times step / dy. What lane i needs of lane i - 1 (names that end in _w) stays in registers.
    """
    gravity, per_dx, per_dy, slant, viscosity, drag, drag_quadratic = numbers
    one, two, lanes, pitch, lane0 = u8(1), u8(2), u8(LANES), u8(PITCH), u8(FIRST)
    step = weight * dt
    by_x, by_y = step * per_dx, step * per_dy
    quarter_y, mass_x, mass_y = 0.25 * by_y, 0.5 * by_x, 0.5 * by_y
    if square:
        mass_y = mass_x
    half, half_per_dx, half_per_dy = 0.5 * step, mass_x, mass_y
    curl_x, curl_y = viscosity * by_x, viscosity * by_y
    gravity_four, viscosity_four = 4.0 * gravity, 4.0 * viscosity
    f, corner_row, stress = rows[u8(F), r], rows[u8(CORNER), r], rows[u8(STRESS), r - one]
    row_u, row_v = rows[u8(WATER), r - one], rows[u8(FACE), r - one]
    half_f = half * f
    hm, hc = below + lane0, above + lane0
    um, uc, vm, vc = hm + pitch, hc + pitch, hm + two * pitch, hc + two * pitch
    h0 = old + lane0
    u0, v0, b0 = h0 + pitch, h0 + two * pitch, h0 + u8(3) * pitch
    h1 = to + lane0
    u1, v1 = h1 + pitch, h1 + two * pitch
    ph, pu, pv = lane0, lane0 + pitch, lane0 + two * pitch
    energy_w = across_w = flux_u_w = zeta_w = 1.0
    for block in range(blocks):
        begin = block * lanes
        for line in range(LANES // LINE):
            prefetch(ahead, ahead_at + np.int64(begin) + line * LINE)
        for lane in range(lanes):
            i = begin + lane
            h_sw, h_s, h_nw, h_n = now[hm + i - one], now[hm + i], now[hc + i - one], now[hc + i]
            u_s, u_n, v_w, v_e = now[um + i], now[uc + i], now[vc + i - one], now[vc + i]
            u_e, v_s = now[um + i + one], now[vm + i]
            west, east, south = h_sw + h_nw, h_s + h_n, h_sw + h_s
            zeta = 0.0
            if full:
                zeta = vorticity(u_s, u_n, v_w, v_e, per_dx, per_dy) * (corner_row * edges[two * pitch + lane0 + i])
                absolute = half_f + half * zeta
            elif square:
                absolute = half_f + half_per_dx * ((v_e - v_w) - (u_n - u_s))
            else:
                absolute = half_f + half_per_dx * (v_e - v_w) - half_per_dy * (u_n - u_s)
            q = absolute / (west + east)
            flux_v_w, flux_v, flux_u = west * v_w, east * v_e, (h_nw + h_n) * u_n
            to_u = q * (flux_v + flux_v_w)
            across = q * (flux_u + south * u_s)
            energy = gravity_four * h_s
            if full:
                energy = gravity_four * (h_s + start[b0 + i])
                energy -= viscosity_four * ((u_e - u_s) * per_dx + (v_e - v_s) * per_dy)
            energy = quarter_y * (energy + u_s * u_s + u_e * u_e + v_s * v_s + v_e * v_e)
            if square:
                du = (carry[pu + i] + to_u) - (energy - energy_w)
            else:
                du = (carry[pu + i] + to_u) - slant * (energy - energy_w)
            dv = carry[pv + i + one] - energy
            dh = carry[ph + i + one] - mass_y * flux_v
            next_v = energy_w - (across_w + across)
            if full:
                v_sw = now[vm + i - one]
                curl = curl_y * zeta
                du = du - curl + step * friction(u_s, (v_sw + v_s) + (v_w + v_e), south, stress, drag, drag_quadratic)
                to_u += curl
                four_u = (now[um + i - one] + u_s) + (now[uc + i - one] + u_n)
                next_v += curl_x * (zeta - zeta_w) + step * friction(v_w, four_u, west, 0.0, drag, drag_quadratic)
            if first:
                new_h, new_u, new_v = h_s + dh, u_s + du, v_s + dv
            else:
                new_h = (h_s + old_weight * (start[h0 + i] - h_s)) + dh
                new_u = (u_s + old_weight * (start[u0 + i] - u_s)) + du
                new_v = (v_s + old_weight * (start[v0 + i] - v_s)) + dv
            if full:
                new_u *= row_u * edges[pitch + lane0 + i]
                new_v *= row_v * edges[lane0 + i]
            new[h1 + i] = new_h
            new[u1 + i] = new_u
            new[v1 + i] = new_v
            carry[pu + i] = to_u
            carry[pv + i] = next_v
            if square:
                carry[ph + i] = mass_x * (flux_v_w - (flux_u - flux_u_w))
            else:
                carry[ph + i] = mass_y * flux_v_w - mass_x * (flux_u - flux_u_w)
            energy_w, across_w, flux_u_w, zeta_w = energy, across, flux_u, zeta


FORMS = (False, False), (False, True), (True, False)  # full, square
ROWS = {form: (_row_kernel(*form, True), _row_kernel(*form, False)) for form in FORMS}  # of the first, a later stage
_free_strips, _square_strips, _full_strips = (_strips_kernel(*form) for form in FORMS)


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
