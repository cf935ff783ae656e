"""Stillinger and Weber's potential, Numba: two loops over a full neighbor list, for an instruction set and p and q.

The first loop puts the neighbors within the cutoff, four or five of thirty in a crystal, side by side, and sums their
moments; the second takes them only. Most particles then need one vector of neighbors.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hpckit.kernels.compile import functions  # noqa: F401  (math.sqrt and math.exp of vectors)
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.loops import AHEAD, REORDERED, pieces, sums
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

NEARER = 1e-9  # of the cutoff: what lanes that do not count are held to, so that no exponential overflows


@cache
def moment_kernel(form: Form) -> Any:
    """The kernel moments(clusters, records, start, entries, pad, given, near, counts, first, second, third).

    It writes the three parts of the moments of the slots of `clusters` (`reference.PARTS`), and their neighbors within
    the cutoff: near[start[i] : start[i] + counts[i]], padded to whole vectors with the entry `pad`. given: `Silicon`.
    """
    n = form.lanes
    load, broadcast, _, keep, _, ones, _, zero_unless, minimum, prefetch, *_ = pieces(form)
    nothing, add, store, _ = sums(form)

    def moments(clusters, records, start, entries, pad, given, near, counts, first, second, third):
        cutoff, reach, width = given.cutoff, broadcast(given.reach), broadcast(given.width)
        limit, held, one = broadcast(cutoff * cutoff), broadcast(cutoff * cutoff * (1.0 - NEARER)), broadcast(1.0)
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                begin, count = start[i], 0
                for k in range(begin, start[i + 1], n):
                    prefetch(entries, k + AHEAD)
                    other_x, other_y, other_z, _ = load(records, entries, k)
                    dx, dy, dz = other_x - x, other_y - y, other_z - z
                    within = dx * dx + (dy * dy + dz * dz) < limit
                    keep(near, begin + count, entries, k, within)
                    count += ones(within)
                while count % n:
                    near[begin + count] = pad
                    count += 1
                counts[i] = count
                s0, sx, sy, sz = nothing(), nothing(), nothing(), nothing()
                xx, yy, zz = nothing(), nothing(), nothing()
                xy, xz, yz, g2 = nothing(), nothing(), nothing(), nothing()
                for k in range(begin, begin + count, n):
                    other_x, other_y, other_z, _ = load(records, near, k)
                    dx, dy, dz = other_x - x, other_y - y, other_z - z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    within = r2 < limit
                    r = math.sqrt(minimum(r2, held))
                    over = 1.0 / r
                    g = zero_unless(within, math.exp(width / (r - reach)))
                    ux, uy, uz = dx * over, dy * over, dz * over
                    gx, gy, gz = g * ux, g * uy, g * uz
                    s0, sx, sy, sz = add(s0, g, one), add(sx, gx, one), add(sy, gy, one), add(sz, gz, one)
                    xx, yy, zz = add(xx, gx, ux), add(yy, gy, uy), add(zz, gz, uz)
                    xy, xz, yz, g2 = add(xy, gx, uy), add(xz, gx, uz), add(yz, gy, uz), add(g2, g, g)
                store(first, own, s0, sx, sy, sz)
                store(second, own, xx, yy, zz, xy)
                store(third, own, xz, yz, g2, nothing())

    return jit(moments, key=("moments", form), math=REORDERED)


@cache
def force_kernel(form: Form, p: float, q: float) -> Any:
    """The kernel forces(clusters, records, start, near, counts, given, first, second, third, forces, tallies); see
    `reference.forces_of_pairs`. `near` and `counts` are of the moment kernel; p, q: powers of the pair energy.
    """
    n = form.lanes
    load, broadcast, _, _, _, _, _, zero_unless, minimum, _, _, load_four = pieces(form)
    nothing, add, store, _ = sums(form)
    raised, lowered = _power(p), _power(q)

    @inlined(math=REORDERED)
    def bond(given, r2, dx, dy, dz, own, other):
        """The pair energy, and the force on the first of a bond."""
        r = math.sqrt(r2)
        over, c = 1.0 / r, given.cosine
        ux, uy, uz = dx * over, dy * over, dz * over
        s0, sx, sy, sz = own[0] + other[0], own[1] - other[1], own[2] - other[2], own[3] - other[3]
        xx, yy, zz, xy = own[4] + other[4], own[5] + other[5], own[6] + other[6], own[7] + other[7]
        xz, yz = own[8] + other[8], own[9] + other[9]
        gap = 1.0 / (r - given.reach)
        g = math.exp(given.width * gap)
        tx, ty, tz = xx * ux + xy * uy + xz * uz, xy * ux + yy * uy + yz * uz, xz * ux + yz * uy + zz * uz
        along = tx * ux + ty * uy + tz * uz
        across = sx * ux + sy * uy + sz * uz
        bent = along - 2.0 * c * across + (c * c) * s0 - (2.0 * (1.0 - c) * (1.0 - c)) * g
        turn = 2.0 * given.strength * g * over
        repelling, attracting = given.b * raised(over, r), given.c * lowered(over, r)
        fade = math.exp(given.sigma * gap)
        pair = (repelling - attracting) * fade
        slope = (q * attracting - p * repelling) * over * fade - pair * (given.sigma * gap * gap)
        radial = slope - given.strength * given.width * gap * gap * g * bent - turn * (along - c * across)
        return (
            pair,
            radial * ux + turn * (tx - c * sx),
            radial * uy + turn * (ty - c * sy),
            (radial * uz + turn * (tz - c * sz)),
        )

    def forces(clusters, records, start, near, counts, given, first, second, third, forces, tallies):
        limit = given.cutoff * given.cutoff
        held, limit = broadcast(limit * (1.0 - NEARER)), broadcast(limit)
        one = broadcast(1.0)
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                at = RECORD * i
                x, y, z = broadcast(records[at]), broadcast(records[at + 1]), broadcast(records[at + 2])
                own = (
                    broadcast(first[at]), broadcast(first[at + 1]), broadcast(first[at + 2]), broadcast(first[at + 3]),
                    broadcast(second[at]), broadcast(second[at + 1]), broadcast(second[at + 2]),
                    broadcast(second[at + 3]), broadcast(third[at]), broadcast(third[at + 1]),
                )  # fmt: skip
                fx, fy, fz = nothing(), nothing(), nothing()
                for k in range(start[i], start[i] + counts[i], n):
                    other_x, other_y, other_z, _ = load(records, near, k)
                    a, b, c = load_four(first, near, k), load_four(second, near, k), load_four(third, near, k)
                    other = a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1]
                    dx, dy, dz = other_x - x, other_y - y, other_z - z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    within = r2 < limit
                    _, gx, gy, gz = bond(given, minimum(r2, held), dx, dy, dz, own, other)
                    fx, fy = add(fx, zero_unless(within, gx), one), add(fy, zero_unless(within, gy), one)
                    fz = add(fz, zero_unless(within, gz), one)
                store(forces, at, fx, fy, fz, nothing())

    def measure(clusters, records, start, near, counts, given, first, second, third, forces, tallies):
        limit = given.cutoff * given.cutoff
        held, limit = broadcast(limit * (1.0 - NEARER)), broadcast(limit)
        one = broadcast(1.0)
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                at = RECORD * i
                x, y, z = broadcast(records[at]), broadcast(records[at + 1]), broadcast(records[at + 2])
                own = (
                    broadcast(first[at]), broadcast(first[at + 1]), broadcast(first[at + 2]), broadcast(first[at + 3]),
                    broadcast(second[at]), broadcast(second[at + 1]), broadcast(second[at + 2]),
                    broadcast(second[at + 3]), broadcast(third[at]), broadcast(third[at + 1]),
                )  # fmt: skip
                fx, fy, fz, energy = nothing(), nothing(), nothing(), nothing()
                xx, yy, zz = nothing(), nothing(), nothing()
                xy, xz, yz = nothing(), nothing(), nothing()
                for k in range(start[i], start[i] + counts[i], n):
                    other_x, other_y, other_z, _ = load(records, near, k)
                    a, b, c = load_four(first, near, k), load_four(second, near, k), load_four(third, near, k)
                    other = a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1]
                    dx, dy, dz = other_x - x, other_y - y, other_z - z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    within = r2 < limit
                    pair, gx, gy, gz = bond(given, minimum(r2, held), dx, dy, dz, own, other)
                    energy = add(energy, zero_unless(within, pair), one)
                    gx, gy, gz = zero_unless(within, gx), zero_unless(within, gy), zero_unless(within, gz)
                    fx, fy, fz = add(fx, gx, one), add(fy, gy, one), add(fz, gz, one)
                    xx, yy, zz = add(xx, gx, -dx), add(yy, gy, -dy), add(zz, gz, -dz)
                    xy, xz, yz = add(xy, gx, -dy), add(xz, gx, -dz), add(yz, gy, -dz)
                store(forces, at, fx, fy, fz, nothing())
                store(tallies, TALLY * i, energy, xx, yy, zz)
                store(tallies, TALLY * i + 4, xy, xz, yz, nothing())
                tallies[TALLY * i] += 2.0 * _energy(first, second, third, at, given)

    return jit(measure if form.measure else forces, key=("bonds", form, p, q), math=REORDERED)


def _power(exponent: float) -> Any:
    """The function (over, r): r to the power of -exponent."""
    whole = int(exponent)

    @inlined(math=REORDERED)
    def by_products(over, r):
        return over**whole

    @inlined(math=REORDERED)
    def by_logarithm(over, r):
        return math.exp(-exponent * math.log(r))

    @inlined
    def none(over, r):
        return over * 0.0 + 1.0

    return none if exponent == 0 else by_products if exponent == whole else by_logarithm


@inlined
def _energy(first, second, third, at, given):
    """See `reference.energies`."""
    s0, sx, sy, sz = first[at], first[at + 1], first[at + 2], first[at + 3]
    xx, yy, zz, xy = second[at], second[at + 1], second[at + 2], second[at + 3]
    xz, yz, g2, c = third[at], third[at + 1], third[at + 2], given.cosine
    squares = xx * xx + yy * yy + zz * zz + 2.0 * (xy * xy + xz * xz + yz * yz)
    flat = c * c * s0 * s0 - 2.0 * c * (sx * sx + sy * sy + sz * sz) - (1.0 - c) * (1.0 - c) * g2
    return 0.5 * given.strength * (squares + flat)
