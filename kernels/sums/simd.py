"""Order-independent sums, Numba: the digits of a row are cut and added in registers.

A double is rounded to an integer by adding 1.5 2^52 to it: the sum's low mantissa bits are then the integer, which is
taken as bits, because a conversion instruction from double to a 64-bit integer is missing below AVX-512. STRICT keeps
the compiler from seeing through it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.sums.reference import BINS, width

SHIFT = 1.5 * 2.0**52
SHIFT_BITS = np.float64(SHIFT).view(np.int64)
BLOCK = 1 << 15  # numbers copied at a time where rows are not adjacent: stays in L2


@inlined(math=STRICT)
def _cut(scaled):
    """A number as its nearest integer and what is left, |scaled| < 2^51."""
    shifted = scaled + SHIFT
    return np.float64(shifted).view(np.int64) - SHIFT_BITS, scaled - (shifted - SHIFT)


@jit(math=STRICT)
def _add_row(row, half, other_half, unit, squared, sums):
    """Add the digits of a contiguous row to `sums`; half * other_half = 2^-exponent, unit = 2^width."""
    first, second, third = np.int64(0), np.int64(0), np.int64(0)
    for i in range(np.uint64(row.size)):
        x = np.float64(row[i]) * half * other_half
        if squared:
            x = x * x
        digit, rest = _cut(x * unit)
        first += digit
        digit, rest = _cut(rest * unit)
        second += digit
        digit, rest = _cut(rest * unit)
        third += digit
    sums[0] += first
    sums[1] += second
    sums[2] += third


def _rows(values: np.ndarray) -> Iterator[np.ndarray]:
    """The numbers as contiguous rows: a view where they are adjacent in memory, else copies of a block or a row."""
    if values.flags.c_contiguous:
        yield values.reshape(-1)
    elif values.ndim == 1 or values.size <= BLOCK:
        yield np.ascontiguousarray(values).reshape(-1)
    else:
        step = max(1, BLOCK * len(values) // values.size)
        for start in range(0, len(values), step):
            part = values[start : start + step]
            yield from _rows(part[0] if len(part) == 1 else part)


def bin_sums(values: np.ndarray, exponent: int, count: int, squared: bool = False) -> np.ndarray:
    sums = np.zeros(BINS, np.int64)
    # in two factors: 2^-exponent itself may lie beyond the largest double
    half = -exponent // 2
    for row in _rows(values):
        _add_row(row, 2.0**half, 2.0 ** (-exponent - half), 2.0 ** width(count), squared, sums)
    return sums
