"""Contacts of spheres, Numba: two loops over a full neighbor list, for an instruction set and a law.

The first loop puts the neighbors near enough to touch side by side, and takes along what each contact remembers: most
contacts last for many steps, and then nothing moves. The second takes these neighbors only, one vector for a particle.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hpckit.kernels.compile import functions  # noqa: F401  (math.sqrt of vectors)
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.granular.reference import INERTIA
from hpckit.kernels.particles.loops import AHEAD, REORDERED, pieces, sums
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

LEAST = 1e-300  # what is added under a root whose value divides


@inlined
def _select_number(mask, yes, no):
    """`vectors.select` of numbers."""
    return yes if mask else no


@inlined
def _store_number(array, index, value):
    """`vectors.store` of a number."""
    array[index] = value


@cache
def near_kernel(form: Form) -> Any:
    """The kernel near(clusters, records, start, entries, pad, most, moving, list, counts, x, y, z, spare, sparse).

    It writes the neighbors within `most` of the slots of `clusters`: list[start[i] : start[i] + counts[i]], padded to
    whole vectors with the entry `pad`; none for those that do not move (moving[RECORD i + 3] is 0). x, y, z, what a
    contact remembers, stay with their entries of the list; they are 0 for new ones. spare int32 and sparse float64 [3
    n] have room for the longest list of a particle.
    """
    n = form.lanes
    load, broadcast, _, keep, _, ones, _, _, _, prefetch, *_ = pieces(form)

    def near(clusters, records, start, entries, pad, most, moving, list_, counts, x, y, z, spare, sparse):
        limit = broadcast(most * most)
        third = len(sparse) // 3
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                if moving[own + 3] == 0.0:
                    counts[i] = 0
                    continue
                xi, yi, zi = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                begin, count = start[i], 0
                for k in range(begin, start[i + 1], n):
                    prefetch(entries, k + AHEAD)
                    other_x, other_y, other_z, _ = load(records, entries, k)
                    dx, dy, dz = xi - other_x, yi - other_y, zi - other_z
                    within = dx * dx + (dy * dy + dz * dz) < limit
                    keep(spare, count, entries, k, within)
                    count += ones(within)
                while count % n:
                    spare[count] = pad
                    count += 1
                same = count == counts[i]
                if same:
                    for m in range(count):
                        same &= spare[m] == list_[begin + m]
                if same:
                    continue
                for m in range(count):
                    sparse[m], sparse[third + m], sparse[2 * third + m] = 0.0, 0.0, 0.0
                    for k in range(begin, begin + counts[i]):
                        if list_[k] == spare[m] and spare[m] != pad:
                            sparse[m], sparse[third + m], sparse[2 * third + m] = x[k], y[k], z[k]
                for m in range(count):
                    k = begin + m
                    list_[k], x[k], y[k], z[k] = spare[m], sparse[m], sparse[third + m], sparse[2 * third + m]
                counts[i] = count

    return jit(near, key=("near", form), math=REORDERED)


@cache
def contact_kernel(form: Form, law: str, memory: bool) -> Any:
    """The kernel contacts(clusters, records, start, list, counts, given, dt, velocities, spins, x, y, z, forces,
    torques, tallies); see `reference.contacts_of_pairs`. The lists are those of the near kernel; given: `Contact`.
    Without `measure`, tallies are left alone; with dt = 0, x, y, z.
    """
    n, measure, hertz = form.lanes, form.measure, law == "hertz"
    share = 0.4 if hertz else 0.5
    _, broadcast, load_lanes, _, _, _, _, zero_unless, minimum, _, _, load_four = pieces(form)
    nothing, add, store, _ = sums(form)
    scalar = form.isa == "scalar"
    select, put = (_select_number, _store_number) if scalar else (simd.select, simd.store)

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
        clusters, records, start, list_, counts, given, dt, velocities, spins, x, y, z, forces, torques, tallies
    ):
        one, two, zero = broadcast(1.0), broadcast(2.0), broadcast(0.0)
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                at = RECORD * i
                xi, yi, zi = broadcast(records[at]), broadcast(records[at + 1]), broadcast(records[at + 2])
                vx, vy, vz = broadcast(velocities[at]), broadcast(velocities[at + 1]), broadcast(velocities[at + 2])
                wx, wy, wz = broadcast(spins[at]), broadcast(spins[at + 1]), broadcast(spins[at + 2])
                radius, inverse = broadcast(velocities[at + 3]), broadcast(spins[at + 3])
                fx, fy, fz, energy = nothing(), nothing(), nothing(), nothing()
                tx, ty, tz = nothing(), nothing(), nothing()
                xx, yy, zz, xy, xz, yz = nothing(), nothing(), nothing(), nothing(), nothing(), nothing()
                for k in range(start[i], start[i] + counts[i], n):
                    other_x, other_y, other_z, _ = load_four(records, list_, k)
                    ax, ay, az, other_radius = load_four(velocities, list_, k)
                    bx, by, bz, other_inverse = load_four(spins, list_, k)
                    dx, dy, dz = xi - other_x, yi - other_y, zi - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    r = math.sqrt(r2)
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
                    tx = add(tx, zero_unless(touch, arm * (dz * gy - dy * gz)), one)
                    ty = add(ty, zero_unless(touch, arm * (dx * gz - dz * gx)), one)
                    tz = add(tz, zero_unless(touch, arm * (dy * gx - dx * gy)), one)
                    gx, gy = zero_unless(touch, push * dx + gx), zero_unless(touch, push * dy + gy)
                    gz = zero_unless(touch, push * dz + gz)
                    fx, fy, fz = add(fx, gx, one), add(fy, gy, one), add(fz, gz, one)
                    if measure:
                        weight = select(other_inverse > zero, one, two)
                        stored = share * given.normal * scale * overlap * overlap
                        energy = add(energy, zero_unless(touch, stored), weight)
                        gx, gy, gz = weight * gx, weight * gy, weight * gz
                        xx, yy, zz = add(xx, gx, dx), add(yy, gy, dy), add(zz, gz, dz)
                        xy, xz, yz = add(xy, gy, dx), add(xz, gz, dx), add(yz, gz, dy)
                store(forces, at, fx, fy, fz, nothing())
                store(torques, at, tx, ty, tz, nothing())
                if measure:
                    store(tallies, TALLY * i, energy, xx, yy, zz)
                    store(tallies, TALLY * i + 4, xy, xz, yz, nothing())

    return jit(contacts, key=("contacts", form, law, memory), math=REORDERED)


@jit
def known_contacts(slots, start, list_, counts, x, y, z, ids, first, second, slid):
    """The contacts that remember something: the ids of both, and x, y, z; returns how many. Ids are of all slots."""
    count = 0
    for s in range(slots):
        for k in range(start[s], start[s] + counts[s]):
            if x[k] != 0.0 or y[k] != 0.0 or z[k] != 0.0:
                if count < len(first):
                    first[count], second[count] = ids[s], ids[list_[k] // RECORD]
                    slid[count, 0], slid[count, 1], slid[count, 2] = x[k], y[k], z[k]
                count += 1
    return count


@jit
def place_contacts(places, second, slid, start, entries, ids, list_, counts, x, y, z):
    """Give the contacts of the slots `places` with the ids `second` to the lists; returns how many found no place."""
    lost = 0
    for c in range(len(places)):
        s, found = places[c], False
        for k in range(start[s], start[s + 1]):
            if ids[entries[k] // RECORD] == second[c]:
                to = start[s] + counts[s]
                list_[to], x[to], y[to], z[to] = entries[k], slid[c, 0], slid[c, 1], slid[c, 2]
                counts[s] += 1
                found = True
                break
        lost += not found
    return lost


@jit(noalias=True)
def roll(spins, torques, radii, slots, half):
    """Add `half` times the angular acceleration to the spins, which have 1 / mass behind them: torque / (0.4 m R^2)."""
    for s in range(slots):
        r, inverse = radii[RECORD * s + 3], spins[RECORD * s + 3]
        factor = half * inverse / (INERTIA * r * r) if inverse > 0.0 else 0.0
        for d in range(3):
            spins[RECORD * s + d] += factor * torques[RECORD * s + d]


@jit(noalias=True)
def take_motion(velocities, slots, motion):
    """Copy velocities [slots, 4] to `motion`, whose fourth components stay."""
    for s in range(slots):
        for d in range(3):
            motion[s, d] = velocities[s, d]
