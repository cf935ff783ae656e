"""Compressible Euler equations in a box, Numba: each sweep runs its three Runge-Kutta stages in one pass over memory.

x sweep: as in the slab, rows cut into tiles (`lines`). y and z sweep: strips of cells in x are carried along the
direction as a wavefront, each stage two rows behind the one before it, so that a ring of eight rows holds all that a
stage needs (`ring`). Both sweeps across x share the code of a row: rows enter the ring with the momentum across the
interfaces in second place. y starts and ends in the halo, z at walls.

The arithmetic of an interface is that of the slab (`euler2d.numerics`); so are the rules: whole blocks of LANES cells,
unsigned indices, no pow but in rows where the series of the pressure does not hold.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler2d.constants import CV, GAMMA, GRAVITY, HALO, RD
from hpckit.kernels.euler2d.numerics import power
from hpckit.kernels.euler3d.constants import FIELDS, RHO_V, RHO_W, WATCHED
from hpckit.kernels.euler3d.lines import BUFFER, FIRST, TILE, advance_tile, load_tile, store_tile
from hpckit.kernels.euler3d.ring import (
    LANES,
    RING,
    ROW,
    STRIP,
    advance_row,
    load_row,
    place,
    store_row,
    wall_above,
    wall_below,
)
from hpckit.kernels.jit import STRICT, jit

u8 = np.uint64


@jit(noalias=True)
def sweep_x(state, column, dx, dt, beta, mass_flux):
    """As `reference.sweep_x`."""
    levels, rows, cells = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    flat, pitch = state.reshape(-1), u8(state.strides[0] // 8)
    work = np.zeros(4 * BUFFER)
    old, one, two, flux = work[:BUFFER], work[BUFFER : 2 * BUFFER], work[2 * BUFFER : 3 * BUFFER], work[3 * BUFFER :]
    status = 0
    for level in range(levels):
        base = (column[0, level], column[1, level], column[2, level])
        for row in range(HALO, HALO + rows):
            line = (level * state.shape[2] + row) * state.shape[3] + HALO
            for begin in range(0, cells, TILE):
                count = min(TILE, cells - begin)
                load_tile(flat, u8(line + begin), pitch, begin > 0, u8(count), old)
                for stage in range(3):
                    now = old if stage == 0 else (one if stage == 1 else two)
                    new = two if stage == 1 else one
                    step = dt / (3 - stage)
                    nu = beta * dx / (16.0 * step)
                    status |= advance_tile(now, old, new, flux, stage, count, base, nu, step / dx)
                store_tile(flat, u8(line + begin), pitch, u8(count), one)
                if mass_flux.size:
                    for face in range(count + 1):
                        mass_flux[level, row - HALO, begin + face] = flux[FIRST + face]
    return status


@jit(noalias=True)
def sweep_y(state, column, dy, dt, beta, mass_flux):
    """As `reference.sweep_y`."""
    levels, rows, cells = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    flat, pitch, width = state.reshape(-1), u8(state.strides[0] // 8), state.shape[3]
    work = np.zeros(3 * RING + 7 * ROW)
    start, one, two = work[:RING], work[RING : 2 * RING], work[2 * RING : 3 * RING]
    flux, done = work[3 * RING : 3 * RING + 6 * ROW].reshape((3, 2, ROW)), work[3 * RING + 6 * ROW :]
    status = 0
    for level in range(levels):
        base = (column[0, level], column[1, level], column[2, level], 0.0, 0.0)
        for begin in range(0, cells, STRIP):
            count = min(STRIP, cells - begin)
            blocks = (count + LANES - 1) // LANES
            corner = (level * state.shape[2] + HALO) * width + HALO + begin  # of row 0
            for row in range(-HALO, rows + HALO):
                load_row(flat, u8(corner + row * width), pitch, RHO_V, u8(count), u8(blocks), start, row)
                for stage in range(3):
                    face = row - 1 - 2 * stage  # the face beyond the row that this stage completes
                    if face < 2 * stage - 4:
                        continue
                    step = dt / (3 - stage)
                    now = start if stage == 0 else (one if stage == 1 else two)
                    new = one if stage == 0 else (two if stage == 1 else done)
                    to = place(face - 1) if stage < 2 else u8(0)
                    nu = beta * dy / (16.0 * step)
                    status |= advance_row(now, start, new, to, flux[stage], face, blocks, base, 1.0, nu, step / dy, 0.0)
                    if stage == 2 and mass_flux.size:
                        for cell in range(count):
                            mass_flux[level, face, begin + cell] = flux[2, 1 - (face & 1), cell]
                    if stage == 2 and face > 0:
                        store_row(flat, u8(corner + (face - 1) * width), pitch, RHO_V, u8(count), done)
    return status


@jit(noalias=True)
def sweep_z(state, faces, ghost, dz, dt, beta, mass_flux):
    """As `reference.sweep_z`."""
    levels, rows, cells = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    flat, pitch, plane = state.reshape(-1), u8(state.strides[0] // 8), state.shape[2] * state.shape[3]
    work = np.zeros(3 * RING + 7 * ROW)
    start, one, two = work[:RING], work[RING : 2 * RING], work[2 * RING : 3 * RING]
    flux, done = work[3 * RING : 3 * RING + 6 * ROW].reshape((3, 2, ROW)), work[3 * RING + 6 * ROW :]
    status = 0
    for row in range(rows):
        for begin in range(0, cells, STRIP):
            count = min(STRIP, cells - begin)
            blocks = (count + LANES - 1) // LANES
            corner = (HALO + row) * state.shape[3] + HALO + begin  # of level 0
            for level in range(levels + 6):
                if level < levels:
                    load_row(flat, u8(corner + level * plane), pitch, RHO_W, u8(count), u8(blocks), start, level)
                if level == 0:
                    wall_below(start, ghost)
                if level == levels:  # not earlier: the ring has no room yet
                    wall_above(start, levels, ghost)
                for stage in range(3):
                    face = level - 1 - 2 * stage  # the face above the cell that this stage completes
                    if face < 0 or face > levels:
                        continue
                    step = dt / (3 - stage)
                    now = start if stage == 0 else (one if stage == 1 else two)
                    new = one if stage == 0 else (two if stage == 1 else done)
                    to = place(face - 1) if stage < 2 else u8(0)
                    gate = 0.0 if face == 0 or face == levels else 1.0
                    base = (faces[0, face], faces[1, face], faces[2, face], faces[4, face], faces[3, face])
                    nu, weight = beta * dz / (16.0 * step), step * GRAVITY
                    status |= advance_row(
                        now, start, new, to, flux[stage], face, blocks, base, gate, nu, step / dz, weight
                    )
                    if stage == 2 and mass_flux.size:
                        for cell in range(count):
                            mass_flux[face, row, begin + cell] = flux[2, 1 - (face & 1), cell]
                    if face == 0:
                        continue
                    if stage == 2:
                        store_row(flat, u8(corner + (face - 1) * plane), pitch, RHO_W, u8(count), done)
                        continue
                    if face == 1:
                        wall_below(new, ghost)
                    if face == levels:
                        wall_above(new, levels, ghost)
    return status


@jit
def turn(state, column, wind, angle):
    """As `reference.turn`."""
    c, s = np.cos(angle), np.sin(angle)
    for level in range(state.shape[1]):
        for row in range(HALO, state.shape[2] - HALO):
            for cell in range(HALO, state.shape[3] - HALO):
                rho = state[0, level, row, cell] + column[0, level]
                base_u, base_v = rho * wind[0, level], rho * wind[1, level]
                u, v = state[1, level, row, cell] - base_u, state[2, level, row, cell] - base_v
                state[1, level, row, cell] = base_u + (c * u + s * v)
                state[2, level, row, cell] = base_v + (c * v - s * u)


@jit(math=STRICT)
def diffuse(state, column, base, spacing, amount, work):
    """As `reference.diffuse`. Without fused operations: a flux has the same bits on both sides of a cut."""
    levels, rows, cells = state.shape[1:]
    for level in range(levels):
        for row in range(HALO - 1, rows - HALO + 1):
            for cell in range(HALO - 1, cells - HALO + 1):
                rho = state[0, level, row, cell] + column[0, level]
                work[0, level, row, cell] = rho
                for field in range(1, 4):
                    work[field, level, row, cell] = state[field, level, row, cell] / rho - base[field - 1, level]
                work[4, level, row, cell] = (state[4, level, row, cell] + column[1, level]) / rho - base[3, level]
    rate_x, rate_y, rate_z = (
        amount / (2.0 * spacing[0] * spacing[0]),
        amount / (2.0 * spacing[1] * spacing[1]),
        amount / (2.0 * spacing[2] * spacing[2]),
    )
    for field in range(1, FIELDS):
        for level in range(levels):
            # At a wall the row beyond is the row itself, no difference, no flux; but w changes its sign.
            below, above = max(level - 1, 0), min(level + 1, levels - 1)
            lower = -1.0 if field == RHO_W and level == 0 else 1.0
            upper = -1.0 if field == RHO_W and level == levels - 1 else 1.0
            for row in range(HALO, rows - HALO):
                for cell in range(HALO, cells - HALO):
                    rho, phi = work[0, level, row, cell], work[field, level, row, cell]
                    state[field, level, row, cell] += (
                        rate_x
                        * (
                            (work[0, level, row, cell + 1] + rho) * (work[field, level, row, cell + 1] - phi)
                            - (rho + work[0, level, row, cell - 1]) * (phi - work[field, level, row, cell - 1])
                        )
                        + rate_y
                        * (
                            (work[0, level, row + 1, cell] + rho) * (work[field, level, row + 1, cell] - phi)
                            - (rho + work[0, level, row - 1, cell]) * (phi - work[field, level, row - 1, cell])
                        )
                        + rate_z
                        * (
                            (work[0, above, row, cell] + rho) * (upper * work[field, above, row, cell] - phi)
                            - (rho + work[0, below, row, cell]) * (phi - lower * work[field, below, row, cell])
                        )
                    )


@jit
def diagnose(state, column, height):
    """As `reference.diagnose`."""
    out = np.zeros(WATCHED)
    out[8], out[9] = np.inf, -np.inf
    for level in range(state.shape[1]):
        base_rho, base_rho_theta, base_pressure = column[0, level], column[1, level], column[2, level]
        base_theta = base_rho_theta / base_rho
        for row in range(HALO, state.shape[2] - HALO):
            for cell in range(HALO, state.shape[3] - HALO):
                rho = state[0, level, row, cell] + base_rho
                u, v, w = (
                    state[1, level, row, cell] / rho,
                    state[2, level, row, cell] / rho,
                    state[3, level, row, cell] / rho,
                )
                theta = (state[4, level, row, cell] + base_rho_theta) / rho - base_theta
                pressure = base_pressure * (1.0 + power(state[4, level, row, cell] / base_rho_theta, True))
                sound = np.sqrt(GAMMA * pressure / rho)
                if not np.isfinite(u + v + w + theta + sound):
                    out[10] += 1.0
                    continue
                out[0] += state[0, level, row, cell]
                out[1] += 0.5 * rho * (u * u + v * v + w * w)
                out[2] += CV / RD * pressure
                out[3] += GRAVITY * height[level] * rho
                out[4] = max(out[4], abs(u) + sound)
                out[5] = max(out[5], abs(v) + sound)
                out[6] = max(out[6], abs(w) + sound)
                out[7] = max(out[7], abs(w))
                out[8] = min(out[8], theta)
                out[9] = max(out[9], theta)
    if out[9] == -np.inf:
        out[8:10] = 0.0
    return out
