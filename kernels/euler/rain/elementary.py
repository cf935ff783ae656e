"""exp and log of one number, that a loop over cells vectorizes on a CPU; on a GPU those of its library.

Both are good to about one unit in the last place (4e-16 of the value; of log near 1, of the argument).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import inlined

_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-1, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding it leaves a whole number in the low bits
_ROUND_BITS = np.int64(0x4338000000000000)
_BIAS, _MANTISSA = np.int64(1023), np.int64(52)
_FRACTION, _ONE = np.int64(0x000FFFFFFFFFFFFF), np.int64(0x3FF0000000000000)
_E = [1.0 / math.factorial(k) for k in range(14)]
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = _E[2:]
_L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8, _L9, _L10 = (2.0 / (2 * k + 1) for k in range(1, 11))
_ROOT_2 = math.sqrt(2.0)


@inlined
def exponential(x):
    """The exponential, x held to [-700, 700]: 2**k times the series of what is left, at most half of ln 2."""
    x = -700.0 if x < -700.0 else x
    x = 700.0 if x > 700.0 else x
    shifted = x * _LOG2_E + _ROUND
    k = shifted - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (_E2 + r * _E3) + r2 * (_E4 + r * _E5)
    high = (_E6 + r * _E7) + r2 * (_E8 + r * _E9) + r4 * ((_E10 + r * _E11) + r2 * (_E12 + r * _E13))
    power = np.int64((np.float64(shifted).view(np.int64) + _BIAS) << _MANTISSA)
    return (1.0 + (r + r2 * (low + r4 * high))) * power.view(np.float64)


@inlined
def logarithm(x):
    """The logarithm of x > 0: the exponent, and a series in (m - 1) / (m + 1) of the mantissa m between 0.7 and 1.4."""
    bits = np.float64(x).view(np.int64)
    mantissa = np.int64((bits & _FRACTION) | _ONE).view(np.float64)
    whole = np.int64(((bits >> _MANTISSA) - _BIAS) + _ROUND_BITS).view(np.float64) - _ROUND
    big = mantissa > _ROOT_2
    mantissa = 0.5 * mantissa if big else mantissa
    whole = whole + 1.0 if big else whole
    s = (mantissa - 1.0) / (mantissa + 1.0)
    s2 = s * s
    s4 = s2 * s2
    odd = (_L1 + s2 * _L2) + s4 * (
        (_L3 + s2 * _L4) + s4 * ((_L5 + s2 * _L6) + s4 * (_L7 + s2 * _L8 + s4 * (_L9 + s2 * _L10)))
    )
    return whole * _LN2_HIGH + (2.0 * s + (s * s2 * odd + whole * _LN2_LOW))


def _exp(x: Any) -> Any:
    return math.exp(x)


def _log(x: Any) -> Any:
    return math.log(x)


exponential.on_gpu, logarithm.on_gpu = _exp, _log
