"""Sweeps along x on a GPU, in slab and box: a block of threads holds a tile of one row, a thread a cell.

The tile stands in shared memory with six cells beside it on either side; each of the three Runge-Kutta stages loses two
of them. The result goes to another array, since the neighbors of a tile read its cells.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.cuda.pieces import in_precision
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import HALO, NOT_FINITE, OUT_OF_RANGE, RHO_W, Sweep
from hpckit.kernels.euler.numerics import carried, fluxes
from hpckit.kernels.euler.sweeps.cuda_stages import parts, stage_numbers

real, u8 = np.float64, np.uint64
MOST_THREADS = 256
MOST_CELLS = MOST_THREADS - 2 * HALO  # of a tile
WARP = threads(32)
PITCH = MOST_THREADS  # from field to field in shared memory


class Rows(NamedTuple):
    """Where rows stand in a flat array: cell 0 of the first of them, from there to the next field, row and level; cells
    of a row, rows of a level, and levels.
    """

    first: int
    pitch: int
    row_pitch: int
    level_pitch: int
    cells: int
    rows: int
    levels: int


def sweep_tiles(
    state: Any, out: Any, column: Any, force: Any, inflow: Any, mass_flux: Any, rows: Rows, edges: int, sweep: Sweep,
    status: Any, part: int,
) -> None:  # fmt: skip
    """Advance the direction along the rows by dt; `out` takes the result.

    column: rho, rho theta, pressure by levels. force: like a field, or of size 0. inflow: u and theta by levels, or of
    size 0; edges: whether the first cell is (1), and the one after the last is (2), the domain's first. mass_flux: as
    in the box. part: INNER does the tiles that need no halo.
    """
    flat = state.reshape(-1)
    cells = -(-rows.cells // blocks(rows.cells, MOST_CELLS))
    first, stride, count = parts(rows.cells, cells, part)
    if not count:
        return
    function = tile_kernel(state.dtype, state.shape[0], force.size > 0, inflow.size > 0, mass_flux.size > 0)
    function[(count, rows.rows, rows.levels), blocks(cells + 2 * HALO, WARP) * WARP](
        flat, out.reshape(-1), column, force.reshape(-1) if force.size else flat,
        inflow if inflow.size else column, mass_flux.reshape(-1) if mass_flux.size else flat,
        (*rows[:6], edges, cells, first, stride), stage_numbers(state.dtype, sweep, 0.0), status, sweep.step,
    )  # fmt: skip


@functools.cache
def tile_kernel(dtype: np.dtype, fields: int, forced: bool, open_side: bool, fluxed: bool) -> Kernel:
    """The kernel: see `sweep_tiles`. forced, open_side, fluxed: with a force, inflow, a mass flux."""
    return kernel(in_precision(_sweep(fields, forced, open_side, fluxed), dtype))


def _sweep(fields: int, forced: bool, open_side: bool, fluxed: bool) -> Any:
    size, both = fields * PITCH, 2 * fields

    def sweep(state, out, column, force, inflow, mass_flux, layout, steps, status, mark):
        """One tile, 12 threads or more beyond its cells; the grid is tiles, rows, levels. All but tables are flat.

        layout: `Rows` without levels; edges; cells of a tile, the first tile, from there to the next. steps: see
        `stage_numbers`.
        """
        first, pitch, row_pitch, level_pitch, cells, lines, edges, length, tile, stride = layout
        step, rate, nu, step1, rate1, nu1, step2, rate2, nu2, _ = steps
        now = cuda.shared.array(size, real)  # a line each: the simulator knows arrays by their line
        flux = cuda.shared.array(size, real)
        behind = cuda.shared.array(both, real)  # fluxes between the two cells behind each edge of inflow
        old, left = cuda.local.array(fields, real), cuda.local.array(fields, real)
        near = cuda.local.array(16, real)
        thread, level = cuda.threadIdx.x, cuda.blockIdx.z
        begin = (tile + cuda.blockIdx.x * stride) * length
        count = min(length, cells - begin)
        cell = begin + thread - HALO
        at = first + level * level_pitch + cuda.blockIdx.y * row_pitch + cell
        rho, rho_theta, pressure = column[0, level], column[1, level], column[2, level]
        base = (rho, rho_theta, 1.0 / rho_theta, pressure)
        for field in range(fields):
            old[field] = 0.0
            left[field] = 0.0
            if thread < count + 2 * HALO:
                old[field] = state[u8(at + field * pitch)]
            now[u8(field * PITCH + thread)] = old[field]
        place, edge = -1, 0  # behind an edge of inflow 0 or 1; which of the two edges
        if open_side and inflow[1, level] > 0.0:
            if edges & 1 and 0 <= cell <= 1:
                place = cell
            if edges & 2 and cells <= cell <= cells + 1:
                place, edge = cell - cells, fields
        cuda.syncthreads()
        failed = 0
        for stage in range(3):
            lowest, highest = 2 + 2 * stage, count + 10 - 2 * stage
            if lowest <= thread <= highest:
                failed |= fluxes_left(now, thread, left, base, nu, fields)
                for field in range(fields):
                    flux[u8(field * PITCH + thread)] = left[field]
                if open_side and place >= 0:
                    fluxes_behind(now, thread, place, left, near, inflow[0, level], inflow[1, level], base, nu)
                    if place == 1:
                        for field in range(fields):
                            behind[u8(edge + field)] = left[field]
            cuda.syncthreads()
            if lowest <= thread < highest:
                for field in range(fields):
                    right = flux[u8(field * PITCH + thread + 1)]
                    if open_side and place == 0:
                        right = behind[u8(edge + field)]
                    value = old[field] - rate * (right - left[field])
                    if forced and field == RHO_W:
                        value += step * force[u8(at)]
                    now[u8(field * PITCH + thread)] = value
            cuda.syncthreads()
            step, rate, nu, step1, rate1, nu1 = step1, rate1, nu1, step2, rate2, nu2
        if fluxed and HALO <= thread <= count + HALO:
            mass_flux[u8((level * lines + cuda.blockIdx.y) * (cells + 1) + cell)] = left[0]
        if HALO <= thread < count + HALO:
            for field in range(fields):
                out[u8(at + field * pitch)] = now[u8(field * PITCH + thread)]
        if failed:
            cuda.atomic.or_(status, 0, failed)
        if failed & NOT_FINITE:
            cuda.atomic.min(status, 1, mark)

    return sweep


@inlined
def fluxes_left(now, thread, left, base, nu, fields):
    """Fluxes at the left face of a thread's cell into `left`; return a status."""
    rho, rho_theta, per_rho_theta, pressure = base
    a, b, c, d = u8(thread - 2), u8(thread - 1), u8(thread), u8(thread + 1)
    normal, heat, last = u8(PITCH), u8((fields - 1) * PITCH), fields - 1
    left[0], left[1], left[last], velocity, out = fluxes(
        now, a, b, c, d, normal, heat, rho, rho_theta, per_rho_theta, pressure, nu, 1.0, True
    )
    for field in range(2, last):
        to = u8(field * PITCH)
        left[field] = carried(now, a + to, b + to, c + to, d + to, velocity, nu, 0.0)
    status = 0
    if out:
        status = OUT_OF_RANGE
        if not math.isfinite(left[1]):
            status |= NOT_FINITE
    return status


@inlined
def fluxes_behind(now, thread, place, left, near, wind, theta, base, nu):
    """The same for one of the two cells (0, 1) behind the edge of inflow in the slab; near: scratch, four fields."""
    rho, rho_theta, per_rho_theta, pressure = base
    for k in range(4):
        for field in range(4):
            near[4 * field + k] = now[u8(field * PITCH + thread - 2 + k)]
        if k + place < 2:
            density = near[k] + rho
            near[4 + k] = density * wind
            near[12 + k] = density * theta - rho_theta
    left[0], left[1], left[3], velocity, _ = fluxes(
        near, 0, 1, 2, 3, 4, 12, rho, rho_theta, per_rho_theta, pressure, nu, 1.0, True
    )
    left[2] = carried(near, 8, 9, 10, 11, velocity, nu, 0.0)
