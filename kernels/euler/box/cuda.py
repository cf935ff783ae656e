"""Compressible Euler equations in a box, CUDA: each sweep is one kernel that runs its three Runge-Kutta stages.

The functions are those of `reference`, for arrays as in `slab.cuda`: the result of a sweep goes to another array.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.cuda.watch import watch
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.box.constants import FIELDS, RHO_V, RHO_W
from hpckit.kernels.euler.constants import CV, GAMMA, GRAVITY, HALO, RD, Sweep
from hpckit.kernels.euler.numerics import power
from hpckit.kernels.euler.sweeps.cuda_columns import Columns, sweep_columns
from hpckit.kernels.euler.sweeps.cuda_tiles import Rows, sweep_tiles

u8 = np.uint64
NOTHING = np.zeros(0)
THREADS = threads(128)


def sweep_x(
    state: Any, out: Any, column: Any, mass_flux: Any, sweep: Sweep, status: Any, lines: tuple[int, int], part: int,
    seams: Any,
) -> None:  # fmt: skip
    levels, height, width = state.shape[1:]
    rows = Rows(HALO * width + HALO, levels * height * width, width, height * width, width - 2 * HALO,
                height - 2 * HALO, levels)  # fmt: skip
    sweep_tiles(state, out, column, NOTHING, NOTHING, mass_flux, rows, 0, sweep, status, part)


def sweep_y(
    state: Any, out: Any, column: Any, mass_flux: Any, sweep: Sweep, status: Any, lines: tuple[int, int], part: int
) -> None:
    levels, height, width = state.shape[1:]
    columns = Columns(HALO * width + HALO, levels * height * width, width, height * width, width - 2 * HALO,
                      height - 2 * HALO, levels)  # fmt: skip
    sweep_columns(state, out, column, None, NOTHING, mass_flux, columns, RHO_V, sweep, status, part)


def sweep_z(
    state: Any, out: Any, faces: Any, ghost: Any, mass_flux: Any, sweep: Sweep, status: Any, lines: tuple[int, int]
) -> None:
    levels, height, width = state.shape[1:]
    columns = Columns(HALO * width + HALO, levels * height * width, height * width, width, width - 2 * HALO, levels,
                      height - 2 * HALO)  # fmt: skip
    sweep_columns(state, out, faces, ghost, NOTHING, mass_flux, columns, RHO_W, sweep, status)


def turn(state: Any, column: Any, wind: Any, angle: float) -> None:
    real, levels = state.dtype.type, state.shape[1]
    _each_cell(_turn, state, 0)(state, column, wind, real(math.cos(angle)), real(math.sin(angle)), levels)


def diffuse(state: Any, column: Any, base: Any, spacing: tuple[float, float, float], amount: float, work: Any) -> None:
    real, levels = state.dtype.type, state.shape[1]
    rates = tuple(real(amount / (2.0 * width * width)) for width in spacing)
    _each_cell(_specific, state, 1)(state, column, base, work, levels)
    _each_cell(_diffuse, state, 0)(state, work, rates, levels)


def _each_cell(function: Any, state: Any, beyond: int) -> Any:
    """The launch of a kernel for each owned cell, and as many cells beside them in x and y."""
    levels, height, width = state.shape[1:]
    grid = (blocks(width - 2 * HALO + 2 * beyond, THREADS), height - 2 * HALO + 2 * beyond, levels)
    return typed_kernel(function, state.dtype)[grid, THREADS]


def _turn(state, column, wind, c, s, levels):
    i, j, level = HALO + cuda.grid(1), HALO + cuda.blockIdx.y, cuda.blockIdx.z
    if i < state.shape[3] - HALO:
        rho = state[u8(0), u8(level), u8(j), u8(i)] + column[0, level]
        base_u, base_v = rho * wind[0, level], rho * wind[1, level]
        u, v = state[u8(1), u8(level), u8(j), u8(i)] - base_u, state[u8(2), u8(level), u8(j), u8(i)] - base_v
        state[u8(1), u8(level), u8(j), u8(i)] = base_u + (c * u + s * v)
        state[u8(2), u8(level), u8(j), u8(i)] = base_v + (c * v - s * u)


def _specific(state, column, base, work, levels):
    """Density, and what is diffused, of a cell into `work`."""
    i, j, level = u8(HALO - 1 + cuda.grid(1)), u8(HALO - 1 + cuda.blockIdx.y), u8(cuda.blockIdx.z)
    if i < u8(state.shape[3] - HALO + 1):
        rho = state[u8(0), level, j, i] + column[0, level]
        work[u8(0), level, j, i] = rho
        for field in range(u8(1), u8(4)):
            work[field, level, j, i] = state[field, level, j, i] / rho - base[field - u8(1), level]
        work[u8(4), level, j, i] = (state[u8(4), level, j, i] + column[1, level]) / rho - base[u8(3), level]


def _diffuse(state, work, rates, levels):
    """At a wall the row beyond is the row itself: no difference, no flux; but of w it has the other sign."""
    i, j, level, one = u8(HALO + cuda.grid(1)), u8(HALO + cuda.blockIdx.y), u8(cuda.blockIdx.z), u8(1)
    if i < u8(state.shape[3] - HALO):
        below, above = u8(max(cuda.blockIdx.z - 1, 0)), u8(min(cuda.blockIdx.z + 1, levels - 1))
        zero, rho = u8(0), work[u8(0), level, j, i]
        east, west = work[zero, level, j, i + one] + rho, rho + work[zero, level, j, i - one]
        north, south = work[zero, level, j + one, i] + rho, rho + work[zero, level, j - one, i]
        high, low = work[zero, above, j, i] + rho, rho + work[zero, below, j, i]
        for field in range(one, u8(FIELDS)):
            phi = work[field, level, j, i]
            along_x = east * (work[field, level, j, i + one] - phi) - west * (phi - work[field, level, j, i - one])
            along_y = north * (work[field, level, j + one, i] - phi) - south * (phi - work[field, level, j - one, i])
            phi_above, phi_below = work[field, above, j, i], work[field, below, j, i]
            if field == u8(RHO_W):
                phi_above = -phi_above if above == level else phi_above
                phi_below = -phi_below if below == level else phi_below
            along_z = high * (phi_above - phi) - low * (phi - phi_below)
            state[field, level, j, i] += rates[0] * along_x + rates[1] * along_y + rates[2] * along_z


def diagnose(state: Any, column: Any, height: Any) -> np.ndarray:
    levels, long, width = state.shape[1:]
    layout = (levels, long, width)
    cells = levels * (long - 2 * HALO) * (width - 2 * HALO)
    found = watch(_add_cell, 5, 6, cells, (state.reshape(-1), column, height), layout, ())
    found[5:][np.isneginf(found[5:])] = 0.0
    found[9] *= -1
    return np.append(np.delete(found, 4), found[4])


@inlined
def _add_cell(own, index, state, column, height, _, __, layout, numbers):
    """Sums of rho', kinetic, internal, potential energy and lost cells; u + c, v + c, w + c, w, -theta' and theta'."""
    levels, long, width = layout
    cells, rows = width - 2 * HALO, long - 2 * HALO
    line = index // cells
    level = line // rows
    at = (level * long + line % rows + HALO) * width + HALO + index % cells
    pitch = levels * long * width
    base_rho, base_rho_theta, base_pressure = column[0, level], column[1, level], column[2, level]
    rho, heat = state[u8(at)] + base_rho, state[u8(at + 4 * pitch)]
    u, v, w = state[u8(at + pitch)] / rho, state[u8(at + 2 * pitch)] / rho, state[u8(at + 3 * pitch)] / rho
    theta = (heat + base_rho_theta) / rho - base_rho_theta / base_rho
    pressure = base_pressure * (1.0 + power(heat / base_rho_theta, True))
    sound = math.sqrt(GAMMA * pressure / rho)
    if math.isfinite(u + v + w + theta + sound):
        own[0] += state[u8(at)]
        own[1] += 0.5 * rho * (u * u + v * v + w * w)
        own[2] += CV / RD * pressure
        own[3] += GRAVITY * height[level] * rho
        own[5] = max(own[5], abs(u) + sound)
        own[6] = max(own[6], abs(v) + sound)
        own[7] = max(own[7], abs(w) + sound)
        own[8] = max(own[8], abs(w))
        own[9] = max(own[9], -theta)
        own[10] = max(own[10], theta)
    else:
        own[4] += 1.0
