"""SNAP's kernel against the full sums of its reference, and against differences of its energies."""

from __future__ import annotations

import numpy as np
import pytest
from test_particle_kernels import clustered, listed, scattered

from hpckit.io.particles.lammps_snap import _repulsions
from hpckit.kernels.particles.cells.reference import Lists, neighbors
from hpckit.kernels.particles.many_body.snap import dispatch, reference
from hpckit.kernels.particles.records.reference import types_of

EXTENT = (5.0, 4.0, 4.0)


def given(twice_j, quadratic, from_zero, zbl, densities=1, everywhere=False):
    rng, n = np.random.default_rng(twice_j), densities**3 * len(reference.tables(twice_j).triples)
    count = 1 + n + (n * (n + 1) // 2 if quadratic else 0)
    coefficients = rng.normal(size=(2, count)) / (1 + np.arange(count))
    repelled = _repulsions((0.9, 1.3), (3, 5)) if zbl else np.zeros((2, 2, reference.ZBL))
    return reference.Snap(
        twice_j, coefficients, np.array([0.7, 0.8]), np.array([1.0, 0.6]), 0.99, 0.1, True, from_zero, repelled,
        densities, np.arange(2) % densities, everywhere,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("it", "exact"),
    [
        (given(3, True, True, True), True),  # others use the kernel that this compiles
        (given(3, False, True, False, 2), True),
        pytest.param(given(4, False, True, True, 2, True), True, marks=pytest.mark.nightly),
        pytest.param(given(3, True, True, True), False, marks=pytest.mark.nightly),
        pytest.param(given(4, False, True, False), False, marks=pytest.mark.nightly),
        pytest.param(given(6, False, False, True), True, marks=pytest.mark.nightly),
    ],
)
def test_energies_are_full_sums_and_forces_their_derivatives(it, exact):
    positions = scattered(50, EXTENT, 2)
    slots, starts, grid = clustered(positions, EXTENT, 1.8)
    own = int(starts[-1]) * 8
    pushed, tallies = _computed(slots, starts, grid, it, exact)
    forces = pushed[:own, :3] + (pushed[:own, 4:7] if exact else 0)
    first, second = neighbors(slots[:own], own, it.cutoff)
    real = np.flatnonzero(slots[:own, 0] < 50)
    types = types_of(slots)
    for i in real[::7]:
        others = second[first == i]
        expected = reference.energy(types[i], types[others], slots[others, :3] - slots[i, :3], it)
        assert 0.5 * tallies[i, 0] == pytest.approx(expected, rel=1e-10)
    assert np.abs(forces.sum(axis=0)).max() < 1e-9 * np.abs(forces).max()
    for i, d in ((real[3], 0), (real[20], 1), (real[31], 2)):
        each = []
        for sign in (1, -1):
            moved = slots.copy()
            moved[i, d] += sign * 1e-5
            each.append(0.5 * _computed(moved, starts, grid, it, exact)[1][real, 0].sum())
        assert forces[i, d] == pytest.approx((each[1] - each[0]) / 2e-5, rel=1e-6, abs=1e-6)
    stretched = [slots * [1 + sign * 1e-6, 1, 1, 1] for sign in (1, -1)]
    each = [0.5 * _computed(moved, starts, grid, it, exact)[1][real, 0].sum() for moved in stretched]
    assert 0.5 * tallies[real, 1].sum() == pytest.approx((each[1] - each[0]) / 2e-6, rel=1e-5)


def _computed(slots, starts, grid, it, exact):
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 2.2, "scalar", 1)
    lists, own = Lists(entries, start, None, None, []), clusters * 8
    pushed, tallies = np.zeros((len(slots), 8 if exact else 4)), np.ones((own, 8))
    what = np.arange(clusters, dtype=np.int32), slots, lists, it, dispatch.room(it, lists, own, None)
    dispatch.forces(dispatch.force_kernel(exact, True, pushed), *what, pushed, tallies)
    return pushed, tallies
