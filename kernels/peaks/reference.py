"""Loops that measure a machine's peaks, NumPy: what they compute, and their bytes and flops.

copy and triad are those of STREAM (McCalpin 1995, IEEE TCCA Newsletter, 19-25), which counts each array once: 16 and 24
bytes per element in double precision, without the read of a line before it is overwritten.
"""

from __future__ import annotations

import numpy as np

COPY_BYTES, TRIAD_BYTES = 16, 24  # per element
CHAIN = 32  # multiply-adds of `multiply_add` per element
CHAIN_FLOPS = 2 * CHAIN


def copy(out: np.ndarray, x: np.ndarray, repeats: int) -> None:
    """Copy x to `out`, `repeats` times; float64[n]."""
    for _ in range(repeats):
        out[...] = x


def triad(out: np.ndarray, x: np.ndarray, y: np.ndarray, factor: float, repeats: int) -> None:
    """Set out = x + (factor + r) y for r = 0 .. repeats - 1, one after the other; float64[n]."""
    for r in range(repeats):
        out[...] = x + (factor + r) * y


def multiply_add(x: np.ndarray, factor: float, term: float, repeats: int) -> None:
    """Set x = x factor + term in place, `CHAIN` times per element, all of it `repeats` times; float64[n]."""
    for _ in range(repeats * CHAIN):
        x[...] = x * factor + term
