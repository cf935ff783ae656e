"""Stillinger and Weber's potential of any number of kinds, NumPy: definition and test oracle of the compiled forms.

Pairs at distance r have the energy (b r^-p - c r^-q) exp(sigma / (r - reach)), and each particle i with two neighbors
j and k the energy L_ijk g_ij g_ik (cos(theta_jik) - c_ijk)^2 with g_ij = exp(width / (r_ij - reach)) (Phys. Rev. B 31,
1985; LAMMPS manual, pair_style sw); parameters of the pair i, j are those of both, L and c of all three. With the unit
vectors u_j to the neighbors of each kind s, and the moments s0 = sum g, s1 = sum g u, s2 = sum g u u of each kind, let

    S0_t = sum_s L_its c_its^2 s0_s,   S1_t = sum_s L_its c_its s1_s,   S2_t = sum_s L_its s2_s.

The angles at i have the energy 1/2 sum_j g_ij (u_j S2_t u_j - 2 u_j . S1_t + S0_t - L_itt (1 - c_itt)^2 g_ij), t being
the kind of j: a sum over neighbors, whose derivatives need S0, S1 and S2 at both ends of a bond and no third particle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.records.reference import types_of

TENSOR = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
PARTS = 3  # of four numbers, for each kind: S0 and S1; xx, yy, zz, xy of S2; xz, yz of it, two unused
PAIR, TRIPLE = 10, 3  # parameters


class Tetrahedra(NamedTuple):
    """Parameters, float64: pairs [kinds, kinds, 10]: b, c, p, q, sigma, reach, width, cutoff, L (1 - c)^2 of both ends
    together, and that of the first; triples [kinds, kinds, kinds, 3] of i, j, k: L, L c, L c^2. All but the last of a
    pair are the same in both orders, and triples are for j and k in both. powers: p and q where all pairs have these,
    else None.
    """

    pairs: np.ndarray
    triples: np.ndarray
    powers: tuple[float, float] | None

    @property
    def kinds(self) -> int:
        """The number of kinds; one kind is that of all types."""
        return len(self.pairs)


def moments_of_pairs(positions: np.ndarray, first: np.ndarray, second: np.ndarray, given: Tetrahedra) -> np.ndarray:
    """The moments float64[3 kinds, slots, 4] over the pairs (first[k], second[k]), each in both orders: first parts of
    all kinds, second parts, third parts.
    """
    kinds, own = given.kinds, _kinds_of(positions, given)
    d, r, within, it = _bonds(positions, first, second, own, given)
    u, g = d / r[:, None], np.where(within, np.exp(it["width"] / (r - it["reach"])), 0.0)
    raw = np.zeros((kinds, 10, len(positions)))
    columns = [g, *(g * u[:, k] for k in range(3)), *(g * u[:, a] * u[:, b] for a, b in TENSOR)]
    for place, column in enumerate(columns):
        np.add.at(raw[:, place], (own[second], first), column)
    of_all = np.moveaxis(given.triples[own], 0, -1)  # [t, s, 3, slots]
    weights = np.stack([of_all[:, :, column] for column in (2, 1, 1, 1, 0, 0, 0, 0, 0, 0)], axis=2)
    mixed = np.einsum("tskn,skn->tkn", weights, raw)
    found = np.zeros((PARTS, kinds, len(positions), 4))
    for place in range(10):
        found[place // 4, :, :, place % 4] = mixed[:, place]
    return found.reshape(PARTS * kinds, len(positions), 4)


def forces_of_pairs(
    positions: np.ndarray, first: np.ndarray, second: np.ndarray, given: Tetrahedra, moments: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Forces float64[slots, 4] and tallies float64[slots, 8]; moments: of `moments_of_pairs`, of all slots.

    A tally has twice the slot's energy, as those of pair forces have: the system's is half the sum over all slots.
    """
    own = _kinds_of(positions, given)
    d, r, within, it = _bonds(positions, first, second, own, given)
    u, gap = d / r[:, None], r - it["reach"]
    parts = moments.reshape(PARTS, given.kinds, len(positions), 4)
    of_first, of_second = parts[:, own[second], first], parts[:, own[first], second]
    (s0, s1, tensor), g = _of_bond(of_first, of_second), np.exp(it["width"] / gap)
    turned = np.einsum("kab,kb->ka", tensor, u)
    along, across = (turned * u).sum(axis=1), (s1 * u).sum(axis=1)
    bent = along - 2 * across + s0 - it["alone"] * g
    own0, own1, own2 = _of_bond(of_first, 0 * of_first)
    angles = g * (np.einsum("kab,ka,kb->k", own2, u, u) - 2 * (own1 * u).sum(axis=1) + own0 - it["own_alone"] * g)
    vectors = (-it["width"] / gap**2 * g * bent)[:, None] * u
    vectors += 2 * (g / r)[:, None] * (turned - s1 - (along - across)[:, None] * u)
    repelling, attracting = it["b"] * r ** -it["p"], it["c"] * r ** -it["q"]
    fade = np.exp(it["sigma"] / gap)
    pair = (repelling - attracting) * fade
    slope = -(it["p"] * repelling - it["q"] * attracting) / r * fade - pair * it["sigma"] / gap**2
    vectors = np.where(within[:, None], vectors + slope[:, None] * u, 0.0)
    found, tallies = np.zeros((len(positions), 4)), np.zeros((len(positions), TALLY))
    np.add.at(found[:, :3], first, vectors)
    np.add.at(tallies[:, 0], first, np.where(within, pair + angles, 0.0))
    for column, (a, b) in enumerate(TENSOR, start=1):
        np.add.at(tallies[:, column], first, -vectors[:, a] * d[:, b])
    return found, tallies


def _of_bond(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """S0, S1 and S2 of both ends of bonds, whose moments are [3, bonds, 4]: S1 of the second counts the other way."""
    xx, yy, zz, xy, xz, yz = (first + second)[1:].transpose(0, 2, 1).reshape(8, -1)[:6]
    tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).transpose(2, 0, 1)
    return (first + second)[0, :, 0], (first - second)[0, :, 1:], tensor


def _kinds_of(positions: np.ndarray, given: Tetrahedra) -> np.ndarray:
    return np.minimum(types_of(positions), given.kinds - 1)


def _bonds(positions, first, second, own, given):  # type: ignore[no-untyped-def]
    """Differences to the second of each pair, distances (any, beyond the cutoff), whether they are within it, and the
    parameters by name.
    """
    names = "b", "c", "p", "q", "sigma", "reach", "width", "cutoff", "alone", "own_alone"
    it = dict(zip(names, given.pairs[own[first], own[second]].T, strict=True))
    d = positions[second, :3] - positions[first, :3]
    r = np.sqrt((d * d).sum(axis=1))
    within = r < it["cutoff"]
    reach = np.where(within, it["reach"], 2.0)
    return d, np.where(within, r, 1.0), within, it | {"reach": reach}
