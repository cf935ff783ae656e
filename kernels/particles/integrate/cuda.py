"""Motion of particles on a GPU: one thread a slot. What the functions compute is said in `reference`.

Sums and the largest move come as one number a thread, each over particles far apart, which CuPy then reduces in a fixed
order: no atomics, the same bits in every run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, simulating, threads
from hpckit.kernels.device_array import empty, placed
from hpckit.kernels.noise.cuda import four_normals
from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.cuda_records import load_record
from hpckit.kernels.particles.integrate.reference import MOST_IMAGES
from hpckit.kernels.particles.pair.reference import TALLY

THREADS = threads(128)
PARTIAL = 8 if simulating() else 64 * 1024  # threads that share the slots of a reduction
SUMS, POWERS = 6, 4
u8 = np.uint64


@kernel
def _kick(velocities, forces, inverse_mass, slots, half):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        factor = half * inverse_mass[s]
        fx, fy, fz, _ = load_record(forces, s * u8(4))
        velocities[s * u8(4)] += factor * fx
        velocities[s * u8(4) + u8(1)] += factor * fy
        velocities[s * u8(4) + u8(2)] += factor * fz


@kernel
def _drift(positions, velocities, slots, dt):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        u, v, w, _ = load_record(velocities, s * u8(4))
        positions[s * u8(4)] += dt * u
        positions[s * u8(4) + u8(1)] += dt * v
        positions[s * u8(4) + u8(2)] += dt * w


@kernel
def _kick_drift(positions, velocities, forces, inverse_mass, slots, half, dt):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        factor = half * inverse_mass[s]
        fx, fy, fz, _ = load_record(forces, s * u8(4))
        u, v, w, _ = load_record(velocities, s * u8(4))
        u, v, w = u + factor * fx, v + factor * fy, w + factor * fz
        velocities[s * u8(4)], velocities[s * u8(4) + u8(1)], velocities[s * u8(4) + u8(2)] = u, v, w
        positions[s * u8(4)] += dt * u
        positions[s * u8(4) + u8(1)] += dt * v
        positions[s * u8(4) + u8(2)] += dt * w


@kernel
def _largest_move(positions, built, slots, partial):
    t = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if t < u8(partial.size):
        largest = 0.0
        for s in range(t, u8(slots), u8(partial.size)):
            x, y, z, _ = load_record(positions, u8(s) * u8(4))
            old_x, old_y, old_z, _ = load_record(built, u8(s) * u8(4))
            dx, dy, dz = x - old_x, y - old_y, z - old_z
            moved = dx * dx + dy * dy + dz * dz
            if moved > largest or moved != moved:  # not a number: farther than all others
                largest = moved
        partial[t] = largest


@kernel
def _wrap(positions, images, slots, lower, upper, periodic):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots) and positions[s * u8(4)] <= 0.5 * FAR:
        for d in range(3):
            at, image = s * u8(4) + u8(d), s * u8(3) + u8(d)
            if not periodic[d]:
                continue
            x, length = positions[at], upper[d] - lower[d]
            if x >= lower[d] and x < upper[d]:
                continue
            boxes = math.floor((x - lower[d]) / length)
            if not abs(boxes) < MOST_IMAGES:  # lost, or not a number: left for the thermo table to find
                continue
            x -= boxes * length
            whole = np.int32(boxes)
            if x >= upper[d]:  # rounded up to the upper end: it is the lower one
                x = lower[d]
                whole += np.int32(1)
            positions[at] = x
            images[image] += whole


@kernel
def _leaves(positions, slots, lower, upper, leaves):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        x, y, z, _ = load_record(positions, s * u8(4))
        inside = lower[0] <= x < upper[0] and lower[1] <= y < upper[1] and lower[2] <= z < upper[2]
        leaves[s] = not inside and x < 0.5 * FAR


@kernel
def _kinetic(velocities, masses, ids, slots, partial):
    t = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if t < u8(partial.size) // u8(SUMS):
        xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(t, u8(slots), u8(partial.size) // u8(SUMS)):
            s = u8(k)
            if ids[s] >= 0:
                m = masses[s]
                u, v, w, _ = load_record(velocities, s * u8(4))
                xx, yy, zz = xx + m * u * u, yy + m * v * v, zz + m * w * w
                xy, xz, yz = xy + m * u * v, xz + m * u * w, yz + m * v * w
        at = t * u8(SUMS)
        partial[at], partial[at + u8(1)], partial[at + u8(2)] = xx, yy, zz
        partial[at + u8(3)], partial[at + u8(4)], partial[at + u8(5)] = xy, xz, yz


@kernel
def _dilate(records, slots, factors, center):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        for d in range(3):
            at = s * u8(4) + u8(d)
            records[at] = center[d] + factors[d] * (records[at] - center[d])


@kernel
def _langevin(
    positions, velocities, forces, inverse_mass, widths, ids, slots, half, way, keep, strength, seed, step, stream
):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots) and ids[s] >= 0:
        factor, width = half * inverse_mass[s], strength * widths[s]
        normal = four_normals(seed, step, ids[s], stream)
        for d in range(3):
            at = s * u8(4) + u8(d)
            v = velocities[at] + factor * forces[at]
            x = positions[at] + way * v
            v = keep * v + width * normal[d]
            velocities[at], positions[at] = v, x + way * v


@kernel
def _powers(velocities, forces, ids, slots, partial):
    t = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if t < u8(partial.size) // u8(POWERS):
        power, force, speed, largest = 0.0, 0.0, 0.0, 0.0
        for k in range(t, u8(slots), u8(partial.size) // u8(POWERS)):
            s = u8(k)
            if ids[s] >= 0:
                fx, fy, fz, _ = load_record(forces, s * u8(4))
                u, v, w, _ = load_record(velocities, s * u8(4))
                power += fx * u + fy * v + fz * w
                force += fx * fx + fy * fy + fz * fz
                speed += u * u + v * v + w * w
                largest = max(largest, max(abs(fx), max(abs(fy), abs(fz))))
        at = t * u8(POWERS)
        partial[at], partial[at + u8(1)], partial[at + u8(2)], partial[at + u8(3)] = power, force, speed, largest


@kernel
def _steer(velocities, forces, slots, keep, toward):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        for d in range(3):
            at = s * u8(4) + u8(d)
            velocities[at] = keep * velocities[at] + toward * forces[at]


@kernel
def _push(forces, tallies, positions, masses, ids, slots, field, measure):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots) and ids[s] >= 0:
        m, energy = masses[s], 0.0
        for d in range(3):
            at = s * u8(4) + u8(d)
            forces[at] += m * field[d]
            energy -= m * field[d] * positions[at]
        if measure:
            tallies[s * u8(TALLY)] += 2.0 * energy


@kernel
def _hold_off(forces, tallies, positions, ids, slots, dim, side, place, epsilon, sigma, cutoff, measure, behind):
    t = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if t < u8(behind.size):
        s3 = (sigma / cutoff) ** 3
        at_cutoff = epsilon * (2.0 / 15.0 * s3**3 - s3)
        count = 0
        for k in range(t, u8(slots), u8(behind.size)):
            s = u8(k)
            if ids[s] < 0:
                continue
            at = s * u8(4) + u8(dim)
            gap = (positions[at] - place) * side
            if gap <= 0.0:
                count += 1
            elif gap < cutoff:
                s3 = (sigma / gap) ** 3
                forces[at] += side * epsilon * (6.0 / 5.0 * s3**3 - 3.0 * s3) / gap
                if measure:
                    tallies[s * u8(TALLY)] += 2.0 * (epsilon * (2.0 / 15.0 * s3**3 - s3) - at_cutoff)
        behind[t] = count


def kick(velocities: Any, forces: Any, inverse_mass: Any, slots: int, half: float) -> None:
    """See `reference.kick`."""
    launch = _kick[blocks(max(1, slots), THREADS), THREADS]
    launch(velocities.reshape(-1), forces.reshape(-1), inverse_mass, slots, half)


def drift(positions: Any, velocities: Any, slots: int, dt: float) -> None:
    """See `reference.drift`."""
    _drift[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), velocities.reshape(-1), slots, dt)


def kick_drift(
    positions: Any, velocities: Any, forces: Any, inverse_mass: Any, slots: int, half: float, dt: float
) -> None:
    """See `reference.kick_drift`."""
    flat = positions.reshape(-1), velocities.reshape(-1), forces.reshape(-1)
    _kick_drift[blocks(max(1, slots), THREADS), THREADS](*flat, inverse_mass, slots, half, dt)


def largest_move(positions: Any, built: Any, slots: int) -> float:
    """See `reference.largest_move`; waits for the GPU."""
    partial = empty(min(PARTIAL, max(1, slots)), positions, np.float64)
    launch = _largest_move[blocks(partial.size, THREADS), THREADS]
    launch(positions.reshape(-1), built.reshape(-1), slots, partial)
    return float(partial.max())


def wrap(positions: Any, images: Any, slots: int, lower: Any, upper: Any, periodic: Any) -> int:
    """See `reference.wrap`, but that it counts none; the box comes as NumPy arrays."""
    box = (tuple(map(float, lower)), tuple(map(float, upper)), tuple(map(bool, periodic)))
    _wrap[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), images.reshape(-1), slots, *box)
    return 0


def find_leavers(positions: Any, slots: int, lower: Any, upper: Any, leavers: Any) -> int:
    """See `reference.find_leavers`; the corners come as NumPy arrays. Waits for the GPU."""
    leaves = empty(slots, positions, np.bool_)
    corners = tuple(map(float, lower)), tuple(map(float, upper))
    _leaves[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), slots, *corners, leaves)
    found = placed(leaves.nonzero()[0], positions)
    fits = min(len(found), len(leavers))
    leavers[:fits] = found[:fits]
    return len(found)


def kinetic(velocities: Any, masses: Any, ids: Any, slots: int, sums: Any) -> None:
    """See `reference.kinetic`; `sums` is on the device."""
    count = min(PARTIAL, max(1, slots))
    partial = empty(count * SUMS, velocities, np.float64)
    _kinetic[blocks(count, THREADS), THREADS](velocities.reshape(-1), masses, ids, slots, partial)
    sums[:] = partial.reshape(count, SUMS).sum(axis=0)


def dilate(records: Any, slots: int, factors: Any, center: Any) -> None:
    """See `reference.dilate`; factors and center come as NumPy arrays."""
    each = (tuple(map(float, array)) for array in (factors, center))
    _dilate[blocks(max(1, slots), THREADS), THREADS](records.reshape(-1), slots, *each)


def langevin(
    positions: Any,
    velocities: Any,
    forces: Any,
    inverse_mass: Any,
    widths: Any,
    ids: Any,
    slots: int,
    half: float,
    way: float,
    keep: float,
    strength: float,
    noise: tuple[int, int, int],
) -> None:
    """See `reference.langevin`."""
    flat = positions.reshape(-1), velocities.reshape(-1), forces.reshape(-1)
    given = inverse_mass, widths, ids, slots, half, way, keep, strength, *map(u8, noise)
    _langevin[blocks(max(1, slots), THREADS), THREADS](*flat, *given)


def powers(velocities: Any, forces: Any, ids: Any, slots: int, sums: Any) -> None:
    """See `reference.powers`; `sums` is on the device."""
    count = min(PARTIAL, max(1, slots))
    partial = empty(count * POWERS, velocities, np.float64)
    _powers[blocks(count, THREADS), THREADS](velocities.reshape(-1), forces.reshape(-1), ids, slots, partial)
    each = partial.reshape(count, POWERS)
    sums[:3] = each[:, :3].sum(axis=0)
    sums[3] = each[:, 3].max()


def steer(velocities: Any, forces: Any, slots: int, keep: float, toward: float) -> None:
    """See `reference.steer`."""
    launch = _steer[blocks(max(1, slots), THREADS), THREADS]
    launch(velocities.reshape(-1), forces.reshape(-1), slots, keep, toward)


def push(
    forces: Any, tallies: Any, positions: Any, masses: Any, ids: Any, slots: int, field: Any, measure: bool
) -> None:
    """See `reference.push`; the field comes as a NumPy array."""
    flat = forces.reshape(-1), tallies.reshape(-1), positions.reshape(-1)
    _push[blocks(max(1, slots), THREADS), THREADS](*flat, masses, ids, slots, tuple(map(float, field)), measure)


def hold_off(
    forces: Any,
    tallies: Any,
    positions: Any,
    ids: Any,
    slots: int,
    dim: int,
    side: float,
    place: float,
    epsilon: float,
    sigma: float,
    cutoff: float,
    measure: bool,
) -> int:
    """See `reference.hold_off`, but that particles behind the wall are counted with `measure` only, which waits for the
    GPU. Nothing holds a particle back that is behind a wall, so it is found the next time.
    """
    behind = empty(min(PARTIAL, max(1, slots)), positions, np.float64)
    flat = forces.reshape(-1), tallies.reshape(-1), positions.reshape(-1)
    wall = dim, side, place, epsilon, sigma, cutoff, measure
    _hold_off[blocks(behind.size, THREADS), THREADS](*flat, ids, slots, *wall, behind)
    return int(behind.sum()) if measure else 0
