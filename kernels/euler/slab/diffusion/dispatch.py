"""Chooses the form of the slab's diffusion by the state it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler.constants import HALO
from hpckit.kernels.euler.slab.diffusion import simd


def diffuse(state: Any, column: Any, base: Any, dx: float, dz: float, amount: float, work: Any) -> None:
    """Diffuse u, w and theta in place; see `reference.diffuse`."""
    there = is_device_array(state)
    for array in () if there else (state, column, base, work):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the slab kernels take C-contiguous float64 NumPy arrays, not {given}")
    levels = state.shape[1] if state.ndim == 3 else 0
    if state.ndim != 3 or state.shape[0] != 4 or state.shape[2] < 3 * HALO or work.shape != state.shape:
        raise ValueError(f"state and work are [4, nz, nx + {2 * HALO}], not {state.shape} and {work.shape}")
    if column.shape != (3, levels) or base.shape != (3, levels):
        raise ValueError(f"column {column.shape} or base {base.shape} do not fit {levels} rows")
    if there:
        from hpckit.kernels.euler.slab.diffusion import cuda

        cuda.diffuse(state, column, base, dx, dz, amount, work)
        return
    simd.diffuse(state, column, base, dx, dz, amount, work)
