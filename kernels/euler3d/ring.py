"""Rows of the sweeps across x, y and z alike: a ring of eight rows a stage, each a strip of cells in x of five fields.

Rows count along the sweep. In the ring the fields stand in another order: rho', the momentum across the interfaces,
the two along them, (rho theta)'; a momentum changes places with rho u.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler2d.constants import NOT_FINITE, OUT_OF_RANGE
from hpckit.kernels.euler2d.numerics import carried, fluxes
from hpckit.kernels.euler3d.constants import FIELDS, RHO_U
from hpckit.kernels.jit import inlined, jit

u8 = np.uint64
LANES = 8  # fewer than in a tile (`lines`), so that a narrow strip wastes little
STRIP = 128
PITCH = STRIP + 8  # from field to field in a row
ROW = FIELDS * PITCH + 8  # from row to row of a ring
RING = 8 * ROW


@inlined
def place(row):
    """Where a row stands in a ring."""
    return u8((row + 8) & 7) * u8(ROW)


@inlined
def _partner(field, normal):
    """The field that takes the place of `field` in the ring."""
    return normal if field == RHO_U else (RHO_U if field == normal else field)


@jit(noalias=True)
def load_row(flat, at, pitch, normal, count, blocks, ring, row):
    """A row of `count` cells from `at` in the flat state, fields `pitch` apart, into the ring, zeros beyond its end."""
    for field in range(FIELDS):
        to, source = place(row) + u8(field * PITCH), at + u8(_partner(field, normal)) * pitch
        for cell in range(count):
            ring[to + cell] = flat[source + cell]
        for cell in range(count, blocks * u8(LANES)):
            ring[to + cell] = 0.0


@jit(noalias=True)
def store_row(flat, at, pitch, normal, count, done):
    """The reverse, from a single row."""
    for field in range(FIELDS):
        to, source = at + u8(_partner(field, normal)) * pitch, u8(field * PITCH)
        for cell in range(count):
            flat[to + cell] = done[source + cell]


@jit
def wall_below(ring, ghost):
    """The two rows below the ground from row 0."""
    _repeat(ring, place(0), place(-2), ghost[0])
    _repeat(ring, place(0), place(-1), ghost[1])


@jit
def wall_above(ring, rows, ghost):
    """The two rows above the top from the last of `rows` rows."""
    _repeat(ring, place(rows - 1), place(rows), ghost[2])
    _repeat(ring, place(rows - 1), place(rows + 1), ghost[3])


@inlined
def _repeat(ring, edge, to, factor):
    for cell in range(u8(STRIP)):
        ring[to + cell] = ring[edge + cell]
        ring[to + u8(PITCH) + cell] = 0.0
        ring[to + u8(2 * PITCH) + cell] = ring[edge + u8(2 * PITCH) + cell] * factor
        ring[to + u8(3 * PITCH) + cell] = ring[edge + u8(3 * PITCH) + cell] * factor
        ring[to + u8(4 * PITCH) + cell] = ring[edge + u8(4 * PITCH) + cell]


@jit
def advance_row(now, old, new, to, flux, face, blocks, base, gate, nu, rate, weight):
    """Fluxes at the face between rows face - 1 and face, then the next stage of row face - 1, at `to` in `new`.

    now: the ring that the tendency is taken of. old: the ring of the start of the sweep. flux: of the last face and of
    this one in turn, float64[2, ROW]. base: rho, rho theta, pressure at the face, and the base's part of the third
    differences of the momenta along. gate: 0 at a wall. nu: the hyperviscosity. rate: the stage's time step over the
    spacing. weight: the step times gravity. Returns a status.
    """
    below, above = flux[face & 1], flux[1 - (face & 1)]
    r0, r1, r2, r3 = place(face - 2), place(face - 1), place(face), place(face + 1)
    return _stage_of_row(now, old, new, to, below, above, r0, r1, r2, r3, u8(blocks), base, gate, nu, rate, weight)


@inlined
def _row_blocks(now, old, new, to, below, above, r0, r1, r2, r3, blocks, base, gate, nu, rate, weight, exact):
    failed = 0
    rho, rho_theta, pressure, shear_one, shear_two = base
    per_rho_theta, nu_shear_one, nu_shear_two = 1.0 / rho_theta, nu * shear_one, nu * shear_two
    normal, one, two, heat = u8(PITCH), u8(2 * PITCH), u8(3 * PITCH), u8(4 * PITCH)
    for block in range(blocks):
        first = block * u8(LANES)
        for lane in range(u8(LANES)):
            i = first + lane
            a, b, c, d = r0 + i, r1 + i, r2 + i, r3 + i
            f_rho, f_normal, f_heat, velocity, out = fluxes(
                now, a, b, c, d, normal, heat, rho, rho_theta, per_rho_theta, pressure, nu, gate, exact
            )
            f_one = carried(now, a + one, b + one, c + one, d + one, velocity, nu, nu_shear_one)
            f_two = carried(now, a + two, b + two, c + two, d + two, velocity, nu, nu_shear_two)
            new[to + i] = old[b] - rate * (f_rho - below[i])
            new[to + normal + i] = old[b + normal] - rate * (f_normal - below[normal + i]) - weight * now[b]
            new[to + one + i] = old[b + one] - rate * (f_one - below[one + i])
            new[to + two + i] = old[b + two] - rate * (f_two - below[two + i])
            new[to + heat + i] = old[b + heat] - rate * (f_heat - below[heat + i])
            above[i] = f_rho
            above[normal + i] = f_normal
            above[one + i] = f_one
            above[two + i] = f_two
            above[heat + i] = f_heat
            failed |= out
    return failed


@jit(noalias=True)
def _stage_of_row(now, old, new, to, below, above, r0, r1, r2, r3, blocks, base, gate, nu, rate, weight):
    """`_row_blocks` by the series, and again with pow where that fails; return a status."""
    if not _row_blocks(now, old, new, to, below, above, r0, r1, r2, r3, blocks, base, gate, nu, rate, weight, False):
        return 0
    _row_blocks(now, old, new, to, below, above, r0, r1, r2, r3, blocks, base, gate, nu, rate, weight, True)
    status = OUT_OF_RANGE
    for i in range(blocks * u8(LANES)):
        if not np.isfinite(above[u8(PITCH) + i]):
            status |= NOT_FINITE
    return status
