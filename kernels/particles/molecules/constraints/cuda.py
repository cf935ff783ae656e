"""Constrained distances on a GPU: one thread a cluster. What the functions compute is said in `reference`.

An own particle is in one cluster, which adds its force: no thread waits for another, and a force has the same bits in
every run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty
from hpckit.kernels.particles.cuda_records import add_force, add_tallies, load_record
from hpckit.kernels.particles.molecules.constraints.reference import ENOUGH, MOST_STEPS

THREADS = threads(128)
u8 = np.uint64


@inlined
def _couple(weights, found, c, pairs, m, coupled):
    """How a force along each distance moves each distance: coupled[m k + n]."""
    for k in range(m):
        a, b = pairs[k, 0], pairs[k, 1]
        for n in range(m):
            e, f = pairs[n, 0], pairs[n, 1]
            at_a = 1.0 if a == e else -1.0 if a == f else 0.0
            at_b = 1.0 if b == e else -1.0 if b == f else 0.0
            coupled[m * k + n] = weights[found[c, a]] * at_a - weights[found[c, b]] * at_b


@inlined
def _apart(positions, i, j, k, ways):
    """ways[3 k : 3 k + 3]: the way from slot j to slot i."""
    x, y, z, _ = load_record(positions, u8(i) * u8(4))
    other_x, other_y, other_z, _ = load_record(positions, u8(j) * u8(4))
    ways[3 * k], ways[3 * k + 1], ways[3 * k + 2] = x - other_x, y - other_y, z - other_z


@inlined
def _along(one, k, other, n):
    """The product of way k of some with way n of others."""
    x, y, z = one[3 * k] * other[3 * n], one[3 * k + 1] * other[3 * n + 1], one[3 * k + 2] * other[3 * n + 2]
    return x + y + z


@inlined
def _solve(matrix, right, m):
    """Solve in place for the right side; the diagonal dominates: no pivots."""
    for k in range(m):
        for n in range(k + 1, m):
            share = matrix[m * n + k] / matrix[m * k + k]
            for p in range(k + 1, m):
                matrix[m * n + p] -= share * matrix[m * k + p]
            right[n] -= share * right[k]
    for back in range(m):
        k = m - 1 - back
        for n in range(k + 1, m):
            right[k] -= matrix[m * k + n] * right[n]
        right[k] /= matrix[m * k + k]


@inlined
def _push(own, found, c, pairs, m, scale, factors, ways, forces, tallies, measure):
    """Add forces along the distances of a cluster, and their virial."""
    xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(m):
        i, j, pull = found[c, pairs[k, 0]], found[c, pairs[k, 1]], scale * factors[k]
        x, y, z = ways[3 * k], ways[3 * k + 1], ways[3 * k + 2]
        px, py, pz = pull * x, pull * y, pull * z
        if i < own:
            add_force(forces, u8(i), px, py, pz)
        if j < own:
            add_force(forces, u8(j), -px, -py, -pz)
        xx, yy, zz = xx + px * x, yy + py * y, zz + pz * z
        xy, xz, yz = xy + px * y, xz + px * z, yz + py * z
    if measure:
        part = 2.0 / found.shape[1]
        for place in range(found.shape[1]):
            slot = found[c, place]
            if slot < own:
                px, py, pz = part * xx, part * yy, part * zz
                add_tallies(tallies, u8(slot), 0.0, px, py, pz, part * xy, part * xz, part * yz, 0.0)


@cache
def distance_kernel(m: int) -> Kernel:
    """The kernel for clusters of m distances; see `hold_distances`. positions, moves, forces and tallies are flat, the
    last argument is how many clusters have no solution.
    """
    three, square = 3 * m, m * m

    @kernel
    def distances(
        own, positions, moves, stride, weights, found, numbers, pairs, squares, scale, forces, tallies, measure, failed
    ):  # fmt: skip
        c = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if c < u8(found.shape[0]):
            ways, later, now = (
                cuda.local.array(three, np.float64),
                cuda.local.array(three, np.float64),
                cuda.local.array(three, np.float64),
            )
            coupled, matrix = cuda.local.array(square, np.float64), cuda.local.array(square, np.float64)
            factors, right = cuda.local.array(m, np.float64), cuda.local.array(m, np.float64)
            for k in range(m):
                i, j = found[c, pairs[k, 0]], found[c, pairs[k, 1]]
                _apart(positions, i, j, k, ways)
                for d in range(3):
                    later[3 * k + d] = ways[3 * k + d] + (moves[stride * d + i] - moves[stride * d + j])
                factors[k] = 0.0
            _couple(weights, found, c, pairs, m, coupled)
            worst, steps = np.inf, 0
            while steps < MOST_STEPS:
                worst = 0.0
                for k in range(m):
                    for d in range(3):
                        place = later[3 * k + d]
                        for n in range(m):
                            place += coupled[m * k + n] * factors[n] * ways[3 * n + d]
                        now[3 * k + d] = place
                    wanted = squares[numbers[c], k]
                    right[k] = _along(now, k, now, k) - wanted
                    miss = abs(right[k] / wanted)
                    worst = miss if not miss <= worst else worst  # not a number stays
                if worst < ENOUGH:
                    break
                for k in range(m):
                    for n in range(m):
                        matrix[m * k + n] = 2.0 * coupled[m * k + n] * _along(now, k, ways, n)
                _solve(matrix, right, m)
                for k in range(m):
                    factors[k] -= right[k]
                steps += 1
            if not worst < 1e-8:
                cuda.atomic.add(failed, 0, 1)
            _push(own, found, c, pairs, m, scale, factors, ways, forces, tallies, measure)

    return distances


@cache
def speed_kernel(m: int) -> Kernel:
    """The kernel for clusters of m distances; see `hold_speeds`. positions, speeds, forces and tallies are flat."""
    three, square = 3 * m, m * m

    @kernel
    def along(own, positions, speeds, stride, weights, found, pairs, scale, forces, tallies, measure):
        c = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if c < u8(found.shape[0]):
            ways, coupled = cuda.local.array(three, np.float64), cuda.local.array(square, np.float64)
            matrix, right = cuda.local.array(square, np.float64), cuda.local.array(m, np.float64)
            for k in range(m):
                i, j = found[c, pairs[k, 0]], found[c, pairs[k, 1]]
                _apart(positions, i, j, k, ways)
                right[k] = 0.0
                for d in range(3):
                    right[k] -= ways[3 * k + d] * (speeds[stride * d + i] - speeds[stride * d + j])
            _couple(weights, found, c, pairs, m, coupled)
            for k in range(m):
                for n in range(m):
                    matrix[m * k + n] = coupled[m * k + n] * _along(ways, k, ways, n)
            _solve(matrix, right, m)
            _push(own, found, c, pairs, m, scale, right, ways, forces, tallies, measure)

    return along


@kernel
def _sums(x, y, z, per_force, velocities, forces, weights, stride, found):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(weights.size):
        at, w = s * u8(4), weights[s]
        found[s] = x * velocities[at] + per_force * (forces[at] * w)
        found[u8(stride) + s] = y * velocities[at + u8(1)] + per_force * (forces[at + u8(1)] * w)
        found[u8(2 * stride) + s] = z * velocities[at + u8(2)] + per_force * (forces[at + u8(2)] * w)


def hold_distances(
    own: int,
    positions: Any,
    moves: Any,
    weights: Any,
    found: Any,
    numbers: Any,
    pairs: Any,
    squares: Any,
    scale: float,
    forces: Any,
    tallies: Any,
    measure: bool,
) -> Any:
    """See `reference.hold_distances`; returns a number on the GPU, and does not wait for it."""
    failed = empty(1, positions, np.int32)
    failed[:] = 0
    launch = distance_kernel(len(pairs))[blocks(max(1, len(found)), THREADS), THREADS]
    given = weights, found, numbers, pairs, squares, scale, forces.reshape(-1), tallies.reshape(-1)
    launch(own, positions.reshape(-1), moves.reshape(-1), moves.shape[1], *given, measure, failed)
    return failed[0]


def hold_speeds(
    own: int,
    positions: Any,
    speeds: Any,
    weights: Any,
    found: Any,
    pairs: Any,
    scale: float,
    forces: Any,
    tallies: Any,
    measure: bool,
) -> None:
    """See `reference.hold_speeds`."""
    launch = speed_kernel(len(pairs))[blocks(max(1, len(found)), THREADS), THREADS]
    given = weights, found, pairs, scale, forces.reshape(-1), tallies.reshape(-1), measure
    launch(own, positions.reshape(-1), speeds.reshape(-1), speeds.shape[1], *given)


def sums_of(per_velocity: Any, per_force: float, velocities: Any, forces: Any, weights: Any, found: Any) -> None:
    """See `reference.sums_of`."""
    launch = _sums[blocks(max(1, len(weights)), THREADS), THREADS]
    flat = velocities.reshape(-1), forces.reshape(-1), weights
    launch(*map(float, per_velocity), per_force, *flat, found.shape[1], found.reshape(-1))
