"""The waves of an Ewald sum, Numba: for each particle the powers of exp(i 2 pi x / L), then rows of waves as vectors.

What the functions compute is said in `reference`.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.compile.jit import REORDERED, STRICT, jit


@jit
def _powers(x, unit, most, cosines, sines):
    """cosines[d, most + n] = cos(n unit x) for n from -most to most, and the sines."""
    for d in range(3):
        c, s = math.cos(unit[d] * x[d]), math.sin(unit[d] * x[d])
        a, b, m = 1.0, 0.0, most[d]
        for n in range(m + 1):
            cosines[d, m + n] = cosines[d, m - n] = a
            sines[d, m + n], sines[d, m - n] = b, -b
            a, b = a * c - b * s, a * s + b * c


@jit(math=STRICT)
def _add_row(charge, u, v, cosines, sines, first, count, big, real, imaginary):
    """Add the rounded terms of a row of waves."""
    for j in range(np.uint64(count)):
        c, s = cosines[first + j], sines[first + j]
        real[j] += (charge * (u * c - v * s) + big) - big
        imaginary[j] += (charge * (u * s + v * c) + big) - big


@jit
def structure(positions, charges, slots, rows, unit, most, big, real, imaginary):
    """See `reference.structure`."""
    real[:], imaginary[:] = 0.0, 0.0
    width = 2 * max(most[0], most[1], most[2]) + 1
    cosines, sines = np.empty((3, width)), np.empty((3, width))
    for i in range(slots):
        if charges[i] != 0.0:
            _powers(positions[i], unit, most, cosines, sines)
            for r in range(len(rows)):
                x, y = most[0] + rows[r, 0], most[1] + rows[r, 1]
                u = cosines[0, x] * cosines[1, y] - sines[0, x] * sines[1, y]
                v = sines[0, x] * cosines[1, y] + cosines[0, x] * sines[1, y]
                first, count, place = most[2] + rows[r, 2], rows[r, 3], rows[r, 4]
                out = real[place : place + count], imaginary[place : place + count]
                _add_row(charges[i], u, v, cosines[2], sines[2], first, count, big, *out)


@jit(math=REORDERED)
def _sum_row(u, v, cosines, sines, first, n_z, count, place, real, imaginary, weights):
    """The sums of weight (Re S sin k x - Im S cos k x) over a row, and with the factor n_z."""
    total, moment = 0.0, 0.0
    for j in range(np.uint64(count)):
        c, s = cosines[first + j], sines[first + j]
        k = place + j
        each = weights[k] * (real[k] * (u * s + v * c) - imaginary[k] * (u * c - v * s))
        total += each
        moment += each * float(n_z + np.int64(j))
    return total, moment


@jit
def wave_forces(positions, charges, slots, rows, unit, most, real, imaginary, weights, forces):
    """See `reference.wave_forces`."""
    width = 2 * max(most[0], most[1], most[2]) + 1
    cosines, sines = np.empty((3, width)), np.empty((3, width))
    for i in range(slots):
        if charges[i] != 0.0:
            _powers(positions[i], unit, most, cosines, sines)
            fx, fy, fz = 0.0, 0.0, 0.0
            for r in range(len(rows)):
                x, y = most[0] + rows[r, 0], most[1] + rows[r, 1]
                u = cosines[0, x] * cosines[1, y] - sines[0, x] * sines[1, y]
                v = sines[0, x] * cosines[1, y] + cosines[0, x] * sines[1, y]
                first, count, place = most[2] + rows[r, 2], rows[r, 3], rows[r, 4]
                given = first, rows[r, 2], count, place, real, imaginary, weights
                total, moment = _sum_row(u, v, cosines[2], sines[2], *given)
                fx += rows[r, 0] * total
                fy += rows[r, 1] * total
                fz += moment
            factor = 2.0 * charges[i]
            forces[i, 0] += factor * unit[0] * fx
            forces[i, 1] += factor * unit[1] * fy
            forces[i, 2] += factor * unit[2] * fz
