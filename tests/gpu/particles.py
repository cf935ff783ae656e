"""Checks of molecular dynamics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.noise import reference as noise_reference
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.charged import reference as charged_reference
from hpckit.kernels.particles.charged.screening import damped_shifted, debye, near_part, reaction_field
from hpckit.kernels.particles.integrate import reference as integrate_reference
from hpckit.kernels.particles.integrate.cell import reference as cell_reference
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters
from hpckit.kernels.particles.many_body.eam import curves as eam_curves
from hpckit.kernels.particles.many_body.eam import reference as eam_reference
from hpckit.kernels.particles.many_body.stillinger_weber import reference as sw_reference
from hpckit.kernels.particles.many_body.tersoff import reference as tersoff_reference
from hpckit.kernels.particles.pair import curves, tabulated
from hpckit.kernels.particles.pair import reference as pair_reference
from hpckit.kernels.particles.pair.custom import make_potential
from hpckit.kernels.particles.pair.potential import Form, Potential
from hpckit.kernels.particles.records import reference as records_reference
from tests.gpu.checks import Check, Pairs, size

CUTOFF, REACH = 2.5, 2.8


def scattered(count: int, edge: float, types: int, seed: int = 3) -> np.ndarray:
    """Records [count, 4] of particles on a shaken lattice in a cube; some along z beyond it."""
    rng = np.random.default_rng(seed)
    n = int(np.ceil(count ** (1 / 3)))
    sites = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    sites = rng.permutation(sites)[:count]
    places = (sites + 0.5 + rng.uniform(-0.15, 0.15, (count, 3))) * (edge / n) * np.array([1.0, 1.0, 1.2])
    return np.column_stack([places, records_reference.type_words(rng.integers(0, types, count))])


class Sorted:
    """Particles on the device, sorted by cell, some of them as ghosts, with the list of the others."""

    def __init__(self, device: Device, count: int, ghosts: int, types: int = 1, capacity: int = 128) -> None:
        from hpckit.kernels.particles.cells import cuda

        self.device, self.count, self.ghosts = device, count, ghosts
        edge = (count + ghosts) ** (1 / 3) * 1.05
        records = scattered(count + ghosts, edge, types)
        self.shape, scale = (int(edge / REACH * 2) + 1,) * 3, 2 / REACH
        self.grid = (0.0, 0.0, 0.0, scale)
        self.owned = (0.0, 0.0, -1e9, 1e9, 1e9, 1e9)
        cells = int(np.prod(self.shape))
        parts, self.starts, self.cells = [], [], []
        for part in (records[:count], records[count:]):
            found, starts = device.zeros((len(part),), np.int32), device.zeros((cells + 1,), np.int32)
            cuda.assign_cells(device.to_device(part), len(part), self.grid, self.shape, self.owned, cells, found)
            order = np.argsort(device.to_host(found), kind="stable")
            cuda.cell_starts(device.to_device(device.to_host(found)[order]), len(part), starts)
            parts.append(part[order])
            self.starts.append(starts)
            self.cells.append((part, found))
        self.host = np.concatenate(parts)
        self.records = device.to_device(self.host)
        stride = -(-count // 8) * 8
        self.entries = device.zeros((capacity, stride), np.int32)
        self.lengths, self.longest = device.zeros((stride,), np.int32), device.zeros((1,), np.int32)
        self.build()

    def build(self) -> None:
        """List the neighbors."""
        from hpckit.kernels.particles.cells import cuda

        what = self.records, self.count, self.ghosts, self.grid, self.shape, 2, *self.starts, REACH
        cuda.build_list(*what, self.entries, self.lengths, self.longest)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs (own, any other) within reach, by looking at every one."""
        return cells_reference.neighbors(self.host, self.count, REACH)


