"""The waves of an Ewald sum: the compiled form against NumPy, forces against derivatives, sums without an order."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.particles.ewald import reference, simd
from hpckit.md.molecules.estimates import waves_within
from hpckit.md.molecules.ewald import rounding

LENGTHS = np.array([7.0, 9.0, 8.0])


def some_charges(n=60, seed=4):
    rng = np.random.default_rng(seed)
    charges = rng.uniform(-1, 1, n)
    charges[::7] = 0.0
    return np.column_stack([rng.uniform(0, LENGTHS, (n, 3)), np.ones(n)]), charges


def given_waves(most=(4, 6, 5), g=0.8):
    rows, numbers = waves_within(most, LENGTHS)
    k = 2 * np.pi / LENGTHS * numbers
    squares = (k * k).sum(axis=1)
    weights = 4 * np.pi / LENGTHS.prod() * np.exp(-squares / (4 * g * g)) / squares
    return (rows, 2 * np.pi / LENGTHS, np.array(most)), weights, k


def test_waves_are_half_of_a_sphere():
    rows, numbers = waves_within((4, 6, 5), LENGTHS)
    limit = max(2 * np.pi * n / length for n, length in zip((4, 6, 5), LENGTHS, strict=True)) * 1.000005
    grid = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in (4, 6, 5)), indexing="ij"), axis=-1).reshape(-1, 3)
    lengths = np.linalg.norm(2 * np.pi / LENGTHS * grid, axis=1)
    assert 2 * len(numbers) == ((lengths > 0) & (lengths <= limit)).sum()
    both = np.concatenate([numbers, -numbers])
    assert len(np.unique(both, axis=0)) == 2 * len(numbers) == 2 * rows[:, 3].sum()


def test_compiled_waves_agree_with_the_reference_in_any_order():
    positions, charges = some_charges()
    what, weights, k = given_waves()
    big = rounding(np.abs(charges).sum())
    found = []
    for form, order in ((reference, slice(None)), (simd, slice(None)), (simd, slice(None, None, -1))):
        waves, forces = np.zeros((2, len(k))), np.zeros((len(charges), 4))
        x, q = positions[order].copy(), charges[order].copy()
        form.structure(x, q, len(q), *what, big, *waves)
        form.wave_forces(x, q, len(q), *what, *waves, weights, forces)
        found.append((waves, forces[order]))
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-13)
    np.testing.assert_allclose(found[1][1], found[0][1], atol=1e-13)
    np.testing.assert_array_equal(found[2][0], found[1][0])
    np.testing.assert_array_equal(found[2][1], found[1][1])


def test_forces_of_waves_are_the_derivative_of_their_energy():
    positions, charges = some_charges()
    what, weights, k = given_waves()

    def waves_of(x):
        waves = np.zeros((2, len(k)))
        reference.structure(x, charges, len(charges), *what, rounding(1e3), *waves)
        return waves

    forces = np.zeros((len(charges), 4))
    reference.wave_forces(positions, charges, len(charges), *what, *waves_of(positions), weights, forces)
    for i, d in ((1, 0), (8, 1), (59, 2)):
        each = []
        for step in (-1e-4, 1e-4):
            moved = positions.copy()
            moved[i, d] += step
            each.append((weights * (waves_of(moved) ** 2).sum(axis=0)).sum())
        np.testing.assert_allclose(forces[i, d], -(each[1] - each[0]) / 2e-4, rtol=1e-6)
