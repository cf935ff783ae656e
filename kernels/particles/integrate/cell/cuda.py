"""Particles in a tilted cell on a GPU: one thread a slot. What the functions compute is said in `reference`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.cuda_records import load_record
from hpckit.kernels.particles.integrate.reference import MOST_IMAGES

THREADS = threads(128)
u8 = np.uint64


@kernel
def _straighten(positions, slots, lower, slopes, out):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        x, y, z, w = load_record(positions, s * u8(4))
        if not x > 0.5 * FAR:
            y -= slopes[2] * (z - lower[2])
            x -= slopes[0] * (y - lower[1]) + slopes[1] * (z - lower[2])
        at = s * u8(4)
        out[at], out[at + u8(1)], out[at + u8(2)], out[at + u8(3)] = x, y, z, w


@kernel
def _wrap_cell(positions, images, slots, lower, lengths, tilt, periodic):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots) and not positions[s * u8(4)] > 0.5 * FAR:
        x, y, z, _ = load_record(positions, s * u8(4))
        w = z - lower[2]
        v = (y - tilt[2] / lengths[2] * w) - lower[1]
        u = (x - (tilt[0] / lengths[1] * v + tilt[1] / lengths[2] * w)) - lower[0]
        a, b, c = 0.0, 0.0, 0.0
        for d in range(3):
            place = u if d == 0 else (v if d == 1 else w)
            if not periodic[d] or (place >= 0.0 and place < lengths[d]):
                continue
            n = math.floor(place / lengths[d])
            if not abs(n) < MOST_IMAGES:  # lost, or not a number: left for the thermo table to find
                continue
            if place - n * lengths[d] >= lengths[d]:  # rounded up to the upper end
                n += 1.0
            images[s * u8(3) + u8(d)] += np.int32(n)
            if d == 0:
                a = n
            elif d == 1:
                b = n
            else:
                c = n
        if a != 0.0 or b != 0.0 or c != 0.0:
            positions[s * u8(4)] = x - (a * lengths[0] + b * tilt[0] + c * tilt[1])
            positions[s * u8(4) + u8(1)] = y - (b * lengths[1] + c * tilt[2])
            positions[s * u8(4) + u8(2)] = z - c * lengths[2]


@kernel
def _deform(records, slots, matrix, center, target):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        x, y, z, _ = load_record(records, s * u8(4))
        if not x > 0.5 * FAR:
            x, y, z, at = x - center[0], y - center[1], z - center[2], s * u8(4)
            records[at] = target[0] + (matrix[0] * x + matrix[1] * y + matrix[2] * z)
            records[at + u8(1)] = target[1] + (matrix[4] * y + matrix[5] * z)
            records[at + u8(2)] = target[2] + matrix[8] * z


@kernel
def _stream(velocities, positions, slots, matrix, center, speed):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        x, y, z, _ = load_record(positions, s * u8(4))
        if not x > 0.5 * FAR:
            x, y, z, at = x - center[0], y - center[1], z - center[2], s * u8(4)
            velocities[at] += speed[0] + (matrix[0] * x + matrix[1] * y + matrix[2] * z)
            velocities[at + u8(1)] += speed[1] + (matrix[4] * y + matrix[5] * z)
            velocities[at + u8(2)] += speed[2] + matrix[8] * z


def straighten(positions: Any, slots: int, lower: Any, slopes: Any, out: Any) -> None:
    """See `reference.straighten`; the cell comes as NumPy arrays."""
    launch = _straighten[blocks(max(1, slots), THREADS), THREADS]
    launch(positions.reshape(-1), slots, _numbers(lower), _numbers(slopes), out.reshape(-1))


def wrap_cell(positions: Any, images: Any, slots: int, lower: Any, lengths: Any, tilt: Any, periodic: Any) -> int:
    """See `reference.wrap_cell`, but that it counts none; the cell comes as NumPy arrays."""
    cell = _numbers(lower), _numbers(lengths), _numbers(tilt), tuple(map(bool, periodic))
    _wrap_cell[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), images.reshape(-1), slots, *cell)
    return 0


def deform(records: Any, slots: int, matrix: Any, center: Any, target: Any) -> None:
    """See `reference.deform`; matrix, center and target come as NumPy arrays."""
    each = (_numbers(array) for array in (matrix, center, target))
    _deform[blocks(max(1, slots), THREADS), THREADS](records.reshape(-1), slots, *each)


def stream(velocities: Any, positions: Any, slots: int, matrix: Any, center: Any, speed: Any) -> None:
    """See `reference.stream`; matrix, center and speed come as NumPy arrays."""
    each = (_numbers(array) for array in (matrix, center, speed))
    launch = _stream[blocks(max(1, slots), THREADS), THREADS]
    launch(velocities.reshape(-1), positions.reshape(-1), slots, *each)


def _numbers(array: Any) -> tuple[float, ...]:
    return tuple(map(float, np.asarray(array).ravel()))
