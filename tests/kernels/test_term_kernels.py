"""Angles, dihedrals and impropers: the kernels against their reference, and forces against derivatives of energies."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.kernels.particles.molecules.bonds import simd as bonds
from hpckit.kernels.particles.molecules.terms import reference, simd
from hpckit.kernels.particles.molecules.terms.forms import FORMS, WIDTH
from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.kernels.particles.records.reference import type_words

PARAMETERS = {
    ("angles", "harmonic"): [[30.0, 1.9], [20.0, 2.1]],
    ("angles", "charmm"): [[30.0, 1.9, 4.0, 1.7], [20.0, 2.1, 3.0, 1.8]],
    ("angles", "cosine"): [[3.0], [2.0]],
    ("dihedrals", "harmonic"): [[2.0, -1.0, 3.0], [1.0, 1.0, 2.0]],
    ("dihedrals", "charmm"): [[2.0, 3.0, np.cos(0.7), np.sin(0.7)], [1.0, 1.0, -1.0, 0.0]],
    ("dihedrals", "opls"): [[1.0, -0.4, 0.3, 0.2], [0.5, 0.2, -0.3, 0.1]],
    ("impropers", "harmonic"): [[9.0, 0.6], [5.0, 0.0]],
}
ALL = [(name, kind) for name, kinds in FORMS.items() for kind in kinds]
DAILY = [("angles", "charmm"), ("dihedrals", "charmm"), ("impropers", "harmonic")]


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_the_force_of_a_term_is_the_derivative_of_its_energy(name, kind):
    rng, size = np.random.default_rng(2), 3 if name == "angles" else 4
    for p in np.array(PARAMETERS[name, kind]):
        for _ in range(4):
            x = rng.normal(0, 1, (size, 3))
            f, slopes = reference.energy_and_forces(name, kind, x, p)[1], np.zeros_like(x)
            for place in np.ndindex(x.shape):
                ends = []
                for step in (-1e-6, 1e-6):
                    moved = x.copy()
                    moved[place] += step
                    ends.append(reference.energy_and_forces(name, kind, moved, p)[0])
                slopes[place] = (ends[0] - ends[1]) / 2e-6
            np.testing.assert_allclose(f, slopes, rtol=1e-6, atol=1e-6 * np.abs(f).max())


# Each kind compiles kernels of its own: by day one of each name, that with the most terms.
@pytest.mark.parametrize(
    ("name", "kind"), [each if each in DAILY else pytest.param(*each, marks=pytest.mark.nightly) for each in ALL]
)
def test_kernels_agree_with_the_reference(name, kind):
    """A chain of 30, some of it ghosts; slots without a particle; every third particle has an image far away."""
    rng, size = np.random.default_rng(3), 3 if name == "angles" else 4
    n, own = 30, 20
    steps = rng.normal(0, 0.6, (n, 3)) + np.array([0.3, 0, 0])
    chain = np.cumsum(steps / np.linalg.norm(steps, axis=1)[:, None], axis=0)
    order = rng.permutation(n)
    ids = np.concatenate([order, [-1], order[::3]]).astype(float)
    places = np.vstack([chain[order], [[1e8, 0, 0]], chain[order[::3]] + 50])
    positions = np.column_stack([places, type_words(np.arange(len(places)) % 2)])
    rows = np.array([(k % 2, *range(k, k + size)) for k in range(n - size + 1)])
    ends = np.sort(np.array([(g, term) for term, row in enumerate(rows) for g in row[1:]]).view("i8,i8"), axis=0)
    ends = ends.view(np.int64).reshape(-1, 2)
    starts, which = np.searchsorted(ends[:, 0], np.arange(n + 1)), ends[:, 1].copy()
    found = []
    for form in (reference, simd):
        out = np.full((200, size), -1), np.full(200, -1)
        memory = np.zeros(n, np.int64), np.zeros(len(ids), np.int64)
        bonds.index_slots(ids, len(ids), *memory)
        count = form.find_terms(positions, ids, len(ids), own, starts, which, rows, *memory, *out)
        assert size < count <= len(rows)
        turned = np.roll(out[0][:count], 7, axis=0), np.repeat(np.arange(count // 2 + 1)[::-1], 2)[:count]
        ordered = np.zeros((count, size), np.int64), np.zeros(count, np.int64)
        form.order_terms(count, *turned, np.zeros(len(rows) + 1, np.int64), *ordered)
        assert (np.diff(ordered[1]) >= 0).all()
        found.append((out[0][:count], out[1][:count], *ordered))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    near, numbers = found[0][:2]
    np.testing.assert_array_equal(ids[near], rows[numbers, 1:])
    memory, out = (np.zeros(n, np.int64), np.zeros(own, np.int64)), (np.zeros((200, size), np.int64), np.zeros(200))
    bonds.index_slots(ids, own, *memory)
    lost = [
        form.find_terms(positions, ids[:own], own, own, starts, which, rows, *memory, *out)
        for form in (reference, simd)
    ]
    assert lost[0] == lost[1] < 0
    table, kinds = np.zeros((2, WIDTH)), rows[numbers, 0]
    table[:, : len(PARAMETERS[name, kind][0])] = PARAMETERS[name, kind]
    expected = reference.forces_of_terms(name, kind, positions, own, near, kinds, table)
    for measure in (False, True, VIRIAL):
        forces, tallies, energies = np.ones((own, 4)), np.ones((own, 8)), np.zeros(own)
        simd.add_terms(name, kind, measure, own, positions, None, near, kinds, table, forces, tallies, energies)
        np.testing.assert_allclose(forces - 1, expected[0], rtol=1e-11, atol=1e-11)
        if measure == VIRIAL:
            np.testing.assert_allclose((tallies - 1).sum(axis=0)[1:7], expected[1].sum(axis=0)[1:7], atol=1e-10)
            continue
        np.testing.assert_allclose(tallies - 1, expected[1] if measure else 0, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(energies, expected[2] if measure else 0, rtol=1e-11, atol=1e-11)
