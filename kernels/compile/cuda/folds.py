"""Reductions over the threads of a block, in shared memory: by a tree, always in the same order."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.cuda.jit import cuda, simulating

u8 = np.uint64


def folders(count: int) -> int:
    """`count` threads of a block that folds; two in the simulator, where they wait for each other by milliseconds."""
    return 2 if simulating() else count


@cuda.jit(device=True)
def fold_sum(values, lane):
    """The sum of `values` for every thread, whose own is values[lane]. Their number is a power of two."""
    half = u8(len(values)) >> u8(1)
    while half > u8(0):
        cuda.syncthreads()
        if lane < half:
            values[lane] += values[lane + half]
        half = half >> u8(1)
    cuda.syncthreads()
    result = values[0]
    cuda.syncthreads()
    return result


@cuda.jit(device=True)
def fold_max(values, lane):
    """The largest of `values`, nan if one is nan; otherwise as `fold_sum`."""
    half = u8(len(values)) >> u8(1)
    while half > u8(0):
        cuda.syncthreads()
        if lane < half:
            other = values[lane + half]
            if other > values[lane] or other != other:
                values[lane] = other
        half = half >> u8(1)
    cuda.syncthreads()
    result = values[0]
    cuda.syncthreads()
    return result
