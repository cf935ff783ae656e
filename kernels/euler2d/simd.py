"""Compressible Euler equations in a slab, Numba: each sweep runs its three Runge-Kutta stages in one pass over memory.

x sweep: a row is cut into tiles whose four fields fit the first-level cache, with six cells beside the tile on either
side; the stages lose two of them each. z sweep: strips of a few cache lines in x are carried upward as a wavefront,
each stage two rows behind the one before it, so that a ring of eight rows holds all that a stage needs.

No pow and one division an interface (`numerics`). A row in which the series of the pressure does not hold is computed
again with pow where it must be; the others keep their bits.

Loops run over whole blocks of LANES or STRIP_LANES cells, also where a tile or a strip ends early: without a scalar
tail the bits of a cell do not depend on where its row is cut. Lanes beyond the end hold zeros or leftovers and are
never stored. Indices are unsigned: to Numba a signed one may be negative, and its wrap-around turns vector loads into
gathers.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler2d.constants import CV, GAMMA, GRAVITY, HALO, NOT_FINITE, OUT_OF_RANGE, RD, RHO_W
from hpckit.kernels.euler2d.numerics import carried, fluxes, power
from hpckit.kernels.jit import inlined, jit

u8 = np.uint64
LANES = 32
TILE_BLOCKS = 8
TILE = TILE_BLOCKS * LANES - 9  # cells of a tile: its first stage has nine interfaces more
FIRST = 8  # where a tile's first cell stands in its buffers
PITCH_X = TILE_BLOCKS * LANES + 24  # from field to field in the buffers of the x sweep
BUFFER = 4 * PITCH_X + 8
STRIP = 128
STRIP_LANES = 8  # of the blocks in a strip: fewer than in a tile, so that a narrow strip wastes little
PITCH_Z = STRIP + 8  # from field to field in a row of the z sweep
ROW = 4 * PITCH_Z + 8  # from row to row of a ring
RING = 8 * ROW


@jit(noalias=True)
def sweep_x(state, column, dx, dt, beta, source, inflow, at_left, at_right):
    """As `reference.sweep_x`."""
    cells = state.shape[2] - 2 * HALO
    work = np.zeros(4 * BUFFER + 48)
    old, one, two = work[:BUFFER], work[BUFFER : 2 * BUFFER], work[2 * BUFFER : 3 * BUFFER]
    flux, ghost = work[3 * BUFFER : 4 * BUFFER], work[4 * BUFFER :]
    status = 0
    for row in range(state.shape[1]):
        base = (column[0, row], column[1, row], column[2, row])
        open_row = inflow.shape[1] > 0 and inflow[1, row] > 0.0
        for begin in range(0, cells, TILE):
            count = min(TILE, cells - begin)
            _load_tile(state, row, begin, count, old)
            for stage in range(3):
                fraction = 1.0 / (3 - stage)
                nu, rate, first = beta * dx / (16.0 * dt * fraction), dt * fraction / dx, FIRST - 4 + 2 * stage
                blocks = (count + 9 - 4 * stage + LANES - 1) // LANES
                now = old if stage == 0 else (one if stage == 1 else two)
                new = two if stage == 1 else one
                status |= _flux_row(now, flux, u8(first), u8(blocks), base[0], base[1], base[2], nu)
                _update_row(old, new, flux, u8(first), u8(blocks), rate)
                if open_row:
                    for edge in range(2):
                        at = FIRST - begin + edge * cells
                        if (at_left, at_right)[edge] and FIRST <= at < FIRST + count + 4:
                            wind = (inflow[0, row], inflow[1, row])
                            _behind_inflow(now, old, new, flux, ghost, at, base, nu, rate, wind)
                if source.size:
                    at = RHO_W * PITCH_X + FIRST
                    for cell in range(2 * stage - 4, count + 4 - 2 * stage):
                        new[at + cell] += dt * fraction * source[row, begin + HALO + cell]
            for field in range(4):
                for cell in range(count):
                    state[field, row, HALO + begin + cell] = one[field * PITCH_X + FIRST + cell]
    return status


@jit(noalias=True)
def _load_tile(state, row, begin, count, old):
    """A tile and six cells on either side; what lies to the left of it was overwritten and is in `old` still."""
    for field in range(4):
        at = field * PITCH_X + FIRST
        known = -HALO
        if begin > 0:
            known = HALO
            for cell in range(-HALO, HALO):
                old[at + cell] = old[at + TILE + cell]
        for cell in range(known, count + HALO):
            old[at + cell] = state[field, row, begin + HALO + cell]
        for cell in range(count + HALO, PITCH_X - FIRST):
            old[at + cell] = 0.0


@inlined
def _flux_blocks(cells, flux, first, blocks, rho, rho_theta, pressure, nu, exact):
    """Fluxes at the left interfaces of the cells from `first` on; return whether the series failed anywhere."""
    failed = 0
    per_rho_theta = 1.0 / rho_theta
    normal, tangent, heat = u8(PITCH_X), u8(2 * PITCH_X), u8(3 * PITCH_X)
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
            flux[at + tangent] = carried(cells, a + tangent, b + tangent, at + tangent, d + tangent, velocity, nu, 0.0)
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
        if not np.isfinite(flux[at + u8(PITCH_X)]):
            status |= NOT_FINITE
    return status


@jit(noalias=True)
def _update_row(old, new, flux, first, blocks, rate):
    for field in range(u8(4)):
        for block in range(blocks):
            start = first + block * u8(LANES) + field * u8(PITCH_X)
            for lane in range(u8(LANES)):
                at = start + lane
                new[at] = old[at] - rate * (flux[at + u8(1)] - flux[at])


@jit
def _behind_inflow(now, old, new, flux, ghost, at, base, nu, rate, wind):
    """Update the two cells from `at` on once more, with inflow in the two cells before them."""
    rho, rho_theta, pressure = base
    for field in range(4):
        for cell in range(5):
            ghost[8 * field + cell] = now[field * PITCH_X + at - 2 + cell]
    for cell in range(2):
        density = ghost[cell] + rho
        ghost[8 + cell] = density * wind[0]
        ghost[24 + cell] = density * wind[1] - rho_theta
    for face in range(2):
        f_rho, f_normal, f_heat, velocity, _ = fluxes(
            ghost, face, face + 1, face + 2, face + 3, 8, 24,
            rho, rho_theta, 1.0 / rho_theta, pressure, nu, 1.0, True,
        )  # fmt: skip
        f_tangent = carried(ghost, face + 16, face + 17, face + 18, face + 19, velocity, nu, 0.0)
        ghost[32 + face] = f_rho
        ghost[34 + face] = f_normal
        ghost[36 + face] = f_tangent
        ghost[38 + face] = f_heat
    for field in range(4):
        cell = field * PITCH_X + at
        left, right = ghost[32 + 2 * field], ghost[33 + 2 * field]
        new[cell] = old[cell] - rate * (right - left)
        new[cell + 1] = old[cell + 1] - rate * (flux[cell + 2] - right)


@jit(noalias=True)
def sweep_z(state, faces, ghost, dz, dt, beta, source):
    """As `reference.sweep_z`."""
    rows, cells = state.shape[1], state.shape[2] - 2 * HALO
    work = np.zeros(3 * RING + 7 * ROW)
    start, one, two = work[:RING], work[RING : 2 * RING], work[2 * RING : 3 * RING]
    flux, done = work[3 * RING : 3 * RING + 6 * ROW].reshape((3, 2, ROW)), work[3 * RING + 6 * ROW :]
    status = 0
    for begin in range(0, cells, STRIP):
        count = min(STRIP, cells - begin)
        blocks = (count + STRIP_LANES - 1) // STRIP_LANES
        for row in range(rows + 6):
            if row < rows:
                _load_row(state, row, begin, count, blocks, start)
            if row == 0:
                _wall_below(start, ghost)
            if row == rows:  # not earlier: the ring has no room yet
                _wall_above(start, rows, ghost)
            for stage in range(3):
                face = row - 1 - 2 * stage  # the face above the cell that this stage completes
                if face < 0 or face > rows:
                    continue
                step = dt / (3 - stage)
                now = start if stage == 0 else (one if stage == 1 else two)
                new = one if stage == 0 else (two if stage == 1 else done)
                to = _at(face - 1) if stage < 2 else u8(0)
                gate = 0.0 if face == 0 or face == rows else 1.0
                status |= _row(now, start, new, to, flux[stage], face, blocks, faces, gate, beta * dz / 16, step, dz)
                if face == 0:
                    continue
                if source.size:
                    for cell in range(count):
                        new[to + RHO_W * PITCH_Z + cell] += step * source[face - 1, HALO + begin + cell]
                if stage == 2:
                    _store_row(state, face - 1, begin, count, done)
                    continue
                if face == 1:
                    _wall_below(new, ghost)
                if face == rows:
                    _wall_above(new, rows, ghost)
    return status


@inlined
def _at(row):
    """Where a row of cells stands in a ring."""
    return u8((row + 8) & 7) * u8(ROW)


@jit(noalias=True)
def _load_row(state, row, begin, count, blocks, ring):
    for field in range(4):
        to = _at(row) + u8(field * PITCH_Z)
        for cell in range(u8(count)):
            ring[to + cell] = state[field, row, u8(begin + HALO) + cell]
        for cell in range(u8(count), u8(blocks * STRIP_LANES)):
            ring[to + cell] = 0.0


@jit(noalias=True)
def _store_row(state, row, begin, count, done):
    for field in range(4):
        for cell in range(u8(count)):
            state[field, row, u8(begin + HALO) + cell] = done[u8(field * PITCH_Z) + cell]


@jit
def _wall_below(ring, ghost):
    _repeat(ring, _at(0), _at(-2), ghost[0])
    _repeat(ring, _at(0), _at(-1), ghost[1])


@jit
def _wall_above(ring, rows, ghost):
    _repeat(ring, _at(rows - 1), _at(rows), ghost[2])
    _repeat(ring, _at(rows - 1), _at(rows + 1), ghost[3])


@inlined
def _repeat(ring, edge, to, factor):
    """A row outside a wall from the row next to it."""
    for cell in range(u8(STRIP)):
        ring[to + cell] = ring[edge + cell]
        ring[to + u8(PITCH_Z) + cell] = ring[edge + u8(PITCH_Z) + cell] * factor
        ring[to + u8(2 * PITCH_Z) + cell] = 0.0
        ring[to + u8(3 * PITCH_Z) + cell] = ring[edge + u8(3 * PITCH_Z) + cell]


@inlined
def _row_blocks(now, old, new, to, below, above, face, blocks, base, gate, nu, rate, weight, exact):
    """Fluxes at the face between rows face - 1 and face, then the next stage of row face - 1."""
    failed = 0
    rho, rho_theta, pressure, shear = base
    per_rho_theta, nu_shear = 1.0 / rho_theta, nu * shear
    along, across, heat = u8(PITCH_Z), u8(2 * PITCH_Z), u8(3 * PITCH_Z)
    r0, r1, r2, r3 = _at(face - 2), _at(face - 1), _at(face), _at(face + 1)
    for block in range(blocks):
        first = block * u8(STRIP_LANES)
        for lane in range(u8(STRIP_LANES)):
            i = first + lane
            at = r1 + i
            a, c, d = r0 + i, r2 + i, r3 + i
            f_rho, f_w, f_heat, velocity, out = fluxes(
                now, a, at, c, d, across, heat, rho, rho_theta, per_rho_theta, pressure, nu, gate, exact
            )
            f_u = carried(now, a + along, at + along, c + along, d + along, velocity, nu, nu_shear)
            new[to + i] = old[at] - rate * (f_rho - below[i])
            new[to + along + i] = old[at + along] - rate * (f_u - below[along + i])
            new[to + across + i] = old[at + across] - rate * (f_w - below[across + i]) - weight * now[at]
            new[to + heat + i] = old[at + heat] - rate * (f_heat - below[heat + i])
            above[i] = f_rho
            above[along + i] = f_u
            above[across + i] = f_w
            above[heat + i] = f_heat
            failed |= out
    return failed


@jit(noalias=True)
def _row_of_stage(now, old, new, to, below, above, face, blocks, base, gate, nu, rate, weight):
    """`_row_blocks` by the series, and again with pow where that fails; return a status."""
    if not _row_blocks(now, old, new, to, below, above, face, blocks, base, gate, nu, rate, weight, False):
        return 0
    _row_blocks(now, old, new, to, below, above, face, blocks, base, gate, nu, rate, weight, True)
    status = OUT_OF_RANGE
    for i in range(blocks * u8(STRIP_LANES)):
        if not np.isfinite(above[u8(2 * PITCH_Z) + i]):
            status |= NOT_FINITE
    return status


@jit
def _row(now, old, new, to, flux, face, blocks, faces, gate, nu, step, dz):
    base = (faces[0, face], faces[1, face], faces[2, face], faces[3, face])
    below, above = flux[face & 1], flux[1 - (face & 1)]
    return _row_of_stage(
        now, old, new, to, below, above, face, u8(blocks), base, gate, nu / step, step / dz, step * GRAVITY
    )


@jit
def diagnose(state, column, height):
    """As `reference.diagnose`."""
    out = np.zeros(10)
    out[7], out[8] = np.inf, -np.inf
    for row in range(state.shape[1]):
        base_rho, base_rho_theta, base_pressure = column[0, row], column[1, row], column[2, row]
        base_theta = base_rho_theta / base_rho
        for cell in range(HALO, state.shape[2] - HALO):
            rho = state[0, row, cell] + base_rho
            u, w = state[1, row, cell] / rho, state[2, row, cell] / rho
            theta = (state[3, row, cell] + base_rho_theta) / rho - base_theta
            pressure = base_pressure * (1.0 + power(state[3, row, cell] / base_rho_theta, True))
            sound = np.sqrt(GAMMA * pressure / rho)
            if not np.isfinite(u + w + theta + sound):
                out[9] += 1.0
                continue
            out[0] += state[0, row, cell]
            out[1] += 0.5 * rho * (u * u + w * w)
            out[2] += CV / RD * pressure
            out[3] += GRAVITY * height[row] * rho
            out[4] = max(out[4], abs(u) + sound)
            out[5] = max(out[5], abs(w) + sound)
            out[6] = max(out[6], abs(w))
            out[7] = min(out[7], theta)
            out[8] = max(out[8], theta)
    if out[8] == -np.inf:
        out[7:9] = 0.0
    return out
