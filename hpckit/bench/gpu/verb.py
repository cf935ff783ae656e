"""A GPU: steps of every app against the bandwidth of a copy, and training against PyTorch.

The copy is CuPy's, of an array to another on the device, 2 GiB each (256 MiB with `quick`): bytes read and written over
the time. t_eff counts the bytes that a step must move, as on the CPU (`hpckit bench stencil`, `shallow_water`). Whether
kernels are right is a test: `pytest -m gpu`.

Without a GPU it ends with exit code 3. In Numba's simulator (NUMBA_ENABLE_CUDASIM=1) it runs on tiny grids; the figures
mean nothing and say so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.command import add_only
from hpckit.bench.gpu.figure import seconds, size
from hpckit.bench.gpu.figures import FIGURES
from hpckit.bench.measure import Ratios, Rows, result
from hpckit.comm.device import Device
from hpckit.comm.gpu import first_gpu
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.kernels.pack import slab_kernels

COPY_BYTES, QUICK_BYTES = 2 << 30, 256 << 20


def add_options(it: Any) -> tuple[str, ...]:
    """`--only`."""
    return add_only(it, list(FIGURES))


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """All figures, or those in `only`. Raises `SetupError` without a GPU."""
    device = first_gpu()
    cuda_slabs = slab_kernels(np.dtype(np.float64), on_device=True)
    copy = copy_bandwidth(device, quick)
    few = device.zeros((1, 3, 1))
    launch = median(seconds(device, lambda: cuda_slabs.clear_slab(few, 1, 1)))
    rows: Rows = [
        {"case": "copy on the device", "GB_per_s": copy / 1e9},
        {"case": "launch of a kernel", "microseconds": launch * 1e6},
    ]
    ratios: Ratios = {}
    for name in only or FIGURES:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        more_rows, more_ratios = FIGURES[name](device, quick, copy)
        rows += more_rows
        ratios |= more_ratios
    if isinstance(device, SimulatedGpu):
        about = {"gpu": device.name, "note": "simulated: figures without meaning"}
        return result("gpu", [{**row, "simulated": True} for row in rows], {}, about=about)
    return result("gpu", rows, ratios, about={"gpu": device.name})


def copy_bandwidth(device: Device, quick: bool) -> float:
    """Bytes read and written per second by a copy of an array on the device."""
    count = size(device, (QUICK_BYTES if quick else COPY_BYTES) // 8, 64)
    source, target = device.zeros((count,)), device.zeros((count,))

    return 2 * source.nbytes / median(seconds(device, lambda: device.xp.copyto(target, source)))
