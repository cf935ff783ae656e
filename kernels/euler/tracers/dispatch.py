"""Chooses the form of the tracers' transport by the arrays it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler.constants import HALO
from hpckit.kernels.euler.tracers import simd
from hpckit.kernels.euler.tracers.constants import REACH


def transport(tracers: Any, out: Any, old: Any, state: Any, column: Any, mass_flux: Any, dim: int, rate: float) -> None:
    """Carry the tracers along a dim (0: z, 1: y, 2: x) after the sweep along it; see `reference.transport`."""
    there = is_device_array(state)
    for array in () if there else (tracers, out, old, state, column, mass_flux):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the transport of tracers takes C-contiguous float64 NumPy arrays, not {given}")
    nz, ny, nx = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    faces = tuple(n + (d == dim) for d, n in enumerate((nz, ny, nx)))
    wanted = (len(tracers), nz, ny + 2 * REACH, nx + 2 * REACH)
    if tracers.shape != wanted or out.shape != wanted or old.shape != state.shape[1:] or mass_flux.shape != faces:
        raise ValueError(f"a state of {state.shape} goes with tracers of {wanted[1:]} and a mass flux of {faces}")
    if there:
        from hpckit.kernels.euler.tracers import cuda

        cuda.transport(tracers, out, old, state, column, mass_flux, dim, rate)
        return
    simd.transport(tracers, out, old, state, column, mass_flux, dim, rate)
