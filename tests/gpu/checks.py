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

__all__ = ["AT_NIGHT", "DOUBLE", "PRECISIONS", "SINGLE", "Check", "Pairs", "checks", "difference", "size"]

MODULES = (
    "stencil", "slabs", "euler", "physics", "split", "shallow_water", "flood", "sphere",
    "particles", "molecules", "charges", "snap", "layers", "graphs",
)  # fmt: skip
PRECISIONS = ("float64", "float32")
# In the simulator these take seconds to minutes; by day goes a kernel of each other family, and those of particles.
AT_NIGHT = {
    "stencil 1-D", "stencil 3-D", "euler2d", "euler3d", "box physics", "tracers", "split dynamics",
    "split dynamics over terrain", "staggered mixing", "ice", "shallow_water", "SNAP", "attention by products",
    "products and attention of 16 bits",
}  # fmt: skip
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


def checks(brief: bool = False) -> list[Check]:
    """The checks of all modules; brief: without those of the night."""
    found = [check for name in MODULES for check in importlib.import_module(f"tests.gpu.{name}").CHECKS]
    return [check for check in found if not (brief and check.name in AT_NIGHT)]


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest magnitude; inf where shapes differ or one is not finite."""
    if got.shape != expected.shape or not np.isfinite(got).all():
        return float("inf")
    largest = float(np.abs(expected).max(initial=0.0))
    return float(np.abs(got - expected).max(initial=0.0)) / (largest or 1.0)
