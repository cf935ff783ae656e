"""Shallow water with shocks and dry land, CUDA: a stage in one pass over memory.

A block of threads carries a tile, a thread a column of it, along y. With a new row a thread knows the row before from
both sides and so the faces between that one and the row before it, and these complete the oldest of the three: for its
faces in x the threads show each other, in shared memory, the row, then the eastern sides of their cells, then the
fluxes. What a thread itself needs of other rows stays in registers. A tile has two cells on either side that it shares
with its neighbors, a chunk of rows too.

The functions are those of `reference`, for arrays of the device of one precision, float64 or float32. Only `diagnose`
waits for the device.
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
from hpckit.kernels.device_array import from_host
from hpckit.kernels.flood.constants import DEPTH_MIN, HALO, HU, HV, RATE, ROUNDING, H, Physics
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

real, u8 = np.float64, np.uint64
PITCH = 128  # threads of a block at most
MOST_CELLS = PITCH - 2 * HALO  # of a tile
WARP = threads(32)
FEWEST_ROWS = 16  # of a chunk
SLOTS = {8: 132 * 4, 4: 132 * 8}  # blocks that an H200 holds at once, by itemsize
# What neighbors show each other: a cell, its eastern side, what its western face leaves and the fastest wave there.
DEPTH, LEVEL, U, V = range(4)
CELL, SIDE, FACE = 0, 4 * PITCH, 8 * PITCH
MASS_FLUX, FROM_LOW, FROM_HIGH, ALONG, WAVE = range(5)
SHOWN = 13 * PITCH


def stage(
    new: Any, now: Any, start: Any, bottom: Any, weight: float, dt: float, physics: Physics, found: Any, part: int
) -> None:
    gravity, dx, dy, coriolis, manning, drag, dry = physics
    cut = _tiling(now)
    slack = dry * (ROUNDING if now.dtype == np.float64 else 1.0)
    values = (weight, gravity, 1.0 / dx, 1.0 / dy, dt, coriolis, manning * manning, drag, dry, slack)
    numbers, rubbed = tuple(now.dtype.type(value) for value in values), manning > 0.0 or drag > 0.0
    for tile, many, chunk, chunks in rectangles(_shape(now), cut, HALO, part):
        stage_kernel(now.dtype, rubbed)[(many, chunks), blocks(cut.cells + 2 * HALO, WARP) * WARP](
            new, now, start, bottom, found, numbers, (tile, cut.cells, chunk, cut.rows, cut.tiles)
        )


def found_by(state: Any) -> Any:
    """An array for what each block of a stage finds: the greatest wave rate and the least depth."""
    cut = _tiling(state)
    return from_host(np.zeros((cut.tiles * cut.chunks, 2), state.dtype), state)


def _tiling(state: Any) -> Tiling:
    return tiling(_shape(state), MOST_CELLS, FEWEST_ROWS, SLOTS[state.dtype.itemsize])


def _shape(state: Any) -> tuple[int, int]:
    """Owned rows and cells."""
    return state.shape[1] - 2 * HALO, state.shape[2] - 2 * HALO


@functools.cache
def stage_kernel(dtype: np.dtype, rubbed: bool) -> Kernel:
    """The kernel; rubbed: with bottom friction."""
    return kernel(in_precision(_kernel_of(rubbed), dtype))


def _kernel_of(rubbed: bool) -> Any:
    def advance(new, now, start, bottom, found, numbers, layout):
        """A column of a tile, one chunk of rows; the grid is tiles, chunks. layout: first tile, cells of a tile, first
        chunk, rows of a chunk, tiles of the grid.
        """
        _, gravity, _, _, _, _, _, _, dry, _ = numbers
        tile, cells, chunk, chunk_rows, tiles = layout
        thread = cuda.threadIdx.x
        column = (tile + cuda.blockIdx.x) * cells + thread
        owned = HALO <= thread < cells + HALO and column < now.shape[2] - HALO
        column = min(column, now.shape[2] - 1)  # threads beyond the grid repeat its last column
        low = (chunk + cuda.blockIdx.y) * chunk_rows
        high = min(low + chunk_rows, now.shape[1] - 2 * HALO)
        shown = cuda.shared.array(SHOWN, real)
        oldest, older, newest = cuda.local.array(4, real), cuda.local.array(4, real), cuda.local.array(4, real)
        below, above = cuda.local.array(5, real), cuda.local.array(5, real)  # faces in y of the oldest row
        northern, pushed = cuda.local.array(4, real), cuda.local.array(2, real)  # of the oldest row, then the next
        half, face = cuda.local.array(4, real), cuda.local.array(5, real)  # in x, of the oldest row
        for k in range(4):
            oldest[k] = older[k] = northern[k] = 0.0
        for k in range(5):
            above[k] = 0.0
        pushed[1] = 0.0
        rate, depth = real(0.0), real(math.inf)
        for row in range(low, high + 2 * HALO):
            _read(newest, now, bottom, u8(row), u8(column), dry)
            for k in range(5):
                below[k] = above[k]
            pushed[0] = pushed[1]
            _face_below(oldest, older, newest, northern, pushed, above, gravity)
            if row >= low + 2 * HALO:
                for k in range(4):
                    shown[u8(CELL + k * PITCH + thread)] = oldest[k]
                cuda.syncthreads()
                _show_side(shown, oldest, half, thread, cuda.blockDim.x)
                cuda.syncthreads()
                _show_face(shown, oldest, half, face, thread, gravity)
                cuda.syncthreads()
                wave, h, hu, hv = _complete(
                    shown, oldest, half, face, below, above, pushed[0], now, u8(row - HALO), u8(column), thread,
                    cuda.blockDim.x, numbers, rubbed,
                )  # fmt: skip
                if owned:
                    r, c, weight, old = u8(row - HALO), u8(column), numbers[0], 1.0 - numbers[0]
                    h, hu, hv = ended(
                        old * start[u8(H), r, c] + weight * h, old * start[u8(HU), r, c] + weight * hu,
                        old * start[u8(HV), r, c] + weight * hv, dry, numbers[9],
                    )  # fmt: skip
                    new[u8(H), r, c], new[u8(HU), r, c], new[u8(HV), r, c] = h, hu, hv
                    rate, depth = greater(wave, rate), lesser(h, depth)
            for k in range(4):
                oldest[k], older[k] = older[k], newest[k]
        cuda.syncthreads()
        shown[u8(thread)], shown[u8(PITCH + thread)] = rate, depth
        cuda.syncthreads()
        count = cuda.blockDim.x
        while count > 1:
            rest = count - count // 2  # the upper threads are taken in by the lower ones
            count = count // 2
            if thread < count:
                shown[u8(thread)] = greater(shown[u8(thread + rest)], shown[u8(thread)])
                shown[u8(PITCH + thread)] = lesser(shown[u8(PITCH + thread + rest)], shown[u8(PITCH + thread)])
            count = rest
            cuda.syncthreads()
        if thread == 0:
            block = u8((chunk + cuda.blockIdx.y) * tiles + tile + cuda.blockIdx.x)
            found[block, u8(RATE)], found[block, u8(DEPTH_MIN)] = shown[u8(0)], shown[u8(PITCH)]

    return advance


@inlined
def _read(newest, now, bottom, row, column, dry):
    """Depth, surface and velocities of a cell."""
    h = now[u8(H), row, column]
    factor = per_depth(h, dry)
    newest[DEPTH], newest[LEVEL] = h, h + bottom[row, column]
    newest[U], newest[V] = now[u8(HU), row, column] * factor, now[u8(HV), row, column] * factor


@inlined
def _face_below(oldest, older, newest, northern, pushed, above, gravity):
    """The face in y between the oldest row and the next; that one's northern sides and the push of its surface."""
    half_h = half_slope(oldest[DEPTH], older[DEPTH], newest[DEPTH])
    half_level = half_slope(oldest[LEVEL], older[LEVEL], newest[LEVEL])
    half_u, half_v = half_slope(oldest[U], older[U], newest[U]), half_slope(oldest[V], older[V], newest[V])
    above[MASS_FLUX], above[FROM_LOW], above[FROM_HIGH], above[ALONG], above[WAVE] = face_flux(
        northern[DEPTH], northern[LEVEL], northern[V], northern[U],
        older[DEPTH] - half_h, older[LEVEL] - half_level, older[V] - half_v, older[U] - half_u, gravity,
    )  # fmt: skip
    northern[DEPTH], northern[LEVEL] = older[DEPTH] + half_h, older[LEVEL] + half_level
    northern[U], northern[V] = older[U] + half_u, older[V] + half_v
    pushed[1] = push(older[DEPTH], half_level, gravity)


