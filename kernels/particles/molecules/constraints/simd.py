"""Constrained distances, Numba: eight clusters at a time, each in a lane. What the functions compute is said in
`reference`.

Vectors have the bits of NumPy, so it does not matter which clusters are solved together. Rows of eight numbers lie in
one array: `WAYS` has the distances, 3 k + dim, as `LATER` those of after the move and `NOW` those with forces.
"""

from __future__ import annotations

import math

import numpy as np

import hpckit.kernels.compile.functions  # noqa: F401  (math.sqrt, max and min of vectors)
from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.particles.molecules.constraints.reference import ENOUGH, MOST_STEPS
from hpckit.kernels.particles.pair.reference import VIRIAL

LANES = 8
WAYS, LATER, NOW, COUPLED, MATRIX = 0, 9, 18, 27, 36  # of these 9, 9, 9, 9 and, with the right side, 12 rows
WANTED, FACTORS, WEIGHTS, AXES, ROWS = 48, 51, 54, 58, 67  # 3, 3, 4 and 9
_eight = vectors.lanes("e", LANES)
_load, _broadcast, _store = _eight.load, _eight.broadcast, intrinsics.store
_bits, _zero_unless = intrinsics.bits, intrinsics.zero_unless


@inlined(math=STRICT)
def _get(work, row):
    return _load(work, LANES * row)


@inlined(math=STRICT)
def _put(work, row, value):
    _store(work, LANES * row, value)


@jit(math=STRICT)
def _take(first, positions, moves, weights, found, pairs, work):
    """Fill distances and their changes, of the clusters from `first`; the last cluster of all fills up the lanes."""
    for lane in range(LANES):
        row = min(first + lane, len(found) - 1)
        for place in range(found.shape[1]):
            work[LANES * (WEIGHTS + place) + lane] = weights[found[row, place]]
        for k in range(pairs.shape[0]):
            i, j = found[row, pairs[k, 0]], found[row, pairs[k, 1]]
            at = LANES * (WAYS + 3 * k) + lane
            work[at] = positions[i, 0] - positions[j, 0]
            work[at + LANES] = positions[i, 1] - positions[j, 1]
            work[at + 2 * LANES] = positions[i, 2] - positions[j, 2]
            at = LANES * (LATER + 3 * k) + lane
            work[at] = moves[0, i] - moves[0, j]
            work[at + LANES] = moves[1, i] - moves[1, j]
            work[at + 2 * LANES] = moves[2, i] - moves[2, j]


@jit(math=STRICT)
def _couple(pairs, work):
    """How a force along each distance moves each distance."""
    for k in range(len(pairs)):
        a, b = pairs[k, 0], pairs[k, 1]
        for n in range(len(pairs)):
            e, f = pairs[n, 0], pairs[n, 1]
            at_a = 1.0 if a == e else -1.0 if a == f else 0.0
            at_b = 1.0 if b == e else -1.0 if b == f else 0.0
            _put(work, COUPLED + 3 * k + n, _get(work, WEIGHTS + a) * at_a - _get(work, WEIGHTS + b) * at_b)


@inlined(math=STRICT)
def _along(work, rows, k, n):
    """The product of row 3 k of some distances with distance n."""
    x, y, z = _get(work, rows + 3 * k), _get(work, rows + 3 * k + 1), _get(work, rows + 3 * k + 2)
    u, v, w = _get(work, WAYS + 3 * n), _get(work, WAYS + 3 * n + 1), _get(work, WAYS + 3 * n + 2)
    return x * u + y * v + z * w


