"""Contacts of spheres, NumPy: definition and test oracle of the compiled forms.

Two spheres i and j with radii R and reduced mass m touch where their distance r is below R_i + R_j. With d = x_i - x_j,
the overlap o = R_i + R_j - r and the velocity of the surfaces at the contact, split along d (v_n) and across it (v_t),

    F_n = s (normal o d / r - m damp_normal v_n),    F_t = -s (tangent u + m damp_tangent v_t),    |F_t| <= friction F_n

with s = 1 (`hooke`), or sqrt(o R_i R_j / (R_i + R_j)) (`hertz`). u is how far surfaces have slid since they touched,
turned into the plane across d in each step; where friction yields, u is what gives F_t (Cundall and Strack 1979,
Geotechnique 29, 47; Silbert et al. 2001, Phys. Rev. E 64, 051302: `gran/hooke/history` and `gran/hertz/history` of
LAMMPS). Without memory F_t has its damper alone (`gran/hooke`).

Each sphere finds its own side of a contact, so that u of the other side is -u, and no rank sends it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.kernels.particles.pair.reference import TALLY

TENSOR = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
INERTIA = 0.4  # of a ball, over m R^2
PARTS = 2  # of what each slot has beside its position: velocity and radius; spin and 1 / mass (0: it does not move)


class Contact(NamedTuple):
    """Stiffness along and across (force per length, or pressure of `hertz`), dampers (per time, or per time and
    length), and the coefficient of friction.
    """

    normal: float
    tangent: float
    damp_normal: float
    damp_tangent: float
    friction: float


def contacts_of_pairs(
    positions: np.ndarray,
    motion: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    slid: np.ndarray,
    given: Contact,
    law: str,
    memory: bool,
    dt: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Forces and torques float64[slots, 4], tallies float64[slots, 8] (twice the energy of normal springs, and the
    virial), and how far each of the pairs (first[k], second[k]) has slid, float64[k, 3], after a step of dt.

    motion: float64[2, slots, 4]. dt = 0: nothing slides, as before the first step.
    """
    x, v = positions[:, :3], motion[0, :, :3]
    radius, spin, inverse = motion[0, :, 3], motion[1, :, :3], motion[1, :, 3]
    d = x[first] - x[second]
    r = np.sqrt((d * d).sum(axis=1))
    both = radius[first] + radius[second]
    touch = (r < both) & (inverse[first] > 0)
    n, overlap = d / r[:, None], both - r
    mass = 1 / np.where(touch, inverse[first] + inverse[second], 1.0)
    scale = np.ones(len(r))
    if law == "hertz":
        scale = np.sqrt(np.where(touch, overlap, 0.0) * radius[first] * radius[second] / both)
    speed = v[first] - v[second]
    along = (speed * n).sum(axis=1)
    turning = (radius[first, None] * spin[first] + radius[second, None] * spin[second]) / r[:, None]
    across = speed - along[:, None] * n + np.cross(d, turning)
    pressing = scale * (given.normal * overlap - mass * given.damp_normal * along)
    drag = (mass * given.damp_tangent)[:, None] * across
    most = given.friction * np.abs(pressing)
    if memory:
        moved = slid + dt * across
        known = (moved * moved).sum(axis=1) > 0
        if dt > 0:
            moved = moved - (moved * n).sum(axis=1)[:, None] * n
        pulling = -scale[:, None] * (given.tangent * moved + drag)
        size = np.sqrt((pulling * pulling).sum(axis=1))
        slips = size > most
        ratio = np.where(slips, most / np.where(size > 0, size, 1.0), 1.0)[:, None]
        moved = np.where(known[:, None], ratio * moved + (ratio - 1) * drag / given.tangent, moved)
        pulling = np.where((slips & ~known)[:, None], 0.0, ratio * pulling)
        after = np.where(touch[:, None], moved, 0.0) if dt > 0 else slid
    else:
        size = np.sqrt((drag * drag).sum(axis=1))
        pulling = -np.minimum(1.0, most / np.where(size > 0, size, 1.0))[:, None] * drag
        after = slid
    force = np.where(touch[:, None], pressing[:, None] * n + pulling, 0.0)
    torque = np.where(touch[:, None], -radius[first, None] * np.cross(n, pulling), 0.0)
    share = 0.4 if law == "hertz" else 0.5
    weight = np.where(inverse[second] > 0, 1.0, 2.0)  # what does not move has no tally of its own
    energy = np.where(touch, weight * share * given.normal * scale * overlap**2, 0.0)
    forces, torques, tallies = np.zeros((len(x), 4)), np.zeros((len(x), 4)), np.zeros((len(x), TALLY))
    np.add.at(forces[:, :3], first, force)
    np.add.at(torques[:, :3], first, torque)
    np.add.at(tallies[:, 0], first, energy)
    for column, (a, b) in enumerate(TENSOR, start=1):
        np.add.at(tallies[:, column], first, weight * d[:, a] * force[:, b])
    return forces, torques, tallies, after
