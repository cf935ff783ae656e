"""The embedded-atom method, Numba: two loops over a full neighbor list, made for an instruction set and a precision.

The first loop finds the neighbors within the cutoff, about half of those in the list, puts them side by side, and sums
the density over these; the second takes only them. A neighbor costs one row of the table in the first loop, and two
(three of several types) of one cache line in the second.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import functions  # noqa: F401  (math.sqrt of vectors)
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, RECORD
from hpckit.kernels.particles.loops import AHEAD, REORDERED, pieces, sums, type_of_double, type_of_float
from hpckit.kernels.particles.many_body.eam.curves import rows_of_pair
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

look_up, held, truncated = vectors.look_up, simd.held, simd.truncated


@cache
def density_kernel(form: Form) -> Any:
    """The kernel densities(clusters, records, start, entries, pad, cutoff2, scale, points, pairs, embedding,
    density_scale, near, counts, slopes, energies).

    It writes F' and F of the slots of `clusters`, and their neighbors within the cutoff: near[start[i] : start[i] +
    counts[i]], padded to whole vectors with the entry `pad`.
    """
    n, number = form.lanes, np.float32 if form.kind == "f" else np.float64
    load, broadcast, load_lanes, keep, keep_lanes, ones, types, *more = pieces(form)
    zero_unless, minimum, prefetch, _, _ = more
    nothing, add, _, total = sums(form)
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
                row = broadcast(number(a * kinds_of_atoms * points * width + 1))
                density = nothing()
                for k in range(0, count, n):
                    r2 = load_lanes(distances, k)
                    t = held(math.sqrt(minimum(r2, limit)) * steps, last)
                    step = truncated(t)
                    u = t - step
                    c = look_up(pairs, (row + rows_from(kinds, k, number(width * points))) + width * step)
                    value = c[0] + u * (c[1] + u * (c[2] + u * c[3]))
                    density = add(density, zero_unless(r2 < limit, value), one)
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
    load, broadcast, _, _, _, _, types, *more = pieces(form)
    zero_unless, minimum, _, load_each, _ = more
    nothing, add, store, _ = sums(form)
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
    def bent_of_several(pairs, row, u, d, own, other):
        return own * slope_of(d, u) + other * slope_of(look_up(pairs, row + 2.0), u)

    @inlined(math=REORDERED)
    def bent_of_one(pairs, row, u, d, own, other):
        return (own + other) * slope_of(d, u)

    bent = bent_of_several if several else bent_of_one

    @inlined(math=REORDERED)
    def phi_and_force(pairs, row, u, steps, inverse, own, other):
        c, d = look_up(pairs, row), look_up(pairs, row + 1.0)
        phi = (c[0] + u * (c[1] + u * (c[2] + u * c[3]))) * inverse
        f = (phi * inverse - (slope_of(c, u) * inverse + bent(pairs, row, u, d, own, other)) * steps) * inverse
        return phi, f

    def forces(
        clusters, records, start, near, counts, cutoff2, scale, points, pairs, slopes, energies, forces, tallies
    ):
        limit, last, steps = broadcast(number(cutoff2)), broadcast(number(points - 1)), broadcast(number(scale))
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                slope = broadcast(number(slopes[i]))
                base = broadcast(number(own_type(records[own + 3]) * kinds_of_atoms * points * width))
                fx, fy, fz = nothing(), nothing(), nothing()
                for k in range(start[i], start[i] + counts[i], n):
                    other_x, other_y, other_z, w = load(records, near, k)
                    other = load_each(slopes, near, k)
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    within = r2 < limit
                    r = math.sqrt(minimum(r2, limit))
                    t = held(r * steps, last)
                    step = truncated(t)
                    row = (base + rows_from(w, number(width * points))) + width * step
                    _, f = phi_and_force(pairs, row, t - step, steps, 1.0 / r, slope, other)
                    f = zero_unless(within, f)
                    fx, fy, fz = add(fx, f, dx), add(fy, f, dy), add(fz, f, dz)
                store(forces, own, fx, fy, fz, nothing())

    def measure(
        clusters, records, start, near, counts, cutoff2, scale, points, pairs, slopes, energies, forces, tallies
    ):
        limit, last, steps = broadcast(number(cutoff2)), broadcast(number(points - 1)), broadcast(number(scale))
        one = broadcast(number(1.0))
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                slope = broadcast(number(slopes[i]))
                base = broadcast(number(own_type(records[own + 3]) * kinds_of_atoms * points * width))
                fx, fy, fz, energy = nothing(), nothing(), nothing(), nothing()
                xx, yy, zz = nothing(), nothing(), nothing()
                xy, xz, yz = nothing(), nothing(), nothing()
                for k in range(start[i], start[i] + counts[i], n):
                    other_x, other_y, other_z, w = load(records, near, k)
                    other = load_each(slopes, near, k)
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    within = r2 < limit
                    r = math.sqrt(minimum(r2, limit))
                    t = held(r * steps, last)
                    step = truncated(t)
                    row = (base + rows_from(w, number(width * points))) + width * step
                    phi, f = phi_and_force(pairs, row, t - step, steps, 1.0 / r, slope, other)
                    energy, f = add(energy, zero_unless(within, phi), one), zero_unless(within, f)
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
