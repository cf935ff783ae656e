"""The waves of an Ewald sum (1921, Ann. Phys. 369, 253), NumPy: definition and test oracle of the compiled forms.

Waves k = 2 pi (n_x / L_x, n_y / L_y, n_z / L_z) come in rows of the same n_x and n_y: rows [r, 5] are n_x, n_y, the
first n_z, their number, and the place of the first among all waves. One of each pair k, -k is enough.
"""

from __future__ import annotations

import numpy as np


def structure(positions, charges, slots, rows, unit, most, big, real, imaginary) -> None:  # type: ignore[no-untyped-def]
    """Real + i imaginary of each wave = the sum of q exp(i k x) over the first `slots` slots.

    unit: 2 pi / L [3]; most: the largest |n| of each dim. A term is rounded by adding and taking away `big`, so that
    sums of multiples of its last bit are exact, in any order and on any number of ranks.
    """
    held = np.flatnonzero(charges[:slots] != 0.0)
    for n_x, n_y, first, count, place in rows.tolist():
        n = np.array([[n_x, n_y, n_z] for n_z in range(first, first + count)])
        phases = positions[held, :3] @ (unit * n).T
        for out, part in ((real, np.cos(phases)), (imaginary, np.sin(phases))):
            out[place : place + count] = ((charges[held, None] * part + big) - big).sum(axis=0)


def wave_forces(positions, charges, slots, rows, unit, most, real, imaginary, weights, forces) -> None:  # type: ignore[no-untyped-def]
    """Add 2 q sum_k weight k (Re S sin k x - Im S cos k x) to the forces of the first `slots` slots."""
    for n_x, n_y, first, count, place in rows.tolist():
        k = unit * np.array([[n_x, n_y, n_z] for n_z in range(first, first + count)])
        held = np.flatnonzero(charges[:slots] != 0.0)
        phases = positions[held, :3] @ k.T
        here = slice(place, place + count)
        each = weights[here] * (real[here] * np.sin(phases) - imaginary[here] * np.cos(phases))
        forces[held, :3] += 2 * charges[held, None] * (each @ k)
