"""Angles, dihedrals and impropers, NumPy: definition and test oracle of the compiled forms.

A term of n particles is computed once for each set of their images that holds an own particle; own particles get their
forces, and each 2 / n of energy and virial, since tallies count twice.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.particles.molecules.terms.forms import FORMS, maxima
from hpckit.kernels.particles.pair.reference import TALLY

PARTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # of a virial


def find_terms(positions, ids, slots, own, starts, which, rows, head, following, found, numbers) -> int:  # type: ignore[no-untyped-def]
    """The terms with a particle in the slots below `own`: their slots into found[k], their numbers into numbers[k], and
    how many there are; below 0: -1 - the first id (from 0) with a partner that is in no slot.

    ids: of all `slots` slots, float64, -1 for none; particle g is in the terms which[starts[g] : starts[g + 1]]; rows:
    [terms, 1 + n], type and ids. Of the images of a particle that nearest to the own one counts. head, following: of
    `bonds.reference.index_slots`.
    """
    count = 0
    for s in range(own):
        if ids[s] < 0:
            continue
        for term in which[starts[int(ids[s])] : starts[int(ids[s]) + 1]]:
            places = _places(positions, ids[:slots], s, rows[term, 1:])
            if min(places) < 0:
                return -1 - int(ids[s])
            if s == next(place for place in places if place < own):  # the others' images are in other sets
                found[count], numbers[count] = places, term
                count += 1
    return count


def order_terms(count, found, numbers, after, found_sorted, numbers_sorted) -> None:  # type: ignore[no-untyped-def]
    """Write `count` terms in the order of their numbers, those of one number as they are; after: int64[terms + 1], for
    notes.
    """
    order = np.argsort(numbers[:count], kind="stable")
    found_sorted[:count], numbers_sorted[:count] = found[order], numbers[order]


def attach_terms(positions, ids, slots, own, starts, which, rows, head, following, bounds, found, numbers) -> int:  # type: ignore[no-untyped-def]
    """As `find_terms`, but each own slot s has all its terms, found[bounds[s] : bounds[s + 1]], in the order of their
    numbers: the form in which a GPU sums. Returns the first id (from 0) with a partner that is in no slot, or -1.
    """
    bounds[:], lost = 0, -1
    for s in range(own):
        for term in which[starts[int(ids[s])] : starts[int(ids[s]) + 1]] if ids[s] >= 0 else ():
            found[bounds[s + 1]], numbers[bounds[s + 1]] = _places(positions, ids[:slots], s, rows[term, 1:]), term
            lost = int(ids[s]) if lost < 0 and found[bounds[s + 1]].min() < 0 else lost
            bounds[s + 1 :] += 1
    return lost


def _places(positions, ids, s, members) -> list[int]:  # type: ignore[no-untyped-def]
    """The slots of the particles of a term, as they are nearest to its particle in slot s; -1 for none."""
    places = []
    for other in members:
        there = np.flatnonzero(ids == other)
        gaps = ((positions[there, :3] - positions[s, :3]) ** 2).sum(axis=1)
        places.append(s if other == int(ids[s]) else int(there[gaps.argmin()]) if there.size else -1)
    return places


def energy_and_forces(name: str, kind: str, x: np.ndarray, p: np.ndarray) -> tuple[float, np.ndarray]:
    """The energy of a term of particles at x, float64[n, 3], and their forces."""
    form, f, most = FORMS[name][kind].py_func, np.zeros_like(x), maxima(name, kind, p)
    if name == "angles":
        a, b = x[0] - x[1], x[2] - x[1]
        lengths = np.linalg.norm(a), np.linalg.norm(b)
        c = float(np.clip(a @ b / (lengths[0] * lengths[1]), -1.0, 1.0))
        energy, slope = form(c, math.sin(math.acos(c)), p, most)
        pull = slope / max(math.sqrt(1.0 - c * c), 1e-3)  # -dE/dcos; the bound is that of LAMMPS
        f[0] = pull * (b / (lengths[0] * lengths[1]) - c * a / lengths[0] ** 2)
        f[2] = pull * (a / (lengths[0] * lengths[1]) - c * b / lengths[1] ** 2)
        if kind == "charmm":
            d = x[0] - x[2]
            r = float(np.linalg.norm(d))
            energy += p[2] * (r - p[3]) ** 2
            along = -2.0 * p[2] * (r - p[3]) / r * d
            f[0], f[2] = f[0] + along, f[2] - along
        f[1] = -(f[0] + f[2])
        return energy, f
    # Blondel and Karplus (1996), J. Comput. Chem. 17, 1132.
    u, g, h = x[0] - x[1], x[1] - x[2], x[3] - x[2]
    a, b, length = np.cross(u, g), np.cross(h, g), float(np.linalg.norm(g))
    phi = math.atan2(np.cross(b, a) @ g / length, a @ b)
    energy, slope = form(math.cos(phi), math.sin(phi), p, most)
    on_a, on_b = a / (a @ a), b / (b @ b)
    across = (u @ g) / length * on_a - (h @ g) / length * on_b
    f[0], f[3] = slope * length * on_a, -slope * length * on_b
    f[1], f[2] = -f[0] - slope * across, -f[3] + slope * across
    return energy, f


def forces_of_terms(
    name: str, kind: str, positions: np.ndarray, own: int, found: np.ndarray, kinds: np.ndarray, parameters: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forces float64[own, 4], tallies [own, 8] and energies [own] of terms at the slots found[k], of types kinds[k].

    name: angles, dihedrals or impropers; kind: of its `forms.FORMS`; parameters: [types, …].
    """
    forces, tallies, energies = np.zeros((own, 4)), np.zeros((own, TALLY)), np.zeros(own)
    for places, each in zip(found, kinds, strict=True):
        x = positions[places, :3]
        energy, f = energy_and_forces(name, kind, x, parameters[each])
        virial = (x - x[1]).T @ f
        share = 2.0 / len(places)
        for k, s in enumerate(places):
            if s < own:
                forces[s, :3] += f[k]
                tallies[s] += share * np.array([energy, *(virial[a, b] for a, b in PARTS), energy])
                energies[s] += share * energy
    return forces, tallies, energies


def add_terms(  # type: ignore[no-untyped-def]
    name, kind, measure, own, positions, bounds, found, kinds, parameters, forces, tallies, energies
) -> None:
    """Add the forces of terms, and with `measure` their tallies and energies. With VIRIAL (`pair.reference`) only the
    sum of the virials over all slots counts.

    bounds: None for terms of `find_terms`, or that of `attach_terms`, of which each is once for each of its particles.
    """
    if bounds is not None:
        _, once = np.unique(np.sort(found, axis=1), axis=0, return_index=True)
        found, kinds = found[once], kinds[once]
    out = forces_of_terms(name, kind, positions, own, found, kinds, parameters)
    for given, more in zip((forces, tallies, energies) if measure else (forces,), out, strict=False):
        given[:own] += more
