"""Motion of particles, Numba. What the functions compute is said in `reference`."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.cells.constants import FAR, RECORD
from hpckit.kernels.jit import jit


@jit(noalias=True)
def kick(velocities, forces, inverse_mass, slots, half):
    """As `reference.kick`."""
    for s in range(np.uint64(slots)):
        factor = half * inverse_mass[s]
        for d in range(RECORD):
            velocities[s, d] += factor * forces[s, d]


@jit(noalias=True)
def drift(positions, velocities, slots, dt):
    """As `reference.drift`."""
    for s in range(np.uint64(slots)):
        for d in range(RECORD):
            positions[s, d] += dt * velocities[s, d]


@jit(noalias=True)
def kick_drift(positions, velocities, forces, inverse_mass, slots, half, dt):
    """`kick`, then `drift`, in one pass."""
    for s in range(np.uint64(slots)):
        factor = half * inverse_mass[s]
        for d in range(RECORD):
            velocities[s, d] += factor * forces[s, d]
            positions[s, d] += dt * velocities[s, d]


@jit(noalias=True, math=frozenset({"contract", "nsz", "reassoc", "nnan"}))
def largest_move(positions, built, slots):
    """As `reference.largest_move`."""
    largest = 0.0
    for s in range(np.uint64(slots)):
        dx, dy, dz = positions[s, 0] - built[s, 0], positions[s, 1] - built[s, 1], positions[s, 2] - built[s, 2]
        largest = max(largest, dx * dx + dy * dy + dz * dz)
    return largest


@jit
def wrap(positions, images, slots, lower, upper, periodic):
    """As `reference.wrap`."""
    for s in range(slots):
        if positions[s, 0] > 0.5 * FAR:
            continue
        for d in range(3):
            if not periodic[d]:
                continue
            length = upper[d] - lower[d]
            if positions[s, d] < lower[d]:
                while positions[s, d] < lower[d]:
                    positions[s, d] += length
                    images[s, d] -= 1
                if positions[s, d] >= upper[d]:  # rounded up to the upper end: it is the lower one
                    positions[s, d] = lower[d]
                    images[s, d] += 1
            while positions[s, d] >= upper[d]:
                positions[s, d] -= length
                images[s, d] += 1


@jit
def find_leavers(positions, slots, lower, upper, leavers):
    """As `reference.find_leavers`: how many particles are outside lower <= x < upper; the first in `leavers`."""
    count = 0
    for s in range(slots):
        inside = True
        for d in range(3):
            inside &= positions[s, d] >= lower[d] and positions[s, d] < upper[d]
        if not inside and positions[s, 0] < 0.5 * FAR:
            if count < len(leavers):
                leavers[count] = s
            count += 1
    return count


@jit
def kinetic(velocities, masses, ids, slots, sums):
    """As `reference.kinetic`: the sums of m v_a v_b over particles, as xx, yy, zz, xy, xz, yz."""
    sums[:] = 0.0
    for s in range(slots):
        if ids[s] >= 0:
            m, u, v, w = masses[s], velocities[s, 0], velocities[s, 1], velocities[s, 2]
            sums[0] += m * u * u
            sums[1] += m * v * v
            sums[2] += m * w * w
            sums[3] += m * u * v
            sums[4] += m * u * w
            sums[5] += m * v * w
