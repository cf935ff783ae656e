"""Kernels of particles against their references: columns, lists, pair forces, motion, records."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from conftest import by_day

from hpckit.comm.device import HOST
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.cells import simd as cells
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, FAR_STEP
from hpckit.kernels.particles.integrate import reference as integrate_reference
from hpckit.kernels.particles.integrate import simd as integrate
from hpckit.kernels.particles.lennard_jones import reference as lennard_jones_reference
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters, tail
from hpckit.kernels.particles.pair import reference as pair_reference
from hpckit.kernels.particles.pair.simd import Form, force_kernel, stored_table
from hpckit.kernels.particles.records import reference as records_reference
from hpckit.kernels.particles.records import simd as records

VECTOR_ISAS = [isa for isa in vectors.available() if isa != "scalar"]
FORMS = [Form("scalar"), Form("scalar", "f", 3), Form("scalar", exact=True)]
FORMS += [Form(isa, "d", types) for isa in VECTOR_ISAS for types in (1, 2, 3, 11)]
FORMS += [Form(isa, "f", types) for isa in VECTOR_ISAS for types in (3, 11)]
FORMS += [Form(isa, exact=True) for isa in VECTOR_ISAS]


def narrow_at_night(forms, also=lambda form: False):
    """The forms, those of vectors narrower than this processor's for the nightly run: they compile the same source.

    also: which others may wait.
    """
    daily = vectors.available()[0], "scalar"
    return [
        pytest.param(*each, marks=() if each[0].isa in daily and not also(each[0]) else pytest.mark.nightly)
        for each in (form if isinstance(form, tuple) else (form,) for form in forms)
    ]


def scattered(count, extent, types=1, seed=5):
    """Records of particles on a shaken lattice in a box of these edges."""
    rng = np.random.default_rng(seed)
    edge = (np.prod(extent) / count) ** (1 / 3)
    grid = [np.arange(int(np.ceil(length / edge))) * edge for length in extent]
    places = np.array(list(itertools.product(*grid)))
    places = places[rng.permutation(len(places))[:count]] + rng.uniform(-0.2, 0.2, (count, 3)) * edge
    return np.column_stack([places, records_reference.type_words(rng.integers(0, types, count))])


def clustered(positions, extent, width=2.5):
    """The particles in clusters, and one more cluster of empty slots for the ends of lists: what kernels work on."""
    shape = np.maximum(1, np.rint(np.array(extent[:2]) / width)).astype(np.int64)
    grid = np.zeros(2), shape / np.array(extent[:2]), shape
    columns, sizes = np.empty(len(positions), np.int64), np.zeros(shape.prod(), np.int64)
    starts = np.empty(len(sizes) + 1, np.int64)
    cells.assign_columns(positions, len(positions), *grid, 0.0, extent[2], 1, columns, sizes, starts)
    order = np.empty(starts[-1] * CLUSTER, np.int64)
    cells.sort_columns(positions, len(positions), columns, sizes, starts, order)
    slots = HOST.zeros((len(order) + CLUSTER, 4))
    cells.place(positions, order, len(order), 0, slots)
    slots[len(order) :] = [positions[:, 0].max() + 20, 0, 0, records_reference.type_words(np.zeros(1, int))[0]]
    return slots, starts, grid


def listed(slots, starts, grid, extent, reach, isa, padding, near=None, excluded=None):
    """The list of own particles without ghosts, and the number of clusters; with `near` where its parts end, too."""
    clusters = int(starts[-1])
    places, boxes = np.zeros((3, clusters * CLUSTER + CLUSTER), np.float32), np.zeros((clusters, 6))
    cells.pack_places(slots, clusters, np.array(extent) / 2, places, boxes)
    nearer = np.array([reach] if near is None else near)
    start, near_ends = np.zeros(clusters * CLUSTER + 1, np.int64), np.zeros((len(nearer), clusters * CLUSTER), np.int64)
    left_out = excluded or (np.zeros(1, np.int64), np.empty(0, np.int32))
    none = np.zeros(3 * grid[2].prod() + 1, np.int64)
    ends = np.full(3, -1e3), np.full(3, 1e3)
    build, entries = cells.list_builder(isa), np.empty(0, np.int32)
    pad = np.int32(4 * CLUSTER * clusters)
    while True:
        args = (starts, none, (*grid, grid[0], grid[2], *ends), *left_out, start, near_ends, entries)
        count = build(clusters, places, boxes, reach, nearer, padding, pad, *args)
        if count >= 0:
            return (start, entries, clusters) if near is None else (start, entries, clusters, near_ends)
        entries = np.empty(-count, np.int32)


@pytest.mark.parametrize("isa", by_day(vectors.available(), vectors.available()[0]))
@pytest.mark.parametrize(("count", "extent"), [(901, (9, 11, 13)), (7, (4, 5, 3)), (333, (30, 3, 3)), (1, (5, 5, 5))])
def test_a_list_holds_every_pair_within_reach_once(isa, count, extent):
    slots, starts, grid = clustered(scattered(count, extent), extent)
    start, entries, clusters = listed(slots, starts, grid, extent, 2.8, isa, 4)
    own, pad = clusters * CLUSTER, clusters * CLUSTER
    first, second = cells_reference.list_entries(start, entries, own)
    real = second != pad
    found = sorted(zip(first[real].tolist(), second[real].tolist(), strict=True))
    expected = sorted(zip(*(each.tolist() for each in cells_reference.neighbors(slots[:own], own, 2.8)), strict=True))
    assert len(set(found)) == len(found), "a pair is there twice"
    assert set(expected) <= set(found)
    gaps = np.linalg.norm(slots[first[real], :3] - slots[second[real], :3], axis=1)
    assert gaps.max(initial=0) < 2.8001
    assert (np.diff(start) % 4 == 0).all()
    assert count < 900 or len(expected) > 40_000


@pytest.mark.parametrize("isa", vectors.available())
def test_near_neighbors_come_first_and_partners_are_in_no_list(isa):
    extent, rng = (9, 11, 13), np.random.default_rng(4)
    slots, starts, grid = clustered(scattered(901, extent), extent)
    own = int(starts[-1]) * CLUSTER
    first, second = cells_reference.neighbors(slots[:own], own, 2.8)
    chosen = rng.random(len(first)) < np.where(first % 3 == 0, 0.0, 0.05)  # some have none, most some, a few many
    bounds, partners = np.searchsorted(first[chosen], np.arange(own + 1)), second[chosen].astype(np.int32)
    assert np.diff(bounds).max() > 4
    start, entries, _, near_ends = listed(slots, starts, grid, extent, 2.8, isa, 8, (1.1, 1.5), (bounds, partners))
    found, part = cells_reference.list_entries(start, entries, own)
    real = part != own
    kept = set(zip(found[real].tolist(), part[real].tolist(), strict=True))
    expected = set(zip(first[~chosen].tolist(), second[~chosen].tolist(), strict=True))
    left_out = set(zip(first[chosen].tolist(), second[chosen].tolist(), strict=True))
    assert real.sum() == len(kept)
    assert expected <= kept
    assert not left_out & kept
    begins = np.repeat(start[:-1], np.diff(start))
    gaps = np.linalg.norm(slots[found, :3] - slots[part, :3], axis=1)
    for near, ends, most in zip((1.1, 1.5), near_ends, (0.3, 0.5), strict=True):
        in_front = np.arange(len(found)) < np.repeat(ends, np.diff(start))
        assert in_front[real & (gaps < near)].all()
        assert ((ends - start[:-1]) % 8 == 0).all()
        assert isa == "scalar" or in_front.sum() < most * len(found)
    assert (begins <= np.arange(len(found))).all()


@pytest.mark.parametrize("zones", [1, 3])
def test_columns_and_clusters(zones):
    extent = (9.0, 11.0, 13.0)
    positions = scattered(700, extent)
    positions[5::50, 0] = FAR
    positions[3, :2], positions[4, :2] = -50, 50
    shape = np.array([3, 4])
    grid = np.zeros(2), shape / np.array(extent[:2]), shape
    each = []
    for form in (cells_reference, cells):
        columns, sizes = np.empty(700, np.int64), np.full(12 * zones, -1)
        starts = np.full(12 * zones + 1, -1)
        assert form.assign_columns(positions, 700, *grid, 3.0, 8.0, zones, columns, sizes, starts) == starts[-1]
        order = np.empty(starts[-1] * CLUSTER, np.int64)
        form.sort_columns(positions, 700, columns, sizes, starts, order)
        slots = np.zeros((len(order) + 8, 4))
        form.place(positions, order, len(order), 8, slots)
        places, boxes = np.zeros((3, 8 * starts[-1] + 5), np.float32), np.zeros((starts[-1], 6))
        form.pack_places(slots[8:], starts[-1], np.array([1.0, 2.0, 3.0]), places, boxes)
        inner, outer = np.zeros(starts[-1], np.int32), np.zeros(starts[-1], np.int32)
        low, high = np.zeros(3), np.array(extent)
        count = form.split_clusters(boxes, starts[-1], low, high, 1.0, inner, outer)
        assert 0 < count < starts[-1]
        where, ends = np.full(700, -1), (np.array([3.0, -1e9, 2.0]), np.array([1e9, 4.0, 5.0]))
        form.ghost_slots(order, len(order), 8, where)
        form.corners(boxes, *ends)
        each.append((columns, sizes, starts, order, slots, places, boxes, inner, outer, where, *ends))
    for one, other in zip(*each, strict=True):
        np.testing.assert_array_equal(one, other)
    order, slots = each[0][3:5]
    assert sorted(order[order >= 0]) == np.flatnonzero(positions[:, 0] < FAR).tolist()
    empty = slots[8:][order < 0]
    assert len(np.unique(empty[:, 0])) == len(empty), "empty slots lie on one another"
    assert empty[:, 0].min() >= FAR + 8 * FAR_STEP


@pytest.mark.parametrize(
    "form",
    narrow_at_night(
        FORMS, lambda form: (form.kind, form.types) in (("d", 2), ("d", 11), ("f", 11)) or form in FORMS[1:3]
    ),
    ids=str,
)
def test_pair_forces_energies_and_virials(form):
    extent, count = (9.0, 11.0, 13.0), 901
    slots, starts, grid = clustered(scattered(count, extent, form.types), extent)
    start, entries, clusters = listed(slots, starts, grid, extent, 2.8, form.isa, form.lanes)
    own = clusters * CLUSTER
    kinds = np.arange(form.types)
    epsilon, sigma = 1 + 0.1 * np.add.outer(kinds, kinds), 1 - 0.02 * np.add.outer(kinds, kinds)
    table = parameters(epsilon, sigma, 2.5 * sigma, shifted=True)
    pairs = cells_reference.neighbors(slots[:own], own, 2.5)
    expected, tallies = pair_reference.forces_of_pairs(slots, *pairs, POTENTIAL, table)
    given = slots
    if form.kind == "f":
        given = HOST.zeros(slots.shape, np.float32)
        records.to_single(slots, 0, len(slots), np.array(extent) / 2, given)
    tolerance = 1e-4 if form.kind == "f" else 1e-13
    for measure in (False, True):
        forces, found = HOST.zeros((own, 4)), np.zeros((own, 8))
        forces[:] = np.nan
        kernel = force_kernel(POTENTIAL, Form(form.isa, form.kind, form.types, measure, form.exact))
        flat = given.ravel(), start, start[1:], entries, stored_table(table, form), forces.ravel(), found.ravel()
        kernel(np.arange(clusters, dtype=np.int32), *flat)
        assert np.abs(forces - expected[:own]).max() < tolerance * np.abs(expected).max()
        if measure:
            assert np.abs(found - tallies[:own]).max() < tolerance * np.abs(tallies).max()


@pytest.mark.parametrize("isa", vectors.available())
def test_exact_forces_do_not_depend_on_the_order_of_the_neighbors(isa):
    extent, form = (9.0, 11.0, 13.0), Form(isa, "d", 1, True, True)
    slots, starts, grid = clustered(scattered(901, extent), extent)
    start, entries, clusters = listed(slots, starts, grid, extent, 2.8, isa, form.lanes)
    one = np.ones((1, 1))
    table = stored_table(parameters(one, one, 2.5 * one), form)
    found = {}
    for exact, shuffled in itertools.product((True, False), (False, True)):
        mixed = entries.copy()
        if shuffled:
            rng = np.random.default_rng(2)
            for a, b in itertools.pairwise(start):
                mixed[a:b] = rng.permutation(mixed[a:b])
        forces, tallies = HOST.zeros((clusters * CLUSTER, 4)), np.zeros((clusters * CLUSTER, 8))
        kernel = force_kernel(POTENTIAL, Form(isa, "d", 1, True, exact))
        kernel(
            np.arange(clusters, dtype=np.int32),
            slots.ravel(),
            start,
            start[1:],
            mixed,
            table,
            forces.ravel(),
            tallies.ravel(),
        )
        found[exact, shuffled] = np.concatenate([forces.ravel(), tallies.ravel()])
    np.testing.assert_array_equal(found[True, True], found[True, False])
    assert (found[False, True] != found[False, False]).any(), "the order makes no difference anyway"
    np.testing.assert_allclose(found[True, True], found[False, True], rtol=1e-12, atol=1e-12)


def test_lennard_jones_is_the_textbook_one():
    r = np.linspace(0.8, 2.6, 200)
    epsilon, sigma, cutoff = np.full((1, 1), 1.3), np.full((1, 1), 1.1), np.full((1, 1), 2.7)
    p = parameters(epsilon, sigma, cutoff, shifted=True)[0, 0]
    energy, force = POTENTIAL.energy_and_force.py_func(r * r, p)
    np.testing.assert_allclose(energy, lennard_jones_reference.energy_at(r, 1.3, 1.1), rtol=1e-12)
    np.testing.assert_allclose(force * r, lennard_jones_reference.force_at(r, 1.3, 1.1), rtol=1e-10, atol=1e-12)
    # Attraction and repulsion of about 10 cancel where the force passes through 0.
    np.testing.assert_allclose(POTENTIAL.force.py_func(r * r, p), force, rtol=1e-14, atol=1e-14)
    assert p[1] == pytest.approx(lennard_jones_reference.energy_at(2.7, 1.3, 1.1))
    far = np.linspace(2.7, 400.0, 2_000_001)
    shell = 4 * np.pi * far**2
    sums = [
        np.trapezoid(lennard_jones_reference.energy_at(far, 1.3, 1.1) * shell, far),
        np.trapezoid(lennard_jones_reference.force_at(far, 1.3, 1.1) * far * shell, far),
    ]
    np.testing.assert_allclose(tail(1.3, 1.1, 2.7), sums, rtol=1e-6)


def test_motion_matches_its_reference():
    rng = np.random.default_rng(8)
    lower, upper, periodic = np.array([-1.0, 0.0, 2.0]), np.array([4.0, 7.0, 5.0]), np.array([True, False, True])
    each = []
    start = np.column_stack([rng.uniform(-9, 12, (53, 3)), np.ones(53)])
    start[7, 0], start[11, :3], start[12, 0] = FAR, upper, np.nextafter(-1.0, -2)
    moved = [rng.normal(size=(53, 4)) * [1, 1, 1, 0] for _ in range(2)]
    masses = rng.uniform(1, 2, 53)
    ids = np.where(np.arange(53) % 7, np.arange(53), -1)
    for form in (integrate_reference, integrate):
        positions, images = start.copy(), np.zeros((53, 3), np.int32)
        velocities, forces = moved[0].copy(), moved[1]
        form.kick_drift(positions, velocities, forces, 1 / masses, 50, 0.1, 0.2)
        form.kick(velocities, forces, 1 / masses, 50, 0.3)
        form.drift(positions, velocities, 50, 0.4)
        form.dilate(positions, 50, np.array([1.01, 0.98, 1.0]), np.array([0.3, -2.0, 4.0]))
        largest, sums = form.largest_move(positions, start, 50), np.zeros(6)
        form.kinetic(velocities, masses, ids, 53, sums)
        leavers = np.full(20, -1)
        count = form.find_leavers(positions, 53, lower, upper, leavers)
        positions[11:13] = start[11:13]
        positions[21:23, 2], positions[23, 0], positions[24, 0] = [1e200, np.nan], -1e300, lower[0] - 4e8 * 5.0
        assert form.wrap(positions, images, 53, lower, upper, periodic) == 3
        positions[21:24] = 2.5
        each.append((positions, velocities, np.array([largest, count]), sums, leavers, images))
    for one, other in zip(*each, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14)
    wrapped = each[1][0]
    inside = (wrapped[:, [0, 2]] >= lower[[0, 2]]) & (wrapped[:, [0, 2]] < upper[[0, 2]])
    assert inside[[s for s in range(53) if s not in (7, 21, 22, 23)]].all()
    assert wrapped[12, 0] == lower[0], "a place that rounds to the upper end is the lower one"


def test_leavers_are_sorted_by_their_owners():
    places, order = scattered(300, (6.0, 7.0, 8.0)), np.random.default_rng(3).permutation(300)[:211]
    places[order[:4], 0] = [2.0, np.nextafter(2.0, 0.0), 4.0, -1.0]
    for cuts in ([[2.0, 4.0], [], [1.0, 5.0, 6.5]], [[], [], []]):
        found = []
        for form in (integrate_reference, integrate):
            counts, sent = np.full(math.prod(len(each) + 1 for each in cuts), -1), np.full(211, -1)
            form.sort_leavers(places, order, *map(np.array, cuts), counts, sent)
            found.append((counts, sent))
        np.testing.assert_array_equal(*(each[0] for each in found))
        np.testing.assert_array_equal(*(each[1] for each in found))
        assert counts.sum() == 211
        assert (counts > 0).all()


def test_records_match_their_reference():
    rng = np.random.default_rng(9)
    start = np.column_stack([rng.uniform(0, 9, (61, 3)), records_reference.type_words(rng.integers(0, 9, 61))])
    start[3, 0] = FAR
    slots, targets = rng.permutation(61)[:40].reshape(2, 20)  # images are no particles that others are images of
    shift = np.array([1.0, -2.0, 0.5])
    segments, shifts = rng.integers(0, 4, 20).astype(np.int32), rng.normal(size=(4, 3))
    low = np.array([[-np.inf, 6, 0], [-np.inf, 0, 0], [-np.inf, 7, 0]])
    high = np.array([[np.inf, 9, 2], [np.inf, 3, 0], [np.inf, 9, 0]])
    number = np.array([3, 2, 2])
    inner = np.array([2.0, 3.0, -np.inf]), np.array([6.0, np.inf, 7.0])
    each = []
    for form in (records_reference, records):
        positions, single = start.copy(), np.zeros((61, 4), np.float32)
        three, four = np.zeros((20, 3)), np.zeros((20, 4))
        for out in (three, four):
            form.take_all(positions, slots, segments, shifts, 17, out)
        form.put(three, positions, targets, 4, 12)
        form.copy_all(positions, slots, segments, shifts, 19, targets[::-1].copy())
        form.to_single(positions, 5, 50, shift, single)
        taker = np.arange(12) % 5  # of segments
        chosen, of_segments, counts = form.choose_ghosts(start, 61, (low, high, number, *inner), taker, 5)
        nowhere = np.full(3, np.inf), np.full(3, -np.inf)
        wide = np.full((3, 3), -np.inf), np.full((3, 3), np.inf), number, *nowhere
        many = form.choose_ghosts(start, 61, wide, taker, 5)  # more than there are particles
        masses = np.zeros((2, 61))
        form.weigh(start, np.where(start[:, 0] < FAR, 5, -1), 57, np.array([2.0, 3.0, 7.0]), 0.3, *masses)
        each.append((positions, three, four, single.view(np.int32), chosen, of_segments, counts, masses, *many))
    for one, other in zip(*each, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (np.bincount(each[0][5], minlength=12)[1:] > 0).all()
    assert len(each[0][8]) > 61
    np.testing.assert_array_equal(records_reference.types_of(start), records_reference.types_of(start.copy()))


def test_particles_in_one_piece_match_their_reference():
    rng, slots, n = np.random.default_rng(5), 61, 23
    chosen, each = rng.permutation(slots)[:n], []
    ids, images = rng.integers(0, 2**40, slots), rng.integers(-9, 9, (slots, 3)).astype(np.int32)
    start = rng.normal(size=(slots, 4)), rng.normal(size=(slots, 4)), ids, images, rng.normal(size=slots)
    for form in (records_reference, records):
        arrays, rows = [array.copy() for array in start], np.zeros((n, records_reference.PIECE))
        form.pack(chosen, 5, False, *arrays, rows)
        kept = [array.copy() for array in arrays]
        form.pack(chosen, n, True, *arrays, rows)
        left = [array.copy() for array in arrays]
        form.unpack(rows[:9], 3, *arrays)
        each.append((rows.view(np.int64), *left, *arrays))
        for array, begun, gone, back in zip(kept, start, left, arrays, strict=True):
            np.testing.assert_array_equal(array, begun)
            np.testing.assert_array_equal(back[3:12], begun[chosen[:9]])
            np.testing.assert_array_equal(back[12:], gone[12:])
        np.testing.assert_array_equal(np.flatnonzero(left[2] < 0), np.sort(chosen))
    for one, other in zip(*each, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("parts", "width"), [(1, 4), (3, 1), (2, 3)])
def test_values_of_ghosts_match_their_reference(parts, width):
    rng, slots, n = np.random.default_rng(parts), 61, 23
    chosen, target = rng.integers(0, 31, n), rng.permutation(np.arange(31, slots))[:n]
    found = rng.normal(size=(parts, slots, width))
    wanted, out = found.copy(), np.zeros((n, parts * width))
    expected = out.copy()
    for values, rows, form in ((found, out, records), (wanted, expected, records_reference)):
        form.take_values(values, chosen, n, rows)
        form.copy_values(values, chosen, n, target)
        form.put_values(2.0 * rows, values, target, 5, n)
        form.add_values(rows, values, chosen, 3, n)
        form.add_copies(values, chosen, n, target)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(found, wanted)
