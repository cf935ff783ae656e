"""A tile of a row of the x sweep: five fields in the first-level cache, six cells beside the tile on either side."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler2d.constants import HALO, NOT_FINITE, OUT_OF_RANGE
from hpckit.kernels.euler2d.numerics import carried, fluxes
from hpckit.kernels.euler3d.constants import FIELDS
from hpckit.kernels.jit import inlined, jit

u8 = np.uint64
LANES = 32
TILE_BLOCKS = 8
TILE = TILE_BLOCKS * LANES - 9  # cells of a tile: its first stage has nine interfaces more
FIRST = 8  # where a tile's first cell stands in its buffers
PITCH = TILE_BLOCKS * LANES + 24  # from field to field in the buffers
BUFFER = FIELDS * PITCH + 8


@jit(noalias=True)
def load_tile(flat, at, pitch, follows, count, old):
    """A tile whose first cell stands at `at` in the flat state, fields `pitch` apart, and six cells on either side.

    follows: cells to the left belong to a tile that was overwritten; they are in `old` still.
    """
    for field in range(u8(FIELDS)):
        to, source = field * u8(PITCH) + u8(FIRST), at + field * pitch
        known = u8(0)
        if follows:
            known = u8(2 * HALO)
            for cell in range(u8(2 * HALO)):
                old[to - u8(HALO) + cell] = old[to + u8(TILE - HALO) + cell]
        for cell in range(known, count + u8(2 * HALO)):
            old[to - u8(HALO) + cell] = flat[source - u8(HALO) + cell]
        for cell in range(count + u8(HALO), u8(PITCH - FIRST)):
            old[to + cell] = 0.0


@jit(noalias=True)
def store_tile(flat, at, pitch, count, done):
    """The reverse: the tile's own cells into the flat state."""
    for field in range(u8(FIELDS)):
        for cell in range(count):
            flat[at + field * pitch + cell] = done[field * u8(PITCH) + u8(FIRST) + cell]


@jit(noalias=True)
def advance_tile(now, old, new, flux, stage, count, base, nu, rate):
    """A Runge-Kutta stage (0, 1, 2) of a tile of `count` cells, two fewer cells on either side than before it.

    now: what the tendency is taken of. old: the start of the sweep. base: rho, rho theta, pressure. nu: the
    hyperviscosity. rate: the stage's time step over the spacing. Returns a status.
    """
    first, blocks = u8(FIRST - 4 + 2 * stage), u8((count + 9 - 4 * stage + LANES - 1) // LANES)
    status = _flux_row(now, flux, first, blocks, base[0], base[1], base[2], nu)
    _update_row(old, new, flux, first, blocks, rate)
    return status


@inlined
def _flux_blocks(cells, flux, first, blocks, rho, rho_theta, pressure, nu, exact):
    """Fluxes at the left interfaces of the cells from `first` on; return whether the series failed anywhere."""
    failed = 0
    per_rho_theta = 1.0 / rho_theta
    normal, v, w, heat = u8(PITCH), u8(2 * PITCH), u8(3 * PITCH), u8(4 * PITCH)
    for block in range(blocks):
        start = first + block * u8(LANES)
        for lane in range(u8(LANES)):
            at = start + lane
            a, b, d = at - u8(2), at - u8(1), at + u8(1)
            f_rho, f_normal, f_heat, velocity, out = fluxes(
                cells, a, b, at, d, normal, heat, rho, rho_theta, per_rho_theta, pressure, nu, 1.0, exact
            )
            flux[at] = f_rho
            flux[at + normal] = f_normal
            flux[at + v] = carried(cells, a + v, b + v, at + v, d + v, velocity, nu, 0.0)
            flux[at + w] = carried(cells, a + w, b + w, at + w, d + w, velocity, nu, 0.0)
            flux[at + heat] = f_heat
            failed |= out
    return failed


@jit(noalias=True)
def _flux_row(cells, flux, first, blocks, rho, rho_theta, pressure, nu):
    """`_flux_blocks` by the series, and again with pow where that fails; return a status."""
    if not _flux_blocks(cells, flux, first, blocks, rho, rho_theta, pressure, nu, False):
        return 0
    _flux_blocks(cells, flux, first, blocks, rho, rho_theta, pressure, nu, True)
    status = OUT_OF_RANGE
    for at in range(first, first + blocks * u8(LANES)):
        if not np.isfinite(flux[at + u8(PITCH)]):
            status |= NOT_FINITE
    return status


@jit(noalias=True)
def _update_row(old, new, flux, first, blocks, rate):
    for field in range(u8(FIELDS)):
        for block in range(blocks):
            start = first + block * u8(LANES) + field * u8(PITCH)
            for lane in range(u8(LANES)):
                at = start + lane
                new[at] = old[at] - rate * (flux[at + u8(1)] - flux[at])
