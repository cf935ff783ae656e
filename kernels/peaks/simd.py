"""Peaks in Numba. The chain of an element is one dependent line; elements side by side fill the vector units."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import FUSED, STRICT, inlined, jit


@jit(math=STRICT)
def copy(out: np.ndarray, x: np.ndarray, repeats: int) -> None:
    for _ in range(repeats):
        for i in range(np.uint64(x.size)):
            out[i] = x[i]


@jit(math=FUSED, noalias=True)
def triad(out: np.ndarray, x: np.ndarray, y: np.ndarray, factor: float, repeats: int) -> None:
    """Set out = x + (factor + r) y, where product and sum may be fused; see `reference.triad`."""
    for r in range(repeats):
        now = factor + r
        for i in range(np.uint64(x.size)):
            out[i] = x[i] + now * y[i]


@inlined
def _step(a, b, c, d, factor, term):
    return a * factor + term, b * factor + term, c * factor + term, d * factor + term


@inlined
def _four(a, b, c, d, e, f, g, h, factor, term):
    a, b, c, d = _step(a, b, c, d, factor, term)
    e, f, g, h = _step(e, f, g, h, factor, term)
    a, b, c, d = _step(a, b, c, d, factor, term)
    e, f, g, h = _step(e, f, g, h, factor, term)
    a, b, c, d = _step(a, b, c, d, factor, term)
    e, f, g, h = _step(e, f, g, h, factor, term)
    a, b, c, d = _step(a, b, c, d, factor, term)
    e, f, g, h = _step(e, f, g, h, factor, term)
    return a, b, c, d, e, f, g, h


@jit(math=FUSED)
def multiply_add(x: np.ndarray, factor: float, term: float, repeats: int) -> None:
    """Chains of multiply-adds (`reference.multiply_add`) on a multiple of 8 elements, rounded once where the
    processor can. Eight chains stand side by side in each lane, so that none waits for its own last step.
    """
    n = np.uint64(x.size) // np.uint64(8)
    for _ in range(repeats):
        for i in range(n):
            a, b, c, d = x[i], x[n + i], x[2 * n + i], x[3 * n + i]
            e, f, g, h = x[4 * n + i], x[5 * n + i], x[6 * n + i], x[7 * n + i]
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            a, b, c, d, e, f, g, h = _four(a, b, c, d, e, f, g, h, factor, term)
            x[i], x[n + i], x[2 * n + i], x[3 * n + i] = a, b, c, d
            x[4 * n + i], x[5 * n + i], x[6 * n + i], x[7 * n + i] = e, f, g, h
