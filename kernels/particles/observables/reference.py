"""Histograms of pair distances and Fourier sums of the density, in NumPy: definition and test oracle.

`edges`: the lengths of a box, float64[3]; `tilt`: its xy, xz, yz, each at most half of the edge along which it leans;
`periodic`: whether each dim is periodic.
"""

from __future__ import annotations

import numpy as np


def pair_histogram(positions, straight, types, first, last, edges, tilt, periodic, reach, counts):
    """Add to counts[a, b, k] the pairs of an own particle of type a and another of type b at a distance in bin k.

    positions: float64[n, 3], wrapped where periodic; straight: the same without the tilt. types: int64[n], from 0. Own
    particles are first to last - 1, so ranks can share the work; a pair of own particles counts twice.
    counts: int64[types, types, bins],
    bins of equal width up to `reach`, at most half of each periodic width: distances are to the nearest image.
    """
    width = reach / counts.shape[2]
    for i in range(first, last):
        apart = positions - positions[i]
        for dim, edge in ((2, [tilt[1], tilt[2], edges[2]]), (1, [tilt[0], edges[1], 0.0]), (0, [edges[0], 0.0, 0.0])):
            if periodic[dim]:
                apart -= np.rint(apart[:, dim] / edges[dim])[:, None] * edge
        distance = np.sqrt((apart**2).sum(1))
        near = (distance < reach) & (np.arange(len(positions)) != i)
        bins = np.minimum((distance[near] / width).astype(np.int64), counts.shape[2] - 1)
        np.add.at(counts[types[i]], (types[near], bins), 1)


def density_sums(positions, edges, waves, real, imaginary):
    """Add to real[m] + i imaginary[m] the sum over particles of exp(-i k . r), k = 2 pi waves[m] / edges.

    positions: in a tilted box the straight ones, whose phases are those of its waves. waves: int64[m, 3]. The static
    structure factor is the square of the sum over the number of particles (Hansen and McDonald, Theory of Simple
    Liquids, section 4.1).
    """
    phase = (2.0 * np.pi * positions / edges) @ waves.T
    real += np.cos(phase).sum(0)
    imaginary -= np.sin(phase).sum(0)
