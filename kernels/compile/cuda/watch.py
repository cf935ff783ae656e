"""Sums and maxima over all cells of arrays on a GPU, in double precision, for `diagnose`.

A fixed number of blocks goes over the cells; each leaves its sums and maxima, and the host puts those together. The
order of the additions depends on the number of cells alone: the same state has the same sums.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.cuda.pieces import in_precision
from hpckit.kernels.device_array import from_host, to_host

MOST_THREADS, MOST_BLOCKS = 128, 132 * 8
f8, u8 = np.float64, np.uint64


def watch(
    add_cell: Any, sums: int, maxima: int, cells: int, arrays: tuple, layout: tuple, numbers: tuple
) -> np.ndarray:
    """The sums and then the maxima (-inf where there is none), float64[sums + maxima]; waits for the device.

    add_cell: a function made by `jit.inlined` with the arguments (own, cell, five arrays, layout, numbers), which adds
    a cell, counted from 0 to `cells`, to the sums at the head of `own` and takes the maxima behind them. arrays: up to
    five. layout: integers; numbers: floats.
    """
    width = threads(MOST_THREADS)
    many = min(blocks(cells, width), MOST_BLOCKS)
    partial = from_host(np.zeros((many, sums + maxima)), arrays[0])
    five = (*arrays, *[arrays[0]] * (5 - len(arrays)))
    watch_kernel(add_cell, sums, maxima)[many, width](
        partial, *five, cells, tuple(map(int, layout)), tuple(map(float, numbers))
    )
    found = to_host(partial)
    return np.append(found[:, :sums].sum(axis=0), found[:, sums:].max(axis=0))


@functools.cache
def watch_kernel(add_cell: Any, sums: int, maxima: int) -> Kernel:
    """The kernel that leaves the sums and maxima of each block."""
    count = sums + maxima
    size = count * MOST_THREADS

    def partial_watch(out, one, two, three, four, five, cells, layout, numbers):
        own, all_own = cuda.local.array(count, f8), cuda.shared.array(size, f8)
        for k in range(count):
            own[k] = 0.0 if k < sums else -math.inf
        for cell in range(cuda.grid(1), cells, cuda.gridsize(1)):
            add_cell(own, cell, one, two, three, four, five, layout, numbers)
        thread = cuda.threadIdx.x
        for k in range(count):
            all_own[u8(k * MOST_THREADS + thread)] = own[k]
        cuda.syncthreads()
        half = cuda.blockDim.x
        while half > 1:
            rest = half - half // 2  # the upper threads are taken in by the lower ones
            half = half // 2
            if thread < half:
                for k in range(count):
                    here, there = u8(k * MOST_THREADS + thread), u8(k * MOST_THREADS + thread + rest)
                    if k < sums:
                        all_own[here] += all_own[there]
                    else:
                        all_own[here] = max(all_own[here], all_own[there])
            half = rest
            cuda.syncthreads()
        if thread == 0:
            for k in range(count):
                out[cuda.blockIdx.x, k] = all_own[u8(k * MOST_THREADS)]

    return kernel(in_precision(partial_watch, f8))