def lists(device: Device, dtype: np.dtype) -> Pairs:
    """Cells, their starts, the list as a matrix of pairs, and what is said where lists are too long."""
    own, others = size(device, (700, 300), (110, 30))
    case = Sorted(device, own, others)
    pairs: Pairs = {}
    for name, (part, found), starts in zip(("own", "ghosts"), case.cells, case.starts, strict=True):
        along = np.clip(np.floor(part[:, :3] * (2 / REACH)), 0, case.shape[0] - 1).astype(np.int64)
        expected = (along[:, 2] * case.shape[1] + along[:, 1]) * case.shape[0] + along[:, 0]
        cells = np.arange(int(np.prod(case.shape)) + 1)
        pairs[f"cells of {name}"] = found, expected.astype(float)
        pairs[f"starts of {name}"] = starts, np.searchsorted(np.sort(expected), cells).astype(float)
    first, second = case.pairs()
    expected_matrix, matrix = np.zeros((2, case.count, len(case.host)))
    expected_matrix[first, second] = 1
    lengths, entries = device.to_host(case.lengths), device.to_host(case.entries)
    for i in range(case.count):
        np.add.at(matrix[i], entries[: lengths[i], i], 1)
    pairs["list"] = device.to_device(matrix), expected_matrix
    pairs["fits"] = case.longest, np.zeros(1)
    short = Sorted(device, own, others, capacity=3)
    longest = np.bincount(first, minlength=case.count).max()
    pairs["too long"] = short.longest, np.array([float(longest)])
    pairs["cut"] = short.lengths[: case.count], np.minimum(np.bincount(first, minlength=case.count), 3).astype(float)
    return pairs


def forces(device: Device, dtype: np.dtype) -> Pairs:
    """Lennard-Jones forces, energies and virials of one type and of three; the gather that limits them."""
    from hpckit.kernels.particles.pair.cuda import force_kernel, gather, stored_table
    from hpckit.kernels.particles.pair.cuda import run as launch
    from hpckit.kernels.particles.records.cuda import to_single

    pairs: Pairs = {}
    for types in (1, 3):
        own, others = size(device, (700, 300), (30, 12))
        case = Sorted(device, own, others, types)
        rng = np.random.default_rng(1)
        epsilon, sigma = rng.uniform(0.8, 1.2, (2, types, types))
        table = parameters(epsilon + epsilon.T, 0.45 * (sigma + sigma.T), np.full((types, types), CUTOFF), True)
        expected = pair_reference.forces_of_pairs(case.host, *case.pairs(), POTENTIAL, table)
        records, kind = case.records, "d"
        if dtype == np.float32:
            records, kind = device.zeros(case.host.shape, np.float32), "f"
            to_single(case.records, 0, len(case.host), np.full(3, 1.5), records)
        for measure in (False, True):
            form = Form("cuda", kind, types, measure)
            out, tallies = device.zeros((case.count, 4)), device.zeros((case.count, 8))
            there = device.to_device(stored_table(table, form))
            where = case.entries, case.lengths, there, types
            launch(force_kernel(POTENTIAL, form), records, case.count, *where, out, tallies)
            pairs[f"forces, {types} types, measure {measure}"] = out, expected[0][: case.count]
            if measure:
                pairs[f"tallies, {types} types"] = tallies, expected[1][: case.count]
        sums, (first, second) = np.zeros((case.count, 4)), case.pairs()
        np.add.at(sums[:, :3], first, case.host[second, :3] - (1.5 if kind == "f" else 0.0))
        gathered = device.zeros((case.count, 4))
        gather(records, case.count, case.entries, case.lengths, gathered)
        pairs[f"gather, {types} types"] = gathered, sums
    return pairs


def charged(device: Device, dtype: np.dtype) -> Pairs:
    """Pairs with charges, of each kind of screening, of a longer reach than the pairs without."""
    from hpckit.kernels.particles.charged import cuda
    from hpckit.kernels.particles.pair.cuda import stored_table
    from hpckit.kernels.particles.records.cuda import to_single

    own, others = size(device, (700, 300), (30, 12))
    kind, pairs = "f" if dtype == np.float32 else "d", dict[str, Any]()
    for types, screening in (
        (1, damped_shifted(CUTOFF, 0.4)),
        (2, near_part(CUTOFF, 0.9, True)),
        (1, reaction_field(CUTOFF, 78.5)),
        (1, debye(CUTOFF, 0.6)),
    ):
        case = Sorted(device, own, others, types)
        one, charges = np.ones((types, types)), np.random.default_rng(4).uniform(-1, 1, len(case.host))
        table, first, second = parameters(one, 0.5 * one, 1.8 * one, True), *case.pairs()
        what = POTENTIAL, table, charges, screening.key, screening.constants
        expected = charged_reference.forces_of_pairs(case.host, first, second, *what)
        records = case.records
        if kind == "f":
            records = device.zeros(case.host.shape, np.float32)
            to_single(case.records, 0, len(case.host), np.full(3, 1.5), records)
        lists = cells_reference.Lists(case.entries, case.lengths, None, None, [])
        there = [device.to_device(each.astype(dtype)) for each in (charges, screening.constants)]
        for measure in (False, True):
            form = Form("cuda", kind, types, measure)
            out, tallies, energies = device.zeros((own, 4)), device.zeros((own, 8)), device.zeros((own,))
            given = device.to_device(stored_table(table, form)), *there, types
            made = cuda.force_kernel(POTENTIAL, form, screening.key)
            cuda.run(made, records, own, lists, *given, out, tallies, energies)
            pairs[f"forces, {screening.key}, measure {measure}"] = out, expected[0][:own]
        pairs[f"tallies, {screening.key}"] = tallies, expected[1][:own]
        pairs[f"energies, {screening.key}"] = energies, expected[2][:own]
    return pairs


