"""Loops that a machine's peaks are measured with, NumPy: what they compute, and how many bytes and flops that takes.

copy and triad are those of STREAM (McCalpin 1995, IEEE TCCA Newsletter, 19-25), which counts each array once: 16 and 24
bytes an element in double precision, not the read of a line that is about to be overwritten.
"""

from __future__ import annotations

import numpy as np

COPY_BYTES, TRIAD_BYTES = 16, 24  # an element
CHAIN = 32  # multiply-adds of `multiply_add` an element
CHAIN_FLOPS = 2 * CHAIN


def copy(out: np.ndarray, x: np.ndarray, repeats: int) -> None:
    """Out = x, `repeats` times over; float64[n]."""
    for _ in range(repeats):
        out[...] = x


def triad(out: np.ndarray, x: np.ndarray, y: np.ndarray, factor: float, repeats: int) -> None:
    """Out = x + (factor + r) y for r = 0 .. repeats - 1, one after the other; float64[n]."""
    for r in range(repeats):
        out[...] = x + (factor + r) * y


def multiply_add(x: np.ndarray, factor: float, term: float, repeats: int) -> None:
    """X = x factor + term, `CHAIN` times an element, the whole `repeats` times, in place; float64[n]."""
    for _ in range(repeats * CHAIN):
        x[...] = x * factor + term
