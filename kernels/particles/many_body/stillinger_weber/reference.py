"""Stillinger and Weber's potential of one element, NumPy: definition and test oracle of the compiled forms.

Pairs at distance r have the energy (b r^-p - c r^-q) exp(sigma / (r - reach)), and each particle i with two neighbors
j and k the energy strength g(r_ij) g(r_ik) (cos(theta_jik) - cosine)^2 with g(r) = exp(width / (r - reach)) (Phys. Rev.
B 31, 1985). With the unit vectors u_j to the neighbors the sum over pairs of neighbors is

    strength / 2 (S2 : S2 - 2 cosine S1 . S1 + cosine^2 S0^2 - (1 - cosine)^2 G),

of the moments S0 = sum g, S1 = sum g u, S2 = sum g u u and G = sum g^2: a sum over neighbors, whose derivatives need
the moments at both ends of a bond and no third particle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.kernels.particles.pair.reference import TALLY

TENSOR = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
PARTS = 3  # of four numbers: S0 and S1; xx, yy, zz, xy of S2; xz, yz of it, G and one unused


class Silicon(NamedTuple):
    """Parameters: of energies strength, b, c; of distances sigma, reach, width, and cutoff, which is at most reach."""

    strength: float
    cosine: float
    b: float
    c: float
    p: float
    q: float
    sigma: float
    reach: float
    width: float
    cutoff: float


def moments_of_pairs(positions: np.ndarray, first: np.ndarray, second: np.ndarray, given: Silicon) -> np.ndarray:
    """The moments float64[3, slots, 4] over the pairs (first[k], second[k]), each in both orders."""
    d, r, within = _bonds(positions, first, second, given)
    u, g = d / r[:, None], np.where(within, np.exp(given.width / (r - given.reach)), 0.0)
    found = np.zeros((PARTS, len(positions), 4))
    columns = [g, *(g * u[:, k] for k in range(3)), *(g * u[:, a] * u[:, b] for a, b in TENSOR), g * g]
    for place, column in enumerate(columns):
        np.add.at(found[place // 4, :, place % 4], first, column)
    return found


def energies(moments: np.ndarray, given: Silicon) -> np.ndarray:
    """The energy of the angles at each slot."""
    (s0, *s1), (xx, yy, zz, xy), (xz, yz, g2, _) = (part.T for part in moments)
    squares = xx * xx + yy * yy + zz * zz + 2 * (xy * xy + xz * xz + yz * yz)
    c = given.cosine
    bent = squares - 2 * c * sum(each * each for each in s1) + c * c * s0 * s0 - (1 - c) ** 2 * g2
    return np.asarray(0.5 * given.strength * bent)


def forces_of_pairs(
    positions: np.ndarray, first: np.ndarray, second: np.ndarray, given: Silicon, moments: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Forces float64[slots, 4] and tallies float64[slots, 8]; moments: of `moments_of_pairs`, of all slots.

    A tally has twice the slot's energy, as those of pair forces have: the system's is half the sum over all slots.
    """
    d, r, within = _bonds(positions, first, second, given)
    u, gap, c = d / r[:, None], r - given.reach, given.cosine
    of_first, of_second = moments[:, first], moments[:, second]
    s0, s1 = (of_first + of_second)[0, :, 0], (of_first - of_second)[0, :, 1:]
    xx, yy, zz, xy, xz, yz = (of_first + of_second)[1:].transpose(0, 2, 1).reshape(8, -1)[:6]
    tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).transpose(2, 0, 1)
    g = np.exp(given.width / gap)
    turned = np.einsum("kab,kb->ka", tensor, u)
    along, across = (turned * u).sum(axis=1), (s1 * u).sum(axis=1)
    bent = along - 2 * c * across + c * c * s0 - 2 * (1 - c) ** 2 * g
    vectors = (-given.width / gap**2 * g * bent)[:, None] * u
    vectors += 2 * (g / r)[:, None] * (turned - c * s1 - (along - c * across)[:, None] * u)
    repelling, attracting = given.b * r**-given.p, given.c * r**-given.q
    fade = np.exp(given.sigma / gap)
    pair = (repelling - attracting) * fade
    slope = -(given.p * repelling - given.q * attracting) / r * fade - pair * given.sigma / gap**2
    vectors = np.where(within[:, None], given.strength * vectors + slope[:, None] * u, 0.0)
    found, tallies = np.zeros((len(positions), 4)), np.zeros((len(positions), TALLY))
    np.add.at(found[:, :3], first, vectors)
    np.add.at(tallies[:, 0], first, np.where(within, pair, 0.0))
    tallies[:, 0] += 2 * energies(moments, given)
    for column, (a, b) in enumerate(TENSOR, start=1):
        np.add.at(tallies[:, column], first, -vectors[:, a] * d[:, b])
    return found, tallies


def _bonds(positions, first, second, given):  # type: ignore[no-untyped-def]
    """Differences to the second of each pair, distances (any, beyond the cutoff), and whether they are within it."""
    d = positions[second, :3] - positions[first, :3]
    r = np.sqrt((d * d).sum(axis=1))
    within = r < given.cutoff
    return d, np.where(within, r, 0.5 * given.cutoff), within