def embedded(device: Device, dtype: np.dtype) -> Pairs:
    """Embedded atoms of one type and of three: slopes of the embedding function, then forces, energies and virials."""
    from hpckit.kernels.particles.many_body.eam import cuda
    from hpckit.kernels.particles.records.cuda import to_single

    pairs: Pairs = {}
    for types in (1, 3):
        own, others = size(device, (700, 300), (30, 12))
        case, given = Sorted(device, own, others, types), _metal(types)
        slopes, energies = eam_reference.densities_of_pairs(case.host, *case.pairs(), given)
        slopes[own:] = np.linspace(-1, -0.5, others)  # as their owners would have computed them
        expected = eam_reference.forces_of_pairs(case.host, *case.pairs(), given, slopes, energies)
        records, kind, there = case.records, "d", given
        if dtype == np.float32:
            records, kind, there = device.zeros(case.host.shape, np.float32), "f", eam_curves.in_single(given)
            to_single(case.records, 0, len(case.host), np.full(3, 1.5), records)
        there = there._replace(pairs=device.to_device(there.pairs), embedding=device.to_device(there.embedding))
        lists = cells_reference.Lists(case.entries, case.lengths, None, None, [])
        found = device.zeros((len(case.host),)), device.zeros((len(case.host),))
        cuda.run_densities(cuda.density_kernel(Form("cuda", kind, types)), records, own, lists, there, *found)
        pairs[f"slopes, {types} types"] = found[0][:own], slopes[:own]
        pairs[f"energies, {types} types"] = found[1][:own], energies[:own]
        given_slopes = device.to_device(slopes)
        for measure in (False, True):
            out, tallies = device.zeros((own, 4)), device.zeros((own, 8))
            kernel = cuda.force_kernel(Form("cuda", kind, types, measure))
            cuda.run_forces(kernel, records, own, lists, there, given_slopes, found[1], out, tallies)
            pairs[f"forces, {types} types, measure {measure}"] = out, expected[0][:own]
            if measure:
                pairs[f"tallies, {types} types"] = tallies, expected[1][:own]
    return pairs


def silicon(device: Device, dtype: np.dtype) -> Pairs:
    """Stillinger and Weber's potential, of one kind and of two: moments of bonds, then forces, energies and virials."""
    found: Pairs = {}
    for kinds in (1, 2):
        found |= {f"{what}, {kinds} kinds": pair for what, pair in _tetrahedra(device, kinds).items()}
    return found


