"""Numbers of 16 bits and float32, in NumPy: what the compiled forms compute, to the bit.

kind: "bfloat16", the upper half of a float32 (8 bits of exponent, 7 of mantissa), or "float16" (5 and 10, IEEE 754
binary16). NumPy has no dtype for the first, so both are kept as their bits, uint16. Numbers are rounded to the nearest,
ties to even; those beyond the largest become inf, and every nan the same one. Arrays are flat and C-contiguous.
"""

from __future__ import annotations

import numpy as np

NAN = {"bfloat16": 0x7FC0, "float16": 0x7E00}


def narrow(x: np.ndarray, bits: np.ndarray, kind: str) -> None:
    """Set bits, uint16, to the numbers x, float32, rounded to the kind."""
    if kind == "bfloat16":
        from_single = x.view(np.uint32)
        nearest = (from_single + (np.uint32(0x7FFF) + ((from_single >> 16) & 1))) >> 16
    else:
        with np.errstate(over="ignore"):
            nearest = x.astype(np.float16).view(np.uint16)
    bits[...] = np.where(np.isnan(x), NAN[kind], nearest)


def widen(bits: np.ndarray, x: np.ndarray, kind: str) -> None:
    """Set x, float32, to the numbers that the bits stand for: exact."""
    if kind == "bfloat16":
        x.view(np.uint32)[...] = bits.astype(np.uint32) << 16
    else:
        x[...] = bits.view(np.float16)


def round_to(x: np.ndarray, kind: str) -> None:
    """Round x, float32, to numbers of the kind, in place: `narrow`, then `widen`."""
    bits = np.empty(x.shape, np.uint16)
    narrow(x, bits, kind)
    widen(bits, x, kind)


def accumulate(bits: np.ndarray, x: np.ndarray, kind: str) -> None:
    """Add x, float32, to the numbers that the bits stand for, and round each sum once to the kind."""
    sums = np.empty(x.shape, np.float32)
    widen(bits, sums, kind)
    sums += x
    narrow(sums, bits, kind)
