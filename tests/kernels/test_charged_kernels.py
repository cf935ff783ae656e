"""Charged pairs: screenings against their formulas, forces against derivatives, the compiled forms against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_particle_kernels import clustered, listed, scattered

from hpckit.comm.device import HOST
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.charged import reference, screening, simd
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.simd import stored_table
from hpckit.kernels.particles.records import simd as records

EXTENT, CUTOFF = (9.0, 11.0, 13.0), 2.5
MADE = {
    "cut": screening.cut(2.3),
    "reaction field": screening.reaction_field(2.3, 78.0),
    "damped": screening.damped_shifted(2.4, 0.9),
    "near": screening.near_part(2.5, 1.2),
    "as LAMMPS": screening.near_part(2.5, 1.2, as_lammps=True),
}
ROOT = 2 / math.sqrt(math.pi)


def by_formula(name, r):
    """The energies of a unit of charges."""
    if name == "reaction field":
        k = 77.0 / (157.0 * 2.3**3)
        return 1 / r + k * r * r - (1 / 2.3 + k * 2.3**2)
    if name == "damped":
        edge = math.erfc(0.9 * 2.4)
        slope = edge / 2.4**2 + ROOT * 0.9 * math.exp(-((0.9 * 2.4) ** 2)) / 2.4
        return math.erfc(0.9 * r) / r - edge / 2.4 + slope * (r - 2.4)
    return 1 / r if name == "cut" else math.erfc(1.2 * r) / r


@pytest.mark.parametrize("name", MADE)
def test_energies_are_those_of_the_formulas_and_forces_their_derivatives(name):
    made = MADE[name]
    assert made.constants.size == screening.count_of(*made.key)
    both = screening.functions(*made.key)[1].py_func
    rough = 3e-7 if made.kind == "as_lammps" else 1e-12
    for r in np.linspace(0.3, 0.999 * made.cutoff, 40):
        energy, force = both(r * r, made.constants)
        assert energy == pytest.approx(by_formula(name, r), abs=rough / r)
        low, high = (both((r + step) ** 2, made.constants)[0] for step in (-1e-5, 1e-5))
        assert force * r == pytest.approx(-(high - low) / 2e-5, rel=1e-6, abs=1e-7 if rough < 1e-9 else 3e-6)
    if name in ("reaction field", "damped"):
        assert both(made.cutoff**2, made.constants)[0] == pytest.approx(0, abs=1e-12)
    if name == "damped":
        assert both(made.cutoff**2, made.constants)[1] == pytest.approx(0, abs=1e-12)


FORMS = [Form("scalar", types=2, measure=True)]
FORMS += [Form(isa, "d", 1, True, False, True) for isa in vectors.available()[:-1]]
FORMS += [Form(isa, "d", 3, True, True) for isa in vectors.available()[:-1]]
FORMS += [Form(vectors.available()[0], "f", 3, True)]


@pytest.mark.parametrize("name", ["damped", "near", "as LAMMPS"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_agrees_with_the_reference(form, name):
    slots, starts, grid = clustered(scattered(901, EXTENT, form.types), EXTENT)
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 2.8, form.isa, form.lanes)
    own, made = clusters * 8, MADE[name]
    one = np.ones((form.types, form.types))
    cutoffs = 2.5 * one if form.one_cutoff else 2.2 * one + 0.1 * np.eye(form.types)
    table = parameters(1.1 * one, 0.9 * one, cutoffs, shifted=True)
    charges = np.where(slots[:, 0] < 1e6, np.random.default_rng(2).uniform(-2, 2, len(slots)), 0.0)
    pairs = cells_reference.neighbors(slots[:own], own, CUTOFF)
    what = POTENTIAL, table, charges, made.key, made.constants
    forces, tallies, energies = reference.forces_of_pairs(slots[:own], *pairs, *what)
    taken = slots
    if form.kind == "f":
        taken = HOST.zeros(slots.shape, np.float32)
        records.to_single(slots, 0, len(slots), np.array(EXTENT) / 2, taken)
    out, each, of_charges = HOST.zeros((own, 4)), np.zeros((own, 8)), np.zeros(own)
    given = stored_table(table, form), charges.astype(form.dtype), made.constants.astype(form.dtype)
    kernel = simd.force_kernel(POTENTIAL, form, made.key)
    kernel(
        np.arange(clusters, dtype=np.int32),
        taken.ravel(),
        start,
        entries,
        *given,
        out.ravel(),
        each.ravel(),
        of_charges,
    )
    tolerance = 3e-5 if form.kind == "f" else 1e-12
    for got, expected in ((out, forces), (each, tallies), (of_charges, energies)):
        assert np.abs(expected).max() > 1
        assert np.abs(got - expected).max() < tolerance * np.abs(expected).max()


def test_partners_are_left_out_of_lists_and_have_their_share():
    form, made = Form("scalar", types=2), MADE["near"]
    slots, starts, grid = clustered(scattered(300, EXTENT, 2), EXTENT)
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 2.8, form.isa, form.lanes)
    own, rng = clusters * 8, np.random.default_rng(5)
    filled = np.flatnonzero(slots[:own, 0] < 1e6)
    counts = np.where(slots[:own, 0] < 1e6, rng.integers(0, 3, own), 0)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    partners, kinds = rng.choice(filled, bounds[-1]), rng.integers(0, 3, bounds[-1]).astype(np.int32)
    both = entries.copy(), entries.copy()
    for form_of, mine in zip((reference, simd), both, strict=True):
        form_of.leave_out(start, mine, bounds, partners, own, np.int32(4 * own))
    np.testing.assert_array_equal(*both)
    assert (both[0] != entries).any()
    one, charges = np.ones((2, 2)), rng.uniform(-1, 1, len(slots))
    table, shares = parameters(one, 0.9 * one, 2.2 * one), np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.8333]])
    keep = slots[np.repeat(np.arange(own), counts), :3] != slots[partners, :3]
    assert keep.any()
    what = bounds, partners, kinds, POTENTIAL, table, charges, made.key, made.constants, shares
    places = slots.copy()
    places[:, :3] += rng.uniform(0, 1e-3, (len(slots), 3))
    same = np.repeat(np.arange(own), counts) == partners
    partners[same] = (partners[same] + 1) % own  # nobody is its own partner
    expected = reference.forces_of_partners(places, *what)
    found = np.zeros((own, 4)), np.zeros((own, 8)), np.zeros(own)
    given = places, bounds, partners, kinds, table, charges, made.constants, shares
    simd.partner_kernel(POTENTIAL, made.key)(own, *given, *found, True)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11 * np.abs(wanted).max())