def _tetrahedra(device: Device, kinds: int) -> Pairs:
    from hpckit.kernels.particles.many_body.stillinger_weber import cuda

    own, others = size(device, (700, 300), (30, 12))
    case, rng = Sorted(device, own, others, kinds), np.random.default_rng(5)
    apart = 0.03 * (np.arange(kinds) + np.arange(kinds)[:, None])[..., None]
    pairs = np.array([4.0, 5.0, 4.0, 0.5, 1.0, 1.8, 1.2, 1.8, 60.0, 30.0]) * (1 - apart)
    triples = rng.uniform(19, 21, (kinds, kinds, kinds, 3))
    given = sw_reference.Tetrahedra(pairs, triples + triples.swapaxes(1, 2), None)
    first, second = case.pairs()
    moments = sw_reference.moments_of_pairs(case.host, first, second, given)
    found = device.zeros(moments.shape)
    lists, form = cells_reference.Lists(case.entries, case.lengths, None, None, []), Form("cuda", types=kinds)
    there = given._replace(pairs=device.to_device(given.pairs), triples=device.to_device(given.triples))

    def flat(values: np.ndarray) -> list:
        return [part.reshape(-1) for part in values.reshape(3, kinds, *values.shape[1:])]

    cuda.run_moments(cuda.moment_kernel(form), case.records, own, lists, there, flat(found))
    pairs_of: Pairs = {"moments": (found[:, :own], moments[:, :own])}
    moments[:, own:] = rng.normal(size=(3 * kinds, others, 4))  # as their owners would have computed them
    expected = sw_reference.forces_of_pairs(case.host, first, second, given, moments)
    parts = [device.to_device(np.ascontiguousarray(part)) for part in flat(moments)]
    for measure in (False, True):
        out, tallies = device.zeros((own, 4)), device.zeros((own, 8))
        kernel = cuda.force_kernel(Form("cuda", types=kinds, measure=measure), None)
        cuda.run_forces(kernel, case.records, own, lists, there, parts, out, tallies)
        pairs_of[f"forces, measure {measure}"] = out, expected[0][:own]
    pairs_of["tallies"] = tallies, expected[1][:own]
    return pairs_of


def carbide(device: Device, dtype: np.dtype) -> Pairs:
    """Tersoff's potential of two elements: forces on all slots, energies and virials."""
    from hpckit.kernels.particles.many_body.tersoff import cuda

    own, others = size(device, (700, 300), (24, 10))
    case, rng = Sorted(device, own, others, 2), np.random.default_rng(2)
    pair = ((900, 1100), (3.4, 3.6), (90, 110), (1.7, 1.9), (0.1, 0.3), (0.7, 2.3), (1.5, 1.6), (0.08, 0.1))
    triple = ((-0.6, -0.4), (0.2, 0.4), (0.8, 1.2), (2, 3), (0.8, 1.2), (0, 1), (1.45, 1.55), (0.08, 0.1))
    pairs, triples = (
        np.stack([rng.uniform(*bounds, (2,) * d) for bounds in each], axis=-1) for d, each in ((2, pair), (3, triple))
    )
    triples[..., 5] = triples[..., 5] > 0.5
    given = tersoff_reference.Tersoff(pairs, triples, 1.7, False, True)
    expected = tersoff_reference.forces_of_pairs(case.host, *case.pairs(), given)
    lists, found = cells_reference.Lists(case.entries, case.lengths, None, None, []), {}
    tables = device.to_device(pairs.ravel()), device.to_device(triples.ravel()), given.cutoff
    for measure in (False, True):
        out, tallies = device.zeros((own + others, 4)), device.zeros((own, 8))
        kernel = cuda.force_kernel(Form("cuda", measure=measure), False, True)
        cuda.run_forces(kernel, case.records, own, lists, *tables, out, tallies)
        found[f"forces, measure {measure}"] = out, expected[0]
    return found | {"tallies": (tallies, expected[1][:own])}


def _metal(types: int) -> eam_curves.EamTables:
    """Tables of functions that fade at the cutoff, other ones for each pair of types."""
    r, n, kinds = np.linspace(0, CUTOFF, 300), np.linspace(0, 6, 200), np.arange(types)
    fade, strength = (1 - r / CUTOFF) ** 3, (1 + 0.2 * kinds[:, None] + 0.3 * kinds)[..., None]
    pair = (strength + strength.transpose(1, 0, 2)) * fade * r * np.exp(-2 * r)
    embedding = -np.sqrt(n + 0.1) * (1 + 0.1 * kinds[:, None])
    return eam_curves.tables(embedding, strength * fade * np.exp(-r), pair, n[1], r[1], CUTOFF)


