"""Chooses the form of the relaxation by the state it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import HALO
from hpckit.kernels.euler.relaxation import simd


def relax(
    state: Any, column: Any, base: Any, side_x: Any, side_y: Any, lid: Any, dt: float, added: Any = None
) -> Any:  # fmt: skip
    """Relax toward the base state in place; returns what was added to the sum of rho'; see `reference.relax`.

    On a GPU that is a number there (`float` waits for it), and `added`, [nz, ny, nx] of the state's dtype, is scratch.
    """
    there = is_device_array(state)
    for array in () if there else (state, column, base, side_x, side_y, lid):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"relaxation takes C-contiguous float64 NumPy arrays, not {given}")
    wanted = (FIELDS, len(lid), len(side_y) + 2 * HALO, len(side_x) + 2 * HALO)
    if state.shape != wanted or base.shape != (4, len(lid)) or column.shape != (3, len(lid)):
        raise ValueError(f"these rates belong to a state of {wanted} and a base of [4, {len(lid)}]")
    if there:
        from hpckit.kernels.euler.relaxation import cuda

        return cuda.relax(state, column, base, side_x, side_y, lid, dt, added)
    return simd.relax(state, column, base, side_x, side_y, lid, dt)
