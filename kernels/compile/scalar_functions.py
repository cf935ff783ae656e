"""exp, log, sine and cosine of one number, that a loop over cells or particles vectorizes on a CPU; on a GPU exp and
log are those of its library.

They are good to about one unit in the last place (4e-16 of the value; of log near 1, of the argument).
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
_S1, _S2, _S3, _S4, _S5, _S6, _S7 = ((-1) ** k / math.factorial(2 * k + 1) for k in range(1, 8))
_C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8 = ((-1) ** k / math.factorial(2 * k) for k in range(1, 9))
_QUARTER, _HALF_QUARTER = np.int64(30), np.int64(1 << 29)
_TURN = 2.0 * math.pi / 2.0**32


@inlined
def float_of(whole):
    """A whole number of at most 2^51 as a float: AVX2 has no instruction for that, and takes them one by one."""
    return np.int64(whole + _ROUND_BITS).view(np.float64) - _ROUND


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
    whole = float_of((bits >> _MANTISSA) - _BIAS)
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


@inlined
def turned(word):
    """Cosine and sine of 2 pi (word + 1/2) / 2^32, for a whole number below 2^32: of the nearest quarter of a turn,
    exactly, and two series in what is left, at most pi / 4.
    """
    quarter = (np.int64(word) + _HALF_QUARTER) >> _QUARTER
    x = (float_of(np.int64(word) - (quarter << _QUARTER)) + 0.5) * _TURN
    z = x * x
    z2 = z * z
    z4 = z2 * z2
    sine = x + x * z * ((_S1 + z * _S2) + z2 * (_S3 + z * _S4) + z4 * ((_S5 + z * _S6) + z2 * _S7))
    cosine = 1.0 + z * ((_C1 + z * _C2) + z2 * (_C3 + z * _C4) + z4 * ((_C5 + z * _C6) + z2 * (_C7 + z * _C8)))
    odd = (quarter & 1) != 0
    along, across = sine if odd else cosine, cosine if odd else sine
    return -along if ((quarter + 1) & 2) != 0 else along, -across if (quarter & 2) != 0 else across


def _exp(x: Any) -> Any:
    return math.exp(x)


def _log(x: Any) -> Any:
    return math.log(x)


exponential.on_gpu, logarithm.on_gpu = _exp, _log
