"""Charged pairs, NumPy: definition and test oracle of the compiled forms.

A pair has the energy of a pair potential within the cutoff of its types, and q q' E(r) of `screening` within that of
the charges. Partners in a molecule, which lists leave out, have a share of both. Charges are in units in which the
energy of two at distance r is q q' / r.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.particles.charged.screening import REACH2, functions
from hpckit.kernels.particles.pair import reference as pair_reference
from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Potential
from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.records.reference import types_of

PARTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # of a virial


def forces_of_pairs(
    positions: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    potential: Potential,
    table: np.ndarray,
    charges: np.ndarray,
    kind: tuple,
    constants: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forces float64[slots, 4], tallies float64[slots, 8] and the part of the energy that is of charges [slots], over
    pairs in both orders. charges: [slots]; kind, constants: of a `Screening`. See `pair.reference.forces_of_pairs`.
    """
    forces, tallies = pair_reference.forces_of_pairs(positions, first, second, potential, table)
    dx = positions[first, :3] - positions[second, :3]
    r2 = (dx * dx).sum(axis=1)
    within = r2 < constants[REACH2]
    energy, f = functions(*kind)[1].py_func, None
    each = [energy(x, constants) if near else (0.0, 0.0) for x, near in zip(r2.tolist(), within.tolist(), strict=True)]
    energies, f = np.array(each).reshape(-1, 2).T * (charges[first] * charges[second])
    vectors = f[:, None] * dx
    of_charges = np.zeros(len(positions))
    np.add.at(of_charges, first, energies)
    np.add.at(forces[:, :3], first, vectors)
    tallies[:, 0] += of_charges
    for column, (a, b) in enumerate(PARTS, start=1):
        np.add.at(tallies[:, column], first, vectors[:, a] * dx[:, b])
    return forces, tallies, of_charges


def choose_partners(starts, partners, kinds, wanted, once, chosen_starts, chosen, chosen_kinds) -> None:  # type: ignore[no-untyped-def]
    """Write the partners of the kinds `wanted` (bool of each) as lists of the same form; `once`: two slots that have
    lists only in that of the first.
    """
    whose = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    kept = wanted[kinds] & ~(once & (partners < whose))
    chosen_starts[:] = np.searchsorted(whose[kept], np.arange(len(starts)))
    chosen[: kept.sum()], chosen_kinds[: kept.sum()] = partners[kept], kinds[kept]


def forces_of_partners(
    positions: np.ndarray,
    starts: np.ndarray,
    partners: np.ndarray,
    kinds: np.ndarray,
    potential: Potential,
    table: np.ndarray,
    charges: np.ndarray,
    kind: tuple,
    constants: np.ndarray,
    shares: np.ndarray,
    once: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What partners add to forces, tallies and the energy of charges, of the slots that `starts` has.

    once: two slots that have lists are partners in one of them only.

    kinds: of each partner, a row of shares [kinds, 2]: of the pair potential and of the whole 1/r. The sum over all
    images, or a reaction field, still sees a partner: q q' (E(r) - (1 - share) / r) remains.
    """
    own = len(starts) - 1
    forces, tallies, of_charges = np.zeros((own, 4)), np.zeros((own, TALLY)), np.zeros(own)
    types = types_of(positions)
    for s in range(own):
        for k in range(starts[s], starts[s + 1]):
            j, (pair_share, charge_share) = partners[k], shares[kinds[k]]
            d = positions[s, :3] - positions[j, :3]
            r2 = float(d @ d)
            p = table[types[s], types[j]]
            energy = f = of_charge = 0.0
            if r2 < p[CUTOFF2] and pair_share:
                e, g = potential.energy_and_force.py_func(r2, p)
                energy, f = pair_share * (e - p[SHIFT]), pair_share * g
            if r2 < constants[REACH2]:
                e, g = functions(*kind)[1].py_func(r2, constants)
                product, whole = charges[s] * charges[j], (1.0 - charge_share) / np.sqrt(r2)
                of_charge, f = product * (e - whole), f + product * (g - whole / r2)
            for slot, sign in ((s, 1.0), *([(j, -1.0)] if once and j < own else [])):
                forces[slot, :3] += sign * f * d
                tallies[slot, 0] += energy + of_charge
                tallies[slot, 1:7] += [f * d[a] * d[b] for a, b in PARTS]
                of_charges[slot] += of_charge
    return forces, tallies, of_charges


def add_partners(  # type: ignore[no-untyped-def]
    potential, kind, slots, positions, starts, partners, kinds, table, charges, constants, shares, forces, tallies,
    energies, measure, once,
) -> None:  # fmt: skip
    """Add what partners have to forces, and with `measure` to tallies and the energies of charges. With VIRIAL
    (`pair.reference`) only the sum of the virials over all slots counts.
    """
    what = starts[: slots + 1], partners, kinds, potential, table, charges, kind, constants, shares, once
    found = forces_of_partners(positions, *what)
    for given, more in zip((forces, tallies, energies) if measure else (forces,), found, strict=False):
        given[:slots] += more
