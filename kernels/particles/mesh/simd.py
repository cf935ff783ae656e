"""Charges and fields on a mesh, Numba: four points of a row are a vector, or the field of one point is. What the
functions compute is said in `reference`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.loops import rounded_number
from hpckit.kernels.particles.mesh.reference import SIDE, WIDTH

EIGHT = vectors.lanes("d", 8)  # particles whose weights are found at once
# In the memory of a kernel: places of eight particles along a dim, their first points, and weights of all points; then
# those along the last dim again, each particle's side by side.
PLACES, FIRSTS, WEIGHTS, LAST = 0, 24, 48, 48 + 24 * WIDTH


def _weigher(order: int) -> Any:
    """The piece (positions, first, slots, lower, scale, work): the points and weights of eight particles from `first`,
    the last of all in place of those that are not there.
    """
    load, broadcast, store, floor = EIGHT.load, EIGHT.broadcast, intrinsics.store, intrinsics.floor
    half, before = 0.5 * (order % 2), (order - 1) // 2

    def weigh(positions, first, slots, lower, scale, work):
        for lane in range(8):
            s = min(first + lane, slots - 1)
            for d in range(3):
                work[PLACES + 8 * d + lane] = (positions[s, d] - lower[d]) * scale[d]
        for d in range(3):
            place = load(work, PLACES + 8 * d) + broadcast(half)
            low = floor(place)
            w, found = place - low, WEIGHTS + 8 * WIDTH * d
            store(work, FIRSTS + 8 * d, low - broadcast(1.0 * before))
            store(work, found, 1.0 - w)
            store(work, found + 8, w)
            for m in range(3, order + 1):
                share = 1.0 / (m - 1)
                store(work, found + 8 * (m - 1), share * w * load(work, found + 8 * (m - 2)))
                for k in range(m - 2, 0, -1):
                    one, other = load(work, found + 8 * (k - 1)), load(work, found + 8 * k)
                    store(work, found + 8 * k, share * ((w + 1.0 * (m - 1 - k)) * one + (1.0 * (k + 1) - w) * other))
                store(work, found, share * (1.0 - w) * load(work, found))
        for lane in range(8):
            for c in range(order):
                work[LAST + WIDTH * lane + c] = work[WEIGHTS + 8 * WIDTH * 2 + 8 * c + lane]

    return jit(weigh, key=("weigh", order), borrowed=True)


@inlined
def _first_of(work, lane, d, start):
    return int(work[FIRSTS + 8 * d + lane]) - start[d]


@inlined
def _weight_of(work, lane, d, k):
    return work[WEIGHTS + 8 * WIDTH * d + 8 * k + lane]


def _pieces(isa: str) -> tuple[int, Any, Any, Any, Any]:
    """Numbers at a time, and how they are made, loaded, stored and rounded. Four: eight points at any place touch two
    lines of the cache as a rule, of which a particle has five.
    """
    if isa == "scalar":

        @inlined
        def load(array, at):
            return array[at]

        @inlined
        def store(array, at, value):
            array[at] = value

        @inlined
        def itself(value):
            return value

        return 1, itself, load, store, rounded_number
    it = vectors.lanes("d", SIDE)
    return SIDE, it.broadcast, it.load, intrinsics.store, intrinsics.rounded


@jit
def fold(grid, start, whole):
    """See `reference.fold`."""
    for i in range(grid.shape[0]):
        a = (start[0] + i) % whole.shape[0]
        for j in range(grid.shape[1]):
            b, c, k = (start[1] + j) % whole.shape[1], start[2] % whole.shape[2], 0
            while k < grid.shape[2]:
                taken = min(grid.shape[2] - k, whole.shape[2] - c)
                for m in range(taken):
                    whole[a, b, c + m] += grid[i, j, k + m]
                k, c = k + taken, 0


@jit
def lay_beside(fields, start, shape, beside):
    """See `reference.lay_beside`."""
    point = 0
    for i in range(shape[0]):
        a = (start[0] + i) % fields.shape[1]
        for j in range(shape[1]):
            b, c, k = (start[1] + j) % fields.shape[2], start[2] % fields.shape[3], 0
            while k < shape[2]:
                taken = min(shape[2] - k, fields.shape[3] - c)
                for m in range(taken):
                    for d in range(3):
                        beside[point + m, d] = fields[d, a, b, c + m]
                k, c, point = k + taken, 0, point + taken


@cache
def spread_kernel(order: int, isa: str) -> Any:
    """The kernel of `spread` for an order and an entry of `vectors.available()`."""
    n, broadcast, load, store, rounded = _pieces(isa)
    weigh = _weigher(order)
    whole = n * max(1, (order + 1) // n)  # one or two points left over are taken by themselves

    def spread(positions, charges, slots, lower, scale, start, shape, big, grid):
        lost, shift, work = 0, broadcast(big), np.zeros(LAST + 8 * WIDTH)
        for s in range(slots):
            lane = s % 8
            if lane == 0:
                weigh(positions, s, slots, lower, scale, work)
            charge = charges[s]
            if charge == 0.0:
                continue
            i, j, k = _first_of(work, lane, 0, start), _first_of(work, lane, 1, start), _first_of(work, lane, 2, start)
            if min(i, j, k) < 0 or i + order > shape[0] or j + order > shape[1] or k + order > shape[2]:
                lost += 1
                continue
            weights = load(work, LAST + WIDTH * lane)
            for a in range(order):
                along = charge * _weight_of(work, lane, 0, a)
                for b in range(order):
                    at = ((i + a) * shape[1] + j + b) * shape[2] + k
                    factor = along * _weight_of(work, lane, 1, b)
                    row = broadcast(factor) * weights
                    store(grid, at, load(grid, at) + rounded(row, shift))
                    for c in range(n, whole, n):
                        row = broadcast(factor) * load(work, LAST + WIDTH * lane + c)
                        store(grid, at + c, load(grid, at + c) + rounded(row, shift))
                    for c in range(whole, order):
                        value = factor * work[np.uint64(LAST + WIDTH * lane + c)]
                        grid[np.uint64(at + c)] += rounded_number(value, big)
        return lost

    return jit(spread, key=("spread", order, isa))


def spread(positions, charges, slots, lower, scale, start, shape, order, big, grid) -> int:  # type: ignore[no-untyped-def]
    """See `reference.spread`."""
    kernel = spread_kernel(order, _best())
    return int(kernel(positions, charges, slots, lower, scale, start, shape, big, grid))


@cache
def gather_kernel(order: int, isa: str) -> Any:
    """The kernel of `gather` for an order and an entry of `vectors.available()`."""
    n, broadcast, load, store, _ = _pieces(isa)
    weigh = _weigher(order)

    def gather(positions, charges, slots, lower, scale, start, shape, fields, forces):
        work = np.zeros(LAST + 8 * WIDTH)
        for s in range(slots):
            lane = s % 8
            if lane == 0:
                weigh(positions, s, slots, lower, scale, work)
            charge = charges[s]
            if charge == 0.0:
                continue
            i, j, k = _first_of(work, lane, 0, start), _first_of(work, lane, 1, start), _first_of(work, lane, 2, start)
            for d in range(0, 3, n):
                found = broadcast(0.0)
                for a in range(order):
                    along = charge * _weight_of(work, lane, 0, a)
                    for b in range(order):
                        at = SIDE * (((i + a) * shape[1] + j + b) * shape[2] + k) + d
                        row = broadcast(0.0)
                        for c in range(order):
                            weight = work[np.uint64(LAST + WIDTH * lane + c)]
                            row = row + broadcast(weight) * load(fields, at + SIDE * c)
                        found = found + broadcast(along * _weight_of(work, lane, 1, b)) * row
                store(forces, SIDE * s + d, load(forces, SIDE * s + d) + found)

    return jit(gather, key=("gather", order, isa))


def gather(positions, charges, slots, lower, scale, start, shape, order, fields, forces) -> None:  # type: ignore[no-untyped-def]
    """See `reference.gather`."""
    kernel = gather_kernel(order, _best())
    kernel(positions, charges, slots, lower, scale, start, shape, fields.reshape(-1), forces.reshape(-1))


def _best() -> str:
    """The best instruction set of this processor."""
    return simd.available()[0]
