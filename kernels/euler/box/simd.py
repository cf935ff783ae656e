"""Compressible Euler equations in a box, Numba: each sweep runs its three Runge-Kutta stages in one pass over memory.

The sweeps are those of the slab with a field more: rows along x cut into tiles (`sweeps.lines`), strips of cells in x
carried along y and z as a wavefront (`sweeps.ring`). y starts and ends in the halo, z at walls.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_THETA, RHO_U, RHO_V, RHO_W, WATCHED
from hpckit.kernels.euler.constants import CV, GAMMA, GRAVITY, HALO, RD, Sweep
from hpckit.kernels.euler.numerics import power
from hpckit.kernels.euler.status import note
from hpckit.kernels.euler.sweeps import ring
from hpckit.kernels.euler.sweeps.lines import Inflow, Row, parts_of, sweep_line, workspace
from hpckit.kernels.parts import INNER

u8 = np.uint64
ALONG_X = RHO, RHO_U, RHO_THETA, RHO_V, RHO_W  # the fields in the order of `sweeps.crossing.SLOTS`
ALONG_Y = RHO, RHO_V, RHO_THETA, RHO_U, RHO_W
ALONG_Z = RHO, RHO_W, RHO_THETA, RHO_U, RHO_V


def sweep_x(state, out, column, mass_flux, sweep, status, lines, part, seams):
    seen = _sweep_x(state, out, column, mass_flux, *sweep, *lines, part, seams)
    if seen:
        note(status, seen, sweep.step)


@jit  # takes numbers one by one: a tuple from Python costs Numba a microsecond
def _sweep_x(state, out, column, mass_flux, spacing, dt, beta, step, begin, end, part, seams):
    sweep = Sweep(spacing, dt, beta, step)
    return _along_x(state, out, column, mass_flux, sweep, begin, end, part, seams, workspace(FIELDS))


@jit(borrowed=True)
def _along_x(state, out, column, mass_flux, sweep, begin, end, part, seams, work):
    flat, pitch, width = state.reshape(-1), u8(state.strides[0] // 8), state.shape[3]
    parts, none, status = parts_of(work, FIELDS), work[:0], 0
    for level in range(state.shape[1]):
        for row in range(begin, end):
            at = (level * state.shape[2] + HALO + row) * width + HALO
            then = at + width if row + 1 < end else ((level + 1) * state.shape[2] + HALO + begin) * width + HALO
            mass = mass_flux[level, row] if mass_flux.size else none
            kept = seams[level, row] if seams.size else seams[0, 0]  # of size 0, never looked at
            status |= sweep_line(
                flat, out.reshape(-1), Row(at, then, pitch, width - 2 * HALO), ALONG_X, column, level, none,
                Inflow(0.0, 0.0, False, False), mass, part, kept, sweep, parts,
            )  # fmt: skip
    return status


def sweep_y(state, out, column, mass_flux, sweep, status, lines, part):
    seen = 0 if part == INNER else _sweep_y(state, out, column, mass_flux, *sweep, *lines)
    if seen:
        note(status, seen, sweep.step)


@jit
def _sweep_y(state, out, column, mass_flux, spacing, dt, beta, step, begin, end):
    sweep = Sweep(spacing, dt, beta, step)
    return _along_y(state, out, column, mass_flux, sweep, begin, end, ring.workspace(FIELDS))


@jit(borrowed=True)
def _along_y(state, out, column, mass_flux, sweep, begin, end, work):
    flat, pitch, width = state.reshape(-1), u8(state.strides[0] // 8), state.shape[3]
    rows, cells = state.shape[2] - 2 * HALO, width - 2 * HALO
    parts, none, status = ring.parts_of(work, FIELDS), work[:0], 0
    for level in range(state.shape[1]):
        for first in range(begin, end, ring.STRIP):
            ended = first + ring.STRIP >= end
            then = _place_along_y(level + ended, begin if ended else first + ring.STRIP, state.shape[2], width)
            strip = ring.Strip(_place_along_y(level, first, state.shape[2], width), then, min(ring.STRIP, end - first))
            mass = ring.MassFlux(mass_flux.reshape(-1), level * (rows + 1) * cells + first, cells)
            status |= ring.sweep_strip(
                flat, out.reshape(-1), ring.RowLayout(pitch, width, rows), strip, ALONG_Y, column, level, none, none,
                mass, sweep, parts,
            )  # fmt: skip
    return status


@inlined
def _place_along_y(level, first, lines, width):
    """The first cell of a strip, as `ring.Strip` takes it."""
    return (level * lines + HALO) * width + HALO + first


def sweep_z(state, out, faces, ghost, mass_flux, sweep, status, lines):
    seen = _sweep_z(state, out, faces, ghost, mass_flux, *sweep, *lines)
    if seen:
        note(status, seen, sweep.step)


@jit
def _sweep_z(state, out, faces, ghost, mass_flux, spacing, dt, beta, step, begin, end):
    sweep = Sweep(spacing, dt, beta, step)
    return _along_z(state, out, faces, ghost, mass_flux, sweep, begin, end, ring.workspace(FIELDS))


@jit(borrowed=True)
def _along_z(state, out, faces, ghost, mass_flux, sweep, begin, end, work):
    flat, pitch, width = state.reshape(-1), u8(state.strides[0] // 8), state.shape[3]
    plane, cells = state.shape[2] * width, width - 2 * HALO
    own = (state.shape[2] - 2 * HALO) * cells
    parts, none, status = ring.parts_of(work, FIELDS), work[:0], 0
    for row in range(begin, end):
        for first in range(0, cells, ring.STRIP):
            at = (HALO + row) * width + HALO + first
            then = at + ring.STRIP if first + ring.STRIP < cells else (HALO + row + 1) * width + HALO
            status |= ring.sweep_strip(
                flat, out.reshape(-1), ring.RowLayout(pitch, plane, state.shape[1]),
                ring.Strip(at, then, min(ring.STRIP, cells - first)), ALONG_Z, faces, 0, ghost,
                none, ring.MassFlux(mass_flux.reshape(-1), row * cells + first, own), sweep, parts,
            )  # fmt: skip
    return status


@jit
def turn(state, column, wind, angle):
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
    # Without fused operations: a flux has the same bits on both sides of a cut.
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
