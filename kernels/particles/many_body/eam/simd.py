"""The embedded-atom method, Numba: two loops over a full neighbor list, made for an instruction set and a precision.

The first loop finds the neighbors within the cutoff, about half of those in the list, puts them side by side, and sums
the density over these; the second takes only them. A neighbor costs one row of the table in the first loop, and two
(three of several types) of one cache line in the second.

For each particle a loop over distances, which writes the numbers of rows, goes before one over rows: from a position to
what its pair adds, one instruction waits for another more than a hundred cycles, in which a processor can look no more
than two vectors ahead.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import (
    functions,  # noqa: F401  (math.sqrt of vectors)
    intrinsics,
)
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, RECORD
from hpckit.kernels.particles.loops import AHEAD, REORDERED, pieces, put_number, sums, type_of_double, type_of_float
from hpckit.kernels.particles.many_body.eam.curves import rows_of_pair
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

held, truncated, store_whole = intrinsics.held, intrinsics.truncated, intrinsics.store_whole
ROW = 4  # numbers
PARTS = 6  # of what a pair is known by: the difference of places, 1 / r, where it is between two rows, the other's F'


@cache
def density_kernel(form: Form) -> Any:
    """The kernel densities(clusters, records, start, entries, pad, cutoff2, scale, points, pairs, embedding,
    density_scale, near, counts, slopes, energies).

    It writes F' and F of the slots of `clusters`, and their neighbors within the cutoff: near[start[i] : start[i] +
    counts[i]], padded to whole vectors with the entry `pad`.
    """
    n, number = form.lanes, np.float32 if form.kind == "f" else np.float64
    load, broadcast, load_lanes, keep, keep_lanes, ones, types, *more = pieces(form)
    zero_unless, minimum, prefetch, _, load_four = more
    nothing, add, _, total = sums(form)
    put = put_number if form.isa == "scalar" else intrinsics.store
    own_type = type_of_float if form.kind == "f" else type_of_double
    width, several, kinds_of_atoms = rows_of_pair(form.types), form.types > 1, form.types

    @inlined
    def note_types(kinds, m, w, within):
        keep_lanes(kinds, m, types(w), within)

    @inlined
    def note_nothing(kinds, m, w, within):
        pass

    @inlined(math=REORDERED)
    def first_rows(kinds, k, rows):
        return load_lanes(kinds, k) * rows

    @inlined
    def same_rows(kinds, k, rows):
        return broadcast(number(0.0))

    note, rows_from = (note_types, first_rows) if several else (note_nothing, same_rows)

    def densities(
        clusters, records, start, entries, pad, cutoff2, scale, points, pairs, embedding, density_scale, near, counts,
        slopes, energies,
    ):  # fmt: skip
        longest = 0
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                longest = max(longest, start[i + 1] - start[i])
        distances, kinds = np.empty(longest + n, number), np.zeros(longest + n, number)
        between, rows = np.empty(longest + n, number), np.empty(longest + n, np.int32)
        limit, last, steps = broadcast(number(cutoff2)), broadcast(number(points - 1)), broadcast(number(scale))
        one = broadcast(number(1.0))
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                first, count = start[i], 0
                for k in range(first, start[i + 1], n):
                    prefetch(entries, k + AHEAD)
                    other_x, other_y, other_z, w = load(records, entries, k)
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    within = r2 < limit
                    keep(near, first + count, entries, k, within)
                    keep_lanes(distances, count, r2, within)
                    note(kinds, count, w, within)
                    count += ones(within)
                for lane in range(n):
                    distances[count + lane], kinds[count + lane] = number(2.0 * cutoff2), number(0.0)
                while count % n:
                    near[first + count] = pad
                    count += 1
                counts[i] = count
                a = own_type(records[own + 3])
                row = broadcast(number(ROW * (a * kinds_of_atoms * points * width + 1)))
                for k in range(0, count, n):
                    t = held(math.sqrt(minimum(load_lanes(distances, k), limit)) * steps, last)
                    step = truncated(t)
                    put(between, k, t - step)
                    first_row = row + rows_from(kinds, k, number(ROW * width * points))
                    store_whole(rows, k, first_row + number(ROW * width) * step)
                density = nothing()
                for k in range(0, count, n):
                    c, u = load_four(pairs, rows, k), load_lanes(between, k)
                    value = c[0] + u * (c[1] + u * (c[2] + u * c[3]))
                    density = add(density, zero_unless(load_lanes(distances, k) < limit, value), one)
                if records[own] > 0.5 * FAR:
                    slopes[i], energies[i] = 0.0, 0.0
                else:
                    slopes[i], energies[i] = _embed(total(density), a, embedding, density_scale)

    return jit(densities, key=("densities", form), math=REORDERED)


@cache
def force_kernel(form: Form) -> Any:
    """The kernel forces(clusters, records, start, near, counts, cutoff2, scale, points, pairs, slopes, energies,
    forces, tallies); see `reference.forces_of_pairs`. `near` and `counts` are of the density kernel.
    """
    n, number = form.lanes, np.float32 if form.kind == "f" else np.float64
    load, broadcast, load_lanes, _, _, _, types, *more = pieces(form)
    zero_unless, minimum, _, load_each, load_four = more
    nothing, add, store, _ = sums(form)
    put = put_number if form.isa == "scalar" else intrinsics.store
    own_type = type_of_float if form.kind == "f" else type_of_double
    width, several, kinds_of_atoms = rows_of_pair(form.types), form.types > 1, form.types

    @inlined(math=REORDERED)
    def first_rows(w, rows):
        return types(w) * rows

    @inlined
    def same_rows(w, rows):
        return broadcast(number(0.0))

    rows_from = first_rows if several else same_rows

    @inlined(math=REORDERED)
    def slope_of(c, u):
        return c[1] + u * (2.0 * c[2] + u * (3.0 * c[3]))

    @inlined(math=REORDERED)
    def bent_of_several(swapped, rows, k, u, d, own, other):
        return own * slope_of(d, u) + other * slope_of(load_four(swapped, rows, k), u)

    @inlined(math=REORDERED)
    def bent_of_one(swapped, rows, k, u, d, own, other):
        return (own + other) * slope_of(d, u)

    bent = bent_of_several if several else bent_of_one

    @inlined(math=REORDERED)
    def find_rows(own, records, near, first, count, table, slopes, known, rows):
        """Write what each pair is known by, and the number of its row; beyond the cutoff 1 / r is 0."""
        limit, last, steps, of_type = table
        x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
        row = broadcast(number(own_type(records[own + 3]) * kinds_of_atoms) * of_type)
        for k in range(0, count, n):
            other_x, other_y, other_z, w = load(records, near, first + k)
            dx, dy, dz = x - other_x, y - other_y, z - other_z
            r2 = dx * dx + (dy * dy + dz * dz)
            r = math.sqrt(minimum(r2, limit))
            t = held(r * steps, last)
            step, to = truncated(t), PARTS * k
            put(known, to, dx)
            put(known, to + n, dy)
            put(known, to + 2 * n, dz)
            put(known, to + 3 * n, zero_unless(r2 < limit, 1.0 / r))
            put(known, to + 4 * n, t - step)
            put(known, to + 5 * n, load_each(slopes, near, first + k))
            store_whole(rows, k, (row + rows_from(w, of_type)) + number(ROW * width) * step)

    @inlined(math=REORDERED)
    def phi_and_force(tables, known, rows, k, steps, own):
        """Of a vector of pairs, the pair energy and -dE/dr / r."""
        at = PARTS * k + 3 * n
        inverse, u, other = load_lanes(known, at), load_lanes(known, at + n), load_lanes(known, at + 2 * n)
        c, d = load_four(tables[0], rows, k), load_four(tables[1], rows, k)
        phi = (c[0] + u * (c[1] + u * (c[2] + u * c[3]))) * inverse
        bend = bent(tables[2], rows, k, u, d, own, other)
        return phi, (phi * inverse - (slope_of(c, u) * inverse + bend) * steps) * inverse

    @inlined
    def room(clusters, counts):
        """Arrays for what the pairs of any particle are known by, and for their rows."""
        most = 0
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                most = max(most, counts[i])
        return np.empty(PARTS * most, number), np.empty(most, np.int32)

    def forces(
        clusters, records, start, near, counts, cutoff2, scale, points, pairs, slopes, energies, forces, tallies
    ):
        limit, last, steps = broadcast(number(cutoff2)), broadcast(number(points - 1)), broadcast(number(scale))
        table, tables = (limit, last, steps, number(ROW * width * points)), (pairs, pairs[ROW:], pairs[2 * ROW :])
        known, rows = room(clusters, counts)
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own, slope = RECORD * i, broadcast(number(slopes[i]))
                find_rows(own, records, near, start[i], counts[i], table, slopes, known, rows)
                fx, fy, fz = nothing(), nothing(), nothing()
                for k in range(0, counts[i], n):
                    _, f = phi_and_force(tables, known, rows, k, steps, slope)
                    at = PARTS * k
                    dx, dy, dz = load_lanes(known, at), load_lanes(known, at + n), load_lanes(known, at + 2 * n)
                    fx, fy, fz = add(fx, f, dx), add(fy, f, dy), add(fz, f, dz)
                store(forces, own, fx, fy, fz, nothing())

    def measure(
        clusters, records, start, near, counts, cutoff2, scale, points, pairs, slopes, energies, forces, tallies
    ):
        limit, last, steps = broadcast(number(cutoff2)), broadcast(number(points - 1)), broadcast(number(scale))
        table, tables = (limit, last, steps, number(ROW * width * points)), (pairs, pairs[ROW:], pairs[2 * ROW :])
        known, rows = room(clusters, counts)
        one = broadcast(number(1.0))
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own, slope = RECORD * i, broadcast(number(slopes[i]))
                find_rows(own, records, near, start[i], counts[i], table, slopes, known, rows)
                fx, fy, fz, energy = nothing(), nothing(), nothing(), nothing()
                xx, yy, zz = nothing(), nothing(), nothing()
                xy, xz, yz = nothing(), nothing(), nothing()
                for k in range(0, counts[i], n):
                    phi, f = phi_and_force(tables, known, rows, k, steps, slope)
                    at = PARTS * k
                    dx, dy, dz = load_lanes(known, at), load_lanes(known, at + n), load_lanes(known, at + 2 * n)
                    energy = add(energy, phi, one)
                    fx, fy, fz = add(fx, f, dx), add(fy, f, dy), add(fz, f, dz)
                    xx, yy, zz = add(xx, f * dx, dx), add(yy, f * dy, dy), add(zz, f * dz, dz)
                    xy, xz, yz = add(xy, f * dx, dy), add(xz, f * dx, dz), add(yz, f * dy, dz)
                store(forces, own, fx, fy, fz, nothing())
                store(tallies, TALLY * i, energy, xx, yy, zz)
                store(tallies, TALLY * i + 4, xy, xz, yz, nothing())
                tallies[TALLY * i] += 2.0 * energies[i]

    return jit(measure if form.measure else forces, key=("embedded forces", form), math=REORDERED)


@inlined
def _embed(density, a, embedding, density_scale):
    """F' and F; see `reference.embed`."""
    last = embedding.shape[1] - 1
    t = density * density_scale
    k = min(max(int(t), 0), last - 1)
    u = min(t - k, 1.0)
    c0, c1, c2, c3 = embedding[a, k, 0], embedding[a, k, 1], embedding[a, k, 2], embedding[a, k, 3]
    slope = (c1 + u * (2.0 * c2 + u * (3.0 * c3))) * density_scale
    return slope, c0 + u * (c1 + u * (c2 + u * c3)) + slope * max(density - last / density_scale, 0.0)
