"""Bonds: the kernels against their reference, and forces against the derivative of the energy."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day

from hpckit.kernels.particles.molecules.bonds import reference, simd
from hpckit.kernels.particles.molecules.bonds.forms import FORMS
from hpckit.kernels.particles.records.reference import type_words

PARAMETERS = {
    "harmonic": [[30.0, 1.0], [20.0, 1.1]],
    "morse": [[9.0, 2.0, 1.0]] * 2,
    "fene": [[30.0, 1.5, 1.0, 1.0]] * 2,
}


@pytest.mark.parametrize("name", FORMS)
def test_the_force_of_a_bond_is_the_derivative_of_its_energy(name):
    for p in PARAMETERS[name]:
        for r in (0.8, 1.0, 1.2, 1.4):
            low, high = (FORMS[name].py_func((r + step) ** 2, p)[0] for step in (-1e-6, 1e-6))
            assert FORMS[name].py_func(r * r, p)[1] * r == pytest.approx(-(high - low) / 2e-6, rel=1e-6, abs=1e-6)
    if name == "fene":
        assert np.isnan(FORMS[name].py_func(1.6**2, PARAMETERS[name][0])[0])


@pytest.mark.parametrize("name", by_day(FORMS, "harmonic"))
def test_kernels_agree_with_the_reference(name):
    """A chain of 30, some of it ghosts; slots without a particle; every third particle has an image far away."""
    rng = np.random.default_rng(3)
    n, own = 30, 20
    steps = rng.normal(0, 0.6, (n, 3)) + np.array([0.3, 0, 0])
    chain = np.cumsum(steps / np.linalg.norm(steps, axis=1)[:, None], axis=0)
    order = rng.permutation(n)
    ids = np.concatenate([order, [-1], order[::3]]).astype(float)
    places = np.vstack([chain[order], [[1e8, 0, 0]], chain[order[::3]] + 50])
    positions = np.column_stack([places, type_words(np.arange(len(places)) % 2)])
    ends = np.array([(k, k + 1, k % 2) for k in range(n - 1)] + [(k + 1, k, k % 2) for k in range(n - 1)])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    starts = np.searchsorted(ends[:, 0], np.arange(n + 1))
    found = []
    for form in (reference, simd):
        out = np.zeros(own + 1, np.int64), np.full(60, -1), np.zeros(60, np.int32)
        memory = np.zeros(n, np.int64), np.zeros(len(ids), np.int64)
        form.index_slots(ids, len(ids), *memory)
        kinds = ends[:, 2].astype(np.int32)
        assert form.attach(positions, ids, len(ids), own, starts, ends[:, 1].copy(), kinds, *memory, *out) == -1
        found.append((*out, memory[0], np.where(ids < 0, 0, memory[1])))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    simd.index_slots(ids, own, *memory)
    lost = reference.attach(positions, ids[:own], own, own, starts, ends[:, 1], kinds, *memory, *out)
    assert lost == simd.attach(positions, ids[:own], own, own, starts, ends[:, 1].copy(), kinds, *memory, *out) >= 0
    given = np.array(PARAMETERS[name])
    expected = reference.forces_of_bonds(positions, *found[0][:3], FORMS[name], given)
    for measure in (False, True):
        forces, tallies = np.ones((own, 4)), np.ones((own, 8))
        simd.bond_kernel(name, measure)(own, positions, *found[0][:3], given, forces, tallies)
        np.testing.assert_allclose(forces - 1, expected[0], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(tallies - 1, expected[1] if measure else 0, rtol=1e-11, atol=1e-11)