@jit(math=STRICT)
def _solve(work, m):
    """Solve for the last column, in place; the diagonal dominates: no pivots."""
    for k in range(m):
        for n in range(k + 1, m):
            share = _get(work, MATRIX + 4 * n + k) / _get(work, MATRIX + 4 * k + k)
            for p in range(k + 1, m):
                rest = _get(work, MATRIX + 4 * n + p) - share * _get(work, MATRIX + 4 * k + p)
                _put(work, MATRIX + 4 * n + p, rest)
            rest = _get(work, MATRIX + 4 * n + 3) - share * _get(work, MATRIX + 4 * k + 3)
            _put(work, MATRIX + 4 * n + 3, rest)
    for k in range(m - 1, -1, -1):
        found = _get(work, MATRIX + 4 * k + 3)
        for n in range(k + 1, m):
            found = found - _get(work, MATRIX + 4 * k + n) * _get(work, MATRIX + 4 * n + 3)
        _put(work, MATRIX + 4 * k + 3, found / _get(work, MATRIX + 4 * k + k))


@jit(math=STRICT)
def _settle(work):
    """SETTLE (Miyamoto and Kollman 1992, J. Comput. Chem. 13, 952): the factors of triangles of one particle and two
    alike in closed form. All are 0 of other triangles, and where one has turned too far.
    """
    heavy, light, third = _get(work, WEIGHTS), _get(work, WEIGHTS + 1), _get(work, WEIGHTS + 2)
    wanted, second, side = _get(work, WANTED), _get(work, WANTED + 1), _get(work, WANTED + 2)
    alike = (light <= third) & (light >= third) & (wanted <= second) & (wanted >= second) & (4.0 * wanted > side)
    whole = 1.0 / heavy + 2.0 / light
    half = 0.5 * math.sqrt(side)
    height = math.sqrt(wanted - half * half)
    top = 2.0 / light / whole * height  # from the middle of the masses to the first particle, and to the other two
    low = height - top
    share = 1.0 / light / whole
    # Axes: z across the triangle as it is, x across the way to the first particle as it would be.
    for d in range(3):
        e, f = (d + 1) % 3, (d + 2) % 3
        across = _get(work, WAYS + e) * _get(work, WAYS + 3 + f) - _get(work, WAYS + f) * _get(work, WAYS + 3 + e)
        _put(work, AXES + 6 + d, across)
    for d in range(3):
        e, f = (d + 1) % 3, (d + 2) % 3
        one, other = (
            _get(work, LATER + e) + _get(work, LATER + 3 + e),
            _get(work, LATER + f) + _get(work, LATER + 3 + f),
        )
        _put(work, AXES + d, share * (one * _get(work, AXES + 6 + f) - other * _get(work, AXES + 6 + e)))
    for d in range(3):
        e, f = (d + 1) % 3, (d + 2) % 3
        across = _get(work, AXES + 6 + e) * _get(work, AXES + f) - _get(work, AXES + 6 + f) * _get(work, AXES + e)
        _put(work, AXES + 3 + d, across)
    for k in range(3):
        x, y, z = _get(work, AXES + 3 * k), _get(work, AXES + 3 * k + 1), _get(work, AXES + 3 * k + 2)
        length = math.sqrt(x * x + y * y + z * z)
        for d in range(3):
            _put(work, AXES + 3 * k + d, _get(work, AXES + 3 * k + d) / length)
    xb0 = yb0 = xc0 = yc0 = za1 = ya1 = xb1 = yb1 = zb1 = xc1 = yc1 = zc1 = _broadcast(0.0)
    for d in range(3):
        x, y, z = _get(work, AXES + d), _get(work, AXES + 3 + d), _get(work, AXES + 6 + d)
        r0, r1, s0, s1 = (
            _get(work, WAYS + d),
            _get(work, WAYS + 3 + d),
            _get(work, LATER + d),
            _get(work, LATER + 3 + d),
        )
        a1 = share * (s0 + s1)
        b1, c1 = a1 - s0, a1 - s1
        xb0, yb0, xc0, yc0 = xb0 - r0 * x, yb0 - r0 * y, xc0 - r1 * x, yc0 - r1 * y
        ya1, za1 = ya1 + a1 * y, za1 + a1 * z
        xb1, yb1, zb1 = xb1 + b1 * x, yb1 + b1 * y, zb1 + b1 * z
        xc1, yc1, zc1 = xc1 + c1 * x, yc1 + c1 * y, zc1 + c1 * z
    sin_phi = za1 / top
    left = 1.0 - sin_phi * sin_phi
    sound = alike & (left > 0.0)
    cos_phi = math.sqrt(left)
    sin_psi = (zb1 - zc1) / (2.0 * half * cos_phi)
    left = 1.0 - sin_psi * sin_psi
    sound = sound & (left > 0.0)
    x = -half * math.sqrt(left)
    ya, yb, yc = top * cos_phi, -low * cos_phi - half * sin_psi * sin_phi, -low * cos_phi + half * sin_psi * sin_phi
    alpha, beta = x * (xb0 - xc0) + yb0 * yb + yc0 * yc, x * (yc0 - yb0) + xb0 * yb + xc0 * yc
    gamma = xb0 * yb1 - xb1 * yb0 + xc0 * yc1 - xc1 * yc0
    both = alpha * alpha + beta * beta
    left = both - gamma * gamma
    sound = sound & (left > 0.0)
    sin_theta = (alpha * gamma - beta * math.sqrt(left)) / both
    cos_theta = math.sqrt(max(1.0 - sin_theta * sin_theta, 0.0))
    # How far the first and the second particle are moved, in x and y; z stays.
    ax, ay = -ya * sin_theta, ya * cos_theta - ya1
    bx, by = x * cos_theta - yb * sin_theta - xb1, x * sin_theta + yb * cos_theta - yb1
    det = xb0 * yc0 - yb0 * xc0
    first, second = -(ax * yc0 - ay * xc0) / (heavy * det), -(xb0 * ay - yb0 * ax) / (heavy * det)
    ux, uy = xb0 - xc0, yb0 - yc0
    bx, by = bx / light - first * xb0, by / light - first * yb0
    _put(work, FACTORS, _zero_unless(sound, first))
    _put(work, FACTORS + 1, _zero_unless(sound, second))
    _put(work, FACTORS + 2, _zero_unless(sound, (bx * ux + by * uy) / (ux * ux + uy * uy)))


