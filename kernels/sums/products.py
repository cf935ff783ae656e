"""Order-independent sums of products, x' y over rows: the same bits for any order and any grouping of the rows.

Each column is cut into digits on a scale of its own, integers of `width` bits held in float64. A product of two digit
matrices of up to `ROWS` rows is then exact in any order, so the library of linear algebra does it; blocks of rows and
ranks are added as 64-bit integers (Ozaki et al., "Error-free transformations of matrix multiplication", Numer. Algor.
59, 2012). Of the products of digits those above the last place of a double are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import empty, from_host, is_device_array, to_host
from hpckit.kernels.sums.reference import MOST

ROWS = 4096  # of a block, whose products of digits are exact
BLOCKS = 64  # that a GPU takes at once


def width(count: int) -> int:
    """Bits of a digit for `count` rows over all ranks: products of digits add up to less than 2^53 in a block of rows,
    and to less than 2^60 in all.
    """
    if not 0 <= count <= MOST:
        raise ValueError(f"a sum of products takes 0 to 2**40 rows over all ranks, not {count}")
    return min(20, (60 - max(count - 1, 0).bit_length()) // 2)


def digits(count: int) -> int:
    """How many digits a number is cut into: 57 bits or more."""
    return -(-57 // width(count))


def exponents(largest: np.ndarray) -> np.ndarray:
    """Of each column's largest magnitude over all ranks (finite) the least e with |x| < 2^e, int64; 0 for 0."""
    return np.frexp(largest)[1].astype(np.int64)


def product_sums(x: Any, y: Any, up: np.ndarray, across: np.ndarray, count: int) -> np.ndarray:
    """The sums for rows x [n, a] and y [n, b]: int64[digits, a, b]; those of the ranks may be added in any order.

    x, y: both NumPy's, or both a GPU's, which computes the products then; the sums are on the host. up, across:
    `exponents` of the columns. count: rows over all ranks.
    """
    places = digits(count)
    found = np.zeros((places, x.shape[1], y.shape[1]), np.int64)
    together = ROWS * (BLOCKS if is_device_array(x) else 1)
    for begin in range(0, len(x), together):
        left = _cut(x[begin : begin + together], up, count)
        right = _cut(y[begin : begin + together], across, count)
        for place in range(places):
            for k in range(place + 1):
                products = np.rint(left[k].transpose(0, 2, 1) @ right[place - k]).astype(np.int64)
                found[place] += to_host(products.sum(0))
    return found


def combine_products(sums: np.ndarray, up: np.ndarray, across: np.ndarray, count: int) -> np.ndarray:
    """The numbers that the sums represent, float64[a, b]; inf beyond the largest double."""
    scale = up[:, None] + across[None, :]
    total = np.zeros(sums.shape[1:])
    with np.errstate(over="ignore", under="ignore"):
        for place in reversed(range(len(sums))):
            total = total + np.ldexp(sums[place].astype(np.float64), -width(count) * (place + 2))
        return np.ldexp(total, scale)


def _cut(values: Any, exponent: np.ndarray, count: int) -> list[Any]:
    """The digits, each [blocks, rows, columns]; rows of zeros fill up the last of several blocks."""
    if len(values) > ROWS:
        filled = empty((-(-len(values) // ROWS) * ROWS, values.shape[1]), values)
        filled[: len(values)], filled[len(values) :] = values, 0.0
        values = filled
    rest = np.ldexp(values, from_host(-exponent, values)).reshape(-1, min(ROWS, len(values)), values.shape[1])
    found = []
    for _ in range(digits(count)):
        rest = rest * 2.0 ** width(count)
        whole = np.rint(rest)
        found.append(whole)
        rest = rest - whole
    return found
