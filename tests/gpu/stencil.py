"""Checks of the stencils."""

from __future__ import annotations

from functools import partial

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels import stencil
from tests.gpu.checks import Check, Pairs, size

SHAPES = {1: (301,), 2: (45, 301), 3: (23, 45, 67)}
SMALL = {1: (13,), 2: (7, 11), 3: (5, 6, 7)}
LAPLACIAN_4 = (-2.5, 4 / 3, -1 / 12)


def _case(ndim: int, device: Device, dtype: np.dtype) -> Pairs:
    """All operations on one grid: whole, and in the pieces of an overlapped step, a core and a rim."""
    shape = size(device, SHAPES, SMALL)[ndim]
    rng = np.random.default_rng(ndim)
    field, coefficient = rng.normal(size=shape).astype(dtype), rng.uniform(0.1, 1, shape).astype(dtype)
    spacing = (0.7, 1.1, 0.9)[:ndim]
    calls: dict[str, tuple[str, int, tuple]] = {
        "constant": ("diffuse", 1, (0.3, 0.05, spacing)),
        "variable": ("diffuse", 1, (coefficient, 0.05, spacing)),
        "twice": ("diffuse_twice", 2, (coefficient, 0.05, spacing)),
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


CHECKS = [Check(f"stencil {ndim}-D", partial(_case, ndim)) for ndim in (1, 2, 3)]
