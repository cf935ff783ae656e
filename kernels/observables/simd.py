"""Histograms of pair distances over cells, Fourier sums of the density by recurrence, Numba."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.jit import jit


@jit
def pair_histogram(positions, types, first, last, edges, periodic, reach, counts):
    """As `reference.pair_histogram`: particles are sorted into cells at least as wide as the reach."""
    n = len(positions)
    if n == 0:
        return
    lower, extent = np.empty(3), np.empty(3)
    shape = np.empty(3, np.int64)
    for d in range(3):
        low, high = positions[0, d], positions[0, d]
        for i in range(n):
            low, high = min(low, positions[i, d]), max(high, positions[i, d])
        # A periodic dim with less than three cells is one cell: all its images are then the nearest ones.
        lower[d] = low
        extent[d] = edges[d] if periodic[d] else max(high - low, 1e-300)
        cells = int(min(extent[d] / reach, 64.0))
        shape[d] = max(cells, 1) if not periodic[d] or cells >= 3 else 1
    cell = np.empty(n, np.int64)
    start = np.zeros(shape[0] * shape[1] * shape[2] + 1, np.int64)
    for i in range(n):
        at = 0
        for d in range(3):
            place = int((positions[i, d] - lower[d]) / extent[d] * shape[d])
            at = at * shape[d] + min(max(place, 0), shape[d] - 1)
        cell[i] = at
        start[at + 1] += 1
    for at in range(len(start) - 1):
        start[at + 1] += start[at]
    order, filled = np.empty(n, np.int64), start[:-1].copy()
    for i in range(n):
        order[filled[cell[i]]] = i
        filled[cell[i]] += 1
    per_width, bins, reach2 = counts.shape[2] / reach, counts.shape[2], reach * reach
    for i in range(first, last):
        home = cell[i]
        z, y, x = home % shape[2], home // shape[2] % shape[1], home // (shape[2] * shape[1])
        for cx in range(x - 1, x + 2):
            if not _reachable(cx, x, shape[0], periodic[0]):
                continue
            for cy in range(y - 1, y + 2):
                if not _reachable(cy, y, shape[1], periodic[1]):
                    continue
                for cz in range(z - 1, z + 2):
                    if not _reachable(cz, z, shape[2], periodic[2]):
                        continue
                    at = (cx % shape[0] * shape[1] + cy % shape[1]) * shape[2] + cz % shape[2]
                    for k in range(start[at], start[at + 1]):
                        j = order[k]
                        distance2 = 0.0
                        for d in range(3):
                            apart = positions[j, d] - positions[i, d]
                            if periodic[d]:
                                apart -= edges[d] * np.rint(apart / edges[d])
                            distance2 += apart * apart
                        if j != i and distance2 < reach2:
                            counts[types[i], types[j], min(int(np.sqrt(distance2) * per_width), bins - 1)] += 1


@jit
def _reachable(neighbor, home, cells, periodic):
    """Whether a neighboring cell exists and is met only once."""
    if cells == 1:
        return neighbor == home
    return periodic or 0 <= neighbor < cells


@jit
def density_sums(positions, edges, waves, real, imaginary):
    """As `reference.density_sums`: powers of exp(-i 2 pi x / edge) by recurrence, one table a particle and dim."""
    most = 0
    for m in range(len(waves)):
        for d in range(3):
            most = max(most, abs(waves[m, d]))
    c, s = np.empty((3, most + 1)), np.empty((3, most + 1))
    for i in range(len(positions)):
        for d in range(3):
            angle = 2.0 * np.pi * positions[i, d] / edges[d]
            cos, sin = np.cos(angle), -np.sin(angle)
            c[d, 0], s[d, 0] = 1.0, 0.0
            for k in range(1, most + 1):
                c[d, k] = c[d, k - 1] * cos - s[d, k - 1] * sin
                s[d, k] = c[d, k - 1] * sin + s[d, k - 1] * cos
        for m in range(len(waves)):
            a, b = c[0, abs(waves[m, 0])], s[0, abs(waves[m, 0])]
            if waves[m, 0] < 0:
                b = -b
            for d in range(1, 3):
                p, q = c[d, abs(waves[m, d])], s[d, abs(waves[m, d])]
                if waves[m, d] < 0:
                    q = -q
                a, b = a * p - b * q, a * q + b * p
            real[m] += a
            imaginary[m] += b