def custom(device: Device, dtype: np.dtype) -> Pairs:
    """A force derived from an energy that fades to the cutoff, one that is given, and a table, against them by hand."""
    from hpckit.kernels.particles.pair.cuda import force_kernel, stored_table
    from hpckit.kernels.particles.pair.cuda import run as launch
    from hpckit.kernels.particles.records.cuda import to_single

    own, others = size(device, (700, 300), (30, 12))
    case, kind = Sorted(device, own, others), "f" if dtype == np.float32 else "d"
    records = case.records
    if kind == "f":
        records = device.zeros(case.host.shape, np.float32)
        to_single(case.records, 0, len(case.host), np.full(3, 1.5), records)
    pairs: Pairs = {}

    def compare(name: str, potential: Potential, table: np.ndarray, expected: Any, rows: Any = None) -> None:
        for measure in (False, True):
            form = Form("cuda", kind, 1, measure)
            out, tallies = device.zeros((own, 4)), device.zeros((own, 8))
            there = device.to_device(stored_table(table, form, rows, potential.rows_at))
            launch(force_kernel(potential, form), records, own, case.entries, case.lengths, there, 1, out, tallies)
            pairs[f"{name}, measure {measure}"] = out, expected[0][:own]
            if measure:
                pairs[f"{name}, tallies"] = tallies, expected[1][:own]

    for name, potential, oracle, row in (
        ("derived, fades", make_potential("bench", _energy, 2, switched=True), _faded, (CUTOFF**2, 0.0, 1.3, 0.6, 4.0)),
        ("given", make_potential("bench", _energy, 2, _force), _plain, (CUTOFF**2, 0.1, 1.3, 0.6)),
    ):
        table = np.array(row)[None, None]
        by_hand = Potential(("by hand",), len(row), inlined(oracle), inlined(oracle), clamp=False)
        compare(name, potential, table, pair_reference.forces_of_pairs(case.host, *case.pairs(), by_hand, table))
    r = np.linspace(0.2, CUTOFF, 60)
    rows = curves.rows(r, 1 / r, 1 / r**2, 0.2, CUTOFF, 40, True)
    table = np.array([[(CUTOFF**2, 0.1, 0.2**2, 39 / (CUTOFF**2 - 0.2**2), 39, 0)]])
    expected = pair_reference.forces_of_pairs(case.host, *case.pairs(), tabulated.POTENTIAL, table, rows)
    compare("tabulated", tabulated.POTENTIAL, table, expected, rows)
    return pairs


def _energy(r2, p):
    """A Yukawa tail and a soft core."""
    r = math.sqrt(r2)
    return p[0] * math.exp(-p[1] * r) / r - 2 / (1 + r2**3)


def _force(r2, p):
    r = math.sqrt(r2)
    core = 1.0 + r2 * r2 * r2
    return p[0] * math.exp(-p[1] * r) * (1.0 + p[1] * r) / (r2 * r) - 12.0 * r2 * r2 / (core * core)


def _plain(r2, p):
    """Energy and force of the two functions above, for NumPy arrays."""
    r, screened = np.sqrt(r2), p[2] * np.exp(-p[3] * np.sqrt(r2))
    force = screened * (1 + p[3] * r) / r**3 - 12 * r2**2 / (1 + r2**3) ** 2
    return screened / r - 2 / (1 + r2**3), force


def _faded(r2, p):
    """`_plain` times the fade of `custom.make_potential` from r2 = p[4] on."""
    energy, force = _plain(r2, p)
    c, a = p[0], p[4]
    x = np.maximum(r2, a)
    fade, slope = (c - x) ** 2 * (c + 2 * x - 3 * a) / (c - a) ** 3, 6 * (x - c) * (x - a) / (c - a) ** 3
    return energy * fade, force * fade - 2 * energy * slope


