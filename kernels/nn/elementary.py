"""Functions of one number inside kernels, one for each dtype: written once, inlined in the forms for CPU and GPU."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.jit import inlined
from hpckit.kernels.nn.reference import GELU_CUBIC, GELU_SLOPE


@functools.cache
def exponential(dtype: str) -> Any:
    """exp(x) of a number on a CPU, to be inlined: for float32 a polynomial that vectorizes, below 2 units in the last place.

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


@functools.cache
def gelu(dtype: str, exp: Any) -> Any:
    """The piece x -> (GELU by tanh, its slope), with the exponential function `exp`: see `reference.gelu`."""
    f = np.dtype(dtype).type
    one, slope, cubic = f(1), f(-2 * GELU_SLOPE), f(GELU_CUBIC)

    @inlined
    def value_and_slope(x):
        square = cubic * x * x
        gate = one / (one + exp(slope * x * (one + square)))
        value = x * gate
        return value, gate - value * (one - gate) * slope * (one + square + square + square)

    return value_and_slope


@functools.cache
def silu(dtype: str, exp: Any) -> Any:
    """The piece x -> (x sigmoid(x), its slope), with the exponential function `exp`."""
    one = np.dtype(dtype).type(1)

    @inlined
    def value_and_slope(x):
        gate = one / (one + exp(-x))
        value = x * gate
        return value, gate + value * (one - gate)

    return value_and_slope
