"""Contacts of spheres, Numba: two loops over a full neighbor list, for an instruction set and a law.

The first loop puts the pairs near enough to touch side by side, those of a cluster in one piece, and takes along what
each contact remembers: most last for many steps, and then nothing moves. The second takes these pairs only: a particle
has few, which would not fill a vector.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hpckit.kernels.compile import functions  # noqa: F401  (math.sqrt of vectors)
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.loops import AHEAD, COARSE, FINE, REORDERED, pieces, put_number, rounded_number
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

SUMS = 13  # of a slot: force, torque, energy, virial
WORK = SUMS * (8 + 2 * CLUSTER)  # those of a vector of pairs, and two parts of those of a cluster
LEAST = 1e-300  # what is added under a root whose value divides


@inlined
def _select_number(mask, yes, no):
    """`vectors.select` of numbers."""
    return yes if mask else no


@cache
def near_kernel(form: Form) -> Any:
    """The kernel near(clusters, records, start, entries, pad, most, moving, owners, others, counts, x, y, z, spare,
    sparse).

    It writes the pairs of the slots of `clusters` with neighbors within `most`, those of a cluster side by side: from
    start[8 c] on counts[c] of owners and others, padded to whole vectors with the entry `pad`; none of those that do
    not move (moving[RECORD i + 3] is 0). x, y, z, what a contact remembers, stay with their pairs; they are 0 for new
    ones. spare int32 [2 n] and sparse float64 [3 n] have room for the longest lists of a cluster.
    """
    n = form.lanes
    load, broadcast, _, keep, _, ones, _, _, _, prefetch, *_ = pieces(form)

    def near(clusters, records, start, entries, pad, most, moving, owners, others, counts, x, y, z, spare, sparse):
        limit = broadcast(most * most)
        half, third = len(spare) // 2, len(sparse) // 3
        for cluster in clusters:
            begin, count = start[CLUSTER * cluster], 0
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                if moving[own + 3] == 0.0:
                    continue
                xi, yi, zi = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                for k in range(start[i], start[i + 1], n):
                    prefetch(entries, k + AHEAD)
                    other_x, other_y, other_z, _ = load(records, entries, k)
                    dx, dy, dz = xi - other_x, yi - other_y, zi - other_z
                    within = dx * dx + (dy * dy + dz * dz) < limit
                    keep(spare, count, entries, k, within)
                    for m in range(n):
                        spare[half + count + m] = own
                    count += ones(within)
            same = count == counts[cluster]
            if same:
                for m in range(count):
                    if others[begin + m] != spare[m] or owners[begin + m] != spare[half + m]:
                        same = False
                        break
            if same:
                continue
            for m in range(count):
                sparse[m], sparse[third + m], sparse[2 * third + m] = 0.0, 0.0, 0.0
                for k in range(begin, begin + counts[cluster]):
                    if others[k] == spare[m] and owners[k] == spare[half + m]:
                        sparse[m], sparse[third + m], sparse[2 * third + m] = x[k], y[k], z[k]
                        break
            for m in range(count):
                k = begin + m
                owners[k], others[k] = spare[half + m], spare[m]
                x[k], y[k], z[k] = sparse[m], sparse[third + m], sparse[2 * third + m]
            counts[cluster] = count
            for k in range(begin + count, begin + count + (-count) % n):
                owners[k], others[k] = pad, pad

    return jit(near, key=("near", form), math=REORDERED)


@cache
def contact_kernel(form: Form, law: str, memory: bool) -> Any:
    """The kernel contacts(clusters, records, start, owners, others, counts, given, dt, velocities, spins, x, y, z,
    forces, torques, tallies, work); see `reference.contacts_of_pairs`. The pairs are those of the near kernel; given:
    `Contact`; work: float64 [`WORK`]. Without `measure`, tallies are left alone; with dt = 0, x, y, z.
    """
    n, measure, hertz = form.lanes, form.measure, law == "hertz"
    share = 0.4 if hertz else 0.5
    _, broadcast, load_lanes, _, _, _, _, zero_unless, minimum, _, _, load_four = pieces(form)
    exact, used = form.exact, SUMS if measure else 6
    scalar = form.isa == "scalar"
    select, put = (_select_number, put_number) if scalar else (simd.select, simd.store)

    @inlined(math=REORDERED)
    def slide(given, dt, over, mass, scale, pressing, dx, dy, dz, sx, sy, sz, ux, uy, uz):
        """The friction per length of d of surfaces that slide with s, and u after the step."""
        damper, one, zero = mass * given.damp_tangent, broadcast(1.0), broadcast(0.0)
        gx, gy, gz = damper * sx, damper * sy, damper * sz
        most = given.friction * pressing
        if memory:
            ux, uy, uz = ux + dt * sx, uy + dt * sy, uz + dt * sz
            known = ux * ux + (uy * uy + uz * uz) > zero
            if dt > 0.0:
                out = (ux * dx + (uy * dy + uz * dz)) * (over * over)
                ux, uy, uz = ux - out * dx, uy - out * dy, uz - out * dz
            fx, fy, fz = given.tangent * ux + gx, given.tangent * uy + gy, given.tangent * uz + gz
            size = scale * math.sqrt(fx * fx + (fy * fy + fz * fz) + LEAST)
            ratio = minimum(one, most / size)
            less = select(known, ratio - one, zero)
            back = less * (1.0 / given.tangent)
            held = select(known, ratio, select(size > most, zero, one)) * scale
            ux, uy, uz = ux + (less * ux + back * gx), uy + (less * uy + back * gy), uz + (less * uz + back * gz)
            return -held * fx, -held * fy, -held * fz, ux, uy, uz
        size = math.sqrt(gx * gx + (gy * gy + gz * gz) + LEAST)
        ratio = minimum(one, most / size)
        return -ratio * gx, -ratio * gy, -ratio * gz, ux, uy, uz

    def contacts(
        clusters, records, start, owners, others, counts, given, dt, velocities, spins, x, y, z, forces, torques,
        tallies, work,
    ):  # fmt: skip
        one, two, zero = broadcast(1.0), broadcast(2.0), broadcast(0.0)
        sums = n * SUMS
        for cluster in clusters:
            begin, count = start[CLUSTER * cluster], counts[cluster]
            for q in range(2 * CLUSTER * SUMS):
                work[sums + q] = 0.0
            for k in range(begin, begin + count, n):
                own_x, own_y, own_z, _ = load_four(records, owners, k)
                other_x, other_y, other_z, _ = load_four(records, others, k)
                vx, vy, vz, radius = load_four(velocities, owners, k)
                ax, ay, az, other_radius = load_four(velocities, others, k)
                wx, wy, wz, inverse = load_four(spins, owners, k)
                bx, by, bz, other_inverse = load_four(spins, others, k)
                dx, dy, dz = own_x - other_x, own_y - other_y, own_z - other_z
                r = math.sqrt(dx * dx + (dy * dy + dz * dz))
                both = radius + other_radius
                touch = r < both
                over, overlap = 1.0 / r, both - r
                mass = 1.0 / (inverse + other_inverse)
                scale = one
                if hertz:
                    scale = math.sqrt(select(touch, overlap, zero) * radius * other_radius / both)
                sx, sy, sz = vx - ax, vy - ay, vz - az
                along = (sx * dx + (sy * dy + sz * dz)) * (over * over)
                cx = (radius * wx + other_radius * bx) * over
                cy = (radius * wy + other_radius * by) * over
                cz = (radius * wz + other_radius * bz) * over
                sx = sx - along * dx + (dy * cz - dz * cy)
                sy = sy - along * dy + (dz * cx - dx * cz)
                sz = sz - along * dz + (dx * cy - dy * cx)
                push = scale * (given.normal * overlap * over - mass * given.damp_normal * along)
                pressing = push * r
                pressing = select(pressing < zero, -pressing, pressing)
                ux, uy, uz = load_lanes(x, k), load_lanes(y, k), load_lanes(z, k)
                gx, gy, gz, ux, uy, uz = slide(
                    given, dt, over, mass, scale, pressing, dx, dy, dz, sx, sy, sz, ux, uy, uz
                )
                if memory and dt > 0.0:
                    put(x, k, zero_unless(touch, ux))
                    put(y, k, zero_unless(touch, uy))
                    put(z, k, zero_unless(touch, uz))
                arm = radius * over
                put(work, 3 * n, zero_unless(touch, arm * (dz * gy - dy * gz)))
                put(work, 4 * n, zero_unless(touch, arm * (dx * gz - dz * gx)))
                put(work, 5 * n, zero_unless(touch, arm * (dy * gx - dx * gy)))
                gx, gy = zero_unless(touch, push * dx + gx), zero_unless(touch, push * dy + gy)
                gz = zero_unless(touch, push * dz + gz)
                put(work, 0, gx)
                put(work, n, gy)
                put(work, 2 * n, gz)
                if measure:
                    weight = select(other_inverse > zero, one, two)
                    put(work, 6 * n, zero_unless(touch, weight * share * given.normal * scale * overlap * overlap))
                    gx, gy, gz = weight * gx, weight * gy, weight * gz
                    put(work, 7 * n, gx * dx)
                    put(work, 8 * n, gy * dy)
                    put(work, 9 * n, gz * dz)
                    put(work, 10 * n, gy * dx)
                    put(work, 11 * n, gz * dx)
                    put(work, 12 * n, gz * dy)
                for lane in range(min(n, begin + count - k)):
                    at = sums + 2 * SUMS * (owners[k + lane] // RECORD - CLUSTER * cluster)
                    for q in range(used):
                        value = work[q * n + lane]
                        if exact:
                            coarse = rounded_number(value, COARSE)
                            work[at + 2 * q] += coarse
                            work[at + 2 * q + 1] += rounded_number(value - coarse, FINE)
                        else:
                            work[at + 2 * q] += value
            for slot in range(CLUSTER):
                i, at = CLUSTER * cluster + slot, sums + 2 * SUMS * slot
                for d in range(3):
                    forces[RECORD * i + d] = work[at + 2 * d] + work[at + 2 * d + 1]
                    torques[RECORD * i + d] = work[at + 2 * d + 6] + work[at + 2 * d + 7]
                forces[RECORD * i + 3] = 0.0
                if measure:
                    for q in range(7):
                        tallies[TALLY * i + q] = work[at + 2 * q + 12] + work[at + 2 * q + 13]

    return jit(contacts, key=("contacts", form, law, memory), math=REORDERED)


@jit
def known_contacts(clusters, start, owners, others, counts, x, y, z, ids, first, second, slid):
    """The contacts that remember something: the ids of both, and x, y, z; returns how many. Ids are of all slots."""
    count = 0
    for c in range(clusters):
        for k in range(start[CLUSTER * c], start[CLUSTER * c] + counts[c]):
            if x[k] != 0.0 or y[k] != 0.0 or z[k] != 0.0:
                first[count], second[count] = ids[owners[k] // RECORD], ids[others[k] // RECORD]
                slid[count, 0], slid[count, 1], slid[count, 2] = x[k], y[k], z[k]
                count += 1
    return count


@jit
def place_contacts(places, second, slid, start, entries, ids, owners, others, counts, x, y, z):
    """Give the contacts of the slots `places` with the ids `second` to the lists; returns how many found no place."""
    lost = 0
    for c in range(len(places)):
        s, found = places[c], False
        cluster = s // CLUSTER
        for k in range(start[s], start[s + 1]):
            if ids[entries[k] // RECORD] == second[c]:
                to = start[CLUSTER * cluster] + counts[cluster]
                owners[to], others[to] = RECORD * s, entries[k]
                x[to], y[to], z[to] = slid[c, 0], slid[c, 1], slid[c, 2]
                counts[cluster] += 1
                found = True
                break
        lost += not found
    return lost


@jit(noalias=True)
def roll(spins, torques, inverse_inertia, slots, half):
    """Add `half` times the angular acceleration to the spins [slots, 4], whose fourth components stay."""
    for s in range(slots):
        factor = half * inverse_inertia[s]
        for d in range(3):
            spins[s, d] += factor * torques[s, d]


@jit(noalias=True)
def take_motion(velocities, slots, motion):
    """Copy velocities [slots, 4] to `motion`, whose fourth components stay."""
    for s in range(slots):
        for d in range(3):
            motion[s, d] = velocities[s, d]
