"""Bonds, NumPy: definition and test oracle of the compiled forms.

Bonds are counted at both of their ends, as pairs are: each particle sums its own force, and gets the whole energy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.particles.molecules.bonds.forms import FORMS
from hpckit.kernels.particles.pair.reference import TALLY


def index_slots(ids, slots, head, following) -> None:  # type: ignore[no-untyped-def]
    """Where particles are: head[g], the last slot of particle g, -1 for none; following[s], the slot before s that has
    the same particle, or -1. ids: of all `slots` slots, float64, -1 for none.
    """
    head[:] = -1
    for s in range(slots):
        if ids[s] >= 0:
            following[s], head[int(ids[s])] = head[int(ids[s])], s


def attach(positions, ids, slots, own, starts, others, kinds, head, following, bounds, partners, partner_kinds) -> int:  # type: ignore[no-untyped-def]
    """The bonds of the slots below `own`: slot s has those of bounds[s] to bounds[s + 1] - 1, with the slots `partners`
    and the types `partner_kinds`; returns the first id (from 0) with a partner that is in no slot, or -1.

    ids, head, following: of `index_slots`; particle g is bonded to others[starts[g] : starts[g + 1]], of types `kinds`.
    Of the images of a partner the nearest counts.
    """
    count = 0
    for s in range(own):
        bounds[s] = count
        if ids[s] < 0:
            continue
        for k in range(starts[int(ids[s])], starts[int(ids[s]) + 1]):
            there = np.flatnonzero(ids[:slots] == others[k])
            if not there.size:
                return int(ids[s])
            gaps = ((positions[there, :3] - positions[s, :3]) ** 2).sum(axis=1)
            partners[count], partner_kinds[count] = there[gaps.argmin()], kinds[k]
            count += 1
    bounds[own] = count
    return -1


def forces_of_bonds(
    positions: np.ndarray,
    bounds: np.ndarray,
    partners: np.ndarray,
    kinds: np.ndarray,
    form: Any,
    parameters: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Forces float64[slots, 4] and tallies [slots, 8]. form: of `forms.FORMS`; parameters: [types of bonds, …]."""
    own = len(bounds) - 1
    found, tallies = np.zeros((own, 4)), np.zeros((own, TALLY))
    for s in range(own):
        for k in range(bounds[s], bounds[s + 1]):
            d = positions[s, :3] - positions[partners[k], :3]
            r2 = float(d @ d)
            energy, f = form.py_func(r2, parameters[kinds[k]])
            found[s, :3] += f * d
            tallies[s, 0] += energy
            tallies[s, 7] += energy
            tallies[s, 1:7] += f * np.array(
                [d[0] * d[0], d[1] * d[1], d[2] * d[2], d[0] * d[1], d[0] * d[2], d[1] * d[2]]
            )
    return found, tallies


def add_bonds(  # type: ignore[no-untyped-def]
    name, measure, slots, positions, bounds, partners, kinds, parameters, forces, tallies
) -> None:
    """Add the forces of bonds of the form of that name, and with `measure` their tallies."""
    found = forces_of_bonds(positions, bounds, partners, kinds, FORMS[name], parameters)
    forces[:slots] += found[0]
    if measure:
        tallies[:slots] += found[1]
