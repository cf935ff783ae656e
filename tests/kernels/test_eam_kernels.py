"""The embedded-atom kernels against their reference, and the reference against the derivative of its energy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_particle_kernels import clustered, listed, narrow_at_night, scattered

from hpckit.comm.device import HOST
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.many_body.eam import curves, reference
from hpckit.kernels.particles.many_body.eam.simd import density_kernel, force_kernel
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.records import simd as records

EXTENT, CUTOFF = (9.0, 11.0, 13.0), 2.5
FORMS = [Form("scalar", types=2, measure=True)]
FORMS += [
    Form(isa, "d", types, True, exact) for isa in vectors.available()[:-1] for types, exact in ((1, False), (3, True))
]
FORMS += [Form(isa, "f", types, True) for isa in vectors.available()[:-1] for types in (1, 3)]


def some_tables(types, points=400):
    """Tables of functions that fade at the cutoff, other ones for each pair of types; densities reach beyond theirs."""
    r = np.linspace(0, CUTOFF, points)
    fade = (1 - r / CUTOFF) ** 3
    kinds = np.arange(types)
    strength = 1 + 0.2 * kinds[:, None] + 0.3 * kinds[None, :]
    density = strength[..., None] * fade * np.exp(-r)
    pair = (strength + strength.T)[..., None] * fade * r * np.exp(-2 * r)
    n = np.linspace(0, 1.5, 300)
    embedding = -np.sqrt(n + 0.01) * (1 + 0.1 * kinds[:, None])
    return curves.tables(embedding, density, pair, n[1], r[1], CUTOFF)


def test_forces_are_the_derivative_of_the_energy():
    positions, given = scattered(60, (5, 4, 4), 3), some_tables(3, 4000)
    first, second = np.nonzero(~np.eye(len(positions), dtype=bool))

    def energy(places):
        slopes, energies = reference.densities_of_pairs(places, first, second, given)
        return 0.5 * reference.forces_of_pairs(places, first, second, given, slopes, energies)[1][:, 0].sum()

    slopes, energies = reference.densities_of_pairs(positions, first, second, given)
    forces, _ = reference.forces_of_pairs(positions, first, second, given, slopes, energies)
    assert np.abs(forces[:, :3].sum(axis=0)).max() < 1e-12
    for i, d in itertools.product((0, 17, 59), range(3)):
        moved = [positions.copy(), positions.copy()]
        moved[0][i, d] += 1e-5
        moved[1][i, d] -= 1e-5
        assert forces[i, d] == pytest.approx(-(energy(moved[0]) - energy(moved[1])) / 2e-5, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "form", narrow_at_night(FORMS, lambda form: form.types == 1 or form.isa == "scalar" or form.kind == "f"), ids=str
)
def test_every_form_agrees_with_the_reference(form):
    slots, starts, grid = clustered(scattered(901, EXTENT, form.types), EXTENT)
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 2.8, form.isa, form.lanes)
    own = clusters * 8
    given = some_tables(form.types)
    pairs = cells_reference.neighbors(slots[:own], own, CUTOFF)
    slopes, energies = reference.densities_of_pairs(slots[:own], *pairs, given)
    forces, tallies = reference.forces_of_pairs(slots[:own], *pairs, given, slopes, energies)
    taken, stored = slots, given
    if form.kind == "f":
        taken, stored = HOST.zeros(slots.shape, np.float32), curves.in_single(given)
        records.to_single(slots, 0, len(slots), np.array(EXTENT) / 2, taken)
    near, counts = np.empty(len(entries), np.int32), np.zeros(own, np.int32)
    found = np.full(len(slots), np.nan), np.full(len(slots), np.nan)
    all_clusters, table = (
        np.arange(clusters, dtype=np.int32),
        (stored.cutoff2, stored.scale, stored.points, stored.pairs),
    )
    fixed = np.int32(4 * own), *table, stored.embedding, stored.density_scale
    density_kernel(form)(all_clusters, taken.ravel(), start, entries, *fixed, near, counts, *found)
    tolerance = 2e-5 if form.kind == "f" else 1e-13
    assert 0 < (slopes == 0).sum() < own, "no slot is empty, or all are"
    np.testing.assert_allclose(found[0][:own], slopes, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[1][:own], energies, rtol=tolerance, atol=tolerance)
    assert counts.sum() < 0.9 * start[own], "all in the list are near"
    found[0][own:] = 0.0
    out, each = HOST.zeros((own, 4)), np.zeros((own, 8))
    force_kernel(form)(all_clusters, taken.ravel(), start, near, counts, *table, *found, out.ravel(), each.ravel())
    assert np.abs(out - forces).max() < 10 * tolerance * np.abs(forces).max()
    assert np.abs(each - tallies).max() < 10 * tolerance * np.abs(tallies).max()
