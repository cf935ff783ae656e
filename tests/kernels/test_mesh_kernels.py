"""Charges on a mesh: weights of B-splines, the compiled forms against NumPy, sums without an order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import by_day

from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.mesh import reference, simd
from hpckit.md.molecules.ewald import rounding
from hpckit.md.molecules.mesh_ewald import _spline

SHAPE, START = np.array([11, 13, 12]), np.array([-3, -2, -4])


@pytest.mark.parametrize("order", range(2, 8))
def test_weights_are_those_of_a_spline(order):
    for place in (0.0, 0.3, 2.5, 7.999, -1.2):
        first, weights = reference.weights_at(place, order)
        points = first + np.arange(order)
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1, abs=1e-14)
        assert (weights * points).sum() == pytest.approx(place, abs=1e-13)
        assert np.abs(points - place).max() <= order / 2
    whole = [weights for weights in reference.weights_at(0.0, order)[1] if weights > 0]
    if order % 2 == 0:
        assert whole == pytest.approx(_spline(order), abs=1e-15)


FORMS = list(itertools.product([2, 5, 7], [vectors.available()[0], "scalar"]))


@pytest.mark.parametrize(("order", "isa"), by_day(FORMS, FORMS[2]))
def test_compiled_forms_agree_with_the_reference_in_any_order(order, isa):
    rng, n = np.random.default_rng(order), 60
    positions = np.column_stack([rng.uniform(1.0, 2.0, (n, 3)), np.ones(n)])
    charges = rng.uniform(-1, 1, n)
    charges[::9] = 0.0
    positions[1, 0] = 40.0  # beyond the mesh
    count = int(SHAPE.prod())
    place = np.array([0.9, 0.8, 1.0]), np.array([4.0, 5.0, 3.5]), START, SHAPE
    big = rounding(256.0)
    given = np.zeros((count + reference.WIDTH, reference.SIDE))
    given[:count, :3] = rng.normal(size=(count, 3))
    grids, forces = np.zeros((3, count + reference.WIDTH)), np.zeros((3, n, 4))
    assert reference.spread(positions, charges, n, *place, order, big, grids[0]) == 1
    kept = np.arange(n) != 1
    reference.gather(positions[kept], charges[kept], n - 1, *place, order, given, forces[0][: n - 1])
    spread, gather = simd.spread_kernel(order, isa), simd.gather_kernel(order, isa)
    for k, turned in ((1, slice(None)), (2, slice(None, None, -1))):
        x, q = positions[turned].copy(), charges[turned].copy()
        assert spread(x, q, n, *place, big, grids[k]) == 1
        x, q = positions[kept][turned].copy(), charges[kept][turned].copy()
        out = np.zeros((n - 1, 4))
        gather(x, q, n - 1, *place, given.reshape(-1), out.reshape(-1))
        forces[k][: n - 1] = out[turned]
    assert grids[0].sum() == pytest.approx(charges[kept].sum(), abs=1e-10)
    np.testing.assert_allclose(grids[1], grids[0], atol=1e-12)
    np.testing.assert_array_equal(grids[2], grids[1])
    np.testing.assert_allclose(forces[1], forces[0], atol=1e-13)
    np.testing.assert_array_equal(forces[2], forces[1])


@pytest.mark.parametrize("whole", [(11, 13, 12), (5, 7, 9), (16, 4, 30)], ids=str)
def test_a_box_of_a_periodic_mesh_has_the_points_of_its_place(whole):
    """The box may be longer than the mesh, and start anywhere."""
    rng, shape = np.random.default_rng(1), tuple(SHAPE.tolist())
    grid, fields = rng.integers(-9, 9, shape).astype(float), rng.normal(size=(3, *whole))
    at = np.meshgrid(*((s + np.arange(n)) % m for s, n, m in zip(START, shape, whole, strict=True)), indexing="ij")
    expected = np.zeros(whole)
    np.add.at(expected, tuple(at), grid)
    for form in (reference, simd):
        total, beside = np.zeros(whole), np.full((grid.size + reference.WIDTH, reference.SIDE), 7.0)
        form.fold(grid, START, total)
        form.lay_beside(fields, START, SHAPE, beside)
        np.testing.assert_array_equal(total, expected)
        np.testing.assert_array_equal(beside[: grid.size, :3], fields[:, *at].reshape(3, -1).T)
        assert (beside[:, 3] == 7.0).all()
        assert (beside[grid.size :] == 7.0).all()
