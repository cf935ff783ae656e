"""Functions of one number inside kernels, one for each dtype: written once, inlined in the forms for CPU and GPU."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.nn.reference import GELU_CUBIC, GELU_SLOPE


@functools.cache
def exponential(dtype: str) -> Any:
    """exp(x) on a CPU, to be inlined: for float32 a polynomial that vectorizes, below 2 units in the last place.

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
def normal_tail(dtype: str) -> Any:
    """(P(X > z), exp(-z^2 / 2)) of a number z >= 0 for a normal X, to be inlined.

    For float32 the first is t p(t) exp(-z^2 / 2) with t = 1 / (1 + 0.35 z): a polynomial p of degree 8, fitted to a
    relative error of 3.2e-8 for z up to 13.5, behind which nothing is left. For float64 it is the library's erfc.
    """
    exp, half = exponential(dtype), np.dtype(dtype).type(0.5)
    if dtype == "float64":
        root = math.sqrt(0.5)
        return inlined(lambda z: (half * math.erfc(root * z), exp(-half * z * z)))
    f = np.float32
    one, squeeze = f(1), f(0.35)
    c0, c1, c2 = f(0.1396215707), f(0.1398590803), f(0.1198524311)
    c3, c4, c5 = f(0.1054329723), f(-0.0229372196), f(0.1589294076)
    c6, c7, c8 = f(-0.2555046678), f(0.1438722908), f(-0.0291258767)

    @inlined
    def tail(z):
        t, bell = one / (one + squeeze * z), exp(-half * z * z)
        series = (((c8 * t + c7) * t + c6) * t + c5) * t + c4
        return t * ((((series * t + c3) * t + c2) * t + c1) * t + c0) * bell, bell

    return tail


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


@functools.cache
def gelu_erf(dtype: str, tail: Any) -> Any:
    """The piece x -> (exact GELU, its slope); `tail` as `normal_tail` gives it."""
    f = np.dtype(dtype).type
    zero, one, height = f(0), f(1), f(1 / math.sqrt(2 * math.pi))

    @inlined
    def value_and_slope(x):
        beyond, bell = tail(abs(x))
        gate = one - beyond if x > zero else beyond
        return x * gate, gate + x * height * bell

    return value_and_slope


@functools.cache
def choice(dtype: str, exp: Any) -> Any:
    """The piece `(scores, row, chosen, shares)` that does a row of `reference.choose`."""
    zero = np.dtype(dtype).type(0)

    @inlined
    def choice(scores, row, chosen, shares):
        total = zero
        for place in range(chosen.shape[1]):
            best = -1
            for column in range(scores.shape[1]):
                is_free = True
                for before in range(place):
                    is_free = is_free and chosen[row, before] != column
                if is_free and (best < 0 or scores[row, column] > scores[row, best]):
                    best = column
            chosen[row, place] = best
            shares[row, place] = exp(scores[row, best] - scores[row, chosen[row, 0]])
            total += shares[row, place]
        for place in range(chosen.shape[1]):
            shares[row, place] /= total

    return choice
