"""Sweeps across x: strips of cells in x are carried along the sweep as a wavefront, row by row, of slab and box alike.

Each Runge-Kutta stage runs two rows behind the one before it, so that a ring of a few rows holds all that a stage
needs. Rows count along the sweep. In a ring the fields stand in the order of `crossing.SLOTS`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.kernels.compile.intrinsics import prefetch
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.euler.constants import GRAVITY, HALO
from hpckit.kernels.euler.numerics import flux_of
from hpckit.kernels.euler.sweeps.crossing import CARRIED, HEAT, NORMAL, RHO, cross, whole_lanes

u8 = np.uint64
STRIP = 128
PITCH = STRIP + 8  # from field to field in a row
OLD, NEW = 8, 4  # rows of the ring of the start of the sweep, and of those of the first two stages
CACHE_LINE = 8  # numbers


@inlined
def place(row, rows, fields):
    """Where a row stands in a ring of `rows` rows."""
    return u8((row + 8) & (rows - 1)) * u8(fields * PITCH)


@jit
def workspace(fields):
    """Scratch of a sweep with that many fields."""
    return np.zeros(((OLD + 2 * NEW + 4) * fields + 2) * PITCH + CACHE_LINE)


@jit(borrowed=True)
def parts_of(work, fields):
    """The workspace's parts: rings of the start and of two stages, a row, fluxes float64[3, row], velocity, excess."""
    row = fields * PITCH
    first = (-work.ctypes.data % (8 * CACHE_LINE)) // 8
    start = work[first : first + OLD * row]
    one = work[first + OLD * row : first + (OLD + NEW) * row]
    two = work[first + (OLD + NEW) * row : first + (OLD + 2 * NEW) * row]
    rest = work[first + (OLD + 2 * NEW) * row :]
    return start, one, two, rest[:row], rest[row : 4 * row].reshape((3, row)), rest[4 * row :]


@jit(borrowed=True, noalias=True)
def load_row(flat, at, pitch, order, count, lanes, ring, to):
    """A row of `count` cells from `at` in the flat state, fields `pitch` apart, into the ring, zeros beyond its end.

    order: the state's fields in the order of the ring.
    """
    for slot in range(len(order)):
        target, source = to + u8(slot * PITCH), at + u8(order[slot]) * pitch
        for cell in range(count):
            ring[target + cell] = flat[source + cell]
        for cell in range(count, lanes):
            ring[target + cell] = 0.0


@jit(borrowed=True)
def ask_for(flat, at, pitch, order, count, third):
    """Ask memory for every third field of cells that are loaded later, `count` from `at` on.

    The rows of a strip are pages apart and those of a part of a line have gaps: a processor does not foresee them. Each
    stage asks for a third, so that memory works while the stages compute. Rows do not begin with a cache line: a step
    more asks for the line in which they end.
    """
    for slot in range(third, len(order), 3):
        first = at + order[slot] * np.int64(pitch)
        for cell in range(0, count + CACHE_LINE - 1, CACHE_LINE):
            prefetch(flat, first + cell)


@jit(borrowed=True, noalias=True)
def store_row(out, at, pitch, order, count, done):
    """The reverse, from a single row into a flat array like the state."""
    for slot in range(len(order)):
        target, source = at + u8(order[slot]) * pitch, u8(slot * PITCH)
        for cell in range(count):
            out[target + cell] = done[source + cell]


@jit(borrowed=True)
def fill_beyond_walls(ring, depth, fields, face, rows, ghost):
    """The rows beyond a wall that `face` needs: both below at face 0, one above at the last face and the one before.

    Not earlier: the ring has no room yet.
    """
    if face == 0:
        _repeat(ring, place(0, depth, fields), place(-2, depth, fields), fields, ghost[0])
        _repeat(ring, place(0, depth, fields), place(-1, depth, fields), fields, ghost[1])
    if face >= rows - 1:
        factor = ghost[2 + face - (rows - 1)]
        _repeat(ring, place(rows - 1, depth, fields), place(face + 1, depth, fields), fields, factor)


@inlined
def _repeat(ring, edge, to, fields, factor):
    for slot in range(fields):
        scale = 0.0 if slot == NORMAL else (factor if slot >= CARRIED else 1.0)
        source, target = edge + u8(slot * PITCH), to + u8(slot * PITCH)
        for cell in range(u8(STRIP)):
            ring[target + cell] = ring[source + cell] * scale


class RowLayout(NamedTuple):
    """Where rows stand in the flat state."""

    pitch: int  # from field to field
    stride: int  # from row to row
    rows: int


class Strip(NamedTuple):
    """Some columns side by side."""

    place: int  # where the first cell of row 0 stands in the state
    then: int  # the same of the strip that comes next, for memory to begin with
    columns: int  # at most STRIP


class MassFlux(NamedTuple):
    """What takes the mass flux of the last stage, flat, or an array of size 0."""

    flat: np.ndarray
    at: int  # place of face 0
    stride: int  # from face to face


