"""Stillinger and Weber's potential, Numba: two loops over a full neighbor list, for an instruction set and p and q.

The first loop puts the neighbors within the cutoff, four or five of thirty in a crystal, side by side, those of a kind
after those of another, and sums their moments; the second takes them only. Most particles then need one vector of
neighbors for each kind, whose lanes have their parameters in common.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hpckit.kernels.compile import functions  # noqa: F401  (math.sqrt and math.exp of vectors)
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.loops import AHEAD, REORDERED, pieces, sums, type_of_double
from hpckit.kernels.particles.many_body.stillinger_weber.reference import PAIR, TRIPLE
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

NEARER = 1e-9  # of the cutoff: what lanes that do not count are held to, so that no exponential overflows
RAW = 12  # numbers of a kind before they are mixed: s0, s1; xx, yy, zz, xy of s2; xz, yz, two unused


def room_of(form: Form) -> int:
    """Entries that `near` has for each slot beyond those of its list: the last vector of each kind."""
    return form.types * form.lanes if form.types > 1 else 0


@cache
def moment_kernel(form: Form) -> Any:
    """The kernel moments(clusters, records, start, entries, pad, pairs, triples, raw, near, counts, first, second,
    third); form.types: kinds.

    It writes the three parts of the moments of the slots of `clusters` (`reference.PARTS`), and their neighbors within
    the cutoff: near[begin : begin + counts[kinds i]] of the first kind, up to begin + counts[kinds i + 1] of the second
    and so on, each padded to whole vectors with the entry `pad`; begin = start[i] + i `room_of(form)`. raw: float64[12
    kinds] to work in.
    """
    n, kinds, room = form.lanes, form.types, room_of(form)
    load, broadcast, _, keep, _, ones, types, zero_unless, minimum, prefetch, *_ = pieces(form)
    nothing, add, store, _ = sums(form)
    mix = _mix_of(kinds)

    @inlined(math=REORDERED)
    def of_kind(within, w, kind):
        return within if kinds == 1 else within & (types(w) == kind)

    def moments(clusters, records, start, entries, pad, pairs, triples, raw, near, counts, first, second, third):
        stride, strength, cosine = len(first) // kinds, 1.0, 1.0  # of several kinds these come in when they are mixed
        _, _, _, _, _, reach, width, cutoff, _, _ = pair_of(pairs, 0)
        if kinds == 1:
            strength = triples[0]
            cosine = triples[1] / strength if strength != 0.0 else 0.0
        once, twice = broadcast(cosine), broadcast(cosine * cosine)
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                kind = 0 if kinds == 1 else min(type_of_double(records[own + 3]), kinds - 1)
                begin, count = start[i] + i * room, 0
                for other in range(kinds):
                    since = count
                    if kinds > 1:
                        _, _, _, _, _, reach, width, cutoff, _, _ = pair_of(pairs, kinds * kind + other)
                    limit, held = broadcast(cutoff * cutoff), broadcast(cutoff * cutoff * (1.0 - NEARER))
                    for k in range(start[i], start[i + 1], n):
                        prefetch(entries, k + AHEAD)
                        other_x, other_y, other_z, w = load(records, entries, k)
                        dx, dy, dz = other_x - x, other_y - y, other_z - z
                        within = of_kind(dx * dx + (dy * dy + dz * dz) < limit, w, broadcast(float(other)))
                        keep(near, begin + count, entries, k, within)
                        count += ones(within)
                    while count % n:
                        near[begin + count] = pad
                        count += 1
                    counts[kinds * i + other] = count
                    s0, sx, sy, sz = nothing(), nothing(), nothing(), nothing()
                    xx, yy, zz = nothing(), nothing(), nothing()
                    xy, xz, yz = nothing(), nothing(), nothing()
                    for k in range(begin + since, begin + count, n):
                        other_x, other_y, other_z, _ = load(records, near, k)
                        dx, dy, dz = other_x - x, other_y - y, other_z - z
                        r2 = dx * dx + (dy * dy + dz * dz)
                        within = r2 < limit
                        r = math.sqrt(minimum(r2, held))
                        over = 1.0 / r
                        g = strength * zero_unless(within, math.exp(width / (r - reach)))
                        ux, uy, uz = dx * over, dy * over, dz * over
                        gx, gy, gz = g * ux, g * uy, g * uz
                        s0, sx, sy, sz = add(s0, g, twice), add(sx, gx, once), add(sy, gy, once), add(sz, gz, once)
                        xx, yy, zz = add(xx, gx, ux), add(yy, gy, uy), add(zz, gz, uz)
                        xy, xz, yz = add(xy, gx, uy), add(xz, gx, uz), add(yz, gy, uz)
                    if kinds == 1:
                        store(first, own, s0, sx, sy, sz)
                        store(second, own, xx, yy, zz, xy)
                        store(third, own, xz, yz, nothing(), nothing())
                    else:
                        store(raw, RAW * other, s0, sx, sy, sz)
                        store(raw, RAW * other + 4, xx, yy, zz, xy)
                        store(raw, RAW * other + 8, xz, yz, nothing(), nothing())
                if kinds > 1:
                    mix(raw, triples, kinds * kinds * TRIPLE * kind, own, stride, first, second, third)

    return jit(moments, key=("moments", form), math=REORDERED)


@inlined
def pair_of(pairs, k):
    """The parameters of pair k."""
    at = PAIR * k
    return (
        pairs[at], pairs[at + 1], pairs[at + 2], pairs[at + 3], pairs[at + 4], pairs[at + 5], pairs[at + 6],
        pairs[at + 7], pairs[at + 8], pairs[at + 9],
    )  # fmt: skip


def _mix_of(kinds: int) -> Any:
    """The piece mix(raw, triples, base, own, stride, first, second, third): S0, S1, S2 of each kind."""

    @inlined(math=REORDERED)
    def mix(raw, triples, base, own, stride, first, second, third):
        for t in range(kinds):
            s0, sx, sy, sz, xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for s in range(kinds):
                at, m = base + TRIPLE * (kinds * t + s), RAW * s
                strength, once, twice = triples[at], triples[at + 1], triples[at + 2]
                s0, sx = s0 + twice * raw[m], sx + once * raw[m + 1]
                sy, sz = sy + once * raw[m + 2], sz + once * raw[m + 3]
                xx, yy, zz = xx + strength * raw[m + 4], yy + strength * raw[m + 5], zz + strength * raw[m + 6]
                xy, xz, yz = xy + strength * raw[m + 7], xz + strength * raw[m + 8], yz + strength * raw[m + 9]
            at = own + t * stride
            first[at], first[at + 1], first[at + 2], first[at + 3] = s0, sx, sy, sz
            second[at], second[at + 1], second[at + 2], second[at + 3] = xx, yy, zz, xy
            third[at], third[at + 1] = xz, yz

    return mix


@cache
def force_kernel(form: Form, powers: tuple[float, float] | None) -> Any:
    """The kernel forces(clusters, records, start, near, counts, pairs, first, second, third, forces, tallies); see
    `reference.forces_of_pairs`. `near` and `counts` are of the moment kernel; powers: of `Tetrahedra`.
    """
    n, kinds, room, measure = form.lanes, form.types, room_of(form), form.measure
    load, broadcast, _, _, _, _, _, zero_unless, minimum, _, _, load_four = pieces(form)
    nothing, add, store, _ = sums(form)
    raised, lowered = (_power(power) for power in powers or (None, None))

    @inlined(math=REORDERED)
    def bond(given, r2, dx, dy, dz, own, other):
        """The pair energy, with that of angles at the first, and the force on the first of a bond."""
        most, least, p, q, sigma, reach, width, _, alone, own_alone = given
        r = math.sqrt(r2)
        over = 1.0 / r
        ux, uy, uz = dx * over, dy * over, dz * over
        s0, sx, sy, sz = own[0] + other[0], own[1] - other[1], own[2] - other[2], own[3] - other[3]
        xx, yy, zz, xy = own[4] + other[4], own[5] + other[5], own[6] + other[6], own[7] + other[7]
        xz, yz = own[8] + other[8], own[9] + other[9]
        gap = 1.0 / (r - reach)
        g = math.exp(width * gap)
        tx, ty, tz = xx * ux + xy * uy + xz * uz, xy * ux + yy * uy + yz * uz, xz * ux + yz * uy + zz * uz
        along = tx * ux + ty * uy + tz * uz
        across = sx * ux + sy * uy + sz * uz
        bent = along - 2.0 * across + s0 - alone * g
        turn = 2.0 * g * over
        repelling, attracting = most * raised(over, r, p), least * lowered(over, r, q)
        fade = math.exp(sigma * gap)
        pair = (repelling - attracting) * fade
        slope = (q * attracting - p * repelling) * over * fade - pair * (sigma * gap * gap)
        radial = slope - width * gap * gap * g * bent - turn * (along - across)
        energy = pair
        if measure:
            tx_own = own[4] * ux + 2.0 * (own[7] * uy + own[8] * uz)
            flat = tx_own * ux + own[5] * uy * uy + (own[6] * uz + 2.0 * own[9] * uy) * uz
            turned = own[1] * ux + own[2] * uy + own[3] * uz
            energy = pair + g * (flat - 2.0 * turned + own[0] - own_alone * g)
        return energy, radial * ux + turn * (tx - sx), radial * uy + turn * (ty - sy), radial * uz + turn * (tz - sz)

    def forces(clusters, records, start, near, counts, pairs, first, second, third, forces, tallies):
        one, stride = broadcast(1.0), len(first) // kinds
        given = pair_of(pairs, 0)
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                at, kind = RECORD * i, 0
                x, y, z = broadcast(records[at]), broadcast(records[at + 1]), broadcast(records[at + 2])
                fx, fy, fz, energy = nothing(), nothing(), nothing(), nothing()
                xx, yy, zz = nothing(), nothing(), nothing()
                xy, xz, yz = nothing(), nothing(), nothing()
                s0, s1, s2 = first, second, third
                if kinds > 1:
                    kind = min(type_of_double(records[at + 3]), kinds - 1)
                    s0, s1, s2 = first[kind * stride :], second[kind * stride :], third[kind * stride :]
                begin = start[i] + i * room
                k = begin
                for t in range(kinds):
                    of = at + t * stride
                    if kinds > 1:
                        given = pair_of(pairs, kinds * kind + t)
                    own = (
                        broadcast(first[of]), broadcast(first[of + 1]), broadcast(first[of + 2]),
                        broadcast(first[of + 3]), broadcast(second[of]), broadcast(second[of + 1]),
                        broadcast(second[of + 2]), broadcast(second[of + 3]), broadcast(third[of]),
                        broadcast(third[of + 1]),
                    )  # fmt: skip
                    cutoff2 = given[7] * given[7]
                    held, limit = broadcast(cutoff2 * (1.0 - NEARER)), broadcast(cutoff2)
                    while k < begin + counts[kinds * i + t]:
                        other_x, other_y, other_z, _ = load(records, near, k)
                        a, b, c = load_four(s0, near, k), load_four(s1, near, k), load_four(s2, near, k)
                        other = a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1]
                        dx, dy, dz = other_x - x, other_y - y, other_z - z
                        r2 = dx * dx + (dy * dy + dz * dz)
                        within = r2 < limit
                        pair, gx, gy, gz = bond(given, minimum(r2, held), dx, dy, dz, own, other)
                        gx, gy, gz = zero_unless(within, gx), zero_unless(within, gy), zero_unless(within, gz)
                        fx, fy, fz = add(fx, gx, one), add(fy, gy, one), add(fz, gz, one)
                        if measure:
                            energy = add(energy, zero_unless(within, pair), one)
                            xx, yy, zz = add(xx, gx, -dx), add(yy, gy, -dy), add(zz, gz, -dz)
                            xy, xz, yz = add(xy, gx, -dy), add(xz, gx, -dz), add(yz, gy, -dz)
                        k += n
                store(forces, at, fx, fy, fz, nothing())
                if measure:
                    store(tallies, TALLY * i, energy, xx, yy, zz)
                    store(tallies, TALLY * i + 4, xy, xz, yz, nothing())

    return jit(forces, key=("bonds", form, powers), math=REORDERED)


def _power(exponent: float | None) -> Any:
    """The function (over, r, exponent): r to the power of -exponent, over being 1 / r; of None that of the argument."""
    if exponent is None:

        @inlined(math=REORDERED)
        def by_argument(over, r, power):
            return math.exp(-power * math.log(r))

        return by_argument
    whole = int(exponent)

    @inlined(math=REORDERED)
    def by_products(over, r, power):
        return over**whole

    @inlined(math=REORDERED)
    def by_logarithm(over, r, power):
        return math.exp(-exponent * math.log(r))

    @inlined
    def none(over, r, power):
        return over * 0.0 + 1.0

    return none if exponent == 0 else by_products if exponent == whole else by_logarithm
