"""Chooses the form of the slab kernels."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from hpckit.kernels.pack import reference, simd


def slab_kernels(dtype: np.dtype, on_device: bool = False) -> ModuleType:
    """The module whose slab kernels take arrays of this dtype: `simd` where Numba compiles for it, else `reference`;
    for arrays of a GPU `cuda`.

    Numba leaves out float16, long double, structured and byte-swapped values; NumPy copies them all, and a GPU none:
    TypeError.
    """
    compiled = dtype.kind in "iufc" and dtype.itemsize in (1, 2, 4, 8, 16) and dtype.isnative
    narrow_or_wide = dtype in (np.float16, np.longdouble, np.clongdouble) and dtype != np.float64
    if on_device:
        if not compiled or narrow_or_wide:
            raise TypeError(f"slabs of {dtype} are not packed on a GPU; fields there hold numbers of C's kinds")
        from hpckit.kernels.pack import cuda

        return cuda
    return simd if compiled and not narrow_or_wide else reference
