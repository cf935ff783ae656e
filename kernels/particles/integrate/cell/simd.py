"""Particles in a tilted cell, Numba. What the functions compute is said in `reference`."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.integrate.reference import MOST_IMAGES


@jit(math=STRICT)
def straighten(positions, slots, lower, slopes, out):
    """See `reference.straighten`; `Cell.straight` rounds alike."""
    for s in range(slots):
        x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
        if not x > 0.5 * FAR:
            y -= slopes[2] * (z - lower[2])
            x -= slopes[0] * (y - lower[1]) + slopes[1] * (z - lower[2])
        out[s, 0], out[s, 1], out[s, 2], out[s, 3] = x, y, z, positions[s, 3]


@jit(math=STRICT)
def wrap_cell(positions, images, slots, lower, lengths, tilt, periodic):
    """See `reference.wrap_cell`."""
    lost = 0
    boxes = np.empty(3)
    xy, xz, yz = tilt[0] / lengths[1], tilt[1] / lengths[2], tilt[2] / lengths[2]
    for s in range(slots):
        x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
        if x > 0.5 * FAR:
            continue
        w = z - lower[2]
        v = (y - yz * w) - lower[1]
        u = (x - (xy * v + xz * w)) - lower[0]
        moved = False
        for d in range(3):
            boxes[d] = 0.0
            place = u if d == 0 else (v if d == 1 else w)
            if not periodic[d] or (place >= 0.0 and place < lengths[d]):
                continue
            n = np.floor(place / lengths[d])
            if not abs(n) < MOST_IMAGES:
                lost += 1
                continue
            if place - n * lengths[d] >= lengths[d]:  # rounded up to the upper end
                n += 1.0
            boxes[d] = n
            moved = moved or n != 0.0
        if moved:
            positions[s, 0] = x - (boxes[0] * lengths[0] + boxes[1] * tilt[0] + boxes[2] * tilt[1])
            positions[s, 1] = y - (boxes[1] * lengths[1] + boxes[2] * tilt[2])
            positions[s, 2] = z - boxes[2] * lengths[2]
            for d in range(3):
                images[s, d] += np.int32(boxes[d])
    return lost


@jit(math=STRICT)
def deform(records, slots, matrix, center, target):
    """See `reference.deform`."""
    for s in range(slots):
        if not records[s, 0] > 0.5 * FAR:
            x, y, z = records[s, 0] - center[0], records[s, 1] - center[1], records[s, 2] - center[2]
            records[s, 0] = target[0] + (matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z)
            records[s, 1] = target[1] + (matrix[1, 1] * y + matrix[1, 2] * z)
            records[s, 2] = target[2] + matrix[2, 2] * z


@jit(math=STRICT)
def stream(velocities, positions, slots, matrix, center, speed):
    """See `reference.stream`."""
    for s in range(slots):
        if not positions[s, 0] > 0.5 * FAR:
            x, y, z = positions[s, 0] - center[0], positions[s, 1] - center[1], positions[s, 2] - center[2]
            velocities[s, 0] += speed[0] + (matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z)
            velocities[s, 1] += speed[1] + (matrix[1, 1] * y + matrix[1, 2] * z)
            velocities[s, 2] += speed[2] + matrix[2, 2] * z
