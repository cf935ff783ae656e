"""Whether this process could use a GPU: queries the driver and the installed packages without starting either."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

from hpckit.errors import SetupError

PACKAGES = {"CuPy": "cupy", "numba-cuda": "numba_cuda"}


def missing() -> str:
    """What this process lacks to use a GPU, as a sentence; empty if it can use one. Starts no context."""
    absent = [name for name, module in PACKAGES.items() if importlib.util.find_spec(module) is None]
    count = driver_count()
    if count is None:
        return "no CUDA driver (libcuda.so.1) was found" + (f"; {' and '.join(absent)} missing too" if absent else "")
    if count == 0:
        return "the CUDA driver shows no GPU to this process"
    return f"{' and '.join(absent)} not installed" if absent else ""


def no_gpu(problem: str) -> SetupError:
    """The error of a run that asked for a GPU and has none."""
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return SetupError(
        f"no GPU can be used: {problem}",
        likely=f"looked for an NVIDIA GPU, its driver, CuPy and numba-cuda; device files: {', '.join(nodes) or 'none'}",
        do="pip install 'hpckit[gpu]' and see nvidia-smi (driver 580 or newer); in a batch job ask for a GPU; or leave"
        " --gpu out; to try it without a GPU, slowly: NUMBA_ENABLE_CUDASIM=1",
    )


def driver_count() -> int | None:
    """How many GPUs the driver shows; None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value
