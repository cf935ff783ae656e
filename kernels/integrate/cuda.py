"""Motion of particles on a GPU: one thread a slot. What the functions compute is said in `reference`.

Sums and the largest move come as one number a thread, each over particles far apart, which CuPy then reduces in a fixed
order: no atomics, the same bits in every run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.cells.constants import FAR
from hpckit.kernels.cuda_jit import blocks, cuda, kernel, simulating, threads
from hpckit.kernels.cuda_records import load_record
from hpckit.kernels.integrate.reference import MOST_TURNS

THREADS = threads(128)
PARTIAL = 8 if simulating() else 64 * 1024  # threads that share the slots of a reduction
SUMS = 6
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
            turns = math.floor((x - lower[d]) / length)
            if not abs(turns) < MOST_TURNS:  # lost, or not a number: left for the thermo table to find
                continue
            x -= turns * length
            whole = np.int32(turns)
            if x >= upper[d]:  # rounded up to the upper end: it is the lower one
                x = lower[d]
                whole += np.int32(1)
            positions[at] = x
            images[image] += whole


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


def kick(velocities: Any, forces: Any, inverse_mass: Any, slots: int, half: float) -> None:
    """As `reference.kick`."""
    launch = _kick[blocks(max(1, slots), THREADS), THREADS]
    launch(velocities.reshape(-1), forces.reshape(-1), inverse_mass, slots, half)


def drift(positions: Any, velocities: Any, slots: int, dt: float) -> None:
    """As `reference.drift`."""
    _drift[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), velocities.reshape(-1), slots, dt)


def kick_drift(
    positions: Any, velocities: Any, forces: Any, inverse_mass: Any, slots: int, half: float, dt: float
) -> None:
    """As `reference.kick_drift`."""
    flat = positions.reshape(-1), velocities.reshape(-1), forces.reshape(-1)
    _kick_drift[blocks(max(1, slots), THREADS), THREADS](*flat, inverse_mass, slots, half, dt)


def largest_move(positions: Any, built: Any, slots: int) -> float:
    """As `reference.largest_move`; waits for the GPU."""
    partial = _scratch(positions, min(PARTIAL, max(1, slots)))
    launch = _largest_move[blocks(partial.size, THREADS), THREADS]
    launch(positions.reshape(-1), built.reshape(-1), slots, partial)
    return float(partial.max())


def wrap(positions: Any, images: Any, slots: int, lower: Any, upper: Any, periodic: Any) -> int:
    """As `reference.wrap`, but that it counts none; the box comes as NumPy arrays."""
    box = (tuple(map(float, lower)), tuple(map(float, upper)), tuple(map(bool, periodic)))
    _wrap[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), images.reshape(-1), slots, *box)
    return 0


def kinetic(velocities: Any, masses: Any, ids: Any, slots: int, sums: Any) -> None:
    """As `reference.kinetic`; `sums` is on the device."""
    count = min(PARTIAL, max(1, slots))
    partial = _scratch(velocities, count * SUMS)
    _kinetic[blocks(count, THREADS), THREADS](velocities.reshape(-1), masses, ids, slots, partial)
    sums[:] = partial.reshape(count, SUMS).sum(axis=0)


def _scratch(like: Any, count: int) -> Any:
    """A flat float64 array of the kind of `like`."""
    if type(like).__module__ == "cupy":
        import cupy

        return cupy.empty(count)
    return np.empty(count).view(type(like))
