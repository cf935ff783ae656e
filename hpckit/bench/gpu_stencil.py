"""Stencils on a GPU: checks of all kernels, and t_eff of the heat equation over the bandwidth of a copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.gpu.cases import Check, Figure, Pairs, Ratios, Rows, seconds, share, size
from hpckit.device import Device
from hpckit.kernels import stencil
from hpckit.timing import t_eff

SHAPES = {1: (301,), 2: (45, 301), 3: (23, 45, 67)}
SMALL = {1: (13,), 2: (7, 11), 3: (5, 6, 7)}
LAPLACIAN_4 = (-2.5, 4 / 3, -1 / 12)
EDGE = 640
CONSTANT, VARIABLE = 16, 24  # bytes that must move per cell, double


def _case(ndim: int, device: Device, dtype: np.dtype) -> Pairs:
    """All operations on one grid: whole, and in the pieces of an overlapped step, a core and a rim."""
    shape = size(device, SHAPES, SMALL)[ndim]
    rng = np.random.default_rng(ndim)
    field, coefficient = rng.normal(size=shape).astype(dtype), rng.uniform(0.1, 1, shape).astype(dtype)
    spacing = (0.7, 1.1, 0.9)[:ndim]
    calls: dict[str, tuple[str, int, tuple]] = {
        "constant": ("diffuse", 1, (0.3, 0.05, spacing)),
        "variable": ("diffuse", 1, (coefficient, 0.05, spacing)),
        "flux": ("diffuse_flux", 1, (coefficient, 0.05, spacing)),
        "star": ("star", 2, (2,)),
        "star_laplacian": ("star_laplacian", 2, (LAPLACIAN_4,)),
    }
    pairs = {}
    for label, (name, radius, arguments) in calls.items():
        expected = np.full(shape, 7.0)
        wide = [argument.astype(np.float64) if isinstance(argument, np.ndarray) else argument for argument in arguments]
        getattr(stencil, name)(expected, field.astype(np.float64), *wide)
        there = [device.to_device(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments]
        for what, region in (("whole", None), ("in pieces", core_and_rim(shape, radius))):
            out = device.to_device(np.full(shape, 7.0, dtype))
            getattr(stencil, name)(out, device.to_device(field), *there, region=region)
            pairs[f"{label}, {what}"] = (out, expected)
    return pairs


def core_and_rim(shape: tuple[int, ...], radius: int) -> list[tuple[slice, ...]]:
    """The cells that a stencil updates, in disjoint boxes: those one cell from the ends apart, as a rank has them."""
    boxes, inner = [], [slice(radius, n - radius) for n in shape]
    for dim, n in enumerate(shape):
        if n <= 2 * radius + 2:
            continue
        for end in (slice(radius, radius + 1), slice(n - radius - 1, n - radius)):
            boxes.append((*inner[:dim], end, *inner[dim + 1 :]))
        inner[dim] = slice(radius + 1, n - radius - 1)
    return [tuple(inner), *boxes]


def heat3d(device: Device, quick: bool, copy: float) -> tuple[Rows, Ratios]:
    """One step at 640^3 (320^3 with `quick`), double: rows and ratios to a copy."""
    n = size(device, EDGE // 2 if quick else EDGE, 6)
    rng = np.random.default_rng(0)
    pair = [device.to_device(rng.random((n, n, n))) for _ in range(2)]
    coefficient = device.to_device(0.5 + 0.5 * rng.random((n, n, n)))

    def step(factor: Any) -> None:
        stencil.diffuse(pair[1], pair[0], factor, 0.15, 1.0)
        pair.reverse()

    steps: dict[str, tuple[Callable[[], None], int]] = {
        "const": (partial(step, 0.8), CONSTANT),
        "var": (partial(step, coefficient), VARIABLE),
    }
    rows, ratios = [], {}
    for name, (call, nbytes) in steps.items():
        times = seconds(device, call)
        rows.append(
            {
                "case": f"heat3d {n}^3, coefficient {name}",
                "milliseconds": median(times) * 1e3,
                "t_eff_GB_per_s": t_eff(nbytes * n**3, median(times)),
            }
        )
        ratios[f"gpu_heat3d_{name}_vs_copy"] = share(times, nbytes * n**3, copy)
    return rows, ratios


CHECKS = [Check(f"stencil {ndim}-D", partial(_case, ndim)) for ndim in (1, 2, 3)]
FIGURES = [Figure("heat3d", heat3d)]
