"""Numbers of 16 bits and float32 on a GPU: a thread a number. What the functions compute is said in `reference`.

The conversions are those of `simd`, on the bits: a GPU has instructions for them, and memory sets the pace.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.nn.memory import empty
from hpckit.kernels.nn.narrow.simd import SHIFT, bfloat16_of, float16_of, shifted

THREADS = threads(256)
u4, u8 = np.uint32, np.uint64


@kernel
def _narrow_bfloat16(x, bits):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        bits[i] = bfloat16_of(x[i])


@kernel
def _narrow_float16(x, bits):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        bits[i] = float16_of(x[i])


@kernel
def _widen_bfloat16(bits, x):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        x[i] = u4(bits[i]) << u4(16)


@kernel
def _widen_float16(bits, x):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        x[i] = shifted(u4(bits[i]))


@kernel
def _times(x, factor):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        x[i] *= factor


@kernel
def _add(x, y):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        x[i] += y[i]


def narrow(x: Any, bits: Any, kind: str) -> None:
    if x.size:
        launch = _narrow_bfloat16 if kind == "bfloat16" else _narrow_float16
        launch[blocks(x.size, THREADS), THREADS](x.view(np.uint32), bits)


def widen(bits: Any, x: Any, kind: str) -> None:
    if not x.size:
        return
    grid = blocks(x.size, THREADS)
    if kind == "bfloat16":
        _widen_bfloat16[grid, THREADS](bits, x.view(np.uint32))
    else:
        _widen_float16[grid, THREADS](bits, x.view(np.uint32))
        _times[grid, THREADS](x, SHIFT)


def round_to(x: Any, kind: str) -> None:
    bits = empty(x.shape, x, np.uint16)
    narrow(x, bits, kind)
    widen(bits, x, kind)


def accumulate(bits: Any, x: Any, kind: str) -> None:
    if not x.size:
        return
    sums = empty(x.shape, x)
    widen(bits, sums, kind)
    _add[blocks(x.size, THREADS), THREADS](sums, x)
    narrow(sums, bits, kind)
