"""Constrained distances, Numba: a plain loop over clusters. What the function computes is said in `reference`."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.particles.constraints.reference import ENOUGH, MOST_STEPS


@jit(math=STRICT)  # short loops have several compiled forms; with fused sums their bits would differ
def hold_distances(own, positions, moves, weights, found, numbers, pairs, squares, scale, forces, tallies, measure):
    """See `reference.hold_distances`."""
    m, size, failed = pairs.shape[0], found.shape[1], 0
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
            for n in range(m):
                e, f = pairs[n, 0], pairs[n, 1]
                at_a = 1.0 if a == e else -1.0 if a == f else 0.0
                at_b = 1.0 if b == e else -1.0 if b == f else 0.0
                coupled[k, n] = weights[i] * at_a - weights[j] * at_b
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
            for k in range(m):  # the diagonal dominates: no pivots
                for n in range(k + 1, m):
                    share = matrix[n, k] / matrix[k, k]
                    for p in range(k + 1, m):
                        matrix[n, p] -= share * matrix[k, p]
                    matrix[n, 3] -= share * matrix[k, 3]
            for k in range(m - 1, -1, -1):
                for n in range(k + 1, m):
                    matrix[k, 3] -= matrix[k, n] * matrix[n, 3]
                matrix[k, 3] /= matrix[k, k]
                factors[k] -= matrix[k, 3]
        failed += not worst < 1e-8
        virial[:] = 0.0
        for k in range(m):
            i, j, pull = found[c, pairs[k, 0]], found[c, pairs[k, 1]], scale * factors[k]
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
            for place in range(size):
                if found[c, place] < own:
                    for column in range(6):
                        tallies[found[c, place], 1 + column] += 2.0 / size * virial[column]
    return failed
