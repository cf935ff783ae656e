"""Tersoff's kernels against their reference, and the reference against differences of its energy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_particle_kernels import clustered, listed, scattered
from test_stillinger_weber_kernels import all_pairs

from hpckit.comm.device import HOST
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.many_body.tersoff import dispatch, reference
from hpckit.kernels.particles.pair.potential import Form

slow = pytest.mark.nightly
EXTENT = (9.0, 11.0, 13.0)


def given(types, shared, widths):
    """Parameters for distances about 1, of which all are different; cutoffs from 1.4 to 1.7."""
    rng = np.random.default_rng(types)
    shapes = (types, types), (types, types, types)
    pairs, triples = (
        np.stack([rng.uniform(*bounds, shape) for bounds in each], axis=-1)
        for shape, each in zip(
            shapes,
            (
                ((900, 1100), (3.4, 3.6), (90, 110), (1.7, 1.9), (0.1, 0.3), (0.7, 2.3), (1.5, 1.6), (0.08, 0.1)),
                ((-0.6, -0.4), (0.2, 0.4), (0.8, 1.2), (2.0, 3.0), (0.8, 1.2), (0, 1), (1.45, 1.55), (0.08, 0.1)),
            ),
            strict=True,
        )
    )
    triples[..., 5] = triples[..., 5] > 0.5
    if not widths:
        triples[..., 4] = 0.0
    if shared:
        triples[..., 6:] = pairs[:, None, :, 6:]
    for i in range(types):  # the bond of i to j is cut where it begins and where it is a third
        triples[i, range(types), range(types), 6:] = pairs[i, :, 6:]
    cutoff = max((table[..., 6] + table[..., 7]).max() for table in (pairs, triples))
    return reference.Tersoff(pairs, triples, float(cutoff), shared, widths)


ONE, TWO, THREE = given(1, True, True), given(2, False, True), given(3, True, False)
FORMS = [
    pytest.param(Form(isa, types=len(it.pairs), measure=measure, exact=exact), it, marks=[] if daily else slow)
    for isa in vectors.available()
    for measure, exact, it, daily in (
        (True, True, TWO, isa == vectors.available()[0]),
        (False, False, ONE, False),
        (True, False, THREE, False),
    )
]


def energy(positions, it):
    return 0.5 * reference.forces_of_pairs(positions, *all_pairs(positions), it)[1][:, 0].sum()


@pytest.mark.parametrize("it", [ONE, TWO, THREE], ids=len)
def test_forces_are_the_derivative_of_the_energy(it):
    types = len(it.pairs)
    positions = scattered(60, (5, 4, 4), types)
    forces, tallies = reference.forces_of_pairs(positions, *all_pairs(positions), it)
    assert np.abs(forces).max() > 10
    assert np.abs(forces[:, :3].sum(axis=0)).max() < 1e-9
    for i, d in itertools.product((0, 17, 59), range(3)):
        moved = [positions.copy(), positions.copy()]
        moved[0][i, d] += 1e-6
        moved[1][i, d] -= 1e-6
        slope = (energy(moved[0], it) - energy(moved[1], it)) / 2e-6
        assert forces[i, d] == pytest.approx(-slope, rel=1e-6, abs=1e-5)
    stretched = [positions * [1 + sign * 1e-6, 1, 1, 1] for sign in (1, -1)]
    slope = (energy(stretched[0], it) - energy(stretched[1], it)) / 2e-6
    assert 0.5 * tallies[:, 1].sum() == pytest.approx(-slope, rel=1e-6)


@pytest.mark.parametrize(("form", "it"), FORMS, ids=lambda each: str(each) if isinstance(each, Form) else "")
def test_every_form_agrees_with_the_reference(form, it):
    slots, starts, grid = clustered(scattered(901, EXTENT, form.types), EXTENT)
    slots[-8:, 0] = FAR
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 2.2, form.isa, form.lanes)
    own = clusters * 8
    expected = reference.forces_of_pairs(slots[:own], *cells_reference.neighbors(slots[:own], own, it.cutoff), it)
    lists, part = Lists(entries, start, None, None, []), np.arange(clusters, dtype=np.int32)
    pushed, tallies = HOST.zeros((len(slots), 8 if form.exact else 4)), np.ones((own, 8))
    tallies[:, 7] = 0.0
    kernel = dispatch.force_kernel(form, it.shared, it.widths)
    room = dispatch.room(form, lists, own, None)
    dispatch.forces(kernel, form, part, slots, len(slots), lists, it, room, pushed, tallies)
    out = pushed[:own, :4] + pushed[:own, 4:] if form.exact else pushed[:own]
    assert np.abs(out - expected[0]).max() < 1e-11 * np.abs(expected[0]).max()
    assert not pushed[own:].any(), "slots without a particle"
    if form.measure:
        assert np.abs(tallies - expected[1]).max() < 1e-11 * np.abs(expected[1]).max()
