"""Stillinger and Weber's kernels against their reference, and the reference against the sum over triplets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from test_particle_kernels import clustered, listed, scattered

from hpckit.comm.device import HOST
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.many_body.stillinger_weber import dispatch, reference
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.records import reference as records_reference

slow = pytest.mark.nightly
EXTENT = (9.0, 11.0, 13.0)


def tetrahedra(kinds, powers=(4.0, 0.0), nearer=1.0, cosine=-0.3, of_pairs=False):
    """Parameters of that many kinds, all different, of about the same size; nearer: cutoffs over reaches. of_pairs:
    powers are of each pair.
    """
    rng = np.random.default_rng(3)
    shares = rng.uniform(0.97, 1.0, (kinds, kinds, 10))
    if not of_pairs:
        shares[..., 2:4] = 1.0
    pairs = [4.0, 5.0, *powers, 1.0, 1.8, 1.2, 0.0, 0.0, 0.0] * np.minimum(shares, shares.swapaxes(0, 1))
    pairs[..., 7] = nearer * pairs[..., 5]
    shares = rng.uniform(0.9, 1.0, (kinds, kinds, kinds, 2))
    strength, c = np.moveaxis([21.0, cosine] * np.minimum(shares, shares.swapaxes(1, 2)), -1, 0)
    triples = np.stack([strength, strength * c, strength * c * c], axis=-1)
    pairs[..., 9] = np.einsum("ijj->ij", strength * (1 - c) ** 2)
    pairs[..., 8] = pairs[..., 9] + pairs[..., 9].T
    return reference.Tetrahedra(pairs, triples, None if of_pairs else powers)


GIVEN, OTHER = tetrahedra(1), tetrahedra(1, (4.5, 1.5), 0.99, 0.1)
TWO, THREE = tetrahedra(2), tetrahedra(3, (4.5, 1.5), of_pairs=True)
FORMS = [
    pytest.param(Form(isa, types=given.kinds, measure=measure, exact=exact), given, marks=[] if daily else slow)
    for isa in vectors.available()
    for measure, exact, given, daily in (
        (True, True, GIVEN, isa == vectors.available()[0]),
        (False, False, GIVEN, False),
        (True, False, OTHER, False),
        (True, True, TWO, False),
        (True, False, THREE, isa == vectors.available()[0]),
    )
]


def all_pairs(positions):
    return np.nonzero(~np.eye(len(positions), dtype=bool))


def energy(positions, given=GIVEN):
    pairs = all_pairs(positions)
    moments = reference.moments_of_pairs(positions, *pairs, given)
    return 0.5 * reference.forces_of_pairs(positions, *pairs, given, moments)[1][:, 0].sum()


def test_the_energy_is_the_sum_over_pairs_and_triplets():
    positions, total = scattered(40, (4, 4, 4), 3), 0.0
    kinds = records_reference.types_of(positions)
    for i in range(40):
        near = []
        for j in range(40):
            b, c, p, q, sigma, reach, width, cutoff, *_ = THREE.pairs[kinds[i], kinds[j]]
            d = positions[j, :3] - positions[i, :3]
            r = math.sqrt(d @ d)
            if i != j and r < cutoff:
                near.append((kinds[j], d / r, math.exp(width / (r - reach))))
                total += 0.5 * (b * r**-p - c * r**-q) * math.exp(sigma / (r - reach))
        for (j, u, g), (k, v, h) in itertools.combinations(near, 2):
            strength, bent = THREE.triples[kinds[i], j, k, :2]
            total += strength * g * h * (u @ v - bent / strength) ** 2
    assert energy(positions, THREE) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("given", [GIVEN, OTHER, THREE])
def test_forces_are_the_derivative_of_the_energy(given):
    positions = scattered(60, (5, 4, 4), given.kinds)
    pairs = all_pairs(positions)
    moments = reference.moments_of_pairs(positions, *pairs, given)
    forces, _ = reference.forces_of_pairs(positions, *pairs, given, moments)
    assert np.abs(forces[:, :3].sum(axis=0)).max() < 1e-10
    for i, d in itertools.product((0, 17, 59), range(3)):
        moved = [positions.copy(), positions.copy()]
        moved[0][i, d] += 1e-5
        moved[1][i, d] -= 1e-5
        slope = (energy(moved[0], given) - energy(moved[1], given)) / 2e-5
        assert forces[i, d] == pytest.approx(-slope, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize(("form", "given"), FORMS, ids=lambda each: f"{getattr(each, 'kinds', each)}")
def test_every_form_agrees_with_the_reference(form, given):
    slots, starts, grid = clustered(scattered(901, EXTENT, given.kinds), EXTENT)
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 2.3, form.isa, form.lanes)
    own, kinds = clusters * 8, given.kinds
    pairs = cells_reference.neighbors(slots[:own], own, given.pairs[..., 7].max())
    moments = reference.moments_of_pairs(slots[:own], *pairs, given)
    forces, tallies = reference.forces_of_pairs(slots[:own], *pairs, given, moments)
    lists = cells_reference.Lists(entries, start, None, None, [])
    near = np.empty(len(entries) + own * dispatch.near_room(form), np.int32)
    every, counts = np.arange(clusters, dtype=np.int32), np.zeros(own * kinds, np.int32)
    found = HOST.zeros((3 * kinds, len(slots), 4))
    kernel = dispatch.moment_kernel(form)
    dispatch.moments(kernel, form, every, slots, len(slots), lists, given, near, counts, found)
    np.testing.assert_allclose(found[:, :own], moments, rtol=1e-11, atol=1e-11)
    assert counts[kinds - 1 :: kinds].sum() < 0.9 * start[own], "all in the list are near"
    out, each = HOST.zeros((own, 4)), np.zeros((own, 8))
    kernel = dispatch.force_kernel(form, given.powers)
    dispatch.forces(kernel, form, every, slots, lists, given, near, counts, found, out, each)
    assert np.abs(out - forces).max() < 1e-12 * np.abs(forces).max()
    if form.measure:
        assert np.abs(each - tallies).max() < 1e-12 * np.abs(tallies).max()
