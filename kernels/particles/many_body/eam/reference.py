"""The embedded-atom method, NumPy: definition and test oracle of the compiled forms.

Particle i of type a has the density n_i = sum_j rho_ab(r_ij) of its neighbors j of types b, and the energy F_a(n_i) +
sum_j phi_ab(r_ij) / 2 (Daw and Baskes, Phys. Rev. B 29, 1984). With slope_i = F_a'(n_i) the force on i is the sum over
j of -(slope_i rho_ab' + slope_j rho_ba' + phi_ab') (x_i - x_j) / r.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.many_body.eam.curves import EamTables, rows_of_pair
from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.records.reference import types_of


def embed(density: np.ndarray, types: np.ndarray, given: EamTables) -> tuple[np.ndarray, np.ndarray]:
    """F and F' of densities [n] of particles of some types; beyond the table F goes on with its last slope."""
    last = given.embedding.shape[1] - 1
    t = density * given.density_scale
    k = np.clip(t.astype(np.int64), 0, last - 1)
    x = np.minimum(t - k, 1.0)
    c = given.embedding[types, k].T
    slope = (c[1] + x * (2 * c[2] + 3 * x * c[3])) * given.density_scale
    beyond = np.maximum(density - last / given.density_scale, 0.0)
    return c[0] + x * (c[1] + x * (c[2] + x * c[3])) + slope * beyond, slope


def densities_of_pairs(
    positions: np.ndarray, first: np.ndarray, second: np.ndarray, given: EamTables
) -> tuple[np.ndarray, np.ndarray]:
    """F' and F of each slot, float64[slots], over the pairs (first[k], second[k]), each in both orders.

    Both are 0 in slots without a particle. positions: [slots, 4] records.
    """
    density = np.zeros(len(positions))
    _, (within, value, _), _, _ = _curves(positions, first, second, given)
    np.add.at(density, first, np.where(within, value, 0.0))
    energies, slopes = embed(density, types_of(positions), given)
    filled = positions[:, 0] < 0.5 * FAR
    return np.where(filled, slopes, 0.0), np.where(filled, energies, 0.0)


def forces_of_pairs(
    positions: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    given: EamTables,
    slopes: np.ndarray,
    energies: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Forces float64[slots, 4] and tallies float64[slots, 8]; slopes, energies: of `densities_of_pairs`.

    A tally has twice the slot's energy, as those of pair forces have: the system's is half the sum over all slots.
    """
    (dx, r), (within, _, slope_ab), (pair, pair_slope), slope_ba = _curves(positions, first, second, given)
    phi = pair / r
    bent = (pair_slope - phi) / r + slopes[first] * slope_ab + slopes[second] * slope_ba
    vectors = np.where(within, -bent / r, 0.0)[:, None] * dx
    found, tallies = np.zeros((len(positions), 4)), np.zeros((len(positions), TALLY))
    np.add.at(found[:, :3], first, vectors)
    np.add.at(tallies[:, 0], first, np.where(within, phi, 0.0))
    tallies[:, 0] += 2.0 * energies
    for column, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)), start=1):
        np.add.at(tallies[:, column], first, vectors[:, a] * dx[:, b])
    return found, tallies


def _curves(positions, first, second, given):  # type: ignore[no-untyped-def]
    """Differences and distances; of the density at the first of each pair: whether it is within reach, value, slope; r
    times the pair energy, and its slope; the slope of the density at the second.
    """
    dx = positions[first, :3] - positions[second, :3]
    r2 = (dx * dx).sum(axis=1)
    within = r2 < given.cutoff2
    r = np.sqrt(np.minimum(r2, given.cutoff2))
    types = types_of(positions)
    count = len(given.embedding)
    rows = given.pairs.reshape(count, count, given.points, rows_of_pair(count), 4)
    t = np.minimum(r * given.scale, given.points - 1)
    k = t.astype(np.int64)
    x = t - k
    c = rows[types[first], types[second], k].transpose(1, 2, 0)
    values = [one[0] + x * (one[1] + x * (one[2] + x * one[3])) for one in c]
    slopes = [(one[1] + x * (2 * one[2] + 3 * x * one[3])) * given.scale for one in c]
    return (dx, r), (within, values[1], slopes[1]), (values[0], slopes[0]), slopes[2 if count > 1 else 1]
