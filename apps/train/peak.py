"""The rate of matrix products on this rank: the peak that training is measured against."""

from __future__ import annotations

import time

import numpy as np

SIZE = 1024  # rows and columns
ROUNDS = 5


def gemm_peak(dtype: str) -> float:
    """Floating-point operations/s in a product of two matrices of 1024 x 1024: the best of five rounds.

    All ranks of a node call it at once, so that what they share, they share here too.
    """
    a, b = (np.random.default_rng(i).standard_normal((SIZE, SIZE)).astype(dtype) for i in range(2))
    out, best = a @ b, np.inf
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        np.matmul(a, b, out=out)
        best = min(best, time.perf_counter() - begin)
    return 2.0 * SIZE**3 / best
