"""Pair forces, Numba: the loop over a full neighbor list, made for a potential, an instruction set and a precision.

Each particle gathers its neighbors, n at a time, and adds up its own force: pairs are looked at from both sides, which
costs arithmetic and saves every conflict, every reverse message and the scatter of forces. The list is asked for
2048 entries ahead (8 KiB): at 256 000 particles it is streamed from memory, and asking early is worth 1.6x.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.loops import (
    AHEAD,
    REORDERED,
    itself,
    load_one,
    no_prefetch,
    smaller,
    sums,
    type_of_double,
    type_of_float,
    zero_unless_number,
)
from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Form, Potential, with_rows
from hpckit.kernels.particles.pair.reference import TALLY


def stored_table(
    table: np.ndarray, form: Form, rows: np.ndarray | None = None, rows_at: int | None = None
) -> np.ndarray:
    """A table [types, types, parameters] as kernels of this form read it: [types, parameters, stored types], flat.

    rows, rows_at: as of `potential.with_rows`.
    """
    types = len(table)
    columns = np.arange(form.stored_types) % (form.near_types if types <= form.near_types else form.stored_types)

    def store(given: np.ndarray) -> np.ndarray:
        stored = given.transpose(0, 2, 1)[:, :, np.minimum(columns, types - 1)]
        return np.ascontiguousarray(stored, np.float32 if form.kind == "f" else np.float64).ravel()

    return with_rows(store, table, rows, rows_at)


@cache
def force_kernel(potential: Potential, form: Form) -> Any:
    """The kernel forces(clusters, records, start, ends, entries, table, forces, tallies), where slot s has the entries
    start[s] to ends[s] - 1; see `reference.forces_of_pairs`.

    records, table, forces and tallies are flat; records and table are float32 where form.kind is "f".
    """
    n, number = form.lanes, np.float32 if form.kind == "f" else np.float64
    load, row_of, parameters_of, broadcast, zero_unless, minimum, prefetch = lookup_pieces(potential, form)
    nothing, add, store, _ = sums(form)
    force, energy_and_force = _functions(potential)

    @inlined(math=REORDERED)
    def bounded(r2, cutoff2):
        return minimum(r2, cutoff2)

    @inlined
    def unbounded(r2, cutoff2):
        return r2

    @inlined
    def own_limit(p, common):
        return p[CUTOFF2]

    @inlined
    def common_limit(p, common):
        return common

    @inlined
    def first_of(clusters):
        return RECORD * CLUSTER * clusters[0] if len(clusters) > 0 else 0

    limit_of = common_limit if form.one_cutoff else own_limit
    held = bounded if potential.clamp else unbounded

    def forces(clusters, records, start, ends, entries, table, forces, tallies):
        common = broadcast(table[CUTOFF2])
        # Sums over lanes are a long chain: those of a particle are taken when the neighbors of the next are under way.
        before, bx, by, bz = first_of(clusters), nothing(), nothing(), nothing()
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                row = row_of(table, records, own)
                fx, fy, fz = nothing(), nothing(), nothing()
                for k in range(start[i], ends[i], n):
                    prefetch(entries, k + AHEAD)
                    other_x, other_y, other_z, w = load(records, entries, k)
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    p = parameters_of(table, row, w)
                    limit = limit_of(p, common)
                    f = zero_unless(r2 < limit, force(held(r2, limit), p, table))
                    fx, fy, fz = add(fx, f, dx), add(fy, f, dy), add(fz, f, dz)
                store(forces, before, bx, by, bz, nothing())
                before, bx, by, bz = own, fx, fy, fz
        if len(clusters) > 0:
            store(forces, before, bx, by, bz, nothing())

    def measure(clusters, records, start, ends, entries, table, forces, tallies):
        common = broadcast(table[CUTOFF2])
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                row = row_of(table, records, own)
                fx, fy, fz, energy = nothing(), nothing(), nothing(), nothing()
                xx, yy, zz = nothing(), nothing(), nothing()
                xy, xz, yz = nothing(), nothing(), nothing()
                one = broadcast(number(1.0))
                for k in range(start[i], ends[i], n):
                    other_x, other_y, other_z, w = load(records, entries, k)
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    p = parameters_of(table, row, w)
                    limit = limit_of(p, common)
                    e, f = energy_and_force(held(r2, limit), p, table)
                    within = r2 < limit
                    energy = add(energy, zero_unless(within, e - p[SHIFT]), one)
                    f = zero_unless(within, f)
                    fx, fy, fz = add(fx, f, dx), add(fy, f, dy), add(fz, f, dz)
                    xx, yy, zz = add(xx, f * dx, dx), add(yy, f * dy, dy), add(zz, f * dz, dz)
                    xy, xz, yz = add(xy, f * dx, dy), add(xz, f * dx, dz), add(yz, f * dy, dz)
                store(forces, own, fx, fy, fz, nothing())
                store(tallies, TALLY * i, energy, xx, yy, zz)
                store(tallies, TALLY * i + 4, xy, xz, yz, nothing())

    key = None if None in potential.key else ("forces", potential.key, form)
    return jit(measure if form.measure else forces, key=key, math=REORDERED)


def _functions(potential: Potential) -> tuple:
    """The potential's functions of (r2, p, table), whether they look at the table or not."""
    if potential.rows_at is not None:
        return potential.force, potential.energy_and_force
    own_force, own_both = potential.force, potential.energy_and_force

    @inlined(math=REORDERED)
    def force(r2, p, table):
        return own_force(r2, p)

    @inlined(math=REORDERED)
    def energy_and_force(r2, p, table):
        return own_both(r2, p)

    return force, energy_and_force


def lookup_pieces(potential: Potential, form: Form) -> tuple:
    """What the loop is made of: loading neighbors, finding parameters, and what differs between vectors and numbers."""
    count, stored = potential.parameters, form.stored_types
    row_size = count * stored
    own_type = type_of_float if form.kind == "f" else type_of_double
    numbers = intrinsics.numbers(count)

    @inlined
    def first_row(table, records, own):
        return numbers(table, 0)

    @inlined
    def same(table, row, w):
        return row

    @inlined
    def place_of_row(table, records, own):
        return row_size * own_type(records[own + 3])

    if form.isa == "scalar":
        gather_row = _scalar_row(count, stored, own_type)
        parameters = (first_row, same) if form.types == 1 else (place_of_row, gather_row)
        return load_one, *parameters, itself, zero_unless_number, smaller, no_prefetch
    lanes = vectors.lanes(form.kind, form.lanes)
    common = lanes.broadcast, intrinsics.zero_unless, intrinsics.minimum, intrinsics.prefetch
    if form.types == 1:
        load_records = lanes.load_records

        @inlined
        def load_without_type(records, entries, k):
            x, y, z = load_records(records, entries, k)
            return x, y, z, z

        return load_without_type, first_row, same, *common
    if form.types > form.lanes:
        return lanes.load_records_w, place_of_row, lanes.gather_row(count, stored), *common
    load_row = lanes.load_row(count)
    lookup_row = lanes.lookup_row_near(count) if form.types <= form.near_types else lanes.lookup_row(count)

    @inlined
    def load_own_row(table, records, own):
        return load_row(table, row_size * own_type(records[own + 3]))

    @inlined
    def look_up(table, row, w):
        return lookup_row(row, w)

    return lanes.load_records_w, load_own_row, look_up, *common


def _scalar_row(count: int, stored: int, own_type: Any) -> Any:
    numbers = intrinsics.numbers(count, stored)

    @inlined
    def row(table, first, w):
        return numbers(table, first + own_type(w))

    return row
