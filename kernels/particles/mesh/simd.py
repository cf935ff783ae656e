"""Charges and fields on a mesh, Numba: rows of eight points are one vector or two, those beyond a particle's own have
weight 0. What the functions compute is said in `reference`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.loops import REORDERED, rounded_number
from hpckit.kernels.particles.mesh.reference import WIDTH

LANES = {"avx512": 8, "avx2": 4}


@inlined
def _weigh(place, order, found):
    """The first point, and in `found` the weights of `order` points."""
    place += 0.5 * (order % 2)
    first = math.floor(place)
    w = place - first
    found[0], found[1] = 1.0 - w, w
    for m in range(3, order + 1):
        share = 1.0 / (m - 1)
        found[m - 1] = share * w * found[m - 2]
        for j in range(1, m - 1):
            found[m - 1 - j] = share * ((w + j) * found[m - 2 - j] + (m - j - w) * found[m - 1 - j])
        found[0] = share * (1.0 - w) * found[0]
    return int(first) - (order - 1) // 2


def _pieces(isa: str) -> tuple[int, Any, Any, Any, Any, Any]:
    """Numbers at a time, and how they are made, loaded, stored, rounded and added up."""
    if isa not in LANES:

        @inlined
        def load(array, at):
            return array[at]

        @inlined
        def store(array, at, value):
            array[at] = value

        @inlined
        def itself(value):
            return value

        return 1, itself, load, store, rounded_number, itself
    it = vectors.lanes("d", LANES[isa])
    return LANES[isa], it.broadcast, it.load, simd.store, simd.rounded, simd.sum_lanes


@cache
def spread_kernel(order: int, isa: str) -> Any:
    """The kernel of `spread` for an order and an entry of `vectors.available()`."""
    n, broadcast, load, store, rounded, _ = _pieces(isa)

    def spread(positions, charges, slots, lower, scale, start, shape, big, grid):
        lost, shift = 0, broadcast(big)
        wx, wy, wz = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
        for s in range(slots):
            charge = charges[s]
            if charge == 0.0:
                continue
            i = _weigh((positions[s, 0] - lower[0]) * scale[0], order, wx) - start[0]
            j = _weigh((positions[s, 1] - lower[1]) * scale[1], order, wy) - start[1]
            k = _weigh((positions[s, 2] - lower[2]) * scale[2], order, wz) - start[2]
            if min(i, j, k) < 0 or i + order > shape[0] or j + order > shape[1] or k + order > shape[2]:
                lost += 1
                continue
            for a in range(order):
                for b in range(order):
                    at = ((i + a) * shape[1] + j + b) * shape[2] + k
                    factor = broadcast(charge * wx[a] * wy[b])
                    for c in range(0, WIDTH, n):
                        store(grid, at + c, load(grid, at + c) + rounded(factor * load(wz, c), shift))
        return lost

    return jit(spread, key=("spread", order, isa))


def spread(positions, charges, slots, lower, scale, start, shape, order, big, grid) -> int:  # type: ignore[no-untyped-def]
    """See `reference.spread`."""
    kernel = spread_kernel(order, _best())
    return int(kernel(positions, charges, slots, lower, scale, start, shape, big, grid))


@cache
def gather_kernel(order: int, isa: str) -> Any:
    """The kernel of `gather` for an order and an entry of `vectors.available()`."""
    n, broadcast, load, _, _, total = _pieces(isa)

    def gather(positions, charges, slots, lower, scale, start, shape, fields, stride, forces):
        wx, wy, wz = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
        for s in range(slots):
            charge = charges[s]
            if charge == 0.0:
                continue
            i = _weigh((positions[s, 0] - lower[0]) * scale[0], order, wx) - start[0]
            j = _weigh((positions[s, 1] - lower[1]) * scale[1], order, wy) - start[1]
            k = _weigh((positions[s, 2] - lower[2]) * scale[2], order, wz) - start[2]
            fx, fy, fz = 0.0, 0.0, 0.0
            for c in range(0, WIDTH, n):
                x, y, z = broadcast(0.0), broadcast(0.0), broadcast(0.0)
                for a in range(order):
                    for b in range(order):
                        at = ((i + a) * shape[1] + j + b) * shape[2] + k + c
                        factor = broadcast(wx[a] * wy[b])
                        x = x + factor * load(fields, at)
                        y = y + factor * load(fields, at + stride)
                        z = z + factor * load(fields, at + 2 * stride)
                weights = load(wz, c)
                fx += total(weights * x)
                fy += total(weights * y)
                fz += total(weights * z)
            forces[s, 0] += charge * fx
            forces[s, 1] += charge * fy
            forces[s, 2] += charge * fz

    return jit(gather, key=("gather", order, isa), math=REORDERED)


def gather(positions, charges, slots, lower, scale, start, shape, order, fields, forces) -> None:  # type: ignore[no-untyped-def]
    """See `reference.gather`."""
    kernel = gather_kernel(order, _best())
    flat = fields.reshape(-1), fields.shape[1]
    kernel(positions, charges, slots, lower, scale, start, shape, *flat, forces)


def _best() -> str:
    """The best instruction set of this processor."""
    return simd.available()[0]
