"""The rate of matrix products on this rank: the peak that training is measured against."""

from __future__ import annotations

import time

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.kernels.nn.matmul import multiply

SIZE, GPU_SIZE = 1024, 4096  # rows and columns
ROUNDS = 5


def gemm_peak(dtype: str, device: Device = HOST) -> float:
    """Floating-point operations/s in a product of two matrices of 1024 x 1024 (4096 on a GPU): the best of five rounds.

    All ranks of a node call it at once, so that what they share, they share here too.
    """
    size = SIZE if not device.is_gpu or isinstance(device, SimulatedGpu) else GPU_SIZE
    a, b = (device.to_device(np.random.default_rng(i).standard_normal((size, size)).astype(dtype)) for i in range(2))
    out, best = device.zeros((size, size), dtype), np.inf
    for _ in range(ROUNDS + 1):  # the first compiles, and is not the best
        device.wait()
        begin = time.perf_counter()
        multiply(a, b, out)
        device.wait()
        best = min(best, time.perf_counter() - begin)
    return 2.0 * size**3 / best
