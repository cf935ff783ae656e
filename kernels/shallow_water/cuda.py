"""Shallow water on a C-grid, CUDA: the three stages of a step in one pass over memory, into other arrays.

A block of threads carries a tile, a thread a column of it, along y. A new row of a stage lets each thread compute what
belongs to the low corner of its cell there (`_corner`) and then, with what its neighbors found, the row below for the
next stage (`_complete`). The stages run two rows behind each other, so that a row is written five rows after it was
read. Neighbors meet in shared memory, twice a row for all three stages; what a thread itself still needs of the row
before stays in registers. A tile has three cells on either side that it shares with its neighbors, a chunk of rows too.

The functions are those of `reference`, for arrays of the device of one precision, float64 or float32; only `diagnose`
waits for the device. The arithmetic is that of `simd`: `_corner` is the first loop of a row there, `_complete` the
second.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.cuda.pieces import in_precision
from hpckit.kernels.compile.cuda.tiling import Tiling, rectangles, tiling
from hpckit.kernels.compile.cuda.watch import watch
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.shallow_water.constants import CORNER, FACE, HALO, STRESS, WATER, F, Physics
from hpckit.kernels.shallow_water.numerics import friction, kinetic_energy, settle, vorticity

real, u8 = np.float64, np.uint64
PITCH = 128  # threads of a block at most
MOST_CELLS = PITCH - 2 * HALO  # of a tile
WARP = threads(32)
FEWEST_ROWS = 16  # of a chunk
# Blocks that an H200 holds at once, by itemsize and form (of 132 multiprocessors with 65536 registers each): with no
# more of them there is no second round.
SLOTS = {(8, False): 132 * 3, (8, True): 132 * 2, (4, False): 132 * 5, (4, True): 132 * 4}
# What neighbors show each other, by stage: the new row, and at its corners q h u, h u, Bernoulli function, vorticity.
H, U, V, ROTATION, FLUX, ENERGY, ZETA = range(7)
SHOWN = 3 * 7 * PITCH
# Registers of a thread, by stage: the row below (and, of its neighbors, the western h and v and the eastern u), the new
# row; what the second half needs of the first; what the row below gets from the row below that.
ROW, MADE, CARRIED = 6, 3, 3
ALL_ROWS, ALL_NEW, ALL_MADE, ALL_CARRIED = 3 * ROW, 3 * ROW, 3 * MADE, 3 * CARRIED
Fields = tuple[Any, Any, Any]


def step(
    fields: Fields, out: Fields, bottom: Any, rows: Any, columns: Any, physics: Physics, dt: float, steps: int,
    part: int,
) -> None:  # fmt: skip
    _step(True, fields, out, (bottom, rows, columns), physics, dt, part)


def step_free(fields: Fields, out: Fields, f: Any, physics: Physics, dt: float, steps: int, part: int) -> None:
    rows = f.reshape(1, -1)
    _step(False, fields, out, (rows, rows, rows), Physics(physics.gravity, physics.dx, physics.dy), dt, part)


def _step(full: bool, fields: Fields, out: Fields, tables: tuple, physics: Physics, dt: float, part: int) -> None:
    h, (gravity, dx, dy, *forces) = fields[0], physics
    cut = _tiling(h, full)
    numbers = tuple(h.dtype.type(number) for number in (dt, gravity, 1.0 / dx, 1.0 / dy, *forces))
    for tile, many, chunk, chunks in rectangles(_shape(h), cut, HALO, part):
        step_kernel(h.dtype, full)[(many, chunks), blocks(cut.cells + 2 * HALO, WARP) * WARP](
            *fields, *out, *tables, numbers, (tile, cut.cells, chunk, cut.rows)
        )


def _tiling(h: Any, full: bool) -> Tiling:
    return tiling(_shape(h), MOST_CELLS, FEWEST_ROWS, SLOTS[h.dtype.itemsize, full])


def _shape(h: Any) -> tuple[int, int]:
    """Owned rows and cells."""
    return h.shape[0] - 2 * HALO, h.shape[1] - 2 * HALO


@functools.cache
def step_kernel(dtype: np.dtype, full: bool) -> Kernel:
    """The kernel; full: with bottom, walls, friction and forcing."""
    return kernel(in_precision(_kernel_of(full), dtype))


def _kernel_of(full: bool) -> Any:
    def advance(h, u, v, h_out, u_out, v_out, bottom, rows, columns, numbers, layout):
        """A column of a tile, one chunk of rows; the grid is tiles, chunks. layout: first tile, cells of a tile, first
        chunk, rows of a chunk.
        """
        dt = numbers[0]
        tile, cells, chunk, chunk_rows = layout
        thread = cuda.threadIdx.x
        east = min(thread + 1, cuda.blockDim.x - 1)
        column = (tile + cuda.blockIdx.x) * cells + thread
        owned = HALO <= thread < cells + HALO and column < h.shape[1] - HALO
        column = min(column, h.shape[1] - 1)  # threads beyond the grid repeat its last column
        low = (chunk + cuda.blockIdx.y) * chunk_rows
        high = min(low + chunk_rows, h.shape[0] - 2 * HALO)
        shown = cuda.shared.array(SHOWN, real)
        below, new = cuda.local.array(ALL_ROWS, real), cuda.local.array(ALL_NEW, real)
        made, carried = cuda.local.array(ALL_MADE, real), cuda.local.array(ALL_CARRIED, real)
        edges = cuda.local.array(3, real)
        for k in range(ALL_ROWS):
            below[k] = 1.0
            new[k] = 1.0
        for k in range(ALL_CARRIED):
            carried[k] = 0.0
        for k in range(3):
            edges[k] = columns[u8(k), u8(column)] if full else 1.0
        next_h, next_u, next_v = h[u8(low), u8(column)], u[u8(low), u8(column)], v[u8(low), u8(column)]
        for row in range(low, high + 8):
            new[0], new[1], new[2] = next_h, next_u, next_v
            if row + 1 < high + 2 * HALO:  # on its way while this row is computed
                next_h, next_u = h[u8(row + 1), u8(column)], u[u8(row + 1), u8(column)]
                next_v = v[u8(row + 1), u8(column)]
            _show(shown, new, thread)
            cuda.syncthreads()
            _corner(0, row, shown, below, new, made, thread, east, column, rows, bottom, edges, numbers, full)
            _corner(1, row - 2, shown, below, new, made, thread, east, column, rows, bottom, edges, numbers, full)
            _corner(2, row - 4, shown, below, new, made, thread, east, column, rows, bottom, edges, numbers, full)
            cuda.syncthreads()
            done = _complete(2, row - 4, 1.0 / 3.0, 2.0 / 3.0 * dt, h, u, v, shown, below, new, made, carried, thread,
                             east, column, rows, edges, numbers, full)  # fmt: skip
            if owned and row - 5 >= low + HALO:
                h_out[u8(row - 5), u8(column)] = done[0]
                u_out[u8(row - 5), u8(column)] = done[1]
                v_out[u8(row - 5), u8(column)] = done[2]
            done = _complete(1, row - 2, 0.75, 0.25 * dt, h, u, v, shown, below, new, made, carried, thread,
                             east, column, rows, edges, numbers, full)  # fmt: skip
            new[2 * ROW], new[2 * ROW + 1], new[2 * ROW + 2] = done[0], done[1], done[2]
            done = _complete(0, row, 0.0, dt, h, u, v, shown, below, new, made, carried, thread,
                             east, column, rows, edges, numbers, full)  # fmt: skip
            new[ROW], new[ROW + 1], new[ROW + 2] = done[0], done[1], done[2]

    return advance


@inlined
def _show(shown, new, thread):
    """The new rows of all stages to the neighbors."""
    for stage in range(3):
        for k in range(3):
            shown[u8((7 * stage + k) * PITCH + thread)] = new[ROW * stage + k]


@inlined
def _inside(row, rows):
    """The row, or the nearest one that is there: what is made of others is not used."""
    return min(max(row, 0), rows.shape[1] - 1)


@inlined
def _corner(stage, row, shown, below, new, made, thread, east, column, rows, bottom, edges, numbers, full):
    """What the new row `row` of a stage tells about its low corners, and about the cells below it."""
    _, gravity, per_dx, per_dy, viscosity, _, _ = numbers
    place, at, to, r = 7 * stage * PITCH, ROW * stage, MADE * stage, u8(_inside(row, rows))
    west = max(thread - 1, 0)
    h_s, u_s, v_s, h_sw, u_se = below[at], below[at + 1], below[at + 2], below[at + 3], below[at + 5]
    h_n, u_n, v_n = new[at], new[at + 1], new[at + 2]
    h_nw, v_nw = shown[u8(place + H * PITCH + west)], shown[u8(place + V * PITCH + west)]
    new[at + 3], new[at + 4], new[at + 5] = h_nw, v_nw, shown[u8(place + U * PITCH + east)]
    zeta = vorticity(u_s, u_n, v_nw, v_n, per_dx, per_dy)
    level = h_s
    if full:
        zeta = zeta * (rows[CORNER, r] * edges[CORNER])
        level = h_s + bottom[u8(_inside(row - 1, rows)), u8(column)]
    of_west, of_east = h_sw + h_nw, h_s + h_n
    q = (rows[F if full else 0, r] + zeta) / (of_west + of_east)
    flux_v, flux_u = of_east * v_n, (h_nw + h_n) * u_n
    energy = gravity * level + kinetic_energy(u_s, u_se, v_s, v_n)
    if full:
        energy -= viscosity * ((u_se - u_s) * per_dx + (v_n - v_s) * per_dy)
        shown[u8(place + ZETA * PITCH + thread)] = zeta
    shown[u8(place + ROTATION * PITCH + thread)] = q * (flux_u + (h_sw + h_s) * u_s)
    shown[u8(place + FLUX * PITCH + thread)] = flux_u
    shown[u8(place + ENERGY * PITCH + thread)] = energy
    made[to], made[to + 1], made[to + 2] = q * (flux_v + of_west * v_nw), flux_v, energy


@inlined
def _complete(
    stage, row, old_weight, step, h, u, v, shown, below, new, made, carried, thread, east, column, rows, edges, numbers,
    full,
):  # fmt: skip
    """The row below `row` of the next stage: h, u, v. The new row becomes the row below."""
    _, _, per_dx, per_dy, viscosity, drag, drag_quadratic = numbers
    place, at, to, keep = 7 * stage * PITCH, ROW * stage, MADE * stage, CARRIED * stage
    west, south = max(thread - 1, 0), u8(_inside(row - 1, rows))
    half, by_x, by_y = 0.5 * step, step * per_dx, step * per_dy
    h_s, u_s, v_s = below[at], below[at + 1], below[at + 2]
    energy, rotation = made[to + 2], shown[u8(place + ROTATION * PITCH + thread)]
    to_u, to_v, to_h = half * made[to], by_y * energy, 0.5 * by_y * made[to + 1]
    du = (carried[keep + 1] + to_u) - by_x * (energy - shown[u8(place + ENERGY * PITCH + west)])
    dv, dh = carried[keep + 2] - to_v, carried[keep] - to_h
    next_v = to_v - half * (rotation + shown[u8(place + ROTATION * PITCH + east)])
    next_h = to_h - 0.5 * by_x * (shown[u8(place + FLUX * PITCH + east)] - shown[u8(place + FLUX * PITCH + thread)])
    if full:
        zeta = shown[u8(place + ZETA * PITCH + thread)]
        curl = viscosity * by_y * zeta
        across = (below[at + 4] + v_s) + (new[at + 4] + new[at + 2])
        du = du - curl + step * friction(u_s, across, below[at + 3] + h_s, rows[STRESS, south], drag, drag_quadratic)
        to_u += curl
        next_v += viscosity * by_x * (shown[u8(place + ZETA * PITCH + east)] - zeta)
        across = (u_s + below[at + 5]) + (new[at + 1] + new[at + 5])
        next_v += step * friction(new[at + 2], across, h_s + new[at], 0.0, drag, drag_quadratic)
    carried[keep], carried[keep + 1], carried[keep + 2] = next_h, to_u, next_v
    h_d, u_d, v_d = h_s, u_s, v_s
    if stage > 0:
        h_d += old_weight * (h[south, u8(column)] - h_s)
        u_d += old_weight * (u[south, u8(column)] - u_s)
        v_d += old_weight * (v[south, u8(column)] - v_s)
    u_d += du
    v_d += dv
    if stage == 2:
        u_d, v_d = settle(u_d), settle(v_d)
    if full:
        u_d *= rows[WATER, south] * edges[FACE]
        v_d *= rows[FACE, south] * edges[WATER]
    for k in range(ROW):
        below[at + k] = new[at + k]
    return h_d + dh, u_d, v_d


def diagnose(fields: tuple[Any, Any, Any], bottom: Any, f: Any, physics: Physics, halo: int) -> np.ndarray:
    (h, u, v), (gravity, dx, dy, *_) = fields, physics
    width = h.shape[1] - 2 * halo
    cells = (h.shape[0] - 2 * halo) * width
    topography = (bottom.size > 0) * 1.0
    arrays = (h, u, v, bottom if bottom.size else h, f)
    found = watch(_add_cell, 4, 3, cells, arrays, (width, halo), (gravity, 1.0 / dx, 1.0 / dy, topography))
    mass, energy, enstrophy, broken, speed, courant_speed, depth_min = found
    if broken == cells:
        speed = courant_speed = 0.0
    return np.array([mass, energy, enstrophy, speed, courant_speed, -depth_min, broken])


@inlined
def _add_cell(own, index, h, u, v, bottom, f, layout, numbers):
    """Sums of depth, energy, enstrophy and lost cells; speed, that plus the waves', and the depth less than nothing."""
    gravity, per_dx, per_dy, topography = numbers
    r, c, one = u8(index // layout[0] + layout[1]), u8(index % layout[0] + layout[1]), u8(1)
    depth = h[r, c]
    kinetic = kinetic_energy(u[r, c], u[r, c + one], v[r, c], v[r + one, c])
    corner = 0.25 * ((h[r - one, c - one] + h[r, c - one]) + (h[r - one, c] + depth))
    absolute = f[r] + vorticity(u[r - one, c], u[r, c], v[r, c - one], v[r, c], per_dx, per_dy)
    level = bottom[r, c] if topography > 0.0 else 0.0
    total, square = depth * (kinetic + gravity * (0.5 * depth + level)), 0.5 * absolute * absolute / corner
    if math.isfinite(total + square) and depth > 0.0:
        speed = math.sqrt(2.0 * kinetic)
        own[0] += depth
        own[1] += total
        own[2] += square
        own[4] = max(own[4], speed)
        own[5] = max(own[5], speed + math.sqrt(gravity * depth))
        own[6] = max(own[6], -depth)
    else:
        own[3] += 1.0
