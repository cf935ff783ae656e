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
from hpckit.kernels.particles.many_body.stillinger_weber import reference
from hpckit.kernels.particles.many_body.stillinger_weber.simd import force_kernel, moment_kernel
from hpckit.kernels.particles.pair.potential import Form

slow = pytest.mark.nightly
EXTENT = (9.0, 11.0, 13.0)
GIVEN = reference.Silicon(21.0, -0.3, 4.0, 5.0, 4.0, 0.0, 1.0, 1.8, 1.2, 1.8)
OTHER = GIVEN._replace(p=4.5, q=1.5, cutoff=1.78, cosine=0.1)
FORMS = [
    pytest.param(Form(isa, measure=measure, exact=exact), given, marks=[] if daily else slow)
    for isa in vectors.available()
    for measure, exact, given, daily in (
        (True, True, GIVEN, isa == vectors.available()[0]),
        (False, False, GIVEN, False),
        (True, False, OTHER, len(vectors.available()) == 1),
    )
]


def all_pairs(positions):
    return np.nonzero(~np.eye(len(positions), dtype=bool))


def energy(positions, given=GIVEN):
    pairs = all_pairs(positions)
    moments = reference.moments_of_pairs(positions, *pairs, given)
    return 0.5 * reference.forces_of_pairs(positions, *pairs, given, moments)[1][:, 0].sum()


def test_the_energy_is_the_sum_over_pairs_and_triplets():
    positions, total = scattered(40, (4, 4, 4)), 0.0
    for i in range(40):
        near = []
        for j in range(40):
            d = positions[j, :3] - positions[i, :3]
            r = math.sqrt(d @ d)
            if i != j and r < GIVEN.cutoff:
                near.append((d / r, math.exp(GIVEN.width / (r - GIVEN.reach))))
                total += 0.5 * (GIVEN.b * r**-GIVEN.p - GIVEN.c) * math.exp(GIVEN.sigma / (r - GIVEN.reach))
        for (u, g), (v, h) in itertools.combinations(near, 2):
            total += GIVEN.strength * g * h * (u @ v - GIVEN.cosine) ** 2
    assert energy(positions) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("given", [GIVEN, OTHER])
def test_forces_are_the_derivative_of_the_energy(given):
    positions = scattered(60, (5, 4, 4))
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


@pytest.mark.parametrize(("form", "given"), FORMS, ids=str)
def test_every_form_agrees_with_the_reference(form, given):
    slots, starts, grid = clustered(scattered(901, EXTENT), EXTENT)
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 2.3, form.isa, form.lanes)
    own = clusters * 8
    pairs = cells_reference.neighbors(slots[:own], own, given.cutoff)
    moments = reference.moments_of_pairs(slots[:own], *pairs, given)
    forces, tallies = reference.forces_of_pairs(slots[:own], *pairs, given, moments)
    near, counts = np.empty(len(entries), np.int32), np.zeros(own, np.int32)
    parts = [HOST.zeros((len(slots), 4)).ravel() for _ in range(3)]
    every = np.arange(clusters, dtype=np.int32), slots.ravel(), start
    moment_kernel(form)(*every, entries, np.int32(4 * own), given, near, counts, *parts)
    for part, expected in zip(parts, moments, strict=True):
        np.testing.assert_allclose(part[: 4 * own].reshape(-1, 4), expected, rtol=1e-12, atol=1e-12)
    assert counts.sum() < 0.9 * start[own], "all in the list are near"
    out, each = HOST.zeros((own, 4)), np.zeros((own, 8))
    force_kernel(form, given.p, given.q)(*every, near, counts, given, *parts, out.ravel(), each.ravel())
    assert np.abs(out - forces).max() < 1e-12 * np.abs(forces).max()
    if form.measure:
        assert np.abs(each - tallies).max() < 1e-12 * np.abs(tallies).max()
