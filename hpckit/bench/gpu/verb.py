"""A GPU: every CUDA kernel against its form for the CPU, and figures against the bandwidth of a copy.

The copy is CuPy's, of an array to another on the device, 2 GiB each (256 MiB with `quick`): bytes read and written over
the time. t_eff counts the bytes that a step must move, as on the CPU (`hpckit bench stencil`, `shallow_water`).

Without a GPU it ends with exit code 3. In Numba's simulator (NUMBA_ENABLE_CUDASIM=1) it is a self test: the checks are
real, on tiny grids; the figures mean nothing and say so.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.gpu.cases import Rows, checks, figures, seconds, size
from hpckit.bench.measure import machine
from hpckit.device import Device
from hpckit.errors import HpckitError
from hpckit.gpu_choice import first_gpu
from hpckit.kernels.pack import slab_kernels
from hpckit.simulated_gpu import SimulatedGpu

COPY_BYTES, QUICK_BYTES = 2 << 30, 256 << 20


def run(quick: bool = False) -> dict[str, Any]:
    """All checks and figures. Raises `SetupError` without a GPU, `HpckitError` where a check fails."""
    device = first_gpu()
    simulated = isinstance(device, SimulatedGpu)
    cuda_slabs = slab_kernels(np.dtype(np.float64), on_device=True)
    rows: Rows = []
    for check in checks():
        print(f"checking {check.name}", file=sys.stderr, flush=True)
        rows += check.rows(device)
    copy = copy_bandwidth(device, quick)
    rows.append({"case": "copy on the device", "GB_per_s": copy / 1e9})
    few = device.zeros((1, 3, 1))
    launch = median(seconds(device, lambda: cuda_slabs.clear_slab(few, 1, 1)))
    rows.append({"case": "launch of a kernel", "microseconds": launch * 1e6})
    ratios: dict[str, dict[str, float]] = {}
    for figure in figures():
        print(f"measuring {figure.name}", file=sys.stderr, flush=True)
        more_rows, more_ratios = figure.measure(device, quick, copy)
        rows += more_rows
        ratios |= more_ratios
    failed = [row for row in rows if row.get("passed") is False]
    note = "simulated: figures without meaning" if simulated else ""
    result = {
        "bench": "gpu",
        "machine": {**machine(), "gpu": device.name, **({"note": note} if note else {})},
        "results": [{**row, "simulated": True} for row in rows] if simulated else rows,
        "ratios": {} if simulated else ratios,
        "checks": {"passed": sum("passed" in row for row in rows) - len(failed), "failed": len(failed)},
    }
    if failed:
        first = failed[0]
        raise HpckitError(
            f"{len(failed)} of the GPU checks failed; the first: {first['check']} in {first['dtype']} is off by"
            f" {first['difference']:.3g} of the largest value, allowed {first['allowed']:.0e}",
            do="report it with the output of `hpckit doctor`",
        )
    return result


def copy_bandwidth(device: Device, quick: bool) -> float:
    """Bytes read and written per second by a copy of an array on the device."""
    count = size(device, (QUICK_BYTES if quick else COPY_BYTES) // 8, 64)
    source, target = device.zeros((count,)), device.zeros((count,))

    return 2 * source.nbytes / median(seconds(device, lambda: device.xp.copyto(target, source)))
