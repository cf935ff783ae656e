"""Charged pairs: screenings against their formulas, forces against derivatives, the compiled forms against NumPy."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import by_day
from test_particle_kernels import clustered, listed, narrow_at_night, scattered

from hpckit.apps.md.potentials import custom
from hpckit.comm.device import HOST
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells import columns
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.charged import reference, screening, simd
from hpckit.kernels.particles.charged.clusters import dispatch as clusters
from hpckit.kernels.particles.charged.clusters import reference as clusters_reference
from hpckit.kernels.particles.lennard_jones.dispatch import FADED, POTENTIAL, parameters
from hpckit.kernels.particles.pair.named import NAMED
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.kernels.particles.pair.simd import stored_table
from hpckit.kernels.particles.records import simd as records

EXTENT, CUTOFF = (9.0, 11.0, 13.0), 2.5
MADE = {
    "cut": screening.cut(2.3),
    "reaction field": screening.reaction_field(2.3, 78.0),
    "damped": screening.damped_shifted(2.4, 0.9),
    "screened": screening.debye(2.4, 0.7),
    "near": screening.near_part(2.5, 1.2),
    "as LAMMPS": screening.near_part(2.5, 1.2, as_lammps=True),
    "tabulated": screening.tabulated(screening.near_part(2.5, 1.2)),
    "halved": screening.halved(screening.near_part(2.5, 1.2, error=1e-10), 1e-10),
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
    if name == "screened":
        return math.exp(-0.7 * r) / r
    return 1 / r if name == "cut" else math.erfc(1.2 * r) / r


@pytest.mark.parametrize("name", by_day(MADE, "cut", "reaction field", "screened"))
def test_energies_are_those_of_the_formulas_and_forces_their_derivatives(name):
    made = MADE[name]
    assert made.constants.size == screening.count_of(*made.key)
    both = screening.functions(*made.key)[1].py_func
    for r in np.linspace(0.3, 0.999 * made.cutoff, 23):
        by_lammps = made.kind == "as_lammps" or (made.kind == "tabulated" and r < math.sqrt(2))
        rough = 3e-7 if by_lammps else 1e-10 if name == "halved" else 1e-12
        energy, force = both(r * r, made.constants)
        assert energy == pytest.approx(by_formula(name, r), abs=rough / r)
        low, high = (both((r + step) ** 2, made.constants)[0] for step in (-1e-5, 1e-5))
        assert force * r == pytest.approx(-(high - low) / 2e-5, rel=1e-6, abs=1e-7 if rough < 1e-9 else 3e-6)
    if name in ("reaction field", "damped"):
        assert both(made.cutoff**2, made.constants)[0] == pytest.approx(0, abs=1e-12)
    if name == "damped":
        assert both(made.cutoff**2, made.constants)[1] == pytest.approx(0, abs=1e-12)


def test_half_of_the_products_give_the_force_of_the_polynomial():
    made, r2 = MADE["halved"], np.linspace(0.01, 1, 50) * 6.25
    exact = screening.near_part(2.5, 1.2, error=1e-10)
    assert (made.kind, exact.kind) == ("halved", "smooth")
    mine, theirs = (
        np.array([screening.functions(*x.key)[0].py_func(y, x.constants) for y in r2]) for x in (made, exact)
    )
    assert np.abs(mine - theirs).max() * 2.5**3 < 1e-9
    assert screening.halved(MADE["cut"], 1e-10) is MADE["cut"]
    assert screening.halved(screening.near_part(2.5, 1.2, error=1e-10), 1e-16).kind == "smooth"
    both = [screening.tabulated(x) for x in (made, exact)]
    assert (both[0].constants == both[1].constants).all()


FORMS = [Form("scalar", types=2, measure=True)]
FORMS += [Form(isa, "d", 1, True, False, True) for isa in vectors.available()[:-1]]
FORMS += [Form(isa, "d", 3, True, True) for isa in vectors.available()[:-1]]
FORMS += [Form(vectors.available()[0], "f", 3, True)]


NIGHTLY = pytest.mark.nightly
# By day one screening in the forms of vectors with several types; all of both at night.
OTHERS = [pytest.param(name, marks=NIGHTLY) for name in ("damped", "screened", "as LAMMPS")]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["damped", "screened", "as LAMMPS"])
def test_every_screening_agrees_with_the_reference(name):
    agrees(FORMS[0], name)


@pytest.mark.parametrize("name", ["near", *OTHERS])
@pytest.mark.parametrize("form", narrow_at_night(FORMS, lambda form: form.types == 1 or form.isa == "scalar"), ids=str)
def test_every_form_agrees_with_the_reference(form, name):
    agrees(form, name)


def agrees(form, name):
    """Forces, tallies and energies of a compiled form are those of the reference."""
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


@pytest.mark.parametrize("once", by_day([False, True], True))
def test_partners_have_their_share(once):
    made = MADE["tabulated"]
    slots, starts, _ = clustered(scattered(300, EXTENT, 2), EXTENT)
    own, rng = int(starts[-1]) * 8, np.random.default_rng(5)
    filled = np.flatnonzero(slots[:own, 0] < 1e6)
    counts = np.where(slots[:own, 0] < 1e6, rng.integers(0, 3, own), 0)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    partners, kinds = rng.choice(filled, bounds[-1]), rng.integers(0, 3, bounds[-1]).astype(np.int32)
    one, charges = np.ones((2, 2)), rng.uniform(-1, 1, len(slots))
    table, shares = parameters(one, 0.9 * one, 2.2 * one), np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.8333]])
    keep = slots[np.repeat(np.arange(own), counts), :3] != slots[partners, :3]
    assert keep.any()
    what = bounds, partners, kinds, POTENTIAL, table, charges, made.key, made.constants, shares
    places = slots.copy()
    places[:, :3] += rng.uniform(0, 1e-3, (len(slots), 3))
    same = np.repeat(np.arange(own), counts) == partners
    partners[same] = (partners[same] + 1) % own  # nobody is its own partner
    some = np.empty((2, own + 1), np.int64), np.full((2, len(partners)), -1), np.full((2, len(partners)), -1, np.int32)
    for k, form_of in enumerate((reference, simd)):
        every = bounds, partners, kinds, np.array([True, False, True])
        form_of.choose_partners(*every, once, *(each[k] for each in some))
    for each in some:
        np.testing.assert_array_equal(*each)
    assert 0 < some[0][0][-1] < len(partners)
    expected = reference.forces_of_partners(places, *what, once)
    given = places, bounds, partners, kinds, table, charges, made.constants, shares
    for measure in (True, VIRIAL):
        found = np.zeros((own, 4)), np.zeros((own, 8)), np.zeros(own)
        simd.add_partners(POTENTIAL, made.key, own, *given, *found, measure, once)
        if measure == VIRIAL:
            sums = tuple(each[1].sum(axis=0)[1:7] for each in (found, expected))
            found, expected = (found[0], sums[0]), (expected[0], sums[1])
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11 * np.abs(wanted).max())


def halves(types, reach):
    """Slots of own particles (x < 6) and, behind them, of ghosts, in clusters; how many of each, and their grid."""
    records = scattered(901, EXTENT, types)
    low, high = np.zeros(3), np.array([6.0, *EXTENT[1:]])
    here = records[:, 0] < high[0]
    grid = columns.grid_over(records, int(here.sum()), low, high, reach)
    orders, starts = zip(
        *(columns.sort(records[side], int(side.sum()), grid, ghosts=k > 0) for k, side in enumerate((here, ~here))),
        strict=True,
    )
    own, ghosts = map(len, orders)
    slots = HOST.zeros((own + ghosts + 8, 4))
    for order, first, side in zip(orders, (0, own), (here, ~here), strict=True):
        columns.place(records[side], order, len(order), first, slots)
    slots[own + ghosts :] = 50.0
    return slots, own, ghosts, grid, starts


def paired(slots, own, ghosts, grid, starts):
    """The pairs of clusters, and 60 pairs of particles left out of them by both forms of `mask_out`, [n, 2]."""
    taken = slots[: own + ghosts, 1] < 7.0  # of the ghosts
    infinite = (np.full(3, -np.inf),) * 2
    near = clusters.list_pairs(slots, own, ghosts, grid, starts, taken, infinite, form_of_lists(), None)
    first, second = cells_reference.neighbors(slots[: own + ghosts], own + ghosts, CUTOFF)
    chosen = np.random.default_rng(3).permutation(np.flatnonzero(first < own))[:60]
    out = np.stack([first[chosen], second[chosen]], axis=1)
    out = np.unique(np.concatenate([out, out[out[:, 1] < own][:, ::-1]]), axis=0)
    bounds = np.searchsorted(out[:, 0], np.arange(own + 1))
    twin = near._replace(masks=near.masks.copy())
    clusters.mask_out(near, bounds, np.ascontiguousarray(out[:, 1]), own)
    clusters_reference.mask_out(twin, bounds, out[:, 1], own)
    used = near.bounds[own // clusters.GROUP]
    assert (near.masks[:used] == twin.masks[:used]).all()
    kept = (first < own) & ~np.isin(first * len(slots) + second, out @ [len(slots), 1])
    assert 0 < taken[own:].sum() < ghosts
    first, second = first[kept & ((second < own) | taken[second])], second[kept & ((second < own) | taken[second])]
    back = second >= own  # ghosts feel their pairs, too
    return near, np.concatenate([first, second[back]]), np.concatenate([second, first[back]])


def faded(r2, p):
    """E and -dE/dr / r of the potential below, by its formula."""
    x3, x, width = (p[3] ** 2 / r2) ** 3, np.maximum(r2, p[4]), p[0] - p[4]
    energy, slope = 4 * p[2] * (x3 * x3 - x3), -12 * p[2] * (2 * x3 - 1) * x3 / r2
    fade = (p[0] - x) ** 2 * (p[0] + 2 * x - 3 * p[4]) / width**3
    return energy * fade, -2 * (slope * fade - 6 * energy * (p[0] - x) * (x - p[4]) / width**3)


def form_of_lists():
    return vectors.available()[0]


CLUSTERED = [(Form(isa, "d", 2), "halved") for isa in vectors.available()[:-1]]
CLUSTERED += [(Form(vectors.available()[0], "d", 20, one_cutoff=True), "as LAMMPS")]
CLUSTERED += [(Form(vectors.available()[0], "f", 20), "near")]


@pytest.mark.skipif(vectors.available()[0] == "scalar", reason="pairs of clusters are for vectors")
@pytest.mark.parametrize(("form", "name"), narrow_at_night(CLUSTERED, lambda form: form.kind == "f"), ids=str)
def test_pairs_of_clusters_agree_with_the_reference(form, name):
    made, types = MADE[name], np.arange(form.types) / form.types
    numbers = np.stack([1.0 + types, 0.8 + 0.2 * types], axis=-1)
    own_parameters = np.stack(
        [np.sqrt(np.multiply.outer(*numbers[:, [0, 0]].T)), 0.5 * np.add.outer(*numbers[:, [1, 1]].T)], axis=-1
    )
    cutoffs = np.full((form.types, form.types), 2.5 if form.one_cutoff else 2.2)
    found = custom(NAMED["lennard_jones"][0], own_parameters, cutoffs, name="lennard_jones", switch=1.7)
    potential, rules = replace(found.potential, by_inverse=FADED), clusters.rules_of(found.table)
    assert rules is not None
    assert rules[0] == ("same", "same", "product", "mean", "same")
    slots, own, ghosts, grid, starts = halves(form.types, 2.8)
    near, first, second = paired(slots, own, ghosts, grid, starts)
    charges = np.where(slots[:, 0] < 1e6, np.random.default_rng(2).uniform(-2, 2, len(slots)), 0.0)
    by_formula = SimpleNamespace(energy_and_force=SimpleNamespace(py_func=faded), clamp=True, reference=None)
    what = by_formula, found.table, charges, made.key, made.constants
    forces, tallies, energies = reference.forces_of_pairs(slots[: own + ghosts], first, second, *what)
    kinds = np.minimum((slots[:, 3].view(np.int64) & 0xFFFFFFFF) >> 1, form.types - 1)
    looked_up = form.types <= form.near_types or form.kind == "f"
    words = slots[:, 3].copy() if form.kind == "d" else (0x3F800000 | kinds.astype(np.int32)).view(np.float32)
    table = stored_table(found.table, form)
    each = np.ascontiguousarray(rules[1][:, kinds], form.dtype).ravel()
    center, tiles = np.array([3.0, 5.0, 6.0]), np.zeros((len(slots) // 8, 3, 8), form.dtype)
    clusters.to_tiles(slots, 0, (own + ghosts) // 8, center, tiles)
    twin = tiles.copy()
    clusters_reference.to_tiles(slots, 0, (own + ghosts) // 8, center, twin)
    assert (tiles == twin).all()
    one_reach, room = form.one_cutoff and made.cutoff == 2.5, clusters.room_for_hits(near, own // 8)
    rough = 3e-4 if form.kind == "f" else 1e-11
    for level in (False, True) if form.types == 2 and form.isa != "avx2" else (True,):  # each is compiled
        names = None if looked_up else rules[0]
        kernel = clusters.force_kernel(potential, form, made.key, names, one_reach, level)
        felt, pushed = np.zeros((own // 8, 3, 8)), np.zeros((len(slots) // 8, 3, 8))
        got, sums, of_charges = np.zeros((len(slots), 4)), np.zeros((len(slots), 8)), np.zeros(len(slots))
        numbers = charges.astype(form.dtype), words, each, table, made.constants.astype(form.dtype), 6.25
        out = felt.reshape(-1), pushed.reshape(-1), sums.reshape(-1), of_charges
        for part in (near.inner, near.outer):
            kernel(part, tiles.reshape(-1), *numbers, *near[:3], room, *out)
        for form_of in (clusters_reference, clusters):
            form_of.finish(slots, own, ghosts, center, felt, pushed, True, got, sums)
            scale, every = np.abs(forces).max(), own + ghosts
            np.testing.assert_allclose(got[:every], forces[:every], rtol=rough, atol=rough * scale)
            wanted = tallies[:, 1:].sum(axis=0)
            np.testing.assert_allclose(sums[:own, 1:].sum(axis=0), wanted, atol=10 * rough * np.abs(wanted).max())
    assert sums[:own, 0].sum() == pytest.approx(tallies[:, 0].sum(), rel=rough)
    assert of_charges[:own].sum() == pytest.approx(energies.sum(), rel=10 * rough)


def test_a_table_without_a_rule_is_looked_up():
    table = np.ones((3, 3, 3))
    assert clusters.rules_of(table) is None
    table[..., 2] = np.multiply.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert clusters.rules_of(table)[0] == ("same", "same", "product")
    table[0, 2, 2] = table[2, 0, 2] = 3.001
    assert clusters.rules_of(table) is None
