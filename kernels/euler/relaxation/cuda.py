"""Relaxation of a box's state, CUDA: a thread a cell. The sum that `relax` returns is a number on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.device_array import empty

THREADS = threads(128)


def relax(state: Any, column: Any, base: Any, side_x: Any, side_y: Any, lid: Any, dt: float, back: int) -> Any:
    nx, ny = side_x.shape[1], side_y.shape[1]
    halo = (state.shape[3] - nx) // 2
    added = empty((len(lid), ny, nx), state)
    grid = (blocks(nx, THREADS), ny, len(lid))
    calm, give_back = (typed_kernel(each, state.dtype)[grid, THREADS] for each in (_calm, _return))
    calm(state, column, base, lid, state.dtype.type(dt), back, halo)  # before densities change, which neighbors read
    give_back(state, column, base, side_x, side_y, state.dtype.type(dt), added, halo)
    return added.sum(dtype=np.float64)


def _calm(state, column, base, lid, dt, back, halo):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < state.shape[3] - 2 * halo and lid[k] > 0.0:
        x, y = i + halo, j + halo
        keep = 1.0 / (1.0 + dt * lid[k])
        rho = state[0, k, y, x] + column[0, k]
        goal = 0.5 * ((state[0, k, y, x - back] + column[0, k]) + rho) * base[0, k]
        state[1, k, y, x] = goal + keep * (state[1, k, y, x] - goal)
        goal = 0.5 * ((state[0, k, y - back, x] + column[0, k]) + rho) * base[1, k]
        state[2, k, y, x] = goal + keep * (state[2, k, y, x] - goal)
        goal = rho * base[2, k]
        state[3, k, y, x] = goal + keep * (state[3, k, y, x] - goal)
        goal = rho * base[3, k] - column[1, k]
        state[4, k, y, x] = goal + keep * (state[4, k, y, x] - goal)


def _return(state, column, base, side_x, side_y, dt, added, halo):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < side_x.shape[1]:
        x, y = i + halo, j + halo
        rate = dt * max(side_x[0, i], side_y[0, j])
        lost = rate / (1.0 + rate)
        added[k, j, i] = -lost * state[0, k, y, x]
        state[0, k, y, x] += added[k, j, i]
        state[4, k, y, x] -= lost * state[4, k, y, x]
        state[3, k, y, x] -= lost * (state[3, k, y, x] - column[0, k] * base[2, k])
        rate = dt * max(side_x[1, i], side_y[0, j])
        state[1, k, y, x] -= rate / (1.0 + rate) * (state[1, k, y, x] - column[0, k] * base[0, k])
        rate = dt * max(side_x[0, i], side_y[1, j])
        state[2, k, y, x] -= rate / (1.0 + rate) * (state[2, k, y, x] - column[0, k] * base[1, k])