def motion(device: Device, dtype: np.dtype) -> Pairs:
    """Kicks, drifts, moves, sums, wrapping, thermostats, a field and a wall."""
    from hpckit.kernels.particles.integrate import cuda

    n = size(device, 70_001, 21)
    rng = np.random.default_rng(2)
    x, v, f = rng.normal(size=(3, n, 4)) * np.array([5.0, 5.0, 5.0, 0.0])
    x[:, 3] = records_reference.type_words(np.zeros(n, np.int64))
    inverse, built, ids = rng.uniform(0.5, 2, n), x + rng.normal(size=(n, 4)), np.arange(n)
    pairs: Pairs = {}

    def both(name: str, which: tuple[int, ...], *arguments: Any) -> None:
        host = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        there = [device.to_device(each) if isinstance(each, np.ndarray) else each for each in arguments]
        function = name.split()[0]
        found = getattr(cuda, function)(*there), getattr(integrate_reference, function)(*host)
        if function == "hold_off" and host[-1]:  # measured
            pairs["behind the wall"] = device.to_device(np.array([found[0]])), np.array([float(found[1])])
        pairs.update({f"{name} {i}": (there[i], host[i]) for i in which})

    both("kick", (0,), v, f, inverse, n - 1, 0.1)
    both("drift", (0,), x, v, n - 1, 0.1)
    both("kick_drift", (0, 1), x, v, f, inverse, n - 1, 0.1, 0.2)
    both("kinetic", (4,), v, inverse, ids, n - 1, np.zeros(6))
    both("dilate", (0,), v, n - 1, (0.9, 1.1, 1.0), (0.0, 0.5, -2.0))
    some = np.where(ids % 5, ids, -1)
    at_rest = np.where(some[:, None] >= 0, (x, v, f), 0.0)
    both("langevin", (0, 1), *at_rest, inverse, inverse**0.5, some, n - 1, 0.1, 0.2, 0.8, 0.3, (3, 1 << 35, 2))
    both("powers", (4,), v, f, ids, n - 1, np.zeros(4))
    both("steer", (0,), v, f, n - 1, 0.9, 0.2)
    tallies, beside = np.ones((n, pair_reference.TALLY)), x.copy()
    beside[:, 2] = np.linspace(3.3, -1.0, n)  # of a wall at 4
    beside[1, 2] = 4.5
    for measure in (False, True):
        both(f"push {measure}", (0, 1), f, tallies, x, inverse, ids, n - 1, (0.1, -0.2, 0.3), measure)
        both(f"hold_off {measure}", (0, 1), f, tallies, beside, ids, n - 1, 2, -1.0, 4.0, 1.5, 1.2, 3.0, measure)
    moved = cuda.largest_move(device.to_device(x), device.to_device(built), n)
    pairs["largest move"] = (
        device.to_device(np.array([moved])),
        np.array([integrate_reference.largest_move(x, built, n)]),
    )
    lower, upper, periodic = np.array([-1.0, -2.0, 0.5]), np.array([1.5, 3.0, 2.5]), np.array([True, False, True])
    x[0, 0] = np.nextafter(lower[0], -np.inf)
    host, images = x.copy(), np.zeros((n, 3), np.int32)
    there, images_there = device.to_device(x), device.to_device(images)
    integrate_reference.wrap(host, images, n, lower, upper, periodic)
    cuda.wrap(there, images_there, n, lower, upper, periodic)
    leavers, expected = device.zeros((n,), np.int64), np.zeros(n, np.int64)
    corners = lower + 0.3, upper - np.array([0.2, 1.0, 0.1])
    count = cuda.find_leavers(there, n, *corners, leavers)
    leave = integrate_reference.find_leavers(host, n, *corners, expected)
    pairs["leavers"] = leavers, expected.astype(float)
    pairs["number of leavers"] = device.to_device(np.array([float(count)])), np.array([float(leave)])
    return pairs | {"wrapped": (there, host), "images": (images_there, images.astype(float))} | _tilted(device, n, x)


def _tilted(device: Device, n: int, x: np.ndarray) -> Pairs:
    """What is done in a tilted cell."""
    from hpckit.kernels.particles.integrate.cell import cuda

    cell = np.array([-1.0, -2.0, 0.5]), np.array([2.5, 5.0, 2.0]), np.array([1.0, -0.7, 2.0]), np.array([1, 0, 1], bool)
    slopes, matrix = np.array([0.2, -0.35, 1.0]), np.array([[1.1, 0.2, -0.1], [0.0, 0.9, 0.3], [0.0, 0.0, 1.2]])
    x[0, :3] = cell[0] + [1.3, 2.0, 2.0]  # the upper corner is the lower one
    host, images = x.copy(), np.zeros((n, 3), np.int32)
    there, images_there = device.to_device(x), device.to_device(images)
    out, straight = np.zeros((n, 4)), device.zeros((n, 4))
    cell_reference.wrap_cell(host, images, n - 1, *cell)
    cuda.wrap_cell(there, images_there, n - 1, *cell)
    cell_reference.straighten(host, n - 1, cell[0], slopes, out)
    cuda.straighten(there, n - 1, cell[0], slopes, straight)
    cell_reference.deform(host, n - 1, matrix, cell[0], cell[1])
    cuda.deform(there, n - 1, matrix, cell[0], cell[1])
    v, cell_velocities = x[::-1].copy(), device.to_device(x[::-1].copy())
    cell_reference.stream(v, host, n - 1, matrix, cell[0], cell[1])
    cuda.stream(cell_velocities, there, n - 1, matrix, cell[0], cell[1])
    return {
        "with the flow of the cell": (cell_velocities, v),
        "in the cell": (there, host),
        "images of the cell": (images_there, images.astype(float)),
        "straight": (straight, out),
    }


