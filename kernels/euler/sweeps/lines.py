"""Sweeps along x, of slab and box alike: a row is cut into tiles that fit the first-level cache.

A tile has six cells beside it on either side; each Runge-Kutta stage loses two of them. In the buffers the fields stand
in the order of `crossing.SLOTS`.

A sweep may run in two parts, so that the halo can travel during the first: INNER, all tiles but the two outermost of
each row, then OUTER, those two. INNER leaves in `seams`, float64[fields, 2, 6], what the outer tiles need: the cells of
their neighbors before the sweep. Rows of one or two tiles are left to OUTER.

A periodic row that no other rank shares may close on itself: its ends are then each other's halo, and that in the state
is neither read nor filled. Copied there, it would cost three cache lines a row, a twentieth of a step of the box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.constants import CLOSED, HALO
from hpckit.kernels.euler.numerics import carried, flux_of, fluxes
from hpckit.kernels.euler.sweeps.crossing import CARRIED, HEAT, NORMAL, RHO, cross, whole_lanes
from hpckit.kernels.euler.sweeps.ring import ask_for
from hpckit.kernels.parts import INNER, OUTER

u8 = np.uint64
TILE = 272 - 9  # cells of a tile: its first stage has nine interfaces more
FIRST = 8  # where a tile's first cell stands in its buffers
PITCH = 272 + 24  # from field to field in the buffers
CACHE_LINE = 8  # numbers
GHOSTS = 8  # numbers a field that `_behind_inflow` works with


@jit
def workspace(fields):
    """Scratch of a sweep with that many fields."""
    return np.zeros((4 * fields + 2) * PITCH + fields * (2 * HALO + GHOSTS + 2) + CACHE_LINE)


@jit(borrowed=True)
def parts_of(work, fields):
    """The workspace's parts: the tile before the sweep and after two stages, fluxes, velocity and excess, the last six
    cells of the tile before, the first six of the row, ghost cells and fluxes at an inflow.
    """
    buffer = fields * PITCH
    first = (-work.ctypes.data % (8 * CACHE_LINE)) // 8
    old, one = work[first : first + buffer], work[first + buffer : first + 2 * buffer]
    two, flux = work[first + 2 * buffer : first + 3 * buffer], work[first + 3 * buffer : first + 4 * buffer]
    rest = work[first + 4 * buffer :]
    ends = rest[2 * PITCH : 2 * PITCH + 2 * fields * HALO].reshape((2, fields, HALO))
    return old, one, two, flux, rest[: 2 * PITCH], ends[0], ends[1], rest[2 * PITCH + 2 * fields * HALO :]


class Row(NamedTuple):
    """Where a row stands in the flat state."""

    at: int  # its first owned cell
    then: int  # that of the row that comes next, for memory to begin with
    pitch: int  # from field to field
    cells: int


class Inflow(NamedTuple):
    """The wind that enters a row at the domain's left edge."""

    u: float
    theta: float  # 0 without inflow
    at_left: bool  # whether the row's left end is that edge
    at_right: bool


