"""The waves of an Ewald sum on a GPU: a block a wave sums over all particles, and a thread a particle over all waves.
What the functions compute is said in `reference`.

The terms of `structure` are multiples of one number, whose sums are exact: blocks may add in any order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.folds import fold_sum, folders
from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.device_array import empty
from hpckit.kernels.particles.cuda_records import add_force, load_record

THREADS = threads(128)
FOLD = folders(128)
u8 = np.uint64


@kernel
def _powers(positions, slots, x_unit, y_unit, z_unit, x_most, y_most, z_most, width, cosines, sines):
    """cosines[(d width + n) slots + s] = cos(n unit x) of dim d for n from 0 to most, and the sines."""
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        x, y, z, _ = load_record(positions, s * u8(4))
        for d in range(3):
            angle = x_unit * x if d == 0 else y_unit * y if d == 1 else z_unit * z
            most = x_most if d == 0 else y_most if d == 1 else z_most
            c, r = math.cos(angle), math.sin(angle)
            a, b, at = 1.0, 0.0, u8(d * width) * u8(slots) + s
            for _ in range(most + 1):
                cosines[at], sines[at] = a, b
                a, b = a * c - b * r, a * r + b * c
                at += u8(slots)


@kernel
def _structure(charges, slots, rows, width, cosines, sines, big, real, imaginary):
    """Block (r, j): wave j of row r; a thread has each FOLD-th particle."""
    row, j, lane = u8(5) * u8(cuda.blockIdx.x), int(cuda.blockIdx.y), u8(cuda.threadIdx.x)
    parts = cuda.shared.array(FOLD, np.float64)
    if j < rows[row + u8(3)]:
        n_x, n_y, n_z = rows[row], rows[row + u8(1)], rows[row + u8(2)] + j
        x_at = u8(abs(n_x)) * u8(slots)
        y_at = u8(width + abs(n_y)) * u8(slots)
        z_at = u8(2 * width + abs(n_z)) * u8(slots)
        x_turn, y_turn = -1.0 if n_x < 0 else 1.0, -1.0 if n_y < 0 else 1.0
        z_turn = -1.0 if n_z < 0 else 1.0
        along, across, s = 0.0, 0.0, lane
        while s < u8(slots):
            a, b = cosines[x_at + s], x_turn * sines[x_at + s]
            c, d = cosines[y_at + s], y_turn * sines[y_at + s]
            u, v = a * c - b * d, b * c + a * d
            c, d = cosines[z_at + s], z_turn * sines[z_at + s]
            along += (charges[s] * (u * c - v * d) + big) - big
            across += (charges[s] * (u * d + v * c) + big) - big
            s += u8(FOLD)
        k = rows[row + u8(4)] + j
        parts[lane] = along
        whole = fold_sum(parts, lane)
        if lane == u8(0):
            real[k] = whole
        parts[lane] = across
        whole = fold_sum(parts, lane)
        if lane == u8(0):
            imaginary[k] = whole


@kernel
def _forces(
    charges, slots, rows, count_of_rows, x_unit, y_unit, z_unit, width, cosines, sines, real, imaginary, weights, forces
):  # fmt: skip
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots) and charges[s] != 0.0:
        fx, fy, fz = 0.0, 0.0, 0.0
        for r in range(count_of_rows):
            row = u8(5) * u8(r)
            n_x, n_y = rows[row], rows[row + u8(1)]
            x_at = u8(abs(n_x)) * u8(slots) + s
            y_at = u8(width + abs(n_y)) * u8(slots) + s
            a, b = cosines[x_at], sines[x_at] * (-1.0 if n_x < 0 else 1.0)
            c, d = cosines[y_at], sines[y_at] * (-1.0 if n_y < 0 else 1.0)
            u, v = a * c - b * d, b * c + a * d
            total, moment = 0.0, 0.0
            for j in range(rows[row + u8(3)]):
                n_z, k = rows[row + u8(2)] + j, rows[row + u8(4)] + j
                z_at = u8(2 * width + abs(n_z)) * u8(slots) + s
                c, d = cosines[z_at], sines[z_at] * (-1.0 if n_z < 0 else 1.0)
                each = weights[k] * (real[k] * (u * d + v * c) - imaginary[k] * (u * c - v * d))
                total += each
                moment += each * float(n_z)
            fx += float(n_x) * total
            fy += float(n_y) * total
            fz += moment
        factor = 2.0 * charges[s]
        add_force(forces, s, factor * x_unit * fx, factor * y_unit * fy, factor * z_unit * fz)


def _tables(positions: Any, slots: int, unit: Any, most: Any) -> tuple[int, Any, Any]:
    """The powers of exp(i unit x) of all particles: how many each dim has, cosines and sines."""
    width = int(max(most)) + 1
    cosines, sines = (empty(3 * width * max(slots, 1), positions, np.float64) for _ in range(2))
    given = *map(float, unit), *map(int, most), width, cosines, sines
    _powers[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), slots, *given)
    return width, cosines, sines


def structure(
    positions: Any, charges: Any, slots: int, rows: Any, unit: Any, most: Any, big: float, real: Any, imaginary: Any
) -> None:
    """See `reference.structure`; rows on the GPU, unit and most as NumPy arrays."""
    if len(rows):
        launch = _structure[(len(rows), 2 * int(most[2]) + 1), FOLD]
        launch(charges, slots, rows.reshape(-1), *_tables(positions, slots, unit, most), big, real, imaginary)


def wave_forces(
    positions: Any,
    charges: Any,
    slots: int,
    rows: Any,
    unit: Any,
    most: Any,
    real: Any,
    imaginary: Any,
    weights: Any,
    forces: Any,
) -> None:
    """See `reference.wave_forces`; rows on the GPU, unit and most as NumPy arrays."""
    width, cosines, sines = _tables(positions, slots, unit, most)
    given = width, cosines, sines, real, imaginary, weights, forces.reshape(-1)
    launch = _forces[blocks(max(1, slots), THREADS), THREADS]
    launch(charges, slots, rows.reshape(-1), len(rows), *map(float, unit), *given)
