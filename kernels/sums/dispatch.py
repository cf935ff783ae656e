"""Chooses the form of a sum by the array it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.sums import simd
from hpckit.kernels.sums.reference import combine, exponent_above

__all__ = ["bin_sums", "combine", "exponent_above"]


def bin_sums(values: Any, exponent: int, count: int, squared: bool = False) -> np.ndarray:
    """The sums of the three digits of all `values`, int64[3]: see `reference.bin_sums`.

    values: float32 or float64 NumPy array of any shape and strides, |values| < 2^exponent. The caller looks for inf and
    nan (`exponent_above` refuses them).
    """
    if not isinstance(values, np.ndarray) or values.dtype not in (np.float32, np.float64):
        given = f"{type(values).__name__} of {getattr(values, 'dtype', 'no dtype')}"
        raise TypeError(
            f"bin_sums takes a NumPy array of float32 or float64, not {given}; integers add up exactly as they are"
        )
    return simd.bin_sums(values, exponent, count, squared)
