"""Sweeps across x on a GPU, in slab and box: a thread carries a column of cells along the sweep.

At any moment a thread holds, for each Runge-Kutta stage, four rows of what that stage starts from, in registers: the
newest row lets it compute the flux at the face two rows below, and with the flux before that the row below that face of
the next stage. So the stages run two rows behind each other, and memory is read once and written once. A column is cut
into chunks, each of which computes again what the stages need beyond its ends; it reads six rows there, which is why
the result goes to another array.

Fields of a thread stand in an order of their own: rho', the momentum across the faces, those along them, (rho theta)'.
Four rows of a field stand side by side. Indices into registers must be constants once loops over fields are unrolled:
the stages are three calls, not a loop.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.cuda.pieces import in_precision
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import GRAVITY, NOT_FINITE, OUT_OF_RANGE, RHO_U, Sweep
from hpckit.kernels.euler.numerics import carried, fluxes
from hpckit.kernels.euler.sweeps.cuda_stages import parts, stage_numbers
from hpckit.kernels.parts import WHOLE

real, u8 = np.float64, np.uint64
MOST_ROWS = 128  # of a chunk
TABLE = MOST_ROWS + 10  # faces of a chunk: four more beyond either end in the first stage
FEWEST_ROWS = 8  # of a chunk: more would leave a GPU idle on small grids
THREADS = threads(64)  # of a block
# Blocks that an H200 holds at once, by itemsize and fields (132 multiprocessors with 65536 registers each): with no
# more of them there is no second round.
SLOTS = {(8, 4): 132 * 6, (8, 5): 132 * 4, (4, 4): 132 * 11, (4, 5): 132 * 8}
BASE = 6  # numbers of the base state at a face: rho, rho theta, its inverse, pressure, two third differences


class Columns(NamedTuple):
    """Where columns stand in a flat array: row 0 of the first of them, from there to the next field, row and line of
    columns; cells (in x) and rows of a line, and lines.
    """

    first: int
    pitch: int
    row_pitch: int
    line_pitch: int
    cells: int
    rows: int
    lines: int


def sweep_columns(
    state: Any, out: Any, base: Any, ghost: Any, force: Any, mass_flux: Any, columns: Columns, normal: int,
    sweep: Sweep, status: Any, part: int = WHOLE,
) -> None:  # fmt: skip
    """Advance the direction across the columns by dt; `out` takes the result.

    normal: the momentum across the faces. ghost: as in `reference` where the sweep goes from wall to wall, under
    gravity: base then holds rho, rho theta, pressure and third differences by faces; else None: there is a halo of 6,
    and base holds the first three by lines. force: like a field, or of size 0. mass_flux: as in the box, or of size 0.
    part: INNER does the chunks that need no halo.
    """
    fields, walls, flat = state.shape[0], ghost is not None, state.reshape(-1)
    across = blocks(columns.cells, THREADS)
    chunks = max(1, SLOTS[state.dtype.itemsize, fields] // (across * columns.lines))
    rows = min(max(blocks(columns.rows, chunks), FEWEST_ROWS), MOST_ROWS)
    first, stride, count = parts(columns.rows, rows, part)
    if not count:
        return
    face_pitch = columns.cells * (columns.lines if walls else 1)
    of_faces = (face_pitch, columns.cells if walls else columns.cells * (columns.rows + 1))
    function = column_kernel(state.dtype, fields, normal, walls, force.size > 0, mass_flux.size > 0)
    function[(across, columns.lines, count), THREADS](
        flat, out.reshape(-1), base, ghost if walls else flat,
        force.reshape(-1) if force.size else flat, mass_flux.reshape(-1) if mass_flux.size else flat,
        (*columns[:6], *of_faces, rows, first, stride), stage_numbers(state.dtype, sweep, GRAVITY), status, sweep.step,
    )  # fmt: skip


@functools.cache
def column_kernel(dtype: np.dtype, fields: int, normal: int, walls: bool, forced: bool, fluxed: bool) -> Kernel:
    """The kernel that sweeps along one direction: see `sweep_columns`. forced, fluxed: with a force, a mass flux."""
    return kernel(in_precision(_sweep(fields, normal, walls, forced, fluxed), dtype))


def _sweep(fields: int, normal: int, walls: bool, forced: bool, fluxed: bool) -> Any:
    all_rows, all_fluxes = 12 * fields, 3 * fields  # constants: sizes of arrays in registers

    def sweep(state, out, base, ghost, force, mass_flux, layout, steps, status, mark):
        """One column of one chunk; the grid is cells, lines, chunks. All but base are flat.

        layout: `Columns` without lines; from face to face and line to line of the mass flux; rows of a chunk, the first
        chunk, from there to the next. steps: see `stage_numbers`.
        """
        first, pitch, row_pitch, line_pitch, cells, count, face_pitch, side_pitch, length, chunk, stride = layout
        step0, rate0, nu0, step1, rate1, nu1, step2, rate2, nu2, gravity = steps
        low = (chunk + cuda.blockIdx.z * stride) * length
        span = (low, min(low + length, count), count)
        table = cuda.shared.array((BASE, TABLE), real)
        if walls:
            for k in range(cuda.threadIdx.x, span[1] - low + 9, cuda.blockDim.x):
                read_base(table, k, base, min(max(low - 4 + k, 0), count), fields - 3)
        elif cuda.threadIdx.x == 0:
            read_base(table, 0, base, cuda.blockIdx.y, 0)
        cuda.syncthreads()
        cell = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if cell >= cells:
            return
        place = (first + cuda.blockIdx.y * line_pitch + cell, pitch, row_pitch)
        rows, flux = cuda.local.array(all_rows, real), cuda.local.array(all_fluxes, real)
        done, ahead = cuda.local.array(fields, real), cuda.local.array(fields, real)
        for i in range(all_rows):
            rows[i] = 0.0
        failed, first_row = 0, max(low - 6, 0) if walls else low - 6
        load_row(state, first_row, place, ahead, fields, normal)
        for row in range(first_row, span[1] + 6):
            enter(rows, 0, ahead, fields)
            if row + 1 < (count if walls else span[1] + 6):  # on its way while this row is computed
                load_row(state, row + 1, place, ahead, fields, normal)
            if walls:
                repeat_row(rows, 0, row, count, ghost, fields)
            failed |= complete_row(
                0, row - 1, rows, flux, done, table, ghost, force, state, out, span, place,
                step0, rate0, nu0, step0 * gravity, fields, normal, walls, forced,
            )  # fmt: skip
            failed |= complete_row(
                1, row - 3, rows, flux, done, table, ghost, force, state, out, span, place,
                step1, rate1, nu1, step1 * gravity, fields, normal, walls, forced,
            )  # fmt: skip
            failed |= complete_row(
                2, row - 5, rows, flux, done, table, ghost, force, state, out, span, place,
                step2, rate2, nu2, step2 * gravity, fields, normal, walls, forced,
            )  # fmt: skip
            if fluxed and low <= row - 5 <= span[1]:
                mass_flux[u8(cuda.blockIdx.y * side_pitch + (row - 5) * face_pitch + cell)] = flux[2 * fields]
        if failed:
            cuda.atomic.or_(status, 0, failed)
        if failed & NOT_FINITE:
            cuda.atomic.min(status, 1, mark)

    return sweep


@inlined
def memory_order(field, normal):
    """The field of a state that a thread holds as `field`."""
    return normal if field == 1 else (RHO_U if field == normal else field)


@inlined
def read_base(table, k, base, place, shears):
    """Column k of a block's table from a column of the base state; shears: how many third differences it has."""
    table[0, u8(k)] = base[u8(0), u8(place)]
    table[1, u8(k)] = base[u8(1), u8(place)]
    table[2, u8(k)] = 1.0 / base[u8(1), u8(place)]
    table[3, u8(k)] = base[u8(2), u8(place)]
    # In the order of a thread: across z it is v before u.
    table[4, u8(k)] = base[u8(2 + shears), u8(place)] if shears else 0.0
    table[5, u8(k)] = base[u8(3), u8(place)] if shears else 0.0


