"""Molecules of water at the start: rigid, on a lattice, turned at random."""

from __future__ import annotations

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.kernels.noise.dispatch import normals
from hpckit.plan.particles.snapshot import Snapshot

TURNS = 3  # stream of random numbers
OXYGEN, HYDROGEN = 0, 1  # types
RIGID = 3  # distances in a molecule, all of them


def water(config: Config, sites: np.ndarray, edges: np.ndarray) -> Snapshot:
    """A molecule at each of the sites, float64[n, 3]: oxygen there, then its two hydrogens at the length of the bond
    and the angle of the settings, the molecule turned at random. No bit depends on the ranks.
    """
    n = len(sites)
    length, half = config.bonds.parameters[0][1], np.radians(config.angles.parameters[0][1]) / 2
    arms = length * np.array([[np.sin(half), np.cos(half), 0.0], [-np.sin(half), np.cos(half), 0.0]])
    turned = (_turns(config.system.seed, n)[:, None] * arms[:, None, :]).sum(axis=-1)
    places = np.concatenate([sites[:, None], sites[:, None] + turned], axis=1).reshape(-1, 3)
    oxygen, none = 3 * np.arange(n), np.zeros(n, np.int64)
    bonds = np.stack([none, oxygen, oxygen + 1, none, oxygen, oxygen + 2], axis=1).reshape(-1, 3)
    x, y, z = (axis in config.system.periodic for axis in "xyz")
    return Snapshot(
        lower=np.zeros(3),
        upper=np.array(edges),
        periodic=(x, y, z),
        ids=np.arange(1, 3 * n + 1),
        types=np.tile([OXYGEN, HYDROGEN, HYDROGEN], n),
        positions=places,
        images=np.zeros((3 * n, 3), np.int32),
        bonds=bonds,
        angles=np.stack([none, oxygen + 1, oxygen, oxygen + 2], axis=1),
    )


def without_vibration(velocities: np.ndarray, places: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """The velocities, [3 n, 3], of molecules of three particles, less what would change a distance in them: of drawn
    ones, those of rigid molecules at the same temperature.
    """
    v, r = velocities.reshape(-1, 3, 3), places.reshape(-1, 3, 3)
    pairs = np.array([(0, 1), (0, 2), (1, 2)])
    gaps = r[:, pairs[:, 0]] - r[:, pairs[:, 1]]
    slopes = np.zeros((len(v), RIGID, 3, 3))  # of each distance by each particle
    for k, (i, j) in enumerate(pairs):
        slopes[:, k, i], slopes[:, k, j] = gaps[:, k], -gaps[:, k]
    light = slopes / masses.reshape(-1, 1, 3, 1)
    stretching = (slopes * v[:, None]).sum(axis=(2, 3))
    coupling = (slopes[:, :, None] * light[:, None]).sum(axis=(3, 4))
    pushes = np.linalg.solve(coupling, stretching[:, :, None])
    return np.asarray(v - (light * pushes[:, :, :, None]).sum(axis=1)).reshape(-1, 3)


def _turns(seed: int, n: int) -> np.ndarray:
    """Random rotations, all equally likely: float64[n, 3, 3], from normal quaternions."""
    drawn = np.empty((n, 4))
    normals(seed, 0, np.arange(n), TURNS, drawn)
    w, x, y, z = (drawn / np.sqrt((drawn * drawn).sum(axis=1))[:, None]).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)
