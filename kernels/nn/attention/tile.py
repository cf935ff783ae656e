"""The product inside attention: small matrices that stay in the caches, in tiles that stay in registers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpckit.kernels.compile.intrinsics import store
from hpckit.kernels.compile.jit import jit
from hpckit.kernels.compile.lanes import lanes
from hpckit.kernels.compile.vectors import available

ROWS = 4  # of a tile: with two vectors a row, as many sums as two fused units of four cycles keep busy
LANES = {"float32": 16, "float64": 8} if available()[0] == "avx512" else {"float32": 8, "float64": 4}
KINDS = {"float32": "f", "float64": "d"}


def columns(dtype: str) -> int:
    """Columns of a tile: what the columns of a product must be a multiple of."""
    return 2 * LANES[dtype]


@functools.cache
def tile_product(dtype: str) -> Any:
    """The kernel `(a, at, down, across, b, b_at, b_pitch, c, c_pitch, rows, inner, columns, add)`.

    c[i c_pitch + j] = sum over k of a[at + i down + k across] b[b_at + k b_pitch + j], added to what is there with
    `add`. Arrays are flat; rows is a multiple of ROWS, columns of `columns(dtype)`.
    """
    n, vectors = LANES[dtype], lanes(KINDS[dtype], LANES[dtype])
    load, broadcast, zero = vectors.load, vectors.broadcast, np.dtype(dtype).type(0)

    @jit(noalias=True, borrowed=True, key=("tile_product", dtype, n))
    def product(a, at, down, across, b, b_at, b_pitch, c, c_pitch, rows, inner, width, add):
        for j in range(0, width, 2 * n):
            for i in range(0, rows, ROWS):
                p0 = i * c_pitch + j
                p1 = p0 + c_pitch
                p2 = p1 + c_pitch
                p3 = p2 + c_pitch
                c00 = c01 = c10 = c11 = c20 = c21 = c30 = c31 = broadcast(zero)
                if add:
                    c00, c01, c10, c11 = load(c, p0), load(c, p0 + n), load(c, p1), load(c, p1 + n)
                    c20, c21, c30, c31 = load(c, p2), load(c, p2 + n), load(c, p3), load(c, p3 + n)
                q0 = np.uint64(at + i * down)
                q1, step = q0 + np.uint64(down), np.uint64(across)
                q2 = q1 + np.uint64(down)
                q3 = q2 + np.uint64(down)
                row = b_at + j
                for _ in range(inner):
                    b0, b1 = load(b, row), load(b, row + n)
                    x = broadcast(a[q0])
                    c00, c01 = c00 + x * b0, c01 + x * b1
                    x = broadcast(a[q1])
                    c10, c11 = c10 + x * b0, c11 + x * b1
                    x = broadcast(a[q2])
                    c20, c21 = c20 + x * b0, c21 + x * b1
                    x = broadcast(a[q3])
                    c30, c31 = c30 + x * b0, c31 + x * b1
                    q0 += step
                    q1 += step
                    q2 += step
                    q3 += step
                    row += b_pitch
                store(c, p0, c00)
                store(c, p0 + n, c01)
                store(c, p1, c10)
                store(c, p1 + n, c11)
                store(c, p2, c20)
                store(c, p2 + n, c21)
                store(c, p3, c30)
                store(c, p3 + n, c31)

    return product
