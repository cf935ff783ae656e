"""Constrained distances, Numba: a plain loop over clusters. What the function computes is said in `reference`."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.particles.constraints.reference import ENOUGH, MOST_STEPS


@jit(math=STRICT)
def _couple(weights, slots, pairs, coupled):
    """How a force along each distance moves each distance."""
    for k in range(len(pairs)):
        a, b = pairs[k, 0], pairs[k, 1]
        for n in range(len(pairs)):
            e, f = pairs[n, 0], pairs[n, 1]
            at_a = 1.0 if a == e else -1.0 if a == f else 0.0
            at_b = 1.0 if b == e else -1.0 if b == f else 0.0
            coupled[k, n] = weights[slots[a]] * at_a - weights[slots[b]] * at_b


@jit(math=STRICT)
def _solve(matrix, m):
    """Solve for the last column, in place; the diagonal dominates: no pivots."""
    for k in range(m):
        for n in range(k + 1, m):
            share = matrix[n, k] / matrix[k, k]
            for p in range(k + 1, m):
                matrix[n, p] -= share * matrix[k, p]
            matrix[n, 3] -= share * matrix[k, 3]
    for k in range(m - 1, -1, -1):
        for n in range(k + 1, m):
            matrix[k, 3] -= matrix[k, n] * matrix[n, 3]
        matrix[k, 3] /= matrix[k, k]


@jit(math=STRICT)
def _settle(r, s, heavy, light, wanted, side, axes, factors):
    """SETTLE (Miyamoto and Kollman 1992, J. Comput. Chem. 13, 952): the factors of a triangle of one particle and two
    alike, weights heavy and light, in closed form; wanted, side: squares of the equal lengths and of the third one.
    All are 0 where a triangle has turned too far.
    """
    whole = 1.0 / heavy + 2.0 / light
    half = 0.5 * np.sqrt(side)
    height = np.sqrt(wanted - half * half)
    top = 2.0 / light / whole * height  # from the middle of the masses to the first particle, and to the other two
    low = height - top
    share = 1.0 / light / whole
    # Axes: z across the triangle as it is, x across the way to the first particle as it would be.
    for d in range(3):
        e, f = (d + 1) % 3, (d + 2) % 3
        axes[2, d] = r[0, e] * r[1, f] - r[0, f] * r[1, e]
    for d in range(3):
        e, f = (d + 1) % 3, (d + 2) % 3
        axes[0, d] = share * ((s[0, e] + s[1, e]) * axes[2, f] - (s[0, f] + s[1, f]) * axes[2, e])
    for d in range(3):
        e, f = (d + 1) % 3, (d + 2) % 3
        axes[1, d] = axes[2, e] * axes[0, f] - axes[2, f] * axes[0, e]
    for k in range(3):
        length = np.sqrt(axes[k, 0] ** 2 + axes[k, 1] ** 2 + axes[k, 2] ** 2)
        for d in range(3):
            axes[k, d] /= length
    xb0 = yb0 = xc0 = yc0 = za1 = ya1 = xb1 = yb1 = zb1 = xc1 = yc1 = zc1 = 0.0
    for d in range(3):
        a1 = share * (s[0, d] + s[1, d])
        b1, c1 = a1 - s[0, d], a1 - s[1, d]
        xb0, yb0 = xb0 - r[0, d] * axes[0, d], yb0 - r[0, d] * axes[1, d]
        xc0, yc0 = xc0 - r[1, d] * axes[0, d], yc0 - r[1, d] * axes[1, d]
        ya1, za1 = ya1 + a1 * axes[1, d], za1 + a1 * axes[2, d]
        xb1, yb1, zb1 = xb1 + b1 * axes[0, d], yb1 + b1 * axes[1, d], zb1 + b1 * axes[2, d]
        xc1, yc1, zc1 = xc1 + c1 * axes[0, d], yc1 + c1 * axes[1, d], zc1 + c1 * axes[2, d]
    factors[:] = 0.0
    sin_phi = za1 / top
    left = 1.0 - sin_phi * sin_phi
    if not left > 0.0:
        return
    cos_phi = np.sqrt(left)
    sin_psi = (zb1 - zc1) / (2.0 * half * cos_phi)
    left = 1.0 - sin_psi * sin_psi
    if not left > 0.0:
        return
    x = -half * np.sqrt(left)
    ya, yb, yc = top * cos_phi, -low * cos_phi - half * sin_psi * sin_phi, -low * cos_phi + half * sin_psi * sin_phi
    alpha, beta = x * (xb0 - xc0) + yb0 * yb + yc0 * yc, x * (yc0 - yb0) + xb0 * yb + xc0 * yc
    gamma = xb0 * yb1 - xb1 * yb0 + xc0 * yc1 - xc1 * yc0
    both = alpha * alpha + beta * beta
    left = both - gamma * gamma
    if not left > 0.0:
        return
    sin_theta = (alpha * gamma - beta * np.sqrt(left)) / both
    cos_theta = np.sqrt(max(1.0 - sin_theta * sin_theta, 0.0))
    # How far the first and the second particle are moved, in x and y; z stays.
    ax, ay = -ya * sin_theta, ya * cos_theta - ya1
    bx, by = x * cos_theta - yb * sin_theta - xb1, x * sin_theta + yb * cos_theta - yb1
    det = xb0 * yc0 - yb0 * xc0
    factors[0] = -(ax * yc0 - ay * xc0) / (heavy * det)
    factors[1] = -(xb0 * ay - yb0 * ax) / (heavy * det)
    ux, uy = xb0 - xc0, yb0 - yc0
    bx, by = bx / light - factors[0] * xb0, by / light - factors[0] * yb0
    factors[2] = (bx * ux + by * uy) / (ux * ux + uy * uy)


@jit(math=STRICT)
def _push(own, slots, pairs, scale, factors, r, virial, forces, tallies, measure):
    """Add forces along the distances of a cluster, and their virial."""
    virial[:] = 0.0
    for k in range(len(pairs)):
        i, j, pull = slots[pairs[k, 0]], slots[pairs[k, 1]], scale * factors[k]
        for d in range(3):
            if i < own:
                forces[i, d] += pull * r[k, d]
            if j < own:
                forces[j, d] -= pull * r[k, d]
            virial[d] += pull * r[k, d] * r[k, d]
        virial[3] += pull * r[k, 0] * r[k, 1]
        virial[4] += pull * r[k, 0] * r[k, 2]
        virial[5] += pull * r[k, 1] * r[k, 2]
    if measure:
        for place in range(len(slots)):
            if slots[place] < own:
                for column in range(6):
                    tallies[slots[place], 1 + column] += 2.0 / len(slots) * virial[column]


@jit(math=STRICT)  # short loops have several compiled forms; with fused sums their bits would differ
def hold_distances(own, positions, moves, weights, found, numbers, pairs, squares, scale, forces, tallies, measure):
    """See `reference.hold_distances`."""
    m, failed = pairs.shape[0], 0
    r, s, now = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    coupled, matrix, axes = np.empty((3, 3)), np.empty((3, 4)), np.empty((3, 3))
    factors, virial = np.empty(3), np.empty(6)
    for c in range(len(found)):
        for k in range(m):
            a, b = pairs[k, 0], pairs[k, 1]
            i, j = found[c, a], found[c, b]
            for d in range(3):
                r[k, d] = positions[i, d] - positions[j, d]
                s[k, d] = r[k, d] + (moves[i, d] - moves[j, d])
            factors[k] = 0.0
        _couple(weights, found[c], pairs, coupled)
        if m == 3 and found.shape[1] == 3:
            lengths, heavy, light = squares[numbers[c]], weights[found[c, 0]], weights[found[c, 1]]
            if lengths[0] == lengths[1] and light == weights[found[c, 2]] and 4.0 * lengths[0] > lengths[2]:
                _settle(r, s, heavy, light, lengths[0], lengths[2], axes, factors)
        worst = 1.0
        for _ in range(MOST_STEPS):
            worst = 0.0
            for k in range(m):
                square = 0.0
                for d in range(3):
                    now[k, d] = s[k, d]
                    for n in range(m):
                        now[k, d] += coupled[k, n] * factors[n] * r[n, d]
                    square += now[k, d] * now[k, d]
                wanted = squares[numbers[c], k]
                matrix[k, 3] = square - wanted
                miss = abs(square / wanted - 1.0)
                worst = miss if not miss <= worst else worst  # keeps nan
            if not worst >= ENOUGH:
                break
            for k in range(m):
                for n in range(m):
                    along = now[k, 0] * r[n, 0] + now[k, 1] * r[n, 1] + now[k, 2] * r[n, 2]
                    matrix[k, n] = 2.0 * coupled[k, n] * along
            _solve(matrix, m)
            for k in range(m):
                factors[k] -= matrix[k, 3]
        failed += not worst < 1e-8
        _push(own, found[c], pairs, scale, factors, r, virial, forces, tallies, measure)
    return failed


@jit(math=STRICT)
def hold_speeds(own, positions, speeds, weights, found, pairs, scale, forces, tallies, measure):
    """See `reference.hold_speeds`."""
    m = pairs.shape[0]
    r, coupled, matrix = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 4))
    factors, virial = np.empty(3), np.empty(6)
    for c in range(len(found)):
        _couple(weights, found[c], pairs, coupled)
        for k in range(m):
            i, j = found[c, pairs[k, 0]], found[c, pairs[k, 1]]
            matrix[k, 3] = 0.0
            for d in range(3):
                r[k, d] = positions[i, d] - positions[j, d]
                matrix[k, 3] -= r[k, d] * (speeds[i, d] - speeds[j, d])
        for k in range(m):
            for n in range(m):
                along = r[k, 0] * r[n, 0] + r[k, 1] * r[n, 1] + r[k, 2] * r[n, 2]
                matrix[k, n] = coupled[k, n] * along
        _solve(matrix, m)
        for k in range(m):
            factors[k] = matrix[k, 3]
        _push(own, found[c], pairs, scale, factors, r, virial, forces, tallies, measure)
