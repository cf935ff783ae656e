"""The embedded-atom method on a GPU: one thread a particle over its full list, for densities and again for forces.

As in the pair forces there are no atomics, and a force has the same bits in every run. Rows of the table come by one
load of 16 bytes (float32) or two (float64).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.cuda_records import load_record, put, put_tallies, type_of_double, type_of_single
from hpckit.kernels.particles.many_body.eam.curves import EamTables, rows_of_pair
from hpckit.kernels.particles.pair.potential import Form

THREADS = threads(128)
u8, i8 = np.uint64, np.int64


@inlined
def _value(c0, c1, c2, c3, u):
    return c0 + u * (c1 + u * (c2 + u * c3))


@inlined
def _slope(c1, c2, c3, u):
    return c1 + u * (c2 + c2 + u * (c3 + c3 + c3))


@cache
def density_kernel(form: Form) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, cutoff2, scale, points, pairs, embedding, steps,
    density_scale, slopes, energies), all arrays flat; see `run_densities`.
    """
    type_of = type_of_single if form.kind == "f" else type_of_double
    number = np.float32 if form.kind == "f" else np.float64
    types, width = form.types, rows_of_pair(form.types)

    @kernel
    def densities(
        records, slots, entries, stride, lengths, cutoff2, scale, points, pairs, embedding, steps, density_scale,
        slopes, energies,
    ):  # fmt: skip
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            x, y, z, w = load_record(records, i * u8(4))
            a = i8(type_of(w))
            density = 0.0
            at = i
            for _ in range(lengths[i]):
                other_x, other_y, other_z, other_w = load_record(records, u8(entries[at]) * u8(4))
                at += u8(stride)
                dx, dy, dz = x - other_x, y - other_y, z - other_z
                r2 = dx * dx + (dy * dy + dz * dz)
                if r2 < number(cutoff2):
                    t = min(math.sqrt(r2) * number(scale), number(points - 1))
                    k = i8(t)
                    row = ((a * types + i8(type_of(other_w))) * i8(points) + k) * width + 1
                    c0, c1, c2, c3 = load_record(pairs, u8(row) * u8(4))
                    density += np.float64(_value(c0, c1, c2, c3, t - number(k)))
            t = density * density_scale
            k = min(max(i8(t), i8(0)), i8(steps) - i8(2))
            u = min(t - k, 1.0)
            c0, c1, c2, c3 = load_record(embedding, u8(a * i8(steps) + k) * u8(4))
            slope = _slope(c1, c2, c3, u) * density_scale
            filled = np.float64(1.0) if x < number(0.5 * FAR) else np.float64(0.0)
            slopes[i] = filled * slope
            beyond = max(density - (steps - 1) / density_scale, 0.0)
            energies[i] = filled * (_value(c0, c1, c2, c3, u) + slope * beyond)

    return densities


@cache
def force_kernel(form: Form) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, cutoff2, scale, points, pairs, slopes, energies, forces,
    tallies), all arrays flat; see `run_forces`. Without `measure`, tallies are left alone.
    """
    type_of = type_of_single if form.kind == "f" else type_of_double
    number = np.float32 if form.kind == "f" else np.float64
    types, width, third = form.types, rows_of_pair(form.types), 2 if form.types > 1 else 1
    measure = form.measure

    @inlined
    def pair_of(pairs, row, r, u, scale, own, other):
        """The pair energy, and -dE/dr / r."""
        c0, c1, c2, c3 = load_record(pairs, u8(row) * u8(4))
        _, d1, d2, d3 = load_record(pairs, u8(row + 1) * u8(4))
        _, e1, e2, e3 = load_record(pairs, u8(row + third) * u8(4))
        phi = _value(c0, c1, c2, c3, u) / r
        bent = own * _slope(d1, d2, d3, u) + other * _slope(e1, e2, e3, u)
        return phi, (phi / r - (_slope(c1, c2, c3, u) / r + bent) * scale) / r

    @kernel
    def forces(
        records, slots, entries, stride, lengths, cutoff2, scale, points, pairs, slopes, energies, forces, tallies
    ):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            x, y, z, w = load_record(records, i * u8(4))
            a, own = i8(type_of(w)), number(slopes[i])
            fx, fy, fz, energy = 0.0, 0.0, 0.0, 2.0 * energies[i]
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            at = i
            for _ in range(lengths[i]):
                j = u8(entries[at])
                other_x, other_y, other_z, other_w = load_record(records, j * u8(4))
                at += u8(stride)
                dx, dy, dz = x - other_x, y - other_y, z - other_z
                r2 = dx * dx + (dy * dy + dz * dz)
                if r2 < number(cutoff2):
                    r = math.sqrt(r2)
                    t = min(r * number(scale), number(points - 1))
                    k = i8(t)
                    row = ((a * types + i8(type_of(other_w))) * i8(points) + k) * width
                    phi, f = pair_of(pairs, row, r, t - number(k), number(scale), own, number(slopes[j]))
                    gx, gy, gz = np.float64(f * dx), np.float64(f * dy), np.float64(f * dz)
                    fx, fy, fz = fx + gx, fy + gy, fz + gz
                    if measure:
                        energy += np.float64(phi)
                        xx, yy, zz = xx + gx * dx, yy + gy * dy, zz + gz * dz
                        xy, xz, yz = xy + gx * dy, xz + gx * dz, yz + gy * dz
            put(forces, i, fx, fy, fz)
            if measure:
                put_tallies(tallies, i, energy, xx, yy, zz, xy, xz, yz)

    return forces


def run_densities(
    made: Kernel, records: Any, slots: int, lists: Lists, given: EamTables, slopes: Any, energies: Any
) -> None:
    """Launch a kernel of `density_kernel`: F' and F of the first `slots` slots, float64."""
    table = given.cutoff2, given.scale, given.points, given.pairs, given.embedding.reshape(-1)
    steps = given.embedding.shape[1], given.density_scale
    launch = made[blocks(max(1, slots), THREADS), THREADS]
    entries = lists.entries.reshape(-1), lists.entries.shape[1]
    launch(records.reshape(-1), slots, *entries, lists.bounds, *table, *steps, slopes, energies)


def run_forces(
    made: Kernel,
    records: Any,
    slots: int,
    lists: Lists,
    given: EamTables,
    slopes: Any,
    energies: Any,
    out: Any,
    tallies: Any,
) -> None:
    """Launch a kernel of `force_kernel`: into `out` forces float64 [slots, 4], and tallies float64 [slots, 8]."""
    table = given.cutoff2, given.scale, given.points, given.pairs
    launch = made[blocks(max(1, slots), THREADS), THREADS]
    entries = lists.entries.reshape(-1), lists.entries.shape[1]
    flat = slopes, energies, out.reshape(-1), tallies.reshape(-1)
    launch(records.reshape(-1), slots, *entries, lists.bounds, *table, *flat)
