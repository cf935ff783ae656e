"""Tersoff's potential of any number of elements, NumPy: definition and test oracle of the compiled forms.

A particle i has the energy (Phys. Rev. B 37, 6991, 1988, and 39, 5566, 1989; LAMMPS manual, pair_style tersoff)

    E_i = 1/2 sum_j f(r_ij) (A exp(-a r_ij) - b_ij B exp(-b r_ij)),   b_ij = (1 + (beta zeta_ij)^n)^(-1 / 2n),
    zeta_ij = sum_k f(r_ik) g(cos theta_jik) exp((w (r_ij - r_ik))^m),
    g(x) = gamma (1 + c^2 / d^2 - c^2 / (d^2 + (h - x)^2)),

over its neighbors j, and k other than j; f falls from 1 at R - D to 0 at R + D as half a sine. The energy of i depends
on the vectors to its neighbors alone: whoever has i computes the forces of E_i on i and on all of them, and what
ghosts gather goes back to their owners.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.records.reference import types_of

TENSOR = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
PAIR, TRIPLE = 8, 8  # parameters
MOST = 69.0776  # of the exponent in zeta, as LAMMPS has it
LEAST = 1e-300  # what zeta is held to where a logarithm is taken


class Tersoff(NamedTuple):
    """Parameters, float64: pairs [types, types, 8]: A, a, B, b, beta, n, R, D of the two types; triples [types, types,
    types, 8] of i, j, k: h, d^2, gamma, gamma c^2 / d^2, w, 1 for m = 3 or 0 for m = 1, R, D.

    cutoff: the longest R + D. shared: R and D of i, j, k are those of i, k. widths: some w is not 0.
    """

    pairs: np.ndarray
    triples: np.ndarray
    cutoff: float
    shared: bool
    widths: bool


def fading(r: np.ndarray, middle: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F and its derivative."""
    x = np.clip((r - middle) / half, -1.0, 1.0)
    inside = np.abs(x) < 1
    value = np.where(inside, 0.5 - 0.5 * np.sin(0.5 * np.pi * x), x < 0)
    return value, np.where(inside, -0.25 * np.pi / half * np.cos(0.5 * np.pi * x), 0.0)


def forces_of_pairs(
    positions: np.ndarray, first: np.ndarray, second: np.ndarray, given: Tersoff
) -> tuple[np.ndarray, np.ndarray]:
    """Forces float64[slots, 4] and tallies float64[slots, 8] of the energies of all `first`, whose neighbors are
    `second`, each pair in this order; forces of these are on both, and on others of `second`.

    A tally has twice the slot's energy and virial, as those of pair forces have: the system's is half the sum.
    """
    types = types_of(positions)
    found, tallies = np.zeros((len(positions), 4)), np.zeros((len(positions), TALLY))
    order = np.argsort(first, kind="stable")
    first, second = first[order], second[order]
    for i, start, stop in zip(*_groups(first), strict=True):
        others = second[start:stop]
        d = positions[others, :3] - positions[i, :3]
        near = (d * d).sum(axis=1) < given.cutoff**2
        others, d = others[near], d[near]
        energy, slopes = _center(types[i], types[others], d, given)
        np.add.at(found[:, :3], others, -slopes)
        found[i, :3] += slopes.sum(axis=0)
        tallies[i, 0] += 2 * energy
        for column, (a, b) in enumerate(TENSOR, start=1):
            tallies[i, column] -= 2 * (slopes[:, a] * d[:, b]).sum()
    return found, tallies


def _groups(first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, starts = np.unique(first, return_index=True)
    return values, starts, np.append(starts[1:], len(first))


def _center(own: int, types: np.ndarray, d: np.ndarray, given: Tersoff) -> tuple[float, np.ndarray]:
    """The energy of a particle of type `own` with neighbors at d [n, 3], and its derivatives by d."""
    n = len(d)
    r = np.sqrt((d * d).sum(axis=1))
    u = d / r[:, None]
    a, fall_a, b, fall_b, beta, power, middle, half = given.pairs[own, types].T
    h, d2, gamma, q, w, cubed, middles, halves = np.moveaxis(given.triples[own][np.ix_(types, types)], 2, 0)
    other = ~np.eye(n, dtype=bool)
    cosine = u @ u.T  # [j, k]
    x = h - cosine
    over = 1 / (d2 + x * x)
    g, turn = gamma + q * x * x * over, -2 * q * d2 * x * over * over
    fades, drops = fading(r[None, :], middles, halves)
    reach = w * (r[:, None] - r[None, :])
    exponent = np.clip(np.where(cubed > 0, reach**3, reach), -MOST, MOST)
    grown = np.exp(exponent)
    stretch = grown * w * np.where(cubed > 0, 3 * reach * reach, 1.0)
    zeta = (fades * g * grown * other).sum(axis=1)
    t = np.maximum(beta * zeta, LEAST)
    raised = t**power
    order = (1 + raised) ** (-0.5 / power)
    slope = -0.5 * order * raised / ((1 + raised) * np.maximum(zeta, LEAST))
    fade, drop = fading(r, middle, half)
    repelling, attracting = a * np.exp(-fall_a * r), b * np.exp(-fall_b * r)
    energy = 0.5 * (fade * (repelling - order * attracting)).sum()
    radial = 0.5 * (drop * (repelling - order * attracting) + fade * (fall_b * order * attracting - fall_a * repelling))
    pull = (-0.5 * fade * attracting * slope)[:, None] * other  # dE/dzeta [j, k]
    slopes = radial[:, None] * u
    bend = pull * fades * grown * turn
    slopes += ((bend @ u) - (bend * cosine).sum(axis=1)[:, None] * u) / r[:, None]
    slopes += ((bend.T @ u) - (bend * cosine).sum(axis=0)[:, None] * u) / r[:, None]
    along = pull * fades * g * stretch
    slopes += (along.sum(axis=1) - along.sum(axis=0) + (pull * drops * g * grown).sum(axis=0))[:, None] * u
    return float(energy), slopes
