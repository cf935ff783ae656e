"""Diffusion in the slab, CUDA: a thread a cell."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda_jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.cuda_pieces import in_precision
from hpckit.kernels.euler.constants import HALO, RHO_W

THREADS = threads(128)


def diffuse(state: Any, column: Any, base: Any, dx: float, dz: float, amount: float, work: Any) -> None:
    real, levels, width = state.dtype.type, state.shape[1], state.shape[2]
    rates = real(amount / (2.0 * dx * dx)), real(amount / (2.0 * dz * dz))
    grid = (blocks(width - 2 * HALO + 2, THREADS), levels)
    _kernel(_specific, state.dtype)[grid, THREADS](state, column, base, work)
    _kernel(_diffuse, state.dtype)[grid, THREADS](state, work, rates, levels)


@functools.cache
def _kernel(function: Any, dtype: np.dtype) -> Kernel:
    return kernel(in_precision(function, dtype))


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
