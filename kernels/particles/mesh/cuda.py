"""Charges and fields on a mesh, on a GPU. What the functions compute is said in `reference`.

A thread adds a layer of a particle's points by atomic additions. These are multiples of one number, whose sums are
exact: the grid has the same bits in whatever order they come.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty
from hpckit.kernels.particles.cuda_records import add_force, load_record
from hpckit.kernels.particles.mesh import reference
from hpckit.kernels.particles.mesh.reference import SIDE

THREADS = threads(128)
u8 = np.uint64


@inlined
def _first_point(place, order):
    """The first point of a particle at `place`, and how far it is beyond the point to its left."""
    shifted = place + 0.5 * (order % 2)
    low = math.floor(shifted)
    return int(low) - (order - 1) // 2, shifted - low


@inlined
def _weigh(w, order, weights, at):
    """weights[at : at + order] = those of a particle's points along a dim."""
    weights[at], weights[at + 1] = 1.0 - w, w
    for m in range(3, order + 1):
        share = 1.0 / (m - 1)
        weights[at + m - 1] = share * w * weights[at + m - 2]
        for back in range(m - 2):
            k = m - 2 - back
            one, other = weights[at + k - 1], weights[at + k]
            weights[at + k] = share * ((w + (m - 1 - k)) * one + ((k + 1) - w) * other)
        weights[at] = share * (1.0 - w) * weights[at]


@inlined
def _place(
    positions, s, x_lower, y_lower, z_lower, x_scale, y_scale, z_scale, x_start, y_start, z_start,
    x_shape, y_shape, z_shape, order, weights,
):  # fmt: skip
    """The first point of particle s within the local grid, along each dim, and into `weights` those of its points along
    x, y and z; the first along x is -1 where a point is beyond the grid.
    """
    x, y, z, _ = load_record(positions, s * u8(4))
    i, x_over = _first_point((x - x_lower) * x_scale, order)
    j, y_over = _first_point((y - y_lower) * y_scale, order)
    k, z_over = _first_point((z - z_lower) * z_scale, order)
    i, j, k = i - x_start, j - y_start, k - z_start
    if min(i, j, k) < 0 or i + order > x_shape or j + order > y_shape or k + order > z_shape:
        i = -1
    else:
        _weigh(x_over, order, weights, 0)
        _weigh(y_over, order, weights, order)
        _weigh(z_over, order, weights, 2 * order)
    return i, j, k


@cache
def spread_kernel(order: int) -> Kernel:
    """The kernel of `spread` for an order; arrays flat, and what is of the three dims as numbers."""
    room = 3 * order

    @kernel
    def spread(
        positions, charges, slots, x_lower, y_lower, z_lower, x_scale, y_scale, z_scale, x_start, y_start, z_start,
        x_shape, y_shape, z_shape, big, grid, lost,
    ):  # fmt: skip
        at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        s = at // u8(order)
        if s < u8(slots) and charges[s] != 0.0:
            layer = int(at - s * u8(order))
            weights = cuda.local.array(room, np.float64)
            i, j, k = _place(
                positions, s, x_lower, y_lower, z_lower, x_scale, y_scale, z_scale, x_start, y_start, z_start,
                x_shape, y_shape, z_shape, order, weights,
            )  # fmt: skip
            if i < 0:
                if layer == 0:
                    cuda.atomic.add(lost, 0, 1)
                return
            along = charges[s] * weights[layer]
            for b in range(order):
                row, factor = ((i + layer) * y_shape + j + b) * z_shape + k, along * weights[order + b]
                for c in range(order):
                    cuda.atomic.add(grid, u8(row + c), (factor * weights[2 * order + c] + big) - big)

    return spread


@cache
def gather_kernel(order: int) -> Kernel:
    """The kernel of `gather` for an order, as `spread_kernel`."""
    room = 3 * order

    @kernel
    def gather(
        positions, charges, slots, x_lower, y_lower, z_lower, x_scale, y_scale, z_scale, x_start, y_start, z_start,
        x_shape, y_shape, z_shape, fields, forces,
    ):  # fmt: skip
        s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if s < u8(slots) and charges[s] != 0.0:
            weights = cuda.local.array(room, np.float64)
            i, j, k = _place(
                positions, s, x_lower, y_lower, z_lower, x_scale, y_scale, z_scale, x_start, y_start, z_start,
                x_shape, y_shape, z_shape, order, weights,
            )  # fmt: skip
            if i < 0:
                return  # `spread` has counted it
            fx, fy, fz = 0.0, 0.0, 0.0
            for a in range(order):
                along = charges[s] * weights[a]
                for b in range(order):
                    row = u8(SIDE) * u8(((i + a) * y_shape + j + b) * z_shape + k)
                    px, py, pz = 0.0, 0.0, 0.0
                    for c in range(order):
                        x, y, z, _ = load_record(fields, row + u8(SIDE) * u8(c))
                        weight = weights[2 * order + c]
                        px, py, pz = px + weight * x, py + weight * y, pz + weight * z
                    factor = along * weights[order + b]
                    fx, fy, fz = fx + factor * px, fy + factor * py, fz + factor * pz
            add_force(forces, s, fx, fy, fz)

    return gather


def _numbers(lower: Any, scale: Any, start: Any, shape: Any) -> tuple:
    return *map(float, lower), *map(float, scale), *map(int, start), *map(int, shape)


def spread(
    positions: Any,
    charges: Any,
    slots: int,
    lower: Any,
    scale: Any,
    start: Any,
    shape: Any,
    order: int,
    big: float,
    grid: Any,
) -> Any:
    """See `reference.spread`; returns a number on the GPU, and does not wait for it."""
    lost = empty(1, positions, np.int32)
    lost[:] = 0
    launch = spread_kernel(order)[blocks(max(1, slots * order), THREADS), THREADS]
    launch(positions.reshape(-1), charges, slots, *_numbers(lower, scale, start, shape), big, grid, lost)
    return lost[0]


def fold(grid: Any, start: Any, whole: Any) -> None:
    """See `reference.fold`, whose slices CuPy takes as they are."""
    reference.fold(grid, start, whole)


def lay_beside(fields: Any, start: Any, shape: Any, beside: Any) -> None:
    """See `reference.lay_beside`, whose slices CuPy takes as they are."""
    reference.lay_beside(fields, start, shape, beside)


def gather(
    positions: Any,
    charges: Any,
    slots: int,
    lower: Any,
    scale: Any,
    start: Any,
    shape: Any,
    order: int,
    fields: Any,
    forces: Any,
) -> None:
    """See `reference.gather`."""
    launch = gather_kernel(order)[blocks(max(1, slots), THREADS), THREADS]
    flat = fields.reshape(-1), forces.reshape(-1)
    launch(positions.reshape(-1), charges, slots, *_numbers(lower, scale, start, shape), *flat)
