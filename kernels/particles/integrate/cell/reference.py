"""Particles in a tilted cell, NumPy: definition and test oracle of the compiled forms.

Straight coordinates are places without the tilt (`hpckit.plan.particles.cell`): u_z = z, u_y = y - s_yz (z - z0),
u_x = x - s_xy (u_y - y0) - s_xz (z - z0), with slopes s_xy = xy / ly, s_xz = xz / lz, s_yz = yz / lz.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.integrate.reference import MOST_IMAGES


def straighten(positions: np.ndarray, slots: int, lower: np.ndarray, slopes: np.ndarray, out: np.ndarray) -> None:
    """Write the records with straight coordinates to `out`; slots without a particle stay as they are."""
    out[:slots] = positions[:slots]
    held = ~(positions[:slots, 0] > 0.5 * FAR)
    x, y, z = positions[:slots][held, :3].T
    y = y - slopes[2] * (z - lower[2])
    out[:slots, 0][held] = x - (slopes[0] * (y - lower[1]) + slopes[1] * (z - lower[2]))
    out[:slots, 1][held] = y


def wrap_cell(
    positions: np.ndarray,
    images: np.ndarray,
    slots: int,
    lower: np.ndarray,
    lengths: np.ndarray,
    tilt: np.ndarray,
    periodic: np.ndarray,
) -> int:
    """Move particles by whole edges of the cell into it along periodic dims, and count the moves in `images`.

    tilt: xy, xz, yz. Rounding may leave one outside by a last digit. Returns the number of coordinates that are nan or
    at least `MOST_IMAGES` boxes away: these stay as they are.
    """
    slopes = tilt / lengths[[1, 2, 2]]
    straight = np.empty((slots, positions.shape[1]))
    straighten(positions, slots, lower, slopes, straight)
    filled, lost = ~(positions[:slots, 0] > 0.5 * FAR), 0
    boxes = np.zeros((slots, 3))
    for d in np.flatnonzero(periodic):
        u = straight[:, d] - lower[d]
        out = filled & ~((u >= 0) & (u < lengths[d]))
        boxes[out, d] = np.floor(u[out] / lengths[d])
        far = ~(np.abs(boxes[:, d]) < MOST_IMAGES)
        lost += int(far.sum())
        boxes[far, d] = 0.0
        boxes[:, d] += out & ~far & (u - boxes[:, d] * lengths[d] >= lengths[d])  # rounded up to the upper end
    positions[:slots, 0] -= boxes[:, 0] * lengths[0] + boxes[:, 1] * tilt[0] + boxes[:, 2] * tilt[1]
    positions[:slots, 1] -= boxes[:, 1] * lengths[1] + boxes[:, 2] * tilt[2]
    positions[:slots, 2] -= boxes[:, 2] * lengths[2]
    images[:slots] += boxes.astype(images.dtype)
    return lost


def deform(records: np.ndarray, slots: int, matrix: np.ndarray, center: np.ndarray, target: np.ndarray) -> None:
    """Move x to target + matrix (x - center), with an upper triangular matrix [3, 3]; slots without a particle stay as
    they are.
    """
    held = ~(records[:slots, 0] > 0.5 * FAR)
    x, y, z = (records[:slots][held, :3] - center).T
    records[:slots, 0][held] = target[0] + (matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z)
    records[:slots, 1][held] = target[1] + (matrix[1, 1] * y + matrix[1, 2] * z)
    records[:slots, 2][held] = target[2] + matrix[2, 2] * z


def stream(
    velocities: np.ndarray, positions: np.ndarray, slots: int, matrix: np.ndarray, center: np.ndarray, speed: np.ndarray
) -> None:
    """Add speed + matrix (x - center) to the velocity at x, with an upper triangular matrix [3, 3]; slots without a
    particle stay as they are.
    """
    held = ~(positions[:slots, 0] > 0.5 * FAR)
    x, y, z = (positions[:slots][held, :3] - center).T
    velocities[:slots, 0][held] += speed[0] + (matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z)
    velocities[:slots, 1][held] += speed[1] + (matrix[1, 1] * y + matrix[1, 2] * z)
    velocities[:slots, 2][held] += speed[2] + matrix[2, 2] * z