@inlined
def load_row(state, row, place, done, fields, normal):
    """A row of the state into `done`."""
    column, pitch, row_pitch = place
    for field in range(fields):
        done[field] = state[u8(column + row * row_pitch + memory_order(field, normal) * pitch)]


@inlined
def enter(rows, first, done, fields):
    """`done` becomes the newest of the four rows from `first` on, and the oldest is forgotten."""
    for field in range(fields):
        at = first + 4 * field
        rows[at] = rows[at + 1]
        rows[at + 1] = rows[at + 2]
        rows[at + 2] = rows[at + 3]
        rows[at + 3] = done[field]


@inlined
def repeat_row(rows, first, newest, count, ghost, fields):
    """Rows outside the walls from the row next to the wall, once that or they are the newest."""
    if newest == 0:
        for field in range(fields):
            at = first + 4 * field
            rows[at + 1] = beyond_wall(rows[at + 3], field, ghost[0], fields)
            rows[at + 2] = beyond_wall(rows[at + 3], field, ghost[1], fields)
    if newest == count:
        for field in range(fields):
            at = first + 4 * field
            rows[at + 3] = beyond_wall(rows[at + 2], field, ghost[2], fields)
    if newest == count + 1:
        for field in range(fields):
            at = first + 4 * field
            rows[at + 3] = beyond_wall(rows[at + 1], field, ghost[3], fields)