@inlined
def _show_side(shown, cell, half, thread, count):
    """Half the slopes of a cell in x, and its eastern side to its neighbor."""
    west, east = max(thread - 1, 0), min(thread + 1, count - 1)
    for k in range(4):
        at = CELL + k * PITCH
        half[k] = half_slope(shown[u8(at + west)], cell[k], shown[u8(at + east)])
        shown[u8(SIDE + k * PITCH + thread)] = cell[k] + half[k]


@inlined
def _show_face(shown, cell, half, face, thread, gravity):
    """The western face of a cell, also to its neighbor."""
    at = SIDE + max(thread - 1, 0)
    face[MASS_FLUX], face[FROM_LOW], face[FROM_HIGH], face[ALONG], face[WAVE] = face_flux(
        shown[u8(at + DEPTH * PITCH)], shown[u8(at + LEVEL * PITCH)], shown[u8(at + U * PITCH)],
        shown[u8(at + V * PITCH)], cell[DEPTH] - half[DEPTH], cell[LEVEL] - half[LEVEL], cell[U] - half[U],
        cell[V] - half[V], gravity,
    )  # fmt: skip
    for k in range(5):
        shown[u8(FACE + k * PITCH + thread)] = face[k]


@inlined
def _complete(
    shown, cell, half, face, below, above, push_y, now, row, column, thread, count, numbers, rubbed
):  # fmt: skip
    """The greatest wave rate of a cell, and what is ahead of it: of its faces in x and in y (below, above)."""
    _, gravity, per_dx, per_dy, dt, coriolis, manning_squared, drag, _, _ = numbers
    at = FACE + min(thread + 1, count - 1)
    in_x = taken(
        face[MASS_FLUX], shown[u8(at + MASS_FLUX * PITCH)], face[FROM_HIGH], shown[u8(at + FROM_LOW * PITCH)],
        push(cell[DEPTH], half[LEVEL], gravity), face[ALONG], shown[u8(at + ALONG * PITCH)], per_dx,
    )  # fmt: skip
    in_y = taken(
        below[MASS_FLUX], above[MASS_FLUX], below[FROM_HIGH], above[FROM_LOW], push_y, below[ALONG], above[ALONG],
        per_dy,
    )  # fmt: skip
    rate = greater(face[WAVE], shown[u8(at + WAVE * PITCH)]) * per_dx + greater(below[WAVE], above[WAVE]) * per_dy
    h, hu, hv = now[u8(H), row, column], now[u8(HU), row, column], now[u8(HV), row, column]
    h, hu, hv = ahead(h, hu, hv, in_x, in_y, dt, coriolis)
    if rubbed:
        factor = rub(hu, hv, h, dt, manning_squared, drag, gravity)
        hu *= factor
        hv *= factor
    return rate, h, hu, hv


