"""Shallow water on a C-grid, Numba: the stages of a step, or of two steps, in one pass over memory, also in place.

Bands of x are carried upward, two rows at a time. Two new rows let the first stage complete the two of which they are
the upper one and the one below, those let the second stage complete two rows, and so on, so that rings of a few rows,
which fit the second-level cache, hold all that the stages need, and a row is written three rows after it was read, or
six. A band is four or eight strips of x side by side, one a lane of a vector (`compile.strips`): its rows are turned as
they come and go, and in between a stage needs neither shuffles nor unaligned loads, of which a row was full. Strips
share a cell for each stage on either side with their neighbors.

A pair of rows of a stage (`simd_row`) completes rows r - 1 and r and leaves what row r + 1 already knows, its southern
half, in `carry`. The second stage writes over the first, and the third over the start of the step, which becomes that
of the next one: a line that is written was read just before. What goes through the second-level cache is what takes
the time. Every stage asks for a third of the next rows while it computes, without which memory would wait for
arithmetic and arithmetic for memory. The bits of a cell depend neither on its lane nor on its strip, nor on which rows
make a pair, nor on how many steps are taken at once.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.compile.strips import LANES, collect, load, spread
from hpckit.kernels.parts import INNER
from hpckit.kernels.shallow_water.constants import (
    AT_ONCE,
    BROKEN,
    COURANT_SPEED,
    DEPTH_MIN,
    ENERGY,
    ENSTROPHY,
    HALO,
    MASS,
    SPEED,
    F,
)
from hpckit.kernels.shallow_water.numerics import kinetic_energy, vorticity
from hpckit.kernels.shallow_water.simd_row import CELLS, PITCH, H, Numbers, U, V, pair_kernel

u8 = np.uint64
STRIP = LANES * CELLS  # cells of a band
# The memory: a ring of eight rows at the start or at the end of a step; for each step, four rows after its first or
# second stage, and what each of its stages carries; the bottom under the eight rows, and factors of the columns.
STAGES = 8 * 3 * PITCH
CARRY = STAGES + AT_ONCE * 4 * 3 * PITCH
GROUND = CARRY + AT_ONCE * 3 * 4 * PITCH
EDGES = GROUND + 8 * PITCH


def step(fields, out, bottom, rows, columns, physics, dt, steps, part):
    if part != INNER:
        _step(*fields, *out, bottom, rows, columns, *physics, dt, steps)


@jit  # takes arrays and numbers one by one: a tuple from Python costs Numba a microsecond
def _step(
    h, u, v, h_out, u_out, v_out, bottom, rows, columns, gravity, dx, dy, viscosity, drag, drag_quadratic, dt, steps
):
    numbers = Numbers(gravity, 1.0 / dx, 1.0 / dy, dy / dx, viscosity, drag, drag_quadratic)
    fields, out, scratch = (h, u, v), (h_out, u_out, v_out), _workspace(h.shape[0])
    if steps == AT_ONCE:
        _full_pairs(fields, out, bottom, rows, columns, dt, numbers, *scratch)
    else:
        _full_bands(fields, out, bottom, rows, columns, dt, numbers, *scratch)


def step_free(fields, out, f, physics, dt, steps, part):
    if part != INNER:
        kernel = _FREE_STEPS[physics.dx == physics.dy]
        kernel(*fields, *out, f, physics.gravity, physics.dx, physics.dy, dt, steps)


def _free_step_kernel(square):
    """square: cells are as long as wide. A run compiles one of the two kernels."""
    bands, pairs = _bands_kernel(False, square, 1), _bands_kernel(False, square, AT_ONCE)

    @jit(key=("free step", square))
    def step_free(h, u, v, h_out, u_out, v_out, f, gravity, dx, dy, dt, steps):
        fields, out = (h, u, v), (h_out, u_out, v_out)
        rows, bottom, columns = np.ones((5, h.shape[0])), np.zeros((0, 0)), np.zeros((3, 0))
        for r in range(f.size):  # not rows[F] = f: Numba compiles its check of shapes, 13 % of all
            rows[F, r] = f[r]
        numbers = Numbers(gravity, 1.0 / dx, 1.0 / dy, dy / dx, 0.0, 0.0, 0.0)
        scratch = _workspace(h.shape[0])
        if steps == AT_ONCE:
            pairs(fields, out, bottom, rows, columns, dt, numbers, *scratch)
        else:
            bands(fields, out, bottom, rows, columns, dt, numbers, *scratch)

    return step_free


@inlined
def _workspace(rows):
    """Scratch for the rings, whose rows begin where cache lines do, for the ends of bands, for the starts of strips."""
    memory = np.ones(EDGES + 3 * PITCH + 16)
    memory = memory[8 + (-memory.ctypes.data % 64) // 8 :]
    return memory, np.zeros((3, rows, AT_ONCE * HALO)), np.zeros(LANES, np.int64)


def _bands_kernel(full, square, steps):
    """The walk over all bands, each from its lowest row to its highest, for one of the forms of `pair_kernel`."""
    first, second, third = PAIRS[full, square]
    halo = HALO * steps

    @jit(borrowed=True, key=(full, square, steps))
    def bands(fields, out, bottom, rows, columns, dt, numbers, memory, kept, strips):
        """kept: the last cells of the band to the left, as they were. strips: where strips begin in a band."""
        h, u, v = fields
        flat_h, flat_u, flat_v, flat_bottom = h.reshape(-1), u.reshape(-1), v.reshape(-1), bottom.reshape(-1)
        h_out, u_out, v_out = out[0].reshape(-1), out[1].reshape(-1), out[2].reshape(-1)
        cells = h.shape[1] - 2 * halo
        count = (cells + STRIP - 1) // STRIP
        for band in range(count):
            begin, stop = cells * band // count, cells * (band + 1) // count
            width = _cut(strips, stop - begin, halo)
            if full:
                for k in range(3):
                    _fill(memory, EDGES + k * PITCH, columns.reshape(-1), k * columns.shape[1] + begin, strips, width)
            for pair in range(0, h.shape[0], 2):
                for r in range(pair, min(pair + 2, h.shape[0])):
                    at = _start(r)
                    _fill(memory, at + H, flat_h, r * h.shape[1] + begin, strips, width)
                    _fill(memory, at + U, flat_u, r * u.shape[1] + begin, strips, width)
                    _fill(memory, at + V, flat_v, r * v.shape[1] + begin, strips, width)
                    for k, field in enumerate((h, u, v)):
                        _swap_kept(memory, at + k * PITCH, kept, k, field, r, begin, stop, halo)
                    if full:
                        _fill(memory, _ground(r), flat_bottom, r * bottom.shape[1] + begin, strips, width)
                h_next, u_next = (pair + 2) * h.shape[1] + begin, (pair + 2) * u.shape[1] + begin
                v_next = (pair + 2) * v.shape[1] + begin
                for k in range(steps):
                    r, c = pair - k * HALO, k * HALO
                    if r >= c:
                        low, up = _start(r - 1), _start(r)
                        first(memory, (low, up, _start(r + 1)), (low, up), (_stage(k, r - 1), _stage(k, r)),
                              _carry(k, 0), (_ground(r - 1), _ground(r)), EDGES, (c, width - c), dt, numbers, rows, r,
                              (flat_h, h_next, h_next + h.shape[1]))  # fmt: skip
                    if r >= c + 2:
                        low, up = _stage(k, r - 2), _stage(k, r - 1)
                        second(memory, (low, up, _stage(k, r)), (_start(r - 2), _start(r - 1)), (low, up),
                               _carry(k, 1), (_ground(r - 2), _ground(r - 1)), EDGES, (c + 1, width - c - 1), dt,
                               numbers, rows, r - 1, (flat_u, u_next, u_next + u.shape[1]))  # fmt: skip
                    if r >= c + 4:
                        low, up = _start(r - 3), _start(r - 2)
                        third(memory, (_stage(k, r - 3), _stage(k, r - 2), _stage(k, r - 1)), (low, up), (low, up),
                              _carry(k, 2), (_ground(r - 3), _ground(r - 2)), EDGES, (c + 2, width - c - 2), dt,
                              numbers, rows, r - 2, (flat_v, v_next, v_next + v.shape[1]))  # fmt: skip
                for r in range(max(pair - halo, halo), min(pair - halo + 2, h.shape[0] - halo)):
                    at = _start(r)
                    _put(h_out, r * h.shape[1] + begin, strips, memory, at + H, width, halo)
                    _put(u_out, r * u.shape[1] + begin, strips, memory, at + U, width, halo)
                    _put(v_out, r * v.shape[1] + begin, strips, memory, at + V, width, halo)

    return bands


@inlined
def _cut(strips, cells, halo):
    """Where the strips of a band of so many cells begin, and their width with the halo; the last ones may overlap."""
    own = max(2, (cells + LANES - 1) // LANES)
    for lane in range(LANES):
        strips[lane] = min(lane * own, cells - own)
    return own + 2 * halo


@inlined
def _start(r):
    """Where row r stands before its step, and after it."""
    return (r & 7) * (3 * PITCH)


@inlined
def _ground(r):
    """Where the bottom under row r stands."""
    return GROUND + (r & 7) * PITCH


@inlined
def _stage(k, r):
    """Where row r of step k stands after the first stage, and after the second."""
    return STAGES + (4 * k + (r & 3)) * (3 * PITCH)


@inlined
def _carry(k, stage):
    return CARRY + (3 * k + stage) * (4 * PITCH)


@jit(noalias=True, borrowed=True)
def _fill(ring, at, field, place, strips, width):
    """The row of a field from `place` on into a ring."""
    for j in range(0, width - 1, 2):
        spread(field, place + j, strips, ring, at + LANES * (j + 1))
    if width % 2 == 1:
        spread(field, place + width - 2, strips, ring, at + LANES * (width - 1))


@inlined
def _swap_kept(ring, at, kept, k, field, row, begin, stop, halo):
    """Put back what the band to the left overwrote, and keep what this one will."""
    for i in range(u8(halo)):
        if begin > 0:
            ring[u8(at + LANES) + u8(LANES) * i] = kept[u8(k), u8(row), i]
        kept[u8(k), u8(row), i] = field[u8(row), u8(stop) + i]


@jit(noalias=True, borrowed=True)
def _put(field, place, strips, done, at, width, halo):
    """The owned cells of a row of results to where they belong."""
    end = width - halo - 1
    for j in range(halo, end, 2):
        _put_two(field, place, strips, done, at, j)
    if width % 2 == 1:
        _put_two(field, place, strips, done, at, end - 1)


@inlined
def _put_two(field, place, strips, done, at, j):
    collect(field, place + j, strips, load(done, at + LANES * (j + 1)), load(done, at + LANES * (j + 2)))


FORMS = (False, False), (False, True), (True, False)  # full, square
PAIRS = {form: tuple(pair_kernel(*form, stage) for stage in range(3)) for form in FORMS}
_full_bands, _full_pairs = (_bands_kernel(True, False, steps) for steps in (1, AT_ONCE))
_FREE_STEPS = {square: _free_step_kernel(square) for square in (False, True)}


@jit
def diagnose(fields, bottom, f, physics, halo):
    h, u, v = fields
    gravity, dx, dy = physics.gravity, physics.dx, physics.dy
    out = np.zeros(7)
    out[DEPTH_MIN] = np.inf
    for r in range(halo, h.shape[0] - halo):
        mass = energy = enstrophy = 0.0
        for c in range(halo, h.shape[1] - halo):
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
