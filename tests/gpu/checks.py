"""Every CUDA kernel against its form for the CPU, in double precision: a list of modules, each with its CHECKS.

`python -m tests.gpu` runs them all on a GPU, or in Numba's simulator on tiny grids (NUMBA_ENABLE_CUDASIM=1). The same
checks, with the GPU replaced by memory of the host and launches by compilations, are what CI compiles for a GPU that it
does not have, so that a kernel without a check is a failing test.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.bench.gpu.figure import size
from hpckit.comm.device import Device

__all__ = ["DOUBLE", "PRECISIONS", "SINGLE", "Check", "Pairs", "checks", "difference", "size"]

MODULES = (
    "stencil", "slabs", "euler", "physics", "split", "shallow_water", "flood", "sphere",
    "particles", "molecules", "charges", "snap", "layers", "graphs",
)  # fmt: skip
PRECISIONS = ("float64", "float32")
DOUBLE, SINGLE = 1e-12, 2e-6  # largest difference allowed, over the largest magnitude

Pairs = dict[str, tuple[Any, np.ndarray]]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Check:
    """`case(device, dtype)` runs kernels on the device: by label, what came out there and what the CPU has (float64).

    `single`: the tolerance in single precision, relative to the largest magnitude of the array.
    """

    name: str
    case: Callable[[Device, np.dtype], Pairs]
    single: float = SINGLE

    def rows(self, device: Device, precisions: Sequence[str] = PRECISIONS) -> Rows:
        """The largest difference in each precision, where it is, and whether it is small enough."""
        allowed = {"float64": DOUBLE, "float32": self.single}
        return [self._row(device, precision, allowed[precision]) for precision in precisions]

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


def checks() -> list[Check]:
    """The checks of all modules."""
    return [check for name in MODULES for check in importlib.import_module(f"tests.gpu.{name}").CHECKS]


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest magnitude; inf where shapes differ or one is not finite."""
    if got.shape != expected.shape or not np.isfinite(got).all():
        return float("inf")
    largest = float(np.abs(expected).max(initial=0.0))
    return float(np.abs(got - expected).max(initial=0.0)) / (largest or 1.0)
