"""The form of an operation for its arrays: `simd` for NumPy arrays, `cuda` for arrays of a GPU.

A `cuda` file is imported on first use: Numba's CUDA target takes a second.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array

FLOAT64 = np.dtype(np.float64)  # faster to compare than the type


def form_for(package: str, array: Any) -> Any:
    """The module `simd` or `cuda` of an operation's package."""
    return _module(package, "cuda" if is_device_array(array) else "simd")


def double_form_for(package: str, *arrays: Any) -> Any:
    """The form for the first array (`form_for`), for kernels that require C-contiguous float64 arrays on the host.

    Raises `TypeError` for another array.
    """
    if is_device_array(arrays[0]):
        return _module(package, "cuda")
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype != FLOAT64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            name = package.removeprefix(f"{__package__}.")
            raise TypeError(f"the kernels of {name} take C-contiguous float64 NumPy arrays, not {given}")
    return _module(package, "simd")


@functools.cache
def _module(package: str, form: str) -> Any:
    return importlib.import_module(f"{package}.{form}")
