"""Histograms of pair distances over cells, Fourier sums of the density by recurrence, Numba."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit

DEPTH = 2  # cells that the reach spans


@jit
def pair_histogram(positions, straight, types, first, last, edges, tilt, periodic, reach, counts):
    """See `reference.pair_histogram`: particles sorted into cells, whose runs along z are contiguous in memory."""
    n = len(positions)
    if n == 0:
        return
    xy, xz, yz = tilt[0], tilt[1], tilt[2]
    leans = np.empty(3)  # what a distance of 1 spans at most of each straight coordinate
    leans[2] = 1.0
    leans[1] = np.sqrt(1.0 + (yz / edges[2]) ** 2)
    leans[0] = np.sqrt(1.0 + (xy / edges[1]) ** 2 + ((xy * yz / edges[1] - xz) / edges[2]) ** 2)
    shape, cell, start, order = _sort(straight, edges, periodic, reach * leans)
    x, y, z, kinds = np.empty(n), np.empty(n), np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        x[k], y[k], z[k] = positions[order[k], 0], positions[order[k], 1], positions[order[k], 2]
        kinds[k] = types[order[k]]
    inverse = np.empty(3)  # 0: no images along a dim with open ends
    for d in range(3):
        inverse[d] = 1.0 / edges[d] if periodic[d] else 0.0
    squares = np.empty(n)
    for i in range(first, last):
        home = cell[i]
        home_z, home_y, home_x = home % shape[2], home // shape[2] % shape[1], home // (shape[2] * shape[1])
        low, high = max(home_z - DEPTH, 0), min(home_z + DEPTH, shape[2] - 1)
        for cx in range(home_x - DEPTH, home_x + DEPTH + 1):
            if not _reachable(cx, home_x, shape[0], periodic[0]):
                continue
            for cy in range(home_y - DEPTH, home_y + DEPTH + 1):
                if not _reachable(cy, home_y, shape[1], periodic[1]):
                    continue
                row = (cx % shape[0] * shape[1] + cy % shape[1]) * shape[2]
                for run in range(3):  # along z: the cells around, and those beyond either end
                    begin, end = low, high
                    if run > 0:
                        if not periodic[2] or shape[2] == 1:
                            continue
                        begin = shape[2] + home_z - DEPTH if run == 1 else 0
                        end = shape[2] - 1 if run == 1 else home_z + DEPTH - shape[2]
                    if begin > end:
                        continue
                    begin, end = start[row + begin], start[row + end + 1]
                    for k in range(begin, end):
                        ax, ay, az = x[k] - positions[i, 0], y[k] - positions[i, 1], z[k] - positions[i, 2]
                        turns = np.rint(az * inverse[2])
                        az -= turns * edges[2]
                        ay -= turns * yz
                        ax -= turns * xz
                        turns = np.rint(ay * inverse[1])
                        ay -= turns * edges[1]
                        ax -= turns * xy
                        ax -= edges[0] * np.rint(ax * inverse[0])
                        squares[k] = ax * ax + ay * ay + az * az
                    _tally(counts, types[i], i, begin, end, squares, kinds, order, reach)


@jit
def _sort(positions, edges, periodic, reach):
    """Cells at least reach[d] / DEPTH wide: how many along each dim, the cell of each particle, where each cell starts
    in the order of cells, and that order.
    """
    n = len(positions)
    lower, extent = np.empty(3), np.empty(3)
    shape = np.empty(3, np.int64)
    for d in range(3):
        low, high = positions[0, d], positions[0, d]
        for i in range(n):
            low, high = min(low, positions[i, d]), max(high, positions[i, d])
        # A periodic dim with fewer cells than a particle looks at is one cell: each is then met once.
        lower[d] = low
        extent[d] = edges[d] if periodic[d] else max(high - low, 1e-300)
        cells = int(min(extent[d] / reach[d] * DEPTH, 64.0))
        shape[d] = max(cells, 1) if not periodic[d] or cells > 2 * DEPTH else 1
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
    return shape, cell, start, order


@jit
def _tally(counts, kind, i, begin, end, squares, kinds, order, reach):
    """Count the pairs of particle i with those from begin to end - 1 that are nearer than the reach."""
    bins = counts.shape[2]
    per_width, reach2 = bins / reach, reach * reach
    for k in range(begin, end):
        if squares[k] < reach2 and order[k] != i:
            counts[kind, kinds[k], min(int(np.sqrt(squares[k]) * per_width), bins - 1)] += 1


@jit
def _reachable(neighbor, home, cells, periodic):
    """Whether a neighboring cell exists and is met only once."""
    if cells == 1:
        return neighbor == home
    return periodic or 0 <= neighbor < cells


@jit
def density_sums(positions, edges, waves, real, imaginary):
    """See `reference.density_sums`: powers of exp(-i 2 pi x / edge) by recurrence, one table a particle and dim."""
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