@jit(math=STRICT)
def _newton(work, m):
    """Improve the factors until the distances are those wanted; bits of the lanes where they are."""
    good = 0
    for _ in range(MOST_STEPS):
        off, good = 0, (1 << LANES) - 1
        misses = _broadcast(0.0)
        for k in range(m):
            square = _broadcast(0.0)
            for d in range(3):
                now = _get(work, LATER + 3 * k + d)
                for n in range(m):
                    pull = _get(work, COUPLED + 3 * k + n) * _get(work, FACTORS + n)
                    now = now + pull * _get(work, WAYS + 3 * n + d)
                _put(work, NOW + 3 * k + d, now)
                square = square + now * now
            wanted = _get(work, WANTED + k)
            _put(work, MATRIX + 4 * k + 3, square - wanted)
            miss = square / wanted - 1.0
            miss = max(miss, -miss)
            misses = max(misses, miss)
            off |= _bits(miss >= ENOUGH)
            good &= _bits(miss < 1e-8)
        if off == 0:
            break
        for k in range(m):
            for n in range(m):
                _put(work, MATRIX + 4 * k + n, 2.0 * _get(work, COUPLED + 3 * k + n) * _along(work, NOW, k, n))
        _solve(work, m)
        moving = misses >= ENOUGH
        for k in range(m):
            factor = _get(work, FACTORS + k) - _zero_unless(moving, _get(work, MATRIX + 4 * k + 3))
            _put(work, FACTORS + k, factor)
    return good


