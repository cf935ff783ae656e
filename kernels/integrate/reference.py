"""Motion of particles, NumPy: the oracle, and the documentation of what the other forms compute.

Velocity Verlet (Swope et al. 1982): a half kick and a drift, new forces, a half kick. Positions, velocities and forces
are records [slots, 4] whose fourth numbers are the type, 0 and 0.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.cells.constants import FAR


def kick(velocities: np.ndarray, forces: np.ndarray, inverse_mass: np.ndarray, slots: int, half: float) -> None:
    """V += half F / m, for the first `slots` slots."""
    velocities[:slots] += (half * inverse_mass[:slots])[:, None] * forces[:slots]


def drift(positions: np.ndarray, velocities: np.ndarray, slots: int, dt: float) -> None:
    """X += dt v."""
    positions[:slots] += dt * velocities[:slots]


def kick_drift(
    positions: np.ndarray,
    velocities: np.ndarray,
    forces: np.ndarray,
    inverse_mass: np.ndarray,
    slots: int,
    half: float,
    dt: float,
) -> None:
    """`kick`, then `drift`."""
    kick(velocities, forces, inverse_mass, slots, half)
    drift(positions, velocities, slots, dt)


def largest_move(positions: np.ndarray, built: np.ndarray, slots: int) -> float:
    """The square of the longest way that a particle has gone since `built`."""
    return float(((positions[:slots, :3] - built[:slots, :3]) ** 2).sum(axis=1).max(initial=0.0))


def wrap(
    positions: np.ndarray, images: np.ndarray, slots: int, lower: np.ndarray, upper: np.ndarray, periodic: np.ndarray
) -> None:
    """Move particles by whole boxes into lower <= x < upper along periodic dims, and count the moves in `images`."""
    filled = positions[:slots, 0] < 0.5 * FAR
    for d in np.flatnonzero(periodic):
        length = upper[d] - lower[d]
        turns = np.where(filled, np.floor((positions[:slots, d] - lower[d]) / length), 0.0)
        positions[:slots, d] -= turns * length
        images[:slots, d] += turns.astype(images.dtype)
        rounded_up = filled & (positions[:slots, d] >= upper[d])
        positions[:slots, d][rounded_up] = lower[d]
        images[:slots, d] += rounded_up


def find_leavers(positions: np.ndarray, slots: int, lower: np.ndarray, upper: np.ndarray, leavers: np.ndarray) -> int:
    """How many particles are not within lower <= x < upper; the slots of as many as fit come into `leavers`."""
    x = positions[:slots, :3]
    found = np.flatnonzero(~((x >= lower) & (x < upper)).all(axis=1) & (x[:, 0] < 0.5 * FAR))
    leavers[: len(found)] = found[: len(leavers)]
    return len(found)


def kinetic(velocities: np.ndarray, masses: np.ndarray, ids: np.ndarray, slots: int, sums: np.ndarray) -> None:
    """The sums of m v_a v_b over the particles, as xx, yy, zz, xy, xz, yz."""
    own = ids[:slots] >= 0
    v, m = velocities[:slots][own, :3], masses[:slots][own]
    for k, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))):
        sums[k] = (m * v[:, a] * v[:, b]).sum()
