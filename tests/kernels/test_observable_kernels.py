"""Kernels of particle observables against their reference."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.kernels.particles.observables import reference
from hpckit.kernels.particles.observables.dispatch import density_sums, pair_histogram
from hpckit.plan.particles.cell import Cell


@pytest.mark.parametrize("periodic", [(True, True, True), (False, True, False), (False, False, False)])
@pytest.mark.parametrize("edges", [(7.0, 9.0, 11.0), (2.5, 6.1, 30.0), (4.0, 4.0, 4.0)])
@pytest.mark.parametrize("n", [0, 1, 2, 211])
def test_pairs(n, edges, periodic):
    edges, periodic = np.array(edges), np.array(periodic)
    rng = np.random.default_rng(n)
    positions = np.array([-1.0, 0.0, 5.0]) + edges * rng.random((n, 3))
    types = rng.integers(0, 3, n)
    tilt = edges[[0, 0, 1]] * ([0.45, -0.4, 0.5] if periodic.all() else [0.0, 0.0, 0.0])
    cell = Cell.of(np.array([-1.0, 0.0, 5.0]), edges - [1.0, 0.0, -5.0], tilt)
    straight, positions = positions, cell.leaning(positions)
    for reach in (0.4, min(1.2, 0.5 * cell.widths.min())):
        made, expected = np.zeros((3, 3, 13), np.int64), np.zeros((3, 3, 13), np.int64)
        for first, last in ((0, n // 3), (n // 3, n)):
            pair_histogram(positions, straight, types, first, last, edges, tilt, periodic, reach, made)
        reference.pair_histogram(positions, straight, types, 0, n, edges, tilt, periodic, reach, expected)
        assert (made == expected).all()
        assert n < 211 or expected.sum() > 0


def test_waves():
    rng = np.random.default_rng(1)
    edges = np.array([5.0, 7.0, 3.0])
    positions = edges * rng.random((57, 3)) - 1.0
    waves = rng.integers(-9, 10, (40, 3))
    made, expected = np.zeros((2, 40)), np.zeros((2, 40))
    density_sums(positions, edges, waves, *made)
    reference.density_sums(positions, edges, waves, *expected)
    np.testing.assert_allclose(made, expected, atol=1e-12)
    zero = np.zeros((2, 1))
    density_sums(positions, edges, np.zeros((1, 3), np.int64), *zero)
    assert list(zero[:, 0]) == [57.0, 0.0]
