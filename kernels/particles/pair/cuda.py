"""Pair forces on a GPU: one thread a particle over its full list, made for a potential, a precision and measuring.

Each thread adds up its own force, so there are no atomics, and a force has the same bits in every run. Records come by
one load of 16 bytes (float32) or two (float64); the list is read k by k, neighboring threads neighboring words. In
mixed precision distances and pair functions are float32 and sums float64.

A potential's functions are those of the CPU, compiled for the GPU, in mixed precision with float32 constants.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.graph.scalars import from_source
from hpckit.kernels.particles.cuda_records import (
    load_record,
    loader,
    put,
    put_tallies,
    single,
    type_of_double,
    type_of_single,
)
from hpckit.kernels.particles.pair import tabulated_cuda
from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Form, Potential, with_rows

THREADS = threads(128)
u8 = np.uint64


def stored_table(
    table: np.ndarray, form: Form, rows: np.ndarray | None = None, rows_at: int | None = None
) -> np.ndarray:
    """A table [types, types, parameters] as kernels read it: flat, a row of parameters for each pair of types.

    rows, rows_at: as of `potential.with_rows`.
    """
    return with_rows(lambda given: np.ascontiguousarray(given, form.dtype).ravel(), table, rows, rows_at)


@cache
def force_kernel(potential: Potential, form: Form) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, table, types, forces, tallies), all arrays flat.

    See `run`. Without `measure`, tallies are left alone.
    """
    force, energy_and_force = functions_of(potential, form)
    load_parameters = loader(potential.parameters)
    parameters = np.uint64(potential.parameters)
    row_of, parameters_of = lookup_of(potential, form)
    measure = form.measure

    @kernel
    def forces(records, slots, entries, stride, lengths, table, types, forces, tallies):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            x, y, z, w = load_record(records, i * u8(4))
            row = row_of(w, types) * parameters
            p = load_parameters(table, row)
            fx, fy, fz, energy = 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            at = i
            for _ in range(lengths[i]):
                other_x, other_y, other_z, other_w = load_record(records, u8(entries[at]) * u8(4))
                at += u8(stride)
                dx, dy, dz = x - other_x, y - other_y, z - other_z
                r2 = dx * dx + (dy * dy + dz * dz)
                p = parameters_of(p, table, row, other_w)
                if r2 < p[CUTOFF2]:
                    if measure:
                        e, f = energy_and_force(r2, p, table)
                        energy += np.float64(e - p[SHIFT])
                    else:
                        f = force(r2, p, table)
                    gx, gy, gz = np.float64(f * dx), np.float64(f * dy), np.float64(f * dz)
                    fx, fy, fz = fx + gx, fy + gy, fz + gz
                    if measure:
                        xx, yy, zz = xx + gx * dx, yy + gy * dy, zz + gz * dz
                        xy, xz, yz = xy + gx * dy, xz + gx * dz, yz + gy * dz
            put(forces, i, fx, fy, fz)
            if measure:
                put_tallies(tallies, i, energy, xx, yy, zz, xy, xz, yz)

    return forces


def functions_of(potential: Potential, form: Form) -> tuple[Any, Any]:
    """The potential's functions of (r2, p, table) in the kernel's precision."""
    own_force, own_both = potential.force, potential.energy_and_force
    if potential.rows_at is not None:
        own_force, own_both = tabulated_cuda.force, tabulated_cuda.energy_and_force
    elif potential.sources is not None:
        own_force, own_both = (inlined(from_source(text, chosen=_chosen)) for text in potential.sources)
    if form.kind == "f":
        own_force, own_both = single(own_force), single(own_both)
    if potential.rows_at is not None:
        return own_force, own_both

    @inlined
    def force(r2, p, table):
        return own_force(r2, p)

    @inlined
    def energy_and_force(r2, p, table):
        return own_both(r2, p)

    return force, energy_and_force


@inlined
def _chosen(mask, yes, no, like):
    return yes if mask else no


def lookup_of(potential: Potential, form: Form) -> tuple[Any, Any]:
    """The pieces that find the row of a particle's type in the table, and the parameters of a pair."""
    if form.types == 1:
        return _only_row, _same
    type_of = type_of_single if form.kind == "f" else type_of_double
    load_parameters = loader(potential.parameters)
    parameters = np.uint64(potential.parameters)

    @inlined
    def row_of(w, types):
        return u8(type_of(w)) * u8(types)

    @inlined
    def parameters_of(p, table, row, w):
        return load_parameters(table, row + u8(type_of(w)) * parameters)

    return row_of, parameters_of


@inlined
def _only_row(w, types):
    return u8(0)


@inlined
def _same(p, table, row, w):
    return p


@kernel
def _gather(records, slots, entries, stride, lengths, out):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(slots):
        sx, sy, sz = records[0] * 0, records[0] * 0, records[0] * 0
        at = i
        for _ in range(lengths[i]):
            x, y, z, _w = load_record(records, u8(entries[at]) * u8(4))
            at += u8(stride)
            sx, sy, sz = sx + x, sy + y, sz + z
        out[i * u8(4)], out[i * u8(4) + u8(1)], out[i * u8(4) + u8(2)] = sx, sy, sz


def run(
    made: Kernel,
    records: Any,
    slots: int,
    entries: Any,
    lengths: Any,
    table: Any,
    types: int,
    out: Any,
    tallies: Any,
) -> None:
    """Launch a kernel of `force_kernel`: into `out` forces float64 [slots, 4], and tallies float64 [slots, 8].

    records: [all slots, 4] of the kernel's precision; entries int32 [capacity, stride] and lengths as of
    `cells.cuda.build_list`; table: `stored_table` on the device. See `reference.forces_of_pairs`.
    """
    flat = out.reshape(-1), tallies.reshape(-1)
    launch = made[blocks(max(1, slots), THREADS), THREADS]
    launch(records.reshape(-1), slots, entries.reshape(-1), entries.shape[1], lengths, table, types, *flat)


def gather(records: Any, slots: int, entries: Any, lengths: Any, out: Any) -> None:
    """out[i] = the sum of the positions of the neighbors of i: what a force costs at least, for the benchmark."""
    launch = _gather[blocks(max(1, slots), THREADS), THREADS]
    launch(records.reshape(-1), slots, entries.reshape(-1), entries.shape[1], lengths, out.reshape(-1))
