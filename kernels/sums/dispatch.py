"""Chooses the form of a sum by the array it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.sums import reference, simd
from hpckit.kernels.sums.reference import combine, exponent_above

__all__ = ["bin_sums", "combine", "exponent_above"]


def bin_sums(values: Any, exponent: int, count: int, squared: bool = False) -> np.ndarray:
    """The sums of the three digits of all `values`, int64[3]: see `reference.bin_sums`.

    values: float32 or float64 array of any shape and strides, NumPy's or a GPU's, |values| < 2^exponent. The
    caller looks for inf and nan (`exponent_above` refuses them).
    """
    array = isinstance(values, np.ndarray) or is_device_array(values)
    if not array or values.dtype not in (np.float32, np.float64):
        given = f"{type(values).__name__} of {getattr(values, 'dtype', 'no dtype')}"
        raise TypeError(
            f"bin_sums takes a NumPy array of float32 or float64, not {given}; integers add up exactly as they are"
        )
    if is_device_array(values):  # NumPy's functions are CuPy's there
        return reference.bin_sums(values, exponent, count, squared)
    return simd.bin_sums(values, exponent, count, squared)