@jit(borrowed=True)
def sweep_strip(flat, out, layout, strip, order, base, level, ghost, source, mass, sweep, parts):
    """Advance a strip of columns by dt along the sweep; between walls where `ghost` has a size.

    flat: the state; out: takes the result, laid out like it, or is it. layout: `RowLayout`. strip: `Strip`. order:
    the state's fields in the order of `crossing.SLOTS`. base: with walls the base state at the faces (`faces` of the
    reference), else at the cells of all levels, of which `level` is the one of the strip. source: tendency of the
    momentum across, laid out like a field, or of size 0. mass: `MassFlux`. sweep: `Sweep`. parts: of `parts_of`.
    Returns a status.
    """
    pitch, stride, rows = layout
    at, then, count = strip
    spacing, dt, beta, _ = sweep
    start, one, two, done, fluxes, scratch = parts
    walls, fields, status = ghost.size > 0, len(order), 0
    lanes = whole_lanes(count)
    begin = 0 if walls else -HALO
    for row in range(begin, rows + HALO):
        if row < rows or not walls:
            load_row(flat, u8(at + row * stride), pitch, order, u8(count), lanes, start, place(row, OLD, fields))
        for stage in range(3):
            if row < rows or not walls:
                ask_for(flat, at + (row + 1) * stride, pitch, order, count, stage)
            if row >= rows:
                ask_for(flat, then + (begin + row - rows) * stride, pitch, order, count, stage)
            face = row - 1 - 2 * stage  # the face beyond the row that this stage completes
            if face < (0 if walls else 2 * stage - 4) or (walls and face > rows):
                continue
            now = start if stage == 0 else (one if stage == 1 else two)
            new = one if stage == 0 else (two if stage == 1 else done)
            depth, to = OLD if stage == 0 else NEW, place(face - 1, NEW, fields) if stage < 2 else u8(0)
            step = dt / (3 - stage)
            inside = 0.0 if walls and (face == 0 or face == rows) else 1.0
            if walls:
                fill_beyond_walls(now, depth, fields, face, rows, ghost)
            status |= advance_row(
                now, depth, start, new, to, fluxes[stage], scratch, face, fields, lanes, base,
                face if walls else level, inside, beta, step / spacing, step * GRAVITY if walls else 0.0,
            )  # fmt: skip
            if stage == 2 and mass.flat.size:
                for cell in range(count):
                    mass.flat[mass.at + face * mass.stride + cell] = fluxes[2, cell] * (spacing / dt)
            if walls and face == 0:
                continue
            if source.size:
                for cell in range(u8(count)):
                    new[to + u8(NORMAL * PITCH) + cell] += step * source[u8(at + (face - 1) * stride) + cell]
            if stage == 2 and face > 0:
                store_row(out, u8(at + (face - 1) * stride), pitch, order, u8(count), done)
    return status


@jit(borrowed=True)
def advance_row(now, depth, old, new, to, flux, scratch, face, fields, lanes, base, level, inside, beta, rate, weight):
    """Fluxes at the face between rows face - 1 and face, then the next stage of row face - 1, at `to` in `new`.

    now: the ring of `depth` rows that the tendency is taken of. old: the ring of the start of the sweep. flux: of the
    last face, replaced by this one's; fluxes here are what passes in the stage's time step, over the spacing, and the
    hyperviscosity in them is beta / 16. inside: 0 at a wall, 1 elsewhere. rate: the stage's time step over the spacing.
    weight: the step times gravity. Returns a status.
    """
    r0, r1 = place(face - 2, depth, fields), place(face - 1, depth, fields)
    r2, r3 = place(face, depth, fields), place(face + 1, depth, fields)
    same = place(face - 1, OLD, fields)
    rho, rho_theta, pressure, nu = base[0, level], base[1, level], base[2, level], beta / 16.0
    velocity, excess = scratch[:PITCH], scratch[PITCH:]
    status = _cross(now, velocity, excess, r0, r1, r2, r3, lanes, rho, rho_theta, inside * rate / 12.0)
    _push(now, old, new, flux, velocity, excess, r0, r1, r2, r3, same, to, lanes, nu, rate * pressure, weight)
    _carry(now, old, new, flux, velocity, RHO, r0, r1, r2, r3, same, to, lanes, 12.0 * rho, inside * nu, 0.0)
    _carry(now, old, new, flux, velocity, HEAT, r0, r1, r2, r3, same, to, lanes, 12.0 * rho_theta, nu, 0.0)
    for slot in range(CARRIED, fields):
        shear = base[slot, level] if base.shape[0] > CARRIED else 0.0  # the base's part of the third difference
        _carry(now, old, new, flux, velocity, slot, r0, r1, r2, r3, same, to, lanes, 0.0, nu, nu * shear)
    return status


@jit(borrowed=True, noalias=True)
def _cross(now, velocity, excess, r0, r1, r2, r3, lanes, rho, rho_theta, scale):
    return cross(now, velocity, excess, PITCH, r0, r1, r2, r3, lanes, rho, rho_theta, scale)


@jit(borrowed=True, noalias=True)
def _push(now, old, new, flux, velocity, excess, r0, r1, r2, r3, same, to, lanes, nu, pressure, weight):
    """Advance the momentum across the interfaces."""
    normal = u8(NORMAL * PITCH)
    for i in range(lanes):
        k = normal + i
        above = flux_of(now, r0 + k, r1 + k, r2 + k, r3 + k, velocity[i], 0.0, nu) + pressure * excess[i]
        new[to + k] = old[same + k] - (above - flux[k]) - weight * now[r1 + i]
        flux[k] = above


@jit(borrowed=True, noalias=True)
def _carry(now, old, new, flux, velocity, slot, r0, r1, r2, r3, same, to, lanes, base_12, nu, nu_shear):
    """Advance a field that the flow carries."""
    field = u8(slot * PITCH)
    for i in range(lanes):
        k = field + i
        above = flux_of(now, r0 + k, r1 + k, r2 + k, r3 + k, velocity[i], base_12, nu) - nu_shear
        new[to + k] = old[same + k] - (above - flux[k])
        flux[k] = above
