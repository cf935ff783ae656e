"""Motion of particles, Numba. What the functions compute is said in `reference`."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.noise.simd import BLOCK, block_normals
from hpckit.kernels.particles.cells.constants import FAR, RECORD
from hpckit.kernels.particles.integrate.reference import MOST_IMAGES


@jit(noalias=True)
def kick(velocities, forces, inverse_mass, slots, half):
    """See `reference.kick`."""
    for s in range(np.uint64(slots)):
        factor = half * inverse_mass[s]
        for d in range(RECORD):
            velocities[s, d] += factor * forces[s, d]


@jit(noalias=True)
def drift(positions, velocities, slots, dt):
    """See `reference.drift`."""
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
    """See `reference.largest_move`."""
    largest = 0.0
    for s in range(np.uint64(slots)):
        dx, dy, dz = positions[s, 0] - built[s, 0], positions[s, 1] - built[s, 1], positions[s, 2] - built[s, 2]
        largest = max(largest, dx * dx + dy * dy + dz * dz)
    return largest


@jit
def wrap(positions, images, slots, lower, upper, periodic):
    """See `reference.wrap`."""
    lost = 0
    for s in range(np.uint64(slots)):
        x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
        inside = (x >= lower[0]) & (x < upper[0]) & (y >= lower[1]) & (y < upper[1]) & (z >= lower[2]) & (z < upper[2])
        if inside | (x > 0.5 * FAR):
            continue
        for d in range(3):
            x = positions[s, d]
            if not periodic[d] or (x >= lower[d] and x < upper[d]):
                continue
            length = upper[d] - lower[d]
            boxes = np.floor((x - lower[d]) / length)
            if not abs(boxes) < MOST_IMAGES:
                lost += 1
                continue
            x = max(x - boxes * length, lower[d])
            if x >= upper[d]:  # rounded up to the upper end: it is the lower one
                x = lower[d]
                boxes += 1.0
            positions[s, d] = x
            images[s, d] += np.int32(boxes)
    return lost


@jit
def find_leavers(positions, slots, lower, upper, leavers):
    """See `reference.find_leavers`: how many particles are outside lower <= x < upper; the first in `leavers`."""
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
def sort_leavers(positions, leavers, x_cuts, y_cuts, z_cuts, counts, order):
    """See `reference.sort_leavers`."""
    owners, first = np.empty(len(leavers), np.int64), np.zeros(len(counts), np.int64)
    counts[:] = 0
    for k in range(len(leavers)):
        s, owner = leavers[k], 0
        for cuts, d in ((x_cuts, 0), (y_cuts, 1), (z_cuts, 2)):
            below = 0
            for cut in cuts:
                below += cut <= positions[s, d]
            owner = owner * (len(cuts) + 1) + below
        owners[k] = owner
        counts[owner] += 1
    for owner in range(1, len(counts)):
        first[owner] = first[owner - 1] + counts[owner - 1]
    for k in range(len(leavers)):
        order[first[owners[k]]] = leavers[k]
        first[owners[k]] += 1


@jit
def kinetic(velocities, masses, ids, slots, sums):
    """See `reference.kinetic`: the sums of m v_a v_b over particles, as xx, yy, zz, xy, xz, yz."""
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


@jit(math=STRICT)
def dilate(records, slots, factors, center):
    """See `reference.dilate`; `DomainDecomposition.stretched` rounds alike."""
    for s in range(slots):
        for d in range(3):
            records[s, d] = center[d] + factors[d] * (records[s, d] - center[d])


@jit(noalias=True)
def langevin(positions, velocities, forces, inverse_mass, widths, ids, slots, half, way, keep, strength, noise):
    """See `reference.langevin`."""
    seed, step, stream = noise
    words, numbers = np.empty((4, BLOCK), np.uint64), np.empty((4, BLOCK))
    for first in range(0, slots, BLOCK):
        count = min(BLOCK, slots - first)
        block_normals(seed, step, ids, first, count, stream, words, numbers)
        for k in range(np.uint64(count)):
            s = np.uint64(first) + k
            factor, width = half * inverse_mass[s], strength * widths[s]
            for d in range(3):
                v = velocities[s, d] + factor * forces[s, d]
                x = positions[s, d] + way * v
                v = keep * v + width * numbers[d, k]
                velocities[s, d], positions[s, d] = v, x + way * v


@jit
def powers(velocities, forces, ids, slots, sums):
    """See `reference.powers`."""
    sums[:] = 0.0
    for s in range(slots):
        if ids[s] >= 0:
            for d in range(3):
                v, f = velocities[s, d], forces[s, d]
                sums[0] += f * v
                sums[1] += f * f
                sums[2] += v * v
                sums[3] = max(sums[3], abs(f))


@jit
def steer(velocities, forces, slots, keep, toward):
    """See `reference.steer`."""
    for s in range(slots):
        for d in range(RECORD):
            velocities[s, d] = keep * velocities[s, d] + toward * forces[s, d]


@jit
def push(forces, tallies, positions, masses, ids, slots, field, measure):
    """See `reference.push`."""
    for s in range(slots):
        if ids[s] >= 0:
            for d in range(3):
                forces[s, d] += masses[s] * field[d]
                if measure:
                    tallies[s, 0] -= 2.0 * masses[s] * field[d] * positions[s, d]


@jit
def hold_off(forces, tallies, positions, ids, slots, dim, side, place, epsilon, sigma, cutoff, measure):
    """See `reference.hold_off`: how many particles are behind the wall."""
    behind = 0
    s3 = (sigma / cutoff) ** 3
    at_cutoff = epsilon * (2.0 / 15.0 * s3**3 - s3)
    for s in range(slots):
        if ids[s] < 0:
            continue
        gap = (positions[s, dim] - place) * side
        if gap <= 0.0:
            behind += 1
        elif gap < cutoff:
            s3 = (sigma / gap) ** 3
            forces[s, dim] += side * epsilon * (6.0 / 5.0 * s3**3 - 3.0 * s3) / gap
            if measure:
                tallies[s, 0] += 2.0 * (epsilon * (2.0 / 15.0 * s3**3 - s3) - at_cutoff)
    return behind
