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
    coupled, matrix = np.empty((3, 3)), np.empty((3, 4))
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
