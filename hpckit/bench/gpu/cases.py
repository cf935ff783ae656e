"""What `hpckit bench gpu` checks and measures: a list of modules, each with its CHECKS and FIGURES.

A check compares a CUDA kernel with its form for the CPU in double precision. The same checks, with the GPU replaced by
memory of the host and launches by compilations, are what CI compiles for a GPU that it does not have, so that a kernel
without a check is a failing test.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from hpckit.device import Device
from hpckit.simulated_gpu import SimulatedGpu

MODULES = (
    "hpckit.bench.gpu_stencil",
    "hpckit.bench.gpu_halo",
    "hpckit.bench.gpu_euler",
    "hpckit.bench.gpu_physics",
    "hpckit.bench.gpu_shallow_water",
    "hpckit.bench.gpu_flood",
    "hpckit.bench.gpu_md",
    "hpckit.bench.gpu_layers",
    "hpckit.bench.gpu.train",
)
DOUBLE, SINGLE = 1e-12, 2e-6  # largest difference allowed, over the largest magnitude
PAUSE = 0.02  # seconds that a timing takes at least: launches are asynchronous

Pairs = dict[str, tuple[Any, np.ndarray]]
Rows = list[dict[str, Any]]
Ratios = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Check:
    """`case(device, dtype)` runs kernels on the device: by label, what came out there and what the CPU has (float64).

    `single`: the tolerance in single precision, relative to the largest magnitude of the array.
    """

    name: str
    case: Callable[[Device, np.dtype], Pairs]
    single: float = SINGLE

    def rows(self, device: Device) -> Rows:
        """The largest difference in each precision, where it is, and whether it is small enough."""
        return [self._row(device, dtype, most) for dtype, most in ((np.float64, DOUBLE), (np.float32, self.single))]

    def _row(self, device: Device, dtype: Any, allowed: float) -> dict[str, Any]:
        found = self.case(device, np.dtype(dtype))
        errors = {label: difference(device.to_host(got), expected) for label, (got, expected) in found.items()}
        worst = max(errors, key=errors.__getitem__)
        return {
            "check": self.name,
            "dtype": np.dtype(dtype).name,
            "arrays": len(errors),
            "difference": errors[worst],
            "allowed": allowed,
            "passed": bool(errors[worst] <= allowed),
            "in": worst if errors[worst] else "",
        }


@dataclass(frozen=True)
class Figure:
    """`measure(device, quick, copy)` -> rows and ratios; `copy` is the measured bandwidth of a copy, bytes/s."""

    name: str
    measure: Callable[[Device, bool, float], tuple[Rows, Ratios]]


def checks() -> list[Check]:
    """The checks of all modules."""
    return [check for name in MODULES for check in importlib.import_module(name).CHECKS]


def figures() -> list[Figure]:
    """The figures of all modules."""
    return [figure for name in MODULES for figure in importlib.import_module(name).FIGURES]


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest magnitude; inf where shapes differ or one is not finite."""
    if got.shape != expected.shape or not np.isfinite(got).all():
        return float("inf")
    largest = float(np.abs(expected).max(initial=0.0))
    return float(np.abs(got - expected).max(initial=0.0)) / (largest or 1.0)


def size(device: Device, real: Any, simulated: Any) -> Any:
    """What suits a GPU, or what suits the simulator: sizes, shapes."""
    return simulated if isinstance(device, SimulatedGpu) else real


def seconds(device: Device, call: Callable[[], object], rounds: int = 9) -> list[float]:
    """Seconds a call, `rounds` times; as many calls together as make up for the start and the end of a timing."""
    if isinstance(device, SimulatedGpu):  # what it takes means nothing there, and it takes long
        return [_timed(device, call, 1)]
    call()
    device.wait()
    calls = 1
    while (took := _timed(device, call, calls)) < PAUSE:
        calls = min(4 * calls, max(calls + 1, int(1.2 * calls * PAUSE / max(took, 1e-6))))
    return [_timed(device, call, calls) / calls for _ in range(rounds)]


def share(times: list[float], nbytes: float, copy: float) -> dict[str, float]:
    """t_eff over the bandwidth of a copy: a ratio as the benchmarks print it."""
    each = [nbytes / one / copy for one in times]
    return {"median": median(each), "low": min(each), "high": max(each), "rounds": len(each)}


def _timed(device: Device, call: Callable[[], object], calls: int) -> float:
    device.wait()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    device.wait()
    return time.perf_counter() - begin
