"""The exponential function inside vectorized loops, one for each dtype."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.jit import inlined


@functools.cache
def exponential(dtype: str) -> Any:
    """exp(x) of a number, to be inlined: for float32 a polynomial that vectorizes, below 2 units in the last place.

    2^k times a polynomial of the rest (the coefficients of Cephes' expf, Moshier 1992); x is held to [-87, 88] and nan
    stays nan. For float64, where only the oracles run, the library's.
    """
    if dtype == "float64":
        return inlined(lambda x: math.exp(x))
    f, i = np.float32, np.int32
    c0, c1, c2 = f(1.9875691500e-4), f(1.3981999507e-3), f(8.3334519073e-3)
    c3, c4, c5 = f(4.1665795894e-2), f(1.6666665459e-1), f(5.0000001201e-1)
    log2_e, high, low = f(1.44269504088896341), f(0.693359375), f(-2.12194440e-4)
    least, most, half, one, bias, mantissa = f(-87), f(88), f(0.5), f(1), i(127), i(23)

    @inlined
    def exp(x):
        x = least if x < least else x
        x = most if x > most else x
        k = np.floor(x * log2_e + half)
        rest = x - k * high
        rest = rest - k * low
        series = ((((c0 * rest + c1) * rest + c2) * rest + c3) * rest + c4) * rest + c5
        power = np.int32((np.int32(k) + bias) << mantissa)
        return (series * rest * rest + rest + one) * power.view(np.float32)

    return exp