@jit(borrowed=True)
def sweep_line(flat, out, row, order, base, level, source, inflow, mass, part, seams, sweep, parts):
    """Advance a row of cells by dt along x; see `slab.reference.sweep_x`.

    flat: the state; out: takes the result, laid out like it, or is it. row: `Row`. order: the state's fields in the
    order of `crossing.SLOTS`. base: the base state at cells, of which `level` is the row's. source: tendency of the
    first carried field, laid out like a field, or of size 0. inflow: `Inflow`. mass: takes the mass flux of the last
    stage, cells + 1, or of size 0. part, seams: see above; part may be CLOSED. sweep: `Sweep`. parts: of `parts_of`.
    Returns a status.
    """
    at, then, pitch, cells = row
    spacing, dt, beta, _ = sweep
    wind, closed = (inflow.u, inflow.theta), part == CLOSED
    old, one, two, flux, scratch, left, start, ghost = parts
    status, fields, tiles = 0, len(order), (cells + TILE - 1) // TILE
    split = tiles > 2 and part in (INNER, OUTER)
    if part == INNER and not split:
        return status
    for tile in range(tiles):
        outermost = tile == 0 or tile == tiles - 1
        if split and outermost == (part == INNER):
            continue
        begin = tile * cells // tiles
        count = (tile + 1) * cells // tiles - begin
        before = 0 if closed and tile == 0 else HALO
        behind = 0 if closed and tile == tiles - 1 else HALO
        load_tile(flat, u8(at + begin), pitch, order, u8(count), u8(before), u8(behind), old)
        if closed and tile == 0:
            _keep(old, start, FIRST)
            _fetch(flat, u8(at + cells - HALO), pitch, order, old, u8(FIRST - HALO))
        if closed and tile == tiles - 1:
            _patch(old, start, FIRST + count)
        if (tile > 0 and not split) or (split and part == INNER and tile > 1):
            _patch(old, left, FIRST - HALO)
        if split and part == OUTER:
            side = 0 if tile == 0 else 1
            _patch(old, seams[:, side], FIRST + count if tile == 0 else FIRST - HALO)
        _keep(old, left, FIRST + count - HALO)
        if split and part == INNER and tile == 1:
            _keep(old, seams[:, 0], FIRST)
        if split and part == INNER and tile == tiles - 2:
            _keep(old, seams[:, 1], FIRST + count - HALO)
        for stage in range(3):
            ask_for(flat, then + begin, pitch, order, count, stage)
            now = old if stage == 0 else (one if stage == 1 else two)
            new = two if stage == 1 else one
            step, rate = dt / (3 - stage), dt / (3 - stage) / spacing
            status |= advance_tile(now, old, new, flux, scratch, stage, count, fields, base, level, beta, rate)
            if inflow.theta > 0.0:
                for edge in range(2):
                    here = FIRST - begin + edge * cells
                    if (inflow.at_left, inflow.at_right)[edge] and FIRST <= here < FIRST + count + 4:
                        first = here - (FIRST - 4 + 2 * stage)
                        _behind_inflow(now, old, new, flux, ghost, here, first, base, level, beta, rate, wind)
            if source.size:
                rho_w = CARRIED * PITCH + FIRST
                for cell in range(2 * stage - 4, count + 4 - 2 * stage):
                    new[rho_w + cell] += step * source[at + begin + cell]
        store_tile(out, u8(at + begin), pitch, order, u8(count), one)
        if mass.size:
            for face in range(count + 1):
                mass[begin + face] = flux[face] * (spacing / dt)
    return status


@jit(borrowed=True, noalias=True)
def load_tile(flat, at, pitch, order, count, before, behind, old):
    """A tile whose first cell stands at `at` in the flat state, so many cells on either side, then zeros."""
    for slot in range(len(order)):
        to, source = u8(slot * PITCH + FIRST) - before, at + u8(order[slot]) * pitch - before
        cells = before + count + behind
        for cell in range(cells):
            old[to + cell] = flat[source + cell]
        for cell in range(cells, whole_lanes(np.int64(count) + 9) + before):
            old[to + cell] = 0.0


@jit(borrowed=True, noalias=True)
def _fetch(flat, at, pitch, order, old, to):
    """Six cells of each field from the flat state into a tile."""
    for slot in range(len(order)):
        for cell in range(u8(HALO)):
            old[u8(slot * PITCH) + to + cell] = flat[at + u8(order[slot]) * pitch + cell]


@jit(borrowed=True, noalias=True)
def store_tile(out, at, pitch, order, count, done):
    """The reverse: the tile's own cells into a flat array like the state."""
    for slot in range(len(order)):
        to, source = at + u8(order[slot]) * pitch, u8(slot * PITCH + FIRST)
        for cell in range(count):
            out[to + cell] = done[source + cell]


@jit(borrowed=True, noalias=True)
def _patch(old, six, at):
    """Put six cells of each field into a tile."""
    for slot in range(six.shape[0]):
        for cell in range(HALO):
            old[slot * PITCH + at + cell] = six[slot, cell]


@jit(borrowed=True, noalias=True)
def _keep(old, six, at):
    """The reverse."""
    for slot in range(six.shape[0]):
        for cell in range(HALO):
            six[slot, cell] = old[slot * PITCH + at + cell]