def ghosts(device: Device, dtype: np.dtype) -> Pairs:
    """Who is wanted as a ghost, and what is done with records."""
    from hpckit.kernels.particles.records import cuda, simd

    n = size(device, 3001, 26)
    x = scattered(n, 10.0, 4)
    low, high, inner = np.full((3, 3), -np.inf), np.full((3, 3), np.inf), np.array([2.0, -np.inf, -np.inf])
    high[0, 1], low[0, 2], high[1, 1] = 3.0, 8.0, 4.0
    number, inner_high = np.array([3, 2, 1]), np.array([8.0, np.inf, np.inf])
    inner[1] = 4.0
    where = low, high, number, inner, inner_high
    counts, pairs_found = np.zeros(6, np.int64), np.empty((6 * n, 2), np.int32)
    count = simd.choose_pairs(x, n, *where, counts, pairs_found)
    segments, chosen = pairs_found[:count].T
    order = np.lexsort((segments, chosen))

    positions, options = device.to_device(x), (device.to_device(low), device.to_device(high), *where[2:])
    counted = device.zeros((n,), np.int32)
    cuda.count_wanted(positions, n, *options, counted)
    each = np.bincount(chosen, minlength=n)
    found = [device.zeros((len(chosen),), np.int32) for _ in range(2)]
    cuda.list_wanted(positions, n, *options, device.to_device(np.cumsum(each)), counted, *found)
    pairs: Pairs = {
        "wanted": (counted, each.astype(float)),
        "chosen": (found[0], chosen[order].astype(float)),
        "segments": (found[1], segments[order].astype(float)),
    }
    return pairs | _moved(device, x, chosen[order], segments[order])


def _moved(device: Device, x: np.ndarray, chosen: np.ndarray, segments: np.ndarray) -> Pairs:
    from hpckit.kernels.particles.records import cuda

    n, shifts = len(x), np.arange(18.0).reshape(6, 3)
    there = device.to_device(x)
    lists = device.to_device(chosen), device.to_device(segments), device.to_device(shifts), len(chosen)
    expected = x[chosen].copy()
    expected[:, :3] += shifts[segments]
    three, four = device.zeros((len(chosen), 3)), device.zeros((len(chosen), 4))
    cuda.take_all(there, *lists, three)
    cuda.take_all(there, *lists, four)
    wide, target = np.concatenate([x, x[chosen]]), n + np.arange(len(chosen))[::-1]
    copied, put = device.to_device(wide), device.to_device(wide)
    cuda.copy_all(copied, *lists, device.to_device(target))
    cuda.put(three, put, device.to_device(target), 0, len(chosen))
    moved = wide.copy()
    moved[target, :3] = expected[:, :3]
    singles, wanted = device.zeros((n, 4), np.float32), np.zeros((n, 4), np.float32)
    cuda.to_single(there, 1, n, np.array([1.0, 2.0, 3.0]), singles)
    records_reference.to_single(x, 1, n, np.array([1.0, 2.0, 3.0]), wanted)
    numbers = np.concatenate([x[:, :2], np.zeros((len(chosen), 2))]).reshape(1, -1, 2)
    numbers, one = np.concatenate([numbers, -numbers]), device.zeros((len(chosen), 4))
    taken, given = device.to_device(numbers), device.to_device(numbers)
    cuda.take_values(taken, lists[0], len(chosen), one)
    cuda.copy_values(taken, lists[0], len(chosen), device.to_device(target))
    cuda.put_values(one, given, device.to_device(target), 0, len(chosen))
    added, sums, twice = device.to_device(numbers), numbers.copy(), np.concatenate([target[:1], target[:-1]])
    cuda.add_values(one, added, device.to_device(twice), 0, len(chosen))
    cuda.add_copies(added, lists[0], len(chosen), device.to_device(target))
    records_reference.add_values(device.to_host(one), sums, twice, 0, len(chosen))
    records_reference.add_copies(sums, chosen, len(chosen), target)
    numbers[:, target] = numbers[:, chosen]
    values, masses = np.array([1.0, 2.0, 4.0, 8.0]), device.zeros((n,))
    some = np.where(np.arange(n) % 5 > 0, np.arange(n), -1)
    inverse = device.zeros((n,))
    cuda.weigh(there, device.to_device(some), n, device.to_device(values), 3.0, masses, inverse)
    weights = np.empty((2, n))
    records_reference.weigh(x, some, n, values, 3.0, *weights)
    rng = np.random.default_rng(4)
    order, v = rng.permutation(n), rng.normal(size=(n, 4))
    order[3] = -1
    ids, images = np.arange(n), rng.integers(-2, 3, (n, 3)).astype(np.int32)
    old = [x, v, ids, images]
    new = [device.zeros(each.shape, each.dtype) for each in old]
    cuda.permute(device.to_device(order), n, *map(device.to_device, old), *new)
    after = [np.empty_like(each) for each in old]
    from hpckit.kernels.particles.records import simd

    simd.permute(order, n, *old, *after)
    labels = ("positions", "velocities", "ids", "images")
    packed = _packed_in_two_forms(device, [*old, rng.normal(size=n)], chosen)
    return {
        "three numbers": (three, expected[:, :3]),
        "records": (four, expected),
        "copied": (copied, moved),
        "put": (put, moved),
        "one number": (one, np.concatenate([x[chosen, :2], -x[chosen, :2]], axis=1)),
        "copied numbers": (taken, numbers),
        "put numbers": (given, numbers),
        "added numbers": (added, sums),
        "single": (singles, wanted.astype(float)),
        "masses": (masses, weights[0]),
        "over masses": (inverse, weights[1]),
        **{f"permuted {name}": (a, b.astype(float)) for name, a, b in zip(labels, new, after, strict=True)},
        **packed,
    }


