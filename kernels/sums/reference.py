"""Order-independent sums, NumPy: definition and test oracle of the compiled forms.

Each number is cut into three integers on a scale that all numbers share: with |x| < 2^exponent and digits of `width`
bits, x = (d0 2^-width + d1 2^-2width + d2 2^-3width) 2^exponent up to half a unit of the last digit. The digits are
added as 64-bit integers, without rounding, so that any order and any grouping over ranks gives the same three sums.
This is the binned sum of Demmel and Nguyen ("Parallel reproducible summation", IEEE Trans. Comput. 64, 2015) with fixed
bins, placed by the largest number, which costs one maximum beforehand.

Error: at most count 2^(exponent - 3 width - 1) before the one final rounding. A plain sum of doubles is off by up to
count 2^(exponent - 54) and more; 3 width is at least 66.
"""

from __future__ import annotations

import math

import numpy as np

BINS = 3
MOST = 2**40  # summands, over all ranks


def width(count: int) -> int:
    """Bits of a digit such that `count` digits sum to at most 2^62; at most 50, for exact rounding."""
    if not 0 <= count <= MOST:
        raise ValueError(f"a binned sum takes 0 to 2**40 numbers over all ranks, not {count}")
    return min(50, 62 - max(count - 1, 0).bit_length())


def exponent_above(largest: float) -> int:
    """The least e with |largest| < 2^e; 0 for 0. inf and nan have none: ValueError."""
    if not math.isfinite(largest):
        raise ValueError(f"a binned sum takes finite numbers, and the largest is {largest}: look for it before you sum")
    return math.frexp(largest)[1]


def bin_sums(values: np.ndarray, exponent: int, count: int, squared: bool = False) -> np.ndarray:
    """The sums of the three digits of all `values` (any shape, float32 or float64), or of their squares: int64[3].

    exponent: `exponent_above` of the largest magnitude over all ranks; count: the number of summands over all ranks.
    If both are equal on all ranks, the bins of the ranks may be added in any order (MPI SUM of int64).
    """
    digits = np.ldexp(values.astype(np.float64).ravel(), -exponent)
    if squared:
        digits = digits * digits
    sums = np.zeros(BINS, np.int64)
    for place in range(BINS):
        digits = np.ldexp(digits, width(count))
        whole = np.rint(digits)
        sums[place] = int(whole.astype(np.int64).sum())
        digits = digits - whole
    return sums


def combine(sums: np.ndarray, exponent: int, count: int, squared: bool = False) -> float:
    """The number that the bins represent, rounded once. sums: added over all ranks; the rest as in `bin_sums`.

    A sum beyond the largest double is inf with its sign.
    """
    bits = width(count)
    total = sum(int(part) << (bits * (BINS - 1 - place)) for place, part in enumerate(sums))
    try:
        return math.ldexp(float(total), (2 * exponent if squared else exponent) - BINS * bits)
    except OverflowError:
        return math.copysign(math.inf, total)
