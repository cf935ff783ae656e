"""Contacts of spheres, Numba: two loops over a full neighbor list, for an instruction set and a law.

The first loop puts the pairs near enough to touch side by side, those of a cluster in one piece, and takes along what
each contact remembers: most last for many steps, and then nothing moves. The second takes these pairs only: a particle
has few, which would not fill a vector.
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
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.loops import AHEAD, REORDERED, coarse_and_fine, pieces, put_number
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

SUMS = 13  # of a slot: force, torque, energy, virial
GROUP = 8  # clusters whose pairs are computed one after the other in each of the loops
ROWS = 14  # numbers of a pair between the loops
REST = CLUSTER * SUMS  # the finer parts of the sums of a cluster
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
        last = len(clusters) - 1
        for number, cluster in enumerate(clusters):
            begin, count = start[CLUSTER * clusters[min(number + GROUP, last)]], 0
            prefetch(owners, begin)
            prefetch(others, begin)
            begin = start[CLUSTER * cluster]
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
            if count == counts[cluster]:
                changed = np.int32(0)
                for m in range(count):
                    changed |= (others[begin + m] ^ spare[m]) | (owners[begin + m] ^ spare[half + m])
                if changed == 0:
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


def work_of(longest: int) -> int:
    """How many numbers of work space contacts need whose clusters have lists of up to `longest` entries."""
    return REST + GROUP * ROWS * (longest + CLUSTER)


@cache
def contact_kernel(form: Form, law: str, memory: bool) -> Any:
    """The kernel contacts(clusters, records, start, owners, others, counts, given, dt, velocities, spins, x, y, z,
    forces, torques, tallies, work); see `reference.contacts_of_pairs`. The pairs are those of the near kernel; given:
    `Contact`; work: float64, `work_of`. Without `measure`, tallies are left alone; with dt = 0, x, y, z.

    From distances to friction each operation waits for the one before. So there are three loops over the pairs of some
    clusters, short enough for a processor to have several pairs under way: the first ends with the speed of surfaces,
    the second with forces of pairs, the third adds them up.
    """
    n, measure, hertz = form.lanes, form.measure, law == "hertz"
    share = 0.4 if hertz else 0.5
    _, broadcast, load_lanes, _, _, _, _, zero_unless, minimum, prefetch, _, load_four = pieces(form)
    exact, scalar = form.exact, form.isa == "scalar"
    select, put = (_select_number, put_number) if scalar else (intrinsics.select, intrinsics.store)

    @inlined
    def kept(work, rest, value):
        """What is added to a sum: the value, or of an exact one its coarse part, while the fine one goes to `work`."""
        if exact:
            coarse, fine = coarse_and_fine(value)
            work[rest] += fine
            return coarse
        return value

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

    @inlined(math=REORDERED)
    def ask(clusters, group, records, start, owners, others, counts, velocities, spins, x, y, z):
        """Ask the cache for what the next groups of clusters read."""
        # What pairs remember stands as far apart as the lists: a processor does not ask for it by itself.
        for cluster in clusters[group + GROUP : group + 2 * GROUP]:
            begin = start[CLUSTER * cluster]
            for k in range(begin, begin + counts[cluster]):
                prefetch(velocities, others[k])
                prefetch(spins, others[k])
                prefetch(records, others[k])
        for cluster in clusters[group + 2 * GROUP : group + 3 * GROUP]:
            begin = start[CLUSTER * cluster]
            prefetch(owners, begin)
            prefetch(others, begin)
            for k in (begin, begin + CLUSTER - 1):
                prefetch(x, k)
                prefetch(y, k)
                prefetch(z, k)

    @inlined(math=REORDERED)
    def approach(part, records, start, owners, others, counts, given, velocities, spins, work):
        """Write down distances, speeds of surfaces and pressures of all pairs of some clusters."""
        one, two, zero = broadcast(1.0), broadcast(2.0), broadcast(0.0)
        to = REST
        for cluster in part:
            begin = start[CLUSTER * cluster]
            for k in range(begin, begin + counts[cluster], n):
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
                    put(work, to + 12 * n, scale)
                sx, sy, sz = vx - ax, vy - ay, vz - az
                along = (sx * dx + (sy * dy + sz * dz)) * (over * over)
                cx = (radius * wx + other_radius * bx) * over
                cy = (radius * wy + other_radius * by) * over
                cz = (radius * wz + other_radius * bz) * over
                push = scale * (given.normal * overlap * over - mass * given.damp_normal * along)
                pressing = push * r
                put(work, to, dx)
                put(work, to + n, dy)
                put(work, to + 2 * n, dz)
                put(work, to + 3 * n, sx - along * dx + (dy * cz - dz * cy))
                put(work, to + 4 * n, sy - along * dy + (dz * cx - dx * cz))
                put(work, to + 5 * n, sz - along * dz + (dx * cy - dy * cx))
                put(work, to + 6 * n, over)
                put(work, to + 7 * n, overlap)
                put(work, to + 8 * n, mass)
                put(work, to + 9 * n, radius * over)
                put(work, to + 10 * n, push)
                put(work, to + 11 * n, select(pressing < zero, -pressing, pressing))
                if measure:
                    put(work, to + 13 * n, select(other_inverse > zero, one, two))
                to += ROWS * n

    @inlined(math=REORDERED)
    def press(part, start, counts, given, dt, x, y, z, work):
        """Make forces and torques of them; x, y, z are those after the step."""
        one, zero = broadcast(1.0), broadcast(0.0)
        to = REST
        for cluster in part:
            begin = start[CLUSTER * cluster]
            for k in range(begin, begin + counts[cluster], n):
                dx, dy, dz = load_lanes(work, to), load_lanes(work, to + n), load_lanes(work, to + 2 * n)
                sx, sy, sz = (
                    load_lanes(work, to + 3 * n),
                    load_lanes(work, to + 4 * n),
                    load_lanes(work, to + 5 * n),
                )
                over, overlap = load_lanes(work, to + 6 * n), load_lanes(work, to + 7 * n)
                arm, push = load_lanes(work, to + 9 * n), load_lanes(work, to + 10 * n)
                scale, touch = one, zero < overlap
                if hertz:
                    scale = load_lanes(work, to + 12 * n)
                ux, uy, uz = load_lanes(x, k), load_lanes(y, k), load_lanes(z, k)
                gx, gy, gz, ux, uy, uz = slide(
                    given, dt, over, load_lanes(work, to + 8 * n), scale, load_lanes(work, to + 11 * n),
                    dx, dy, dz, sx, sy, sz, ux, uy, uz,
                )  # fmt: skip
                if memory and dt > 0.0:
                    put(x, k, zero_unless(touch, ux))
                    put(y, k, zero_unless(touch, uy))
                    put(z, k, zero_unless(touch, uz))
                put(work, to + 3 * n, zero_unless(touch, arm * (dz * gy - dy * gz)))
                put(work, to + 4 * n, zero_unless(touch, arm * (dx * gz - dz * gx)))
                put(work, to + 5 * n, zero_unless(touch, arm * (dy * gx - dx * gy)))
                gx, gy = zero_unless(touch, push * dx + gx), zero_unless(touch, push * dy + gy)
                gz = zero_unless(touch, push * dz + gz)
                put(work, to, gx)
                put(work, to + n, gy)
                put(work, to + 2 * n, gz)
                if measure:
                    weight = load_lanes(work, to + 13 * n)
                    energy = weight * share * given.normal * scale * overlap * overlap
                    put(work, to + 6 * n, zero_unless(touch, energy))
                    gx, gy, gz = weight * gx, weight * gy, weight * gz
                    put(work, to + 7 * n, gx * dx)
                    put(work, to + 8 * n, gy * dy)
                    put(work, to + 9 * n, gz * dz)
                    put(work, to + 10 * n, gy * dx)
                    put(work, to + 11 * n, gz * dx)
                    put(work, to + 12 * n, gz * dy)
                to += ROWS * n

    @inlined(math=REORDERED)
    def add_up(part, start, owners, counts, forces, torques, tallies, work):
        """Add the forces of the pairs up, particle by particle."""
        to = REST
        for cluster in part:
            begin, count = start[CLUSTER * cluster], counts[cluster]
            first = CLUSTER * RECORD * cluster
            for q in range(CLUSTER * RECORD):
                forces[first + q], torques[first + q] = 0.0, 0.0
            if exact:
                for q in range(REST):
                    work[q] = 0.0
            if measure:
                for slot in range(CLUSTER):
                    for q in range(7):
                        tallies[TALLY * (CLUSTER * cluster + slot) + q] = 0.0
            for k in range(begin, begin + count, n):
                for lane in range(min(n, begin + count - k)):
                    own = owners[k + lane]
                    slot = own // RECORD
                    rest = SUMS * (slot - CLUSTER * cluster)
                    for d in range(3):
                        forces[own + d] += kept(work, rest + d, work[to + d * n + lane])
                        torques[own + d] += kept(work, rest + 3 + d, work[to + (3 + d) * n + lane])
                    if measure:
                        for q in range(7):
                            tallies[TALLY * slot + q] += kept(work, rest + 6 + q, work[to + (6 + q) * n + lane])
                to += ROWS * n
            if exact:
                for slot in range(CLUSTER):
                    for d in range(3):
                        forces[first + RECORD * slot + d] += work[SUMS * slot + d]
                        torques[first + RECORD * slot + d] += work[SUMS * slot + 3 + d]
                    if measure:
                        for q in range(7):
                            tallies[TALLY * (CLUSTER * cluster + slot) + q] += work[SUMS * slot + 6 + q]

    def contacts(
        clusters, records, start, owners, others, counts, given, dt, velocities, spins, x, y, z, forces, torques,
        tallies, work,
    ):  # fmt: skip
        for group in range(0, len(clusters), GROUP):
            part = clusters[group : group + GROUP]
            ask(clusters, group, records, start, owners, others, counts, velocities, spins, x, y, z)
            approach(part, records, start, owners, others, counts, given, velocities, spins, work)
            press(part, start, counts, given, dt, x, y, z, work)
            add_up(part, start, owners, counts, forces, torques, tallies, work)

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