def _packed_in_two_forms(device: Device, arrays: list[np.ndarray], chosen: np.ndarray) -> Pairs:
    """Particles that leave, and come back to the end, on the GPU and by the reference."""
    from hpckit.kernels.particles.records import cuda

    several, count = np.unique(chosen)[::-1].copy(), len(np.unique(chosen))
    here = [each.copy() for each in arrays]
    there = [device.to_device(each) for each in arrays]
    rows, words = np.zeros((count, records_reference.PIECE)), device.zeros((count, records_reference.PIECE))
    records_reference.pack(several, count, True, *here, rows)
    cuda.pack(device.to_device(several), count, True, *there, words)
    left = [each.copy() for each in here], [device.to_host(each).copy() for each in there]
    records_reference.unpack(rows, 1, *here)
    cuda.unpack(words, 1, *there)
    found = {f"left {i}": (b, a.astype(float)) for i, (a, b) in enumerate(zip(*left, strict=True))}
    found |= {f"came {i}": (b, a.astype(float)) for i, (a, b) in enumerate(zip(here, there, strict=True))}
    return found | {"pieces": (words.view(np.int32), rows.view(np.int32).astype(float))}


def noise(device: Device, dtype: np.dtype) -> Pairs:
    """Uniform and normal numbers, of large seeds, steps and ids too."""
    from hpckit.kernels.noise import cuda

    ids = np.array([0, 1, 7, 2**40 + 3, 12345678901])
    pairs: Pairs = {}
    for name in ("uniforms", "normals"):
        out, expected = device.zeros((len(ids), 4)), np.zeros((len(ids), 4))
        getattr(cuda, name)(87287 + 2**35, 2**33 + 1, device.to_device(ids), 3, out)
        getattr(noise_reference, name)(87287 + 2**35, 2**33 + 1, ids, 3, expected)
        pairs[name] = out, expected
    return pairs


CHECKS = [
    Check("neighbor lists", lists),
    Check("pair forces", forces, 2e-5),
    Check("pair forces from Python functions", custom, 2e-5),
    Check("pairs with charges", charged, 2e-5),
    Check("embedded atoms", embedded, 2e-4),
    Check("bonds of silicon", silicon),
    Check("bonds of carbide", carbide),
    Check("motion of particles", motion),
    Check("ghosts and records", ghosts),
    Check("noise", noise),
]