@inlined
def beyond_wall(value, field, factor, fields):
    """What stands outside a wall beside `value`."""
    if field == 0 or field == fields - 1:
        return value
    return 0.0 if field == 1 else value * factor


@inlined
def complete_row(
    stage, face, rows, flux, done, table, ghost, force, state, out, span, place,
    step, rate, nu, weight, fields, normal, walls, forced,
):  # fmt: skip
    """One stage: the flux at `face`, and the row below it of the next stage, or of `out`; return a status."""
    low, high, count = span
    column, pitch, row_pitch = place
    lowest, highest, gate, k = low - 4 + 2 * stage, high + 4 - 2 * stage, 1.0, 0
    if walls:
        lowest, highest, k = max(lowest, 0), min(highest, count), face - low + 4
        if face == 0 or face == count:
            gate = 0.0
    failed = 0
    if face >= lowest and face <= highest:
        failed = tendency(rows, 4 * fields * stage, flux, fields * stage, done, table, u8(k), gate, nu, rate, fields)
        if walls:
            done[1] -= weight * rows[4 * fields * stage + 1]
    if face > lowest and face <= highest:
        at = column + (face - 1) * row_pitch
        for field in range(fields):
            if stage == 0:
                done[field] += rows[4 * field + 1]
            else:
                done[field] += state[u8(at + memory_order(field, normal) * pitch)]
        if forced:
            done[1] += step * force[u8(at)]
        if stage == 2:
            for field in range(fields):
                out[u8(at + memory_order(field, normal) * pitch)] = done[field]
    if stage < 2:
        enter(rows, 4 * fields * (stage + 1), done, fields)
        if walls:
            repeat_row(rows, 4 * fields * (stage + 1), face - 1, count, ghost, fields)
    return failed


@inlined
def tendency(rows, first, flux, below, done, table, k, gate, nu, rate, fields):
    """`done` becomes the change of the row below a face; the fluxes there replace those of the face below."""
    heat, last = 4 * (fields - 1), fields - 1
    f_rho, f_normal, f_heat, velocity, out = fluxes(
        rows, first, first + 1, first + 2, first + 3, 4, heat,
        table[0, k], table[1, k], table[2, k], table[3, k], nu, gate, True,
    )  # fmt: skip
    done[0] = -rate * (f_rho - flux[below])
    done[1] = -rate * (f_normal - flux[below + 1])
    done[last] = -rate * (f_heat - flux[below + last])
    flux[below], flux[below + 1], flux[below + last] = f_rho, f_normal, f_heat
    for field in range(2, last):
        at = first + 4 * field
        along = carried(rows, at, at + 1, at + 2, at + 3, velocity, nu, nu * table[2 + field, k])
        done[field] = -rate * (along - flux[below + field])
        flux[below + field] = along
    status = 0
    if out:
        status = OUT_OF_RANGE
        if not math.isfinite(f_normal):
            status |= NOT_FINITE
    return status
