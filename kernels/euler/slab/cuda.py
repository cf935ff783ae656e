"""Compressible Euler equations in a slab, CUDA: each sweep is one kernel that runs its three Runge-Kutta stages.

The functions are those of `reference`, for arrays of the device of one precision, float64 or float32. The result of a
sweep goes to another array than the state. Only `diagnose` waits for the device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.cuda.watch import watch
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import CV, GAMMA, GRAVITY, HALO, RD, RHO_W, Sweep
from hpckit.kernels.euler.numerics import power
from hpckit.kernels.euler.sweeps.cuda_columns import Columns, sweep_columns
from hpckit.kernels.euler.sweeps.cuda_tiles import Rows, sweep_tiles

u8 = np.uint64
NO_FLUX = np.zeros(0)
THREADS = threads(128)


def sweep_x(
    state: Any, out: Any, column: Any, source: Any, inflow: Any, at_left: bool, at_right: bool, sweep: Sweep,
    status: Any, part: int, seams: Any,
) -> None:  # fmt: skip
    levels, width = state.shape[1:]
    rows = Rows(HALO, levels * width, 0, width, width - 2 * HALO, 1, levels)
    edges = int(at_left) + 2 * int(at_right)
    sweep_tiles(state, out, column, source, inflow, NO_FLUX, rows, edges, sweep, status, part)


def sweep_z(
    state: Any, out: Any, faces: Any, ghost: Any, source: Any, sweep: Sweep, status: Any, lines: tuple[int, int]
) -> None:
    levels, width = state.shape[1:]
    columns = Columns(HALO, levels * width, width, 0, width - 2 * HALO, levels, 1)
    sweep_columns(state, out, faces, ghost, source, NO_FLUX, columns, RHO_W, sweep, status)


def diffuse(state: Any, column: Any, base: Any, dx: float, dz: float, amount: float, work: Any) -> None:
    real, levels, width = state.dtype.type, state.shape[1], state.shape[2]
    rates = real(amount / (2.0 * dx * dx)), real(amount / (2.0 * dz * dz))
    grid = (blocks(width - 2 * HALO + 2, THREADS), levels)
    typed_kernel(_specific, state.dtype)[grid, THREADS](state, column, base, work)
    typed_kernel(_diffuse, state.dtype)[grid, THREADS](state, work, rates, levels)


def _specific(state, column, base, work):
    """Density, and what is diffused, of a cell into `work`."""
    cell, level = HALO - 1 + cuda.grid(1), cuda.blockIdx.y
    if cell < state.shape[2] - HALO + 1:
        rho = state[0, level, cell] + column[0, level]
        work[0, level, cell] = rho
        for field in range(1, 3):
            work[field, level, cell] = state[field, level, cell] / rho - base[field - 1, level]
        work[3, level, cell] = (state[3, level, cell] + column[1, level]) / rho - base[2, level]


def _diffuse(state, work, rates, levels):
    """The row beyond a wall is the row itself, w turned around."""
    cell, level = HALO + cuda.grid(1), cuda.blockIdx.y
    if cell < state.shape[2] - HALO:
        below, above = max(level - 1, 0), min(level + 1, levels - 1)
        rho = work[0, level, cell]
        for field in range(1, 4):
            phi = work[field, level, cell]
            phi_above, phi_below = work[field, above, cell], work[field, below, cell]
            if field == RHO_W:
                phi_above = -phi_above if above == level else phi_above
                phi_below = -phi_below if below == level else phi_below
            along_x = (work[0, level, cell + 1] + rho) * (work[field, level, cell + 1] - phi) - (
                rho + work[0, level, cell - 1]
            ) * (phi - work[field, level, cell - 1])
            along_z = (work[0, above, cell] + rho) * (phi_above - phi) - (rho + work[0, below, cell]) * (
                phi - phi_below
            )
            state[field, level, cell] += rates[0] * along_x + rates[1] * along_z


def diagnose(state: Any, column: Any, height: Any) -> np.ndarray:
    levels, width = state.shape[1:]
    cells = width - 2 * HALO
    found = watch(_add_cell, 5, 5, levels * cells, (state.reshape(-1), column, height), (levels, width, cells), ())
    found[5:][np.isneginf(found[5:])] = 0.0
    found[8] *= -1
    return np.append(np.delete(found, 4), found[4])


@inlined
def _add_cell(own, index, state, column, height, _, __, layout, numbers):
    """Sums of rho', kinetic, internal, potential energy and lost cells; u + c, w + c, w, -theta' and theta'."""
    levels, width, cells = layout
    level = index // cells
    at, pitch = level * width + HALO + index % cells, levels * width
    base_rho, base_rho_theta, base_pressure = column[0, level], column[1, level], column[2, level]
    rho = state[u8(at)] + base_rho
    u, w = state[u8(at + pitch)] / rho, state[u8(at + 2 * pitch)] / rho
    heat = state[u8(at + 3 * pitch)]
    theta = (heat + base_rho_theta) / rho - base_rho_theta / base_rho
    pressure = base_pressure * (1.0 + power(heat / base_rho_theta, True))
    sound = math.sqrt(GAMMA * pressure / rho)
    if math.isfinite(u + w + theta + sound):
        own[0] += state[u8(at)]
        own[1] += 0.5 * rho * (u * u + w * w)
        own[2] += CV / RD * pressure
        own[3] += GRAVITY * height[level] * rho
        own[5] = max(own[5], abs(u) + sound)
        own[6] = max(own[6], abs(w) + sound)
        own[7] = max(own[7], abs(w))
        own[8] = max(own[8], -theta)
        own[9] = max(own[9], theta)
    else:
        own[4] += 1.0