def diagnose(state: Any, bottom: Any, physics: Physics) -> np.ndarray:
    width = state.shape[2] - 2 * HALO
    cells = (state.shape[1] - 2 * HALO) * width
    found = watch(
        _add_cell, 4, 2, cells, (state[H], state[HU], state[HV], bottom), (width,), (physics.gravity, physics.dry)
    )
    mass, energy, wet, broken, square, depth = found
    if broken == cells:
        square = depth = 0.0
    return np.array([mass, energy, math.sqrt(square), depth, wet, broken])


@inlined
def _add_cell(own, index, h, hu, hv, bottom, _, layout, numbers):
    """Sums of depth, energy, wet and lost cells; the square of the speed, and the depth."""
    gravity, dry = numbers
    r, c = u8(index // layout[0] + HALO), u8(index % layout[0] + HALO)
    depth = h[r, c]
    factor = per_depth(depth, dry)
    u, v = hu[r, c] * factor, hv[r, c] * factor
    square = u * u + v * v
    energy = depth * (0.5 * square + gravity * (0.5 * depth + bottom[r, c]))
    if math.isfinite(energy + u + v + hu[r, c] + hv[r, c]) and depth >= 0.0:
        own[0] += depth
        own[1] += energy
        own[2] += 1.0 if depth > dry else 0.0
        own[4] = max(own[4], square)
        own[5] = max(own[5], depth)
    else:
        own[3] += 1.0