@jit(borrowed=True)
def advance_tile(now, old, new, flux, scratch, stage, count, fields, base, level, beta, rate):
    """A Runge-Kutta stage (0, 1, 2) of a tile of `count` cells, two fewer cells on either side than before it.

    now: what the tendency is taken of. old: the start of the sweep. rate: the stage's time step over the spacing; the
    fluxes are what passes in that step, over the spacing, and the hyperviscosity in them is beta / 16. Returns a
    status.
    """
    first, lanes = u8(FIRST - 4 + 2 * stage), whole_lanes(count + 9 - 4 * stage)
    rho, rho_theta, pressure, nu = base[0, level], base[1, level], base[2, level], beta / 16.0
    velocity, excess = scratch[:PITCH], scratch[PITCH:]
    status = _cross(now, velocity, excess, first, lanes, rho, rho_theta, rate / 12.0)
    _push(now, flux, velocity, excess, first, lanes, nu, rate * pressure)
    for slot in range(fields):
        if slot != NORMAL:
            base_12 = 12.0 * rho if slot == RHO else (12.0 * rho_theta if slot == HEAT else 0.0)
            _carry(now, flux, velocity, slot, first, lanes, base_12, nu)
        _update(old, new, flux, slot, first, lanes)
    return status


@jit(borrowed=True, noalias=True)
def _cross(now, velocity, excess, first, lanes, rho, rho_theta, scale):
    return cross(
        now, velocity, excess, PITCH, first - u8(2), first - u8(1), first, first + u8(1), lanes, rho, rho_theta, scale
    )


@jit(borrowed=True, noalias=True)
def _push(now, flux, velocity, excess, first, lanes, nu, pressure):
    """Fluxes of the momentum across at the left interfaces of the cells from `first` on."""
    field = u8(NORMAL * PITCH)
    for i in range(lanes):
        c = field + first + i
        flux[field + i] = flux_of(now, c - u8(2), c - u8(1), c, c + u8(1), velocity[i], 0.0, nu) + pressure * excess[i]


@jit(borrowed=True, noalias=True)
def _carry(now, flux, velocity, slot, first, lanes, base_12, nu):
    """Fluxes of a field that the flow carries."""
    field = u8(slot * PITCH)
    for i in range(lanes):
        c = field + first + i
        flux[field + i] = flux_of(now, c - u8(2), c - u8(1), c, c + u8(1), velocity[i], base_12, nu)


@jit(borrowed=True, noalias=True)
def _update(old, new, flux, slot, first, lanes):
    """The next stage of a field. Differences alone: they have the same bits in a scalar tail."""
    field = u8(slot * PITCH)
    for cell in range(lanes):
        i = field + cell
        new[first + i] = old[first + i] - (flux[i + u8(1)] - flux[i])


@jit(borrowed=True)
def _behind_inflow(now, old, new, flux, ghost, at, first, base, level, beta, rate, wind):
    """Update the two cells from `at` on once more, with inflow in the two cells before them.

    first: the interface before `at`, in `flux`.
    """
    rho, rho_theta, pressure = base[0, level], base[1, level], base[2, level]
    fields, nu = len(ghost) // (GHOSTS + 2), beta / 16.0
    ends = ghost[fields * GHOSTS :]
    for slot in range(fields):
        for cell in range(5):
            ghost[GHOSTS * slot + cell] = now[slot * PITCH + at - 2 + cell]
    for cell in range(2):
        density = ghost[cell] + rho
        ghost[GHOSTS * NORMAL + cell] = density * wind[0]
        ghost[GHOSTS * HEAT + cell] = density * wind[1] - rho_theta
    for face in range(2):
        f_rho, f_normal, f_heat, velocity, _ = fluxes(
            ghost, face, face + 1, face + 2, face + 3, GHOSTS * NORMAL, GHOSTS * HEAT,
            rho, rho_theta, 1.0 / rho_theta, pressure, nu / rate, 1.0, True,
        )  # fmt: skip
        ends[2 * RHO + face], ends[2 * NORMAL + face], ends[2 * HEAT + face] = f_rho, f_normal, f_heat
        for slot in range(CARRIED, fields):
            here = GHOSTS * slot + face
            ends[2 * slot + face] = carried(ghost, here, here + 1, here + 2, here + 3, velocity, nu / rate, 0.0)
    for slot in range(fields):
        cell = slot * PITCH + at
        left, right = rate * ends[2 * slot], rate * ends[2 * slot + 1]
        new[cell] = old[cell] - (right - left)
        new[cell + 1] = old[cell + 1] - (flux[slot * PITCH + first + 2] - right)