@jit(math=STRICT)
def _push(own, lane, slots, pairs, scale, work, virial, total, forces, tallies, measure):
    """Add forces along the distances of a cluster, and their virial, with VIRIAL to the total."""
    virial[:] = 0.0
    for k in range(len(pairs)):
        i, j, pull = slots[pairs[k, 0]], slots[pairs[k, 1]], scale * work[LANES * (FACTORS + k) + lane]
        at = LANES * (WAYS + 3 * k) + lane
        x, y, z = work[at], work[at + LANES], work[at + 2 * LANES]
        px, py, pz = pull * x, pull * y, pull * z
        if i < own:
            forces[i, 0] += px
            forces[i, 1] += py
            forces[i, 2] += pz
        if j < own:
            forces[j, 0] -= px
            forces[j, 1] -= py
            forces[j, 2] -= pz
        if measure:
            parts = px * x, py * y, pz * z, px * y, px * z, py * z
            for column in range(6):
                virial[column] += parts[column]
    if measure:
        share, inside = 2.0 / len(slots), 0
        for place in range(len(slots)):
            if slots[place] < own:
                inside += 1
                if measure != VIRIAL:
                    for column in range(6):
                        tallies[slots[place], 1 + column] += share * virial[column]
        if measure == VIRIAL:
            for column in range(6):
                total[column] += inside * share * virial[column]


@jit(math=STRICT)
def _add_total(own, total, tallies, measure):
    """Give the first slot what the clusters have together."""
    if measure == VIRIAL and own > 0:
        for column in range(6):
            tallies[0, 1 + column] += total[column]


@jit(math=STRICT)  # short loops have several compiled forms; with fused sums their bits would differ
def hold_distances(own, positions, moves, weights, found, numbers, pairs, squares, scale, forces, tallies, measure):
    """See `reference.hold_distances`."""
    m, failed, work, virial, total = pairs.shape[0], 0, np.zeros(LANES * ROWS), np.empty(6), np.zeros(6)
    for first in range(0, len(found), LANES):
        count = min(LANES, len(found) - first)
        _take(first, positions, moves, weights, found, pairs, work)
        for lane in range(LANES):
            lengths = squares[numbers[min(first + lane, len(found) - 1)]]
            for k in range(m):
                work[LANES * (WANTED + k) + lane] = lengths[k]
        for row in range(3 * m):
            _put(work, LATER + row, _get(work, WAYS + row) + _get(work, LATER + row))
        _couple(pairs, work)
        work[LANES * FACTORS : LANES * (FACTORS + 3)] = 0.0
        if m == 3 and found.shape[1] == 3:
            _settle(work)
        good = _newton(work, m)
        for lane in range(count):
            failed += 1 - (good >> lane & 1)
            _push(own, lane, found[first + lane], pairs, scale, work, virial, total, forces, tallies, measure)
    _add_total(own, total, tallies, measure)
    return failed


@jit(math=STRICT)
def hold_speeds(own, positions, speeds, weights, found, pairs, scale, forces, tallies, measure):
    """See `reference.hold_speeds`."""
    m, work, virial, total = pairs.shape[0], np.zeros(LANES * ROWS), np.empty(6), np.zeros(6)
    for first in range(0, len(found), LANES):
        _take(first, positions, speeds, weights, found, pairs, work)
        _couple(pairs, work)
        for k in range(m):
            _put(work, MATRIX + 4 * k + 3, -_along(work, LATER, k, k))
            for n in range(m):
                _put(work, MATRIX + 4 * k + n, _get(work, COUPLED + 3 * k + n) * _along(work, WAYS, k, n))
        _solve(work, m)
        for k in range(m):
            _put(work, FACTORS + k, _get(work, MATRIX + 4 * k + 3))
        for lane in range(min(LANES, len(found) - first)):
            _push(own, lane, found[first + lane], pairs, scale, work, virial, total, forces, tallies, measure)
    _add_total(own, total, tallies, measure)


@jit
def sums_of(per_velocity, per_force, velocities, forces, weights, found):
    """See `reference.sums_of`."""
    for s in range(len(weights)):
        for d in range(3):
            found[d, s] = per_velocity[d] * velocities[s, d] + per_force * (forces[s, d] * weights[s])
