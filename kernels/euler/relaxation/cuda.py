"""Relaxation of a box's state, CUDA: a thread a cell. The sum that `relax` returns is a number on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda_jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda_pieces import typed_kernel
from hpckit.kernels.device_array import empty
from hpckit.kernels.euler.constants import HALO

THREADS = threads(128)


def relax(state: Any, column: Any, base: Any, side_x: Any, side_y: Any, lid: Any, dt: float) -> Any:
    added = empty((len(lid), len(side_y), len(side_x)), state)
    grid = (blocks(len(side_x), THREADS), len(side_y), len(lid))
    launch = typed_kernel(_relax, state.dtype)[grid, THREADS]
    launch(state, column, base, side_x, side_y, lid, state.dtype.type(dt), added)
    return added.sum(dtype=np.float64)


def _relax(state, column, base, side_x, side_y, lid, dt, added):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < side_x.shape[0]:
        x, y = i + HALO, j + HALO
        before = state[0, k, y, x]
        if lid[k] > 0.0:
            keep = 1.0 / (1.0 + dt * lid[k])
            rho = before + column[0, k]
            for field in range(3):
                goal = rho * base[field, k]
                state[1 + field, k, y, x] = goal + keep * (state[1 + field, k, y, x] - goal)
            goal = rho * base[3, k] - column[1, k]
            state[4, k, y, x] = goal + keep * (state[4, k, y, x] - goal)
        side = max(side_x[i], side_y[j])
        if side > 0.0:
            keep = 1.0 / (1.0 + dt * side)
            state[0, k, y, x] = before * keep
            state[4, k, y, x] *= keep
            for field in range(3):
                goal = column[0, k] * base[field, k]
                state[1 + field, k, y, x] = goal + keep * (state[1 + field, k, y, x] - goal)
        added[k, j, i] = state[0, k, y, x] - before
