"""Shallow water with shocks and dry land, Numba: one pass over memory for a stage.

Strips of x are carried upward: a ring of four rows holds depth, surface and velocities; each new row gives the fluxes
through the low faces in y of the row below it, and these complete the row before. All a strip needs stays in the
nearest caches. Loops run over whole blocks of LANES cells, at offsets known when compiled, so that they are vector code
without a tail; lanes beyond the ends hold leftovers and are never stored. Lane i is cell begin + i of the array, halo
included.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.flood.constants import (
    BROKEN,
    DEPTH_MAX,
    DEPTH_MIN,
    ENERGY,
    HALO,
    HU,
    HV,
    MASS,
    RATE,
    ROUNDING,
    SPEED,
    WET,
    H,
)
from hpckit.kernels.flood.numerics import (
    ahead,
    ended,
    face_flux,
    greater,
    half_slope,
    lesser,
    per_depth,
    push,
    rub,
    taken,
)
from hpckit.kernels.parts import INNER

u8 = np.uint64
LANES = 32
BLOCKS = 6
STRIP = BLOCKS * LANES - 2 * HALO  # cells of a strip
FIRST = 8  # where lane 0 stands in a row
PITCH = BLOCKS * LANES + 24  # from row to row
# A cell or a side of it, a row each: depth, surface, velocity along x and along y.
DEPTH, LEVEL, U, V = (u8(k * PITCH) for k in range(4))
# What a face leaves: mass flux, momentum across less the pressure of either side, momentum along, the fastest wave; and
# of the cell above or east of it the push of its surface.
MASS_FLUX, FROM_LOW, FROM_HIGH, ALONG, WAVE, PUSH = (u8(k * PITCH) for k in range(6))
# What is done: the three fields ahead; the greatest wave rate and the least depth, lane by lane.
TOP, BOTTOM = u8(3 * PITCH + FIRST), u8(4 * PITCH + FIRST)


def stage(new, now, start, bottom, weight, dt, physics, found, part):
    if part != INNER:
        _stage(new, now, start, bottom, weight, dt, *physics, found)


@jit(math=STRICT)  # takes numbers one by one: a tuple from Python costs Numba a microsecond
def _stage(new, now, start, bottom, weight, dt, gravity, dx, dy, coriolis, manning, drag, dry, found):
    cells, rows = now.shape[2] - 2 * HALO, now.shape[1]
    memory = np.ones(55 * PITCH + 8)
    memory = memory[(-memory.ctypes.data % 64) // 8 :]  # rows begin where cache lines do
    ring, lows, highs = memory[: 16 * PITCH], memory[16 * PITCH : 20 * PITCH], memory[20 * PITCH : 32 * PITCH]
    faces, done = memory[32 * PITCH : 50 * PITCH], memory[50 * PITCH : 55 * PITCH]
    of_x, one = u8(12 * PITCH + FIRST), u8(1)  # of faces: those in x stand behind two rows of those in y
    highs_x = u8(8 * PITCH + FIRST)
    done[TOP : TOP + u8(BLOCKS * LANES)] = 0.0
    done[BOTTOM : BOTTOM + u8(BLOCKS * LANES)] = np.inf
    for begin in range(0, cells, STRIP):
        width = min(STRIP, cells - begin) + 2 * HALO
        blocks = u8((width + LANES - 1) // LANES)
        for r in range(rows):
            _load(ring, _at(r, 4, 4), now, bottom, u8(r), u8(begin), u8(width))
            _velocities(ring, _at(r, 4, 4), blocks, dry)
            if r >= 2:
                below, above = _at(r - 1, 2, 6), _at(r, 2, 6)
                _sides(ring, _at(r - 2, 4, 4), _at(r - 1, 4, 4), _at(r, 4, 4), lows, highs, _at(r, 2, 4),
                       faces, above, V, U, blocks, gravity)  # fmt: skip
                _fluxes(highs, _at(r - 1, 2, 4), lows, faces, above, blocks, gravity)
            if r >= 4:
                at = _at(r - 2, 4, 4)
                _sides(ring, at - one, at, at + one, lows, highs, highs_x, faces, of_x, U, V, blocks, gravity)
                _fluxes(highs, highs_x - one, lows, faces, of_x, blocks, gravity)
                _advance(done, faces, of_x, below, above, now, u8(r - 2), u8(begin), u8(width),
                         1.0 / dx, 1.0 / dy, dt, coriolis)  # fmt: skip
                if manning > 0.0 or drag > 0.0:
                    _rub_row(done, u8(width), dt, manning * manning, drag, gravity)
                _store(new, start, done, u8(r - 2), u8(begin), u8(width), weight, dry)
    rate, depth = 0.0, np.inf
    for i in range(BLOCKS * LANES):
        rate, depth = max(rate, done[TOP + u8(i)]), min(depth, done[BOTTOM + u8(i)])
    found[0, RATE], found[0, DEPTH_MIN] = rate, depth


@jit
def _at(row, length, fields):
    """Where lane 0 of a row stands in a ring of `length` rows (a power of 2) of `fields` fields."""
    return u8(row & (length - 1)) * u8(fields * PITCH) + u8(FIRST)


@jit(noalias=True, math=STRICT)
def _load(ring, at, now, bottom, row, begin, width):
    for i in range(width):
        h = now[u8(H), row, begin + i]
        ring[at + DEPTH + i] = h
        ring[at + LEVEL + i] = h + bottom[row, begin + i]
        ring[at + U + i] = now[u8(HU), row, begin + i]
        ring[at + V + i] = now[u8(HV), row, begin + i]


@jit(noalias=True, math=STRICT)
def _velocities(ring, at, blocks, dry):
    """Momenta into velocities."""
    for block in range(blocks):
        for lane in range(u8(LANES)):
            i = at + block * u8(LANES) + lane
            factor = per_depth(ring[i + DEPTH], dry)
            ring[i + U] *= factor
            ring[i + V] *= factor


@jit(noalias=True, math=STRICT)
def _sides(ring, before, at, after, lows, highs, high, faces, to, across, along, blocks, gravity):
    """Both sides in a direction of the cells at `at`, and the push of their surfaces; before, after: neighbors."""
    for block in range(blocks):
        for lane in range(u8(LANES)):
            i = block * u8(LANES) + lane
            b, c, a, low, up = before + i, at + i, after + i, u8(FIRST) + i, high + i
            h, level, u, v = ring[c + DEPTH], ring[c + LEVEL], ring[c + across], ring[c + along]
            half_h = half_slope(ring[b + DEPTH], h, ring[a + DEPTH])
            half_level = half_slope(ring[b + LEVEL], level, ring[a + LEVEL])
            half_u = half_slope(ring[b + across], u, ring[a + across])
            half_v = half_slope(ring[b + along], v, ring[a + along])
            lows[low + DEPTH], highs[up + DEPTH] = h - half_h, h + half_h
            lows[low + LEVEL], highs[up + LEVEL] = level - half_level, level + half_level
            lows[low + U], highs[up + U] = u - half_u, u + half_u
            lows[low + V], highs[up + V] = v - half_v, v + half_v
            faces[to + PUSH + i] = push(h, half_level, gravity)


@jit(noalias=True, math=STRICT)
def _fluxes(highs, left, lows, faces, to, blocks, gravity):
    """The low faces of the cells whose low sides stand in `lows`; left: the high sides of the cells before them."""
    for block in range(blocks):
        for lane in range(u8(LANES)):
            i = block * u8(LANES) + lane
            a, b, f = left + i, u8(FIRST) + i, to + i
            mass, low, high, along, wave = face_flux(
                highs[a + DEPTH], highs[a + LEVEL], highs[a + U], highs[a + V],
                lows[b + DEPTH], lows[b + LEVEL], lows[b + U], lows[b + V], gravity)  # fmt: skip
            faces[f + MASS_FLUX] = mass
            faces[f + FROM_LOW] = low
            faces[f + FROM_HIGH] = high
            faces[f + ALONG] = along
            faces[f + WAVE] = wave


@jit(noalias=True, math=STRICT)
def _advance(done, faces, x, low, high, now, row, begin, width, per_dx, per_dy, dt, coriolis):
    """What is ahead of a row, and the wave rate of its cells; x, low, high: where its faces stand."""
    one = u8(1)
    for i in range(u8(HALO), width - u8(HALO)):
        e = i + one
        h, hu, hv = now[u8(H), row, begin + i], now[u8(HU), row, begin + i], now[u8(HV), row, begin + i]
        in_x = taken(faces[x + MASS_FLUX + i], faces[x + MASS_FLUX + e], faces[x + FROM_HIGH + i],
                     faces[x + FROM_LOW + e], faces[x + PUSH + i], faces[x + ALONG + i], faces[x + ALONG + e],
                     per_dx)  # fmt: skip
        in_y = taken(faces[low + MASS_FLUX + i], faces[high + MASS_FLUX + i], faces[low + FROM_HIGH + i],
                     faces[high + FROM_LOW + i], faces[low + PUSH + i], faces[low + ALONG + i],
                     faces[high + ALONG + i], per_dy)  # fmt: skip
        h, hu, hv = ahead(h, hu, hv, in_x, in_y, dt, coriolis)
        done[u8(H * PITCH + FIRST) + i] = h
        done[u8(HU * PITCH + FIRST) + i] = hu
        done[u8(HV * PITCH + FIRST) + i] = hv
        wave_x = greater(faces[x + WAVE + i], faces[x + WAVE + e])
        wave_y = greater(faces[low + WAVE + i], faces[high + WAVE + i])
        done[TOP + i] = greater(done[TOP + i], wave_x * per_dx + wave_y * per_dy)


@jit(noalias=True, math=STRICT)
def _rub_row(done, width, dt, manning_squared, drag, gravity):
    """Bottom friction on what is ahead."""
    for i in range(u8(HALO), width - u8(HALO)):
        h, hu, hv = u8(H * PITCH + FIRST) + i, u8(HU * PITCH + FIRST) + i, u8(HV * PITCH + FIRST) + i
        factor = rub(done[hu], done[hv], done[h], dt, manning_squared, drag, gravity)
        done[hu] *= factor
        done[hv] *= factor


@jit(noalias=True, math=STRICT)
def _store(new, start, done, row, begin, width, weight, dry):
    """The new row, its momenta where it is thin, and the least depth."""
    old = 1.0 - weight
    for i in range(u8(HALO), width - u8(HALO)):
        h = old * start[u8(H), row, begin + i] + weight * done[u8(H * PITCH + FIRST) + i]
        hu = old * start[u8(HU), row, begin + i] + weight * done[u8(HU * PITCH + FIRST) + i]
        hv = old * start[u8(HV), row, begin + i] + weight * done[u8(HV * PITCH + FIRST) + i]
        h, hu, hv = ended(h, hu, hv, dry, ROUNDING * dry)
        done[BOTTOM + i] = lesser(done[BOTTOM + i], h)
        new[u8(H), row, begin + i] = h
        new[u8(HU), row, begin + i] = hu
        new[u8(HV), row, begin + i] = hv


@jit
def diagnose(state, bottom, physics):
    gravity, dry = physics.gravity, physics.dry
    out = np.zeros(6)
    for r in range(HALO, state.shape[1] - HALO):
        mass = energy = 0.0
        for c in range(HALO, state.shape[2] - HALO):
            h = state[H, r, c]
            factor = per_depth(h, dry)
            u, v = state[HU, r, c] * factor, state[HV, r, c] * factor
            total = h * (0.5 * (u * u + v * v) + gravity * (0.5 * h + bottom[r, c]))
            if not (np.isfinite(total + u + v + state[HU, r, c] + state[HV, r, c]) and h >= 0.0):
                out[BROKEN] += 1.0
                continue
            mass += h
            energy += total
            out[SPEED] = max(out[SPEED], math.sqrt(u * u + v * v))
            out[DEPTH_MAX] = max(out[DEPTH_MAX], h)
            out[WET] += h > dry
        out[MASS] += mass
        out[ENERGY] += energy
    return out
