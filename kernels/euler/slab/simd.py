"""Compressible Euler equations in a slab, Numba: each sweep runs its three Runge-Kutta stages in one pass over memory.

x sweep: rows cut into tiles (`lines`). z sweep: strips of cells in x, carried upward as a wavefront (`ring`). Both are
made of the same short passes over a row of interfaces (`crossing`), and both serve the box too (`kernels.euler.box`).

No pow and one division an interface (`numerics`). A row in which the series of the pressure does not hold is computed
again with pow where it must be; the others keep their bits.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.euler.constants import CV, GAMMA, GRAVITY, HALO, RD, RHO, RHO_THETA, RHO_U, RHO_W, Sweep
from hpckit.kernels.euler.numerics import power
from hpckit.kernels.euler.status import note
from hpckit.kernels.euler.sweeps import lines, ring

u8 = np.uint64
ALONG_X = RHO, RHO_U, RHO_THETA, RHO_W  # the fields in the order of `crossing.SLOTS`
ALONG_Z = RHO, RHO_W, RHO_THETA, RHO_U


def sweep_x(state, out, column, source, inflow, at_left, at_right, sweep, status, part, seams):
    seen = _sweep_x(state, out, column, source, inflow, at_left, at_right, *sweep, part, seams)
    if seen:
        note(status, seen, sweep.step)


@jit  # takes numbers one by one: a tuple from Python costs Numba a microsecond
def _sweep_x(state, out, column, source, inflow, at_left, at_right, spacing, dt, beta, step, part, seams):
    sweep, work = Sweep(spacing, dt, beta, step), lines.workspace(len(ALONG_X))
    return _rows(state, out, column, source, inflow, at_left, at_right, sweep, part, seams, work)


@jit(borrowed=True)
def _rows(state, out, column, source, inflow, at_left, at_right, sweep, part, seams, work):
    flat, pitch, width = state.reshape(-1), u8(state.shape[1] * state.shape[2]), state.shape[2]
    parts, no_mass, status = lines.parts_of(work, len(ALONG_X)), work[:0], 0
    for row in range(state.shape[1]):
        wind, theta = (inflow[0, row], inflow[1, row]) if inflow.size else (0.0, 0.0)
        status |= lines.sweep_line(
            flat, out.reshape(-1), lines.Row(row * width + HALO, (row + 1) * width + HALO, pitch, width - 2 * HALO),
            ALONG_X, column, row, source.reshape(-1), lines.Inflow(wind, theta, at_left, at_right), no_mass, part,
            seams[row if seams.size else 0], sweep, parts,
        )  # fmt: skip
    return status


def sweep_z(state, out, faces, ghost, source, sweep, status, lines):
    seen = _sweep_z(state, out, faces, ghost, source, *sweep, *lines)
    if seen:
        note(status, seen, sweep.step)


@jit
def _sweep_z(state, out, faces, ghost, source, spacing, dt, beta, step, begin, end):
    work = ring.workspace(len(ALONG_Z))
    return _columns(state, out, faces, ghost, source, Sweep(spacing, dt, beta, step), begin, end, work)


@jit(borrowed=True)
def _columns(state, out, faces, ghost, source, sweep, begin, end, work):
    flat, pitch, width = state.reshape(-1), u8(state.shape[1] * state.shape[2]), state.shape[2]
    parts, none, status = ring.parts_of(work, len(ALONG_Z)), work[:0], 0
    for first in range(begin, end, ring.STRIP):
        strip = ring.Strip(HALO + first, HALO + first + ring.STRIP, min(ring.STRIP, end - first))
        status |= ring.sweep_strip(
            flat, out.reshape(-1), ring.RowLayout(pitch, width, state.shape[1]), strip, ALONG_Z, faces, 0, ghost,
            source.reshape(-1), ring.MassFlux(none, 0, 0), sweep, parts,
        )  # fmt: skip
    return status


@jit(math=STRICT)
def diffuse(state, column, base, dx, dz, amount, work):
    # Without fused operations: a flux has the same bits on both sides of a cut.
    levels, cells = state.shape[1:]
    for level in range(levels):
        for cell in range(HALO - 1, cells - HALO + 1):
            rho = state[0, level, cell] + column[0, level]
            work[0, level, cell] = rho
            for field in range(1, 3):
                work[field, level, cell] = state[field, level, cell] / rho - base[field - 1, level]
            work[3, level, cell] = (state[3, level, cell] + column[1, level]) / rho - base[2, level]
    rate_x, rate_z = amount / (2.0 * dx * dx), amount / (2.0 * dz * dz)
    for field in range(1, 4):
        for level in range(levels):
            # The row beyond a wall is the row itself, w turned around.
            below, above = max(level - 1, 0), min(level + 1, levels - 1)
            sign_below = -1.0 if field == RHO_W and level == 0 else 1.0
            sign_above = -1.0 if field == RHO_W and level == levels - 1 else 1.0
            for cell in range(HALO, cells - HALO):
                rho, phi = work[0, level, cell], work[field, level, cell]
                state[field, level, cell] += rate_x * (
                    (work[0, level, cell + 1] + rho) * (work[field, level, cell + 1] - phi)
                    - (rho + work[0, level, cell - 1]) * (phi - work[field, level, cell - 1])
                ) + rate_z * (
                    (work[0, above, cell] + rho) * (sign_above * work[field, above, cell] - phi)
                    - (rho + work[0, below, cell]) * (phi - sign_below * work[field, below, cell])
                )


@jit
def diagnose(state, column, height):
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
