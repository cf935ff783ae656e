"""Checks of molecules: bonds, angles, dihedrals, impropers, partners."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.particles.charged import reference as charged_reference
from hpckit.kernels.particles.charged.screening import cut, reaction_field
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters
from hpckit.kernels.particles.molecules.bonds import reference as bonds_reference
from hpckit.kernels.particles.molecules.bonds.forms import FORMS as BONDS
from hpckit.kernels.particles.molecules.constraints import reference as constraints_reference
from hpckit.kernels.particles.molecules.terms import reference as terms_reference
from hpckit.kernels.particles.records.reference import type_words
from tests.gpu.checks import DOUBLE, Check, Pairs, size

BOND_PARAMETERS = {
    "harmonic": [[30.0, 1.0], [20.0, 1.1]],
    "morse": [[9.0, 2.0, 1.0], [8.0, 2.0, 1.1]],
    "fene": [[30.0, 1.5, 1.0, 1.0], [25.0, 1.6, 1.0, 1.0]],
}
TERM_PARAMETERS = {
    ("angles", "harmonic"): [[30.0, 1.9], [20.0, 2.1]],
    ("angles", "charmm"): [[30.0, 1.9, 4.0, 1.7], [20.0, 2.1, 3.0, 1.8]],
    ("angles", "cosine"): [[3.0], [2.0]],
    ("dihedrals", "harmonic"): [[2.0, -1.0, 3.0], [1.0, 1.0, 2.0]],
    ("dihedrals", "charmm"): [[2.0, 3.0, np.cos(0.7), np.sin(0.7)], [1.0, 1.0, -1.0, 0.0]],
    ("dihedrals", "opls"): [[1.0, -0.4, 0.3, 0.2], [0.5, 0.2, -0.3, 0.1]],
    ("impropers", "harmonic"): [[9.0, 0.6], [5.0, 0.0]],
}


class Chain:
    """A chain, some of it ghosts, in no order; every third particle has an image far away; the last slot has none."""

    def __init__(self, device: Device) -> None:
        self.n, self.own = n, own = size(device, (500, 300), (13, 9))
        rng = np.random.default_rng(3)
        steps = rng.normal(0, 0.6, (n, 3)) + np.array([0.3, 0, 0])
        places = np.cumsum(steps / np.linalg.norm(steps, axis=1)[:, None], axis=0)
        order = rng.permutation(n)
        images, ghosts = order[::3], order[own:]
        self.ids = np.concatenate([order[:own], images, ghosts, [-1]]).astype(float)
        where = np.vstack([places[order[:own]], places[images] + 50, places[ghosts], [[1e8, 0, 0]]])
        self.positions = np.column_stack([where, type_words(np.arange(len(where)) % 2)])
        self.slots = len(where)
        self.there = device.to_device(self.positions), device.to_device(self.ids)

    def rows(self, members: int) -> np.ndarray:
        """Type and ids of all runs of so many particles along the chain."""
        return np.array([(k % 2, *range(k, k + members)) for k in range(self.n - members + 1)])


def _partners(device: Device, chain: Chain) -> tuple[tuple[Any, ...], tuple[np.ndarray, ...], Pairs]:
    """The bonds of both ends on the device and on the host, and what was found on the way."""
    from hpckit.kernels.particles.molecules.bonds import cuda

    rows = chain.rows(2)
    ends = np.concatenate([rows[:, [1, 2, 0]], rows[:, [2, 1, 0]]])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    given = np.searchsorted(ends[:, 0], np.arange(chain.n + 1)), ends[:, 1].copy(), ends[:, 2].astype(np.int32)
    own, slots = chain.own, chain.slots
    host = np.zeros(chain.n, np.int64), np.zeros(slots, np.int64)
    bonds_reference.index_slots(chain.ids, slots, *host)
    index = device.zeros((chain.n,), np.int64), device.zeros((slots,), np.int64)
    cuda.index_slots(chain.there[1], slots, *index)
    most = int(sum(np.diff(given[0])[chain.ids[:own].astype(int)]))
    expected = np.zeros(own + 1, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int32)
    found = device.zeros((own + 1,), np.int64), device.zeros((most,), np.int64), device.zeros((most,), np.int32)
    bonds_reference.attach(chain.positions, chain.ids, slots, own, *given, *host, *expected)
    where = [device.to_device(each) for each in given]
    kept = cuda.attach(*chain.there, slots, own, *where, *index, *found)
    pairs: Pairs = {
        "slots of ids": (index[0], host[0].astype(float)),
        "slots before": (index[1], host[1].astype(float)),
    }
    pairs |= {f"partners {k}": (a, b.astype(float)) for k, (a, b) in enumerate(zip(found, expected, strict=True))}
    fewer = device.to_device(np.where(np.arange(slots) < own, chain.ids, -1.0))
    again = device.zeros((chain.n,), np.int64), device.zeros((slots,), np.int64)
    cuda.index_slots(fewer, slots, *again)
    out = [device.zeros(each.shape, each.dtype) for each in found]
    lost = cuda.attach(chain.there[0], fewer, slots, own, *where, *again, *out)
    wanted = bonds_reference.attach(
        chain.positions, device.to_host(fewer), slots, own, *given, *host, *(each.copy() for each in expected)
    )
    pairs["lost"] = device.to_device(np.array([kept, lost], float)), np.array([-1.0, wanted])
    return found, expected, pairs


def bonds(device: Device, dtype: np.dtype) -> Pairs:
    """The slots of bonds, whose partner is lost, and their forces, energies and virials."""
    from hpckit.kernels.particles.molecules.bonds import cuda

    chain = Chain(device)
    found, expected, pairs = _partners(device, chain)
    for name, given in BOND_PARAMETERS.items():
        table = np.array(given)
        forces, tallies = bonds_reference.forces_of_bonds(chain.positions, *expected, BONDS[name], table)
        for measure in (False, True):
            out, sums = (device.to_device(np.ones((chain.own, width))) for width in (4, 8))
            where = chain.own, chain.there[0], *found, device.to_device(table)
            cuda.add_bonds(name, measure, *where, out, sums)
            pairs[f"{name}, measure {measure}"] = out, 1 + forces
            pairs[f"tallies of {name}, measure {measure}"] = sums, 1 + measure * tallies
    return pairs


def terms(device: Device, dtype: np.dtype) -> Pairs:
    """The slots of angles, dihedrals and impropers, and their forces, energies and virials."""
    from hpckit.kernels.particles.molecules.bonds import cuda as of_bonds
    from hpckit.kernels.particles.molecules.terms import cuda

    chain, pairs = Chain(device), dict[str, Any]()
    own, slots = chain.own, chain.slots
    index = device.zeros((chain.n,), np.int64), device.zeros((slots,), np.int64)
    of_bonds.index_slots(chain.there[1], slots, *index)
    host = tuple(map(device.to_host, index))
    for members in (3, 4):
        rows = chain.rows(members)
        whose = rows[:, 1:].ravel()
        order = np.argsort(whose, kind="stable")
        given = (
            np.searchsorted(whose[order], np.arange(chain.n + 1)),
            np.repeat(np.arange(len(rows)), members)[order],
            rows,
        )
        most = int(sum(np.diff(given[0])[chain.ids[:own].astype(int)]))
        expected = np.zeros(own + 1, np.int64), np.zeros((most, members), np.int64), np.zeros(most, np.int64)
        terms_reference.attach_terms(chain.positions, chain.ids, slots, own, *given, *host, *expected)
        found = [device.zeros(each.shape, each.dtype) for each in expected]
        cuda.attach_terms(*chain.there, slots, own, *map(device.to_device, given), *index, *found)
        pairs |= {f"{members}, {k}": (a, b.astype(float)) for k, (a, b) in enumerate(zip(found, expected, strict=True))}
        once, numbers = np.zeros((most + 1, members), np.int64), np.zeros(most + 1, np.int64)
        count = terms_reference.find_terms(chain.positions, chain.ids, slots, own, *given, *host, once, numbers)
        each_once = cuda.once(own, *found)
        order_there = np.argsort(device.to_host(each_once[1]), kind="stable")
        sorted_once = np.argsort(numbers[:count], kind="stable")
        pairs[f"{members}, once"] = (
            device.to_device(device.to_host(each_once[0])[order_there]),
            once[sorted_once].astype(float),
        )
        kinds = device.to_device(rows[expected[2], 0])
        for (name, kind), table in TERM_PARAMETERS.items():
            if (name == "angles") != (members == 3):
                continue
            what = chain.positions, own, once[:count], rows[numbers[:count], 0], np.array(table)
            wanted = terms_reference.forces_of_terms(name, kind, *what)
            for measure in (False, True):
                out = [device.to_device(np.ones(each.shape)) for each in wanted]
                where = own, chain.there[0], *found[:2], kinds, device.to_device(np.array(table))
                cuda.add_terms(name, kind, measure, *where, *out)
                for what_it_is, got, right in zip(("forces", "tallies", "energies"), out, wanted, strict=True):
                    counts = measure or what_it_is == "forces"
                    pairs[f"{what_it_is}, {name} {kind}, measure {measure}"] = got, 1 + counts * right
    return pairs


def partners(device: Device, dtype: np.dtype) -> Pairs:
    """Lists without partners, and what is left of pairs and charges between these."""
    from hpckit.kernels.particles.charged import cuda

    chain = Chain(device)
    own, positions = chain.own, chain.there[0]
    found, expected, _ = _partners(device, chain)
    rng = np.random.default_rng(5)
    lengths = rng.integers(3, 9, own).astype(np.int32)
    entries = rng.permuted(np.tile(np.arange(chain.slots, dtype=np.int32)[:, None], (1, own + 2)), axis=0)[:9].copy()
    shorter, kept = device.to_device(lengths), device.to_device(entries)
    cuda.leave_out(shorter, kept, *found[:2], own)
    lists = [entries[: lengths[s], s] for s in range(own)]
    lists = [each[~np.isin(each, expected[1][slice(*expected[0][s : s + 2])])] for s, each in enumerate(lists)]
    pairs: Pairs = {"lengths": (shorter, np.array([float(len(each)) for each in lists]))}
    left = np.zeros((9, own))
    for s, each in enumerate(lists):
        left[: len(each), s] = each
    there = device.to_host(kept)[:, :own] * (np.arange(9)[:, None] < device.to_host(shorter))
    pairs["left in the lists"] = device.to_device(there.astype(float)), left
    one, charges = np.ones((2, 2)), rng.uniform(-1, 1, chain.slots)
    table = parameters(one, np.array([[0.8, 0.9], [0.9, 1.0]]), 5.0 * one, True)
    shares = np.array([[0.5, 0.25], [0.0, 0.0]])
    for screening in (reaction_field(2.5, 78.5), cut(2.5)):
        what = POTENTIAL, table, charges, screening.key, screening.constants, shares
        wanted = charged_reference.forces_of_partners(chain.positions, *expected, *what)
        for measure in (False, True):
            out = [device.to_device(np.ones(each.shape)) for each in wanted]
            given = [device.to_device(each) for each in (table, charges, screening.constants, shares)]
            where = POTENTIAL, screening.key, own, positions, *found, *given
            cuda.add_partners(*where, *out, measure, False)
            for name, got, right in zip(("forces", "tallies", "energies"), out, wanted, strict=True):
                counts = measure or name == "forces"
                pairs[f"{name}, {screening.degree}, measure {measure}"] = got, 1 + counts * right
    return pairs


def constraints(device: Device, dtype: np.dtype) -> Pairs:
    """Clusters of one to three distances, and closed ones: forces and virials for distances and for speeds."""
    from hpckit.kernels.particles.molecules.constraints import cuda

    rng, pairs = np.random.default_rng(4), dict[str, Any]()
    for ends in ([(0, 1)], [(0, 1), (0, 2)], [(0, 1), (0, 2), (0, 3)], [(0, 1), (0, 2), (1, 2)]):
        joined, count = np.array(ends), size(device, 200, 3)
        members = joined.max() + 1
        slots, own = count * members + 2, count * members - 1  # the last particle is a ghost
        found = rng.permutation(count * members).reshape(count, members)
        shape = np.array([[0, 0, 0], [1, 0, 0], [-0.3, 0.9, 0], [-0.3, -0.4, 0.8]])[:members]
        positions = rng.uniform(-9, 9, (slots, 4))
        positions[found, :3] = rng.uniform(-9, 9, (count, 1, 3)) + shape + rng.normal(0, 0.01, (count, members, 3))
        moves, weights = rng.normal(0, 0.02, (3, slots)), rng.uniform(0.5, 2, slots)
        squares = ((shape[joined[:, 0]] - shape[joined[:, 1]]) ** 2).sum(axis=1) * np.ones((count, 1))
        squares[0] += 0.01
        given = positions, moves, weights, found, rng.permutation(count), joined, squares
        there = [device.to_device(each) for each in given]
        for measure in (False, True):
            out = [[np.zeros((slots, 4)), np.zeros((slots, 8))] for _ in range(2)]
            onto = [[device.to_device(each) for each in two] for two in out]
            failed = constraints_reference.hold_distances(own, *given, 3.0, *out[0], measure)
            got = cuda.hold_distances(own, *there, 3.0, *onto[0], measure)
            constraints_reference.hold_speeds(own, *given[:4], joined, 3.0, *out[1], measure)
            cuda.hold_speeds(own, *there[:4], there[5], 3.0, *onto[1], measure)
            label = f"{ends}, measure {measure}"
            pairs[f"solved of {label}"] = got, np.array(float(failed))
            for name, found_there, wanted in zip(("distances", "speeds"), onto, out, strict=True):
                pairs[f"{name} of {label}"], pairs[f"virial of {name} of {label}"] = zip(
                    found_there, wanted, strict=True
                )
        wrong = squares.copy()
        wrong[1] = 1e-9  # the moves leave no way to this
        far = [device.to_device(each) for each in (*given[:6], wrong)]
        onto = [device.zeros((slots, width)) for width in (4, 8)]
        nowhere = np.zeros((slots, 4)), np.zeros((slots, 8))
        failed = constraints_reference.hold_distances(own, *given[:6], wrong, 3.0, *nowhere, False)
        pairs[f"failed of {ends}"] = cuda.hold_distances(own, *far, 3.0, *onto, False), np.array(float(failed))
        assert failed == 1
    n, velocities, forces = 7, *rng.normal(size=(2, 7, 4))
    sums, wanted, factors = device.zeros((3, n + 2)), np.zeros((3, n + 2)), np.array([0.3, 0.2, 0.1])
    constraints_reference.sums_of(factors, 0.7, velocities, forces, weights[:n], wanted)
    cuda.sums_of(factors, 0.7, *map(device.to_device, (velocities, forces, weights[:n])), sums)
    return pairs | {"sums": (sums, wanted)}


CHECKS = [
    Check("bonds", bonds, DOUBLE),
    Check("angles, dihedrals, impropers", terms, DOUBLE),
    Check("constrained distances", constraints, DOUBLE),
    Check("partners in molecules", partners, DOUBLE),
]
