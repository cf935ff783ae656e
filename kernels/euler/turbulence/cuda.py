"""Mixing by turbulence, CUDA: a thread a cell, which takes the fluxes at its six faces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.euler.constants import GRAVITY, HALO, REACH
from hpckit.kernels.euler.turbulence.numerics import (
    deformation,
    flux_at_wall,
    fluxes_x,
    fluxes_y,
    fluxes_z,
    tracer_change,
)

THREADS = threads(128)


def eddy_viscosity(
    state: Any, column: Any, spacing: tuple[float, float, float], coefficient: float, prandtl: float, limit: float,
    work: Any, viscosity: Any,
) -> Any:  # fmt: skip
    """Fill `work` and `viscosity`; the maximum K stays on the device, so nothing waits (`reference.eddy_viscosity`)."""
    real, widths = state.dtype.type, _widths(state, spacing)
    square = real((coefficient * float(np.cbrt(math.prod(spacing)))) ** 2)
    _each_cell(_specific, state, 2)(state, column, work)
    _each_cell(_viscosity, state, 1)(work, viscosity, widths, square, real(1.0 / prandtl), real(limit))
    return viscosity[:, HALO:-HALO, HALO:-HALO].max()


def mix(
    state: Any, base: Any, spacing: tuple[float, float, float], dt: float, prandtl: float, work: Any, viscosity: Any
) -> None:
    real = state.dtype.type
    rates = tuple(real(dt / width) for width in spacing)
    _each_cell(_mix, state, 0)(state, base, _widths(state, spacing), rates, real(prandtl), work, viscosity)


def mix_tracers(
    tracers: Any, out: Any, state: Any, column: Any, spacing: tuple[float, float, float], dt: float, viscosity: Any
) -> None:
    rates = tuple(state.dtype.type(dt / (2.0 * width * width)) for width in spacing)
    for tracer in range(len(tracers)):
        _each_cell(_mix_tracer, state, 0)(tracers[tracer], out[tracer], state, column, rates, viscosity)


def drag(state: Any, column: Any, coefficient: float, dz: float, dt: float) -> None:
    height, width = state.shape[2:]
    grid = (blocks(width - 2 * HALO, THREADS), height - 2 * HALO)
    typed_kernel(_drag, state.dtype)[grid, THREADS](state, column, state.dtype.type(dt / dz * coefficient))


def _widths(state: Any, spacing: tuple[float, float, float]) -> tuple:
    return tuple(state.dtype.type(width) for width in spacing)


def _each_cell(function: Any, state: Any, beyond: int) -> Any:
    """The launch of a kernel for each owned cell, and as many cells beside them in x and y."""
    levels, height, width = state.shape[1:]
    grid = (blocks(width - 2 * HALO + 2 * beyond, THREADS), height - 2 * HALO + 2 * beyond, levels)
    return typed_kernel(function, state.dtype)[grid, THREADS]


def _specific(state, column, work):
    """Density, wind and theta of a cell into `work`."""
    i, j, k = HALO - 2 + cuda.grid(1), HALO - 2 + cuda.blockIdx.y, cuda.blockIdx.z
    if i < state.shape[3] - HALO + 2:
        rho = state[0, k, j, i] + column[0, k]
        work[0, k, j, i] = rho
        for field in range(1, 4):
            work[field, k, j, i] = state[field, k, j, i] / rho
        work[4, k, j, i] = (state[4, k, j, i] + column[1, k]) / rho


def _viscosity(work, viscosity, spacing, square_length, per_prandtl, limit):
    i, j, k = HALO - 1 + cuda.grid(1), HALO - 1 + cuda.blockIdx.y, cuda.blockIdx.z
    if i < work.shape[3] - HALO + 1:
        low, high = max(k - 1, 0), min(k + 1, work.shape[1] - 1)
        per_z = 1.0 / (spacing[2] if high - low == 1 else 2.0 * spacing[2])
        square, theta_z = deformation(work, spacing, per_z, low, high, k, j, i)
        stability = GRAVITY * theta_z / work[4, k, j, i]
        mixing = square_length * math.sqrt(max(square - stability * per_prandtl, 0.0))
        viscosity[k, j, i] = min(mixing, limit)


def _mix(state, base, spacing, rates, prandtl, work, viscosity):
    i, j, k = HALO + cuda.grid(1), HALO + cuda.blockIdx.y, cuda.blockIdx.z
    if i < state.shape[3] - HALO:
        top = work.shape[1] - 1
        low, high = max(k - 1, 0), min(k + 1, top)
        per_z = 1.0 / (spacing[2] if high - low == 1 else 2.0 * spacing[2])
        first = fluxes_x(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j, i)
        second = fluxes_x(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j, i + 1)
        for field in range(4):
            state[1 + field, k, j, i] += rates[0] * (second[field] - first[field])
        first = fluxes_y(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j, i)
        second = fluxes_y(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j + 1, i)
        for field in range(4):
            state[1 + field, k, j, i] += rates[1] * (second[field] - first[field])
        if k > 0:
            first = fluxes_z(work, base, viscosity, spacing, prandtl, k, j, i)
        else:
            first = (0.0, 0.0, flux_at_wall(work, viscosity, spacing[2], 1.0, k, j, i), 0.0)
        if k < top:
            second = fluxes_z(work, base, viscosity, spacing, prandtl, k + 1, j, i)
        else:
            second = (0.0, 0.0, flux_at_wall(work, viscosity, spacing[2], -1.0, k, j, i), 0.0)
        for field in range(4):
            state[1 + field, k, j, i] += rates[2] * (second[field] - first[field])


def _mix_tracer(q, out, state, column, rates, viscosity):
    i, j, k = REACH + cuda.grid(1), REACH + cuda.blockIdx.y, cuda.blockIdx.z
    if i < q.shape[2] - REACH:
        low, high = max(k - 1, 0), min(k + 1, q.shape[0] - 1)
        y, x = j + HALO - REACH, i + HALO - REACH
        change = tracer_change(q, state, column, viscosity, rates, low, high, k, j, i, y, x)
        out[k, j, i] = q[k, j, i] + change


def _drag(state, column, rate):
    i, j = HALO + cuda.grid(1), HALO + cuda.blockIdx.y
    if i < state.shape[3] - HALO:
        u, v = state[1, 0, j, i], state[2, 0, j, i]
        keep = 1.0 / (1.0 + rate * (math.sqrt(u * u + v * v) / (state[0, 0, j, i] + column[0, 0])))
        state[1, 0, j, i] = keep * u
        state[2, 0, j, i] = keep * v
