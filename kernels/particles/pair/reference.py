"""Pair forces, NumPy: definition and test oracle of the compiled forms.

A pair of particles i and j at distance r has the energy E(r) - E_shift for r below the cutoff of their types, else 0.
The force on i is F_i = sum_j f(r) (x_i - x_j) with f = -dE/dr / r; its share of the virial is W_ab = sum_j F_ij,a
(x_i - x_j)_b / 2, half of which belongs to i; its share of the energy is sum_j E / 2.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Potential
from hpckit.kernels.particles.records.reference import types_of

VIRIAL = 2  # as `measure`: virials alone, of which only the sum over all slots counts
TALLY = 8  # components of a slot's tally: energy, xx, yy, zz, xy, xz, yz of the virial, and the energy of its bonds


def forces_of_pairs(
    positions: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    potential: Potential,
    table: np.ndarray,
    rows: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Forces float64[slots, 4] and tallies float64[slots, 8] over the pairs (first[k], second[k]), each in both orders.

    positions: [slots, 4] records; table: [types, types, parameters]; rows: of a tabulated potential. Each
    particle of a pair gets its whole energy and virial: the system's are half the sum over all slots.
    """
    dx = positions[first, :3] - positions[second, :3]
    r2 = (dx * dx).sum(axis=1)
    types = types_of(positions)
    p = table[types[first], types[second]].T
    if potential.reference is not None:
        energy, f = potential.reference(r2, p, rows)
    else:
        energy, f = potential.energy_and_force.py_func(np.minimum(r2, p[CUTOFF2]) if potential.clamp else r2, p)
    within = r2 < p[CUTOFF2]
    energy, f = np.where(within, energy - p[SHIFT], 0.0), np.where(within, f, 0.0)
    vectors = f[:, None] * dx
    found, tallies = np.zeros((len(positions), 4)), np.zeros((len(positions), TALLY))
    np.add.at(found[:, :3], first, vectors)
    np.add.at(tallies[:, 0], first, energy)
    for column, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)), start=1):
        np.add.at(tallies[:, column], first, vectors[:, a] * dx[:, b])
    return found, tallies
