"""Tersoff's potential, Numba: vectors over particles, for an instruction set.

Four of thirty neighbors in a list are within the cutoff. Each lane is a particle; its near neighbors are set side by
side, a row for the first of all lanes, one for the second, and so on, and the loop over triplets runs over these rows.
Forces on neighbors are kept in rows, too, and added to the slots at the end, one number after the other.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile import (
    functions,  # noqa: F401  (math.sqrt, exp and log, max and min of vectors)
    intrinsics,
)
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.loops import (
    COARSE,
    FINE,
    REORDERED,
    coarse_and_fine,
    pieces,
    put_number,
    rounded_number,
    sums,
    type_of_double,
)
from hpckit.kernels.particles.many_body.tersoff.reference import LEAST, MOST, PAIR
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

# Rows of a neighbor: unit vector, distance, its inverse, f and f'; force, and its second part; of a triplet four more.
UX, UY, UZ, R, OVER, FADE, DROP, FX, FINER, COSINE, BEND, ALONG, LOSS = 0, 1, 2, 3, 4, 5, 6, 7, 10, 13, 14, 15, 16
ROWS = 17
FARTHER = 1.0 + 1e-9  # than the cutoff: what lanes without a neighbor are held to, where f is 0 and not its last bit
SINES = tuple((-1) ** k * (0.5 * math.pi) ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11))
COSINES = tuple((-1) ** k * (0.5 * math.pi) ** (2 * k) / math.factorial(2 * k) for k in range(11))


class Room(NamedTuple):
    """What the kernel works in: near neighbors by row and lane, and of one particle; their numbers; places of
    parameters of pairs by row and lane, and of triplets; rows of vectors; results of lanes.
    """

    longest: int
    near: np.ndarray
    line: np.ndarray
    counts: np.ndarray
    pair_at: np.ndarray
    triple_at: np.ndarray
    rows: np.ndarray
    lanes: np.ndarray


def make_room(form: Form, longest: int) -> Room:
    """Room for lists of that many neighbors."""
    n, most = form.lanes, longest + 16
    integers = [np.zeros(size, np.int32) for size in (most * n, most + 16, n, most * n, n)]
    near, line, counts, pair_at, triple_at = integers
    return Room(longest, near, line, counts, pair_at, triple_at, np.zeros(most * ROWS * n), np.zeros(8 * n))


@cache
def force_kernel(form: Form, shared: bool, widths: bool) -> Any:
    """The kernel forces(clusters, records, start, entries, pad, pairs, triples, cutoff, near, line, counts, pair_at,
    triple_at, rows, lanes, pushed, tallies); see `dispatch.forces`. The seven before the last two are a `Room`.
    """
    n, exact, one_type, measure = form.lanes, form.exact, form.types == 1, form.measure
    scalar = form.isa == "scalar"
    load, broadcast, load_lanes, keep, _, ones, _, zero_unless, minimum, _, _, load_four = pieces(form)
    nothing, add, _, _ = sums(form)
    put = put_number if scalar else intrinsics.store
    rounded = rounded_number if scalar else intrinsics.rounded

    @inlined
    def whole(total):
        return total[0] + total[1] if exact else total

    @inlined(math=REORDERED)
    def push(rows, at, value):
        """Add to a row of forces."""
        if exact:
            coarse = rounded(value, broadcast(COARSE))
            put(rows, at, load_lanes(rows, at) + coarse)
            at += (FINER - FX) * n
            put(rows, at, load_lanes(rows, at) + rounded(value - coarse, broadcast(FINE)))
        else:
            put(rows, at, load_lanes(rows, at) + value)

    @inlined
    def land(rows, at, total):
        """Add a sum to a row of forces."""
        if exact:
            put(rows, at, load_lanes(rows, at) + total[0])
            at += (FINER - FX) * n
            put(rows, at, load_lanes(rows, at) + total[1])
        else:
            put(rows, at, load_lanes(rows, at) + total)

    @inlined
    def force_of(rows, at):
        if exact:
            return load_lanes(rows, at) + load_lanes(rows, at + (FINER - FX) * n)
        return load_lanes(rows, at)

    @inlined
    def parameters(table, places, k, shift):
        """Four parameters of each lane."""
        if one_type:
            return (
                broadcast(table[shift]), broadcast(table[shift + 1]), broadcast(table[shift + 2]),
                broadcast(table[shift + 3]),
            )  # fmt: skip
        return load_four(table[shift:], places, k)

    @inlined(math=REORDERED)
    def fading(r, middle, half):
        """F and f', by the series of sine and cosine."""
        x = max(min((r - middle) / half, 1.0), -1.0)
        x2 = x * x
        value, slope = broadcast(SINES[10]), broadcast(COSINES[10])
        for k in range(9, -1, -1):
            value, slope = value * x2 + SINES[k], slope * x2 + COSINES[k]
        return (
            zero_unless(x < broadcast(1.0), 0.5 - 0.5 * (value * x)),
            zero_unless(x2 < broadcast(1.0), (-0.25 * math.pi) * slope / half),
        )

    @inlined(math=REORDERED)
    def grown(near, far, width, cubed):
        """The exponential of zeta, and its derivative over it."""
        x = width * (near - far)
        once = 1.0 + cubed * (x * x - 1.0)
        return math.exp(max(min(x * once, MOST), -MOST)), width * (1.0 + cubed * (3.0 * x * x - 1.0))

    def forces(clusters, records, start, entries, pad, pairs, triples, cutoff, near, line, counts, pair_at, triple_at,
               rows, lanes, pushed, tallies):  # fmt: skip
        limit, held, one = broadcast(cutoff * cutoff), broadcast(cutoff * cutoff * FARTHER), broadcast(1.0)
        types = 1
        if not one_type:
            while types * types * PAIR < len(pairs):
                types += 1
        for cluster in clusters:
            for group in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER, n):
                # The near neighbors of each lane, in rows.
                most = 0
                for lane in range(n):
                    i, count = group + lane, 0
                    own = RECORD * i
                    x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                    for k in range(start[i], start[i + 1], n):
                        other_x, other_y, other_z, _ = load(records, entries, k)
                        dx, dy, dz = other_x - x, other_y - y, other_z - z
                        within = dx * dx + (dy * dy + dz * dz) < limit
                        keep(line, count, entries, k, within)
                        count += ones(within)
                    counts[lane] = count
                    most = max(most, count)
                    for m in range(count):
                        near[m * n + lane] = line[m]
                if most == 0:
                    if measure:
                        for at in range(TALLY * group, TALLY * (group + n)):
                            tallies[at] = 0.0
                    continue
                for lane in range(n):
                    for m in range(counts[lane], most):
                        near[m * n + lane] = pad
                    line[lane] = RECORD * (group + lane)
                if not one_type:
                    for m in range(most):
                        for lane in range(n):
                            own = type_of_double(records[RECORD * (group + lane) + 3])
                            other = type_of_double(records[near[m * n + lane] + 3])
                            pair_at[m * n + lane] = PAIR * (own * types + min(other, types - 1))
                x, y, z, _ = load(records, line, 0)
                for m in range(most):
                    at = m * ROWS * n
                    other_x, other_y, other_z, _ = load(records, near, m * n)
                    dx, dy, dz = other_x - x, other_y - y, other_z - z
                    r = math.sqrt(minimum(dx * dx + (dy * dy + dz * dz), held))
                    over = 1.0 / r
                    put(rows, at + UX * n, dx * over)
                    put(rows, at + UY * n, dy * over)
                    put(rows, at + UZ * n, dz * over)
                    put(rows, at + R * n, r)
                    put(rows, at + OVER * n, over)
                    if shared:
                        _, _, middle, half = parameters(pairs, pair_at, m * n, 4)
                        fade, drop = fading(r, middle, half)
                        put(rows, at + FADE * n, fade)
                        put(rows, at + DROP * n, drop)
                    for row in range(FX, FX + (6 if exact else 3)):
                        put(rows, at + row * n, broadcast(0.0))
                energy = nothing()
                for j in range(most):
                    at = j * ROWS * n
                    jx, jy, jz = load_lanes(rows, at), load_lanes(rows, at + n), load_lanes(rows, at + 2 * n)
                    r, over = load_lanes(rows, at + R * n), load_lanes(rows, at + OVER * n)
                    a, fall_a, b, fall_b = parameters(pairs, pair_at, j * n, 0)
                    beta, power, middle, half = parameters(pairs, pair_at, j * n, 4)
                    if shared:
                        fade, drop = load_lanes(rows, at + FADE * n), load_lanes(rows, at + DROP * n)
                    else:
                        fade, drop = fading(r, middle, half)
                    zeta = nothing()
                    for k in range(most):
                        if k == j:
                            continue
                        to = k * ROWS * n
                        if not one_type:
                            for lane in range(n):
                                own = pair_at[j * n + lane] * types
                                third = pair_at[k * n + lane] - pair_at[k * n + lane] // (PAIR * types) * (PAIR * types)
                                triple_at[lane] = own + third
                        kx, ky, kz = load_lanes(rows, to), load_lanes(rows, to + n), load_lanes(rows, to + 2 * n)
                        h, d2, gamma, q = parameters(triples, triple_at, 0, 0)
                        cosine = jx * kx + (jy * ky + jz * kz)
                        x = h - cosine
                        w = 1.0 / (d2 + x * x)
                        g, bend = gamma + q * (x * x) * w, (-2.0 * q * d2) * x * (w * w)
                        if shared:
                            far, fall = load_lanes(rows, to + FADE * n), load_lanes(rows, to + DROP * n)
                        else:
                            _, _, middle, half = parameters(triples, triple_at, 0, 4)
                            far, fall = fading(load_lanes(rows, to + R * n), middle, half)
                        if widths:
                            width, cubed, _, _ = parameters(triples, triple_at, 0, 4)
                            e, stretch = grown(r, load_lanes(rows, to + R * n), width, cubed)
                            far, fall = far * e, fall * e
                            put(rows, to + ALONG * n, far * g * stretch)
                        put(rows, to + COSINE * n, cosine)
                        put(rows, to + BEND * n, far * bend)
                        put(rows, to + LOSS * n, fall * g)
                        zeta = add(zeta, far * g, one)
                    total = whole(zeta)
                    t, floor = max(beta * total, LEAST), max(total, LEAST)
                    raised = math.exp(power * math.log(t))
                    order = math.exp((-0.5 / power) * math.log(1.0 + raised))
                    slope = -0.5 * order * raised / ((1.0 + raised) * floor)
                    repelling, attracting = a * math.exp(-fall_a * r), b * math.exp(-fall_b * r)
                    bond = repelling - order * attracting
                    energy = add(energy, fade * bond, one)
                    radial = 0.5 * (drop * bond + fade * (fall_b * order * attracting - fall_a * repelling))
                    pull = -0.5 * fade * attracting * slope
                    fx, fy, fz = nothing(), nothing(), nothing()
                    fx, fy, fz = add(fx, -radial, jx), add(fy, -radial, jy), add(fz, -radial, jz)
                    for k in range(most):
                        if k == j:
                            continue
                        to = k * ROWS * n
                        kx, ky, kz = load_lanes(rows, to), load_lanes(rows, to + n), load_lanes(rows, to + 2 * n)
                        cosine, bend = load_lanes(rows, to + COSINE * n), pull * load_lanes(rows, to + BEND * n)
                        away = pull * load_lanes(rows, to + LOSS * n)
                        near_bend, far_bend = bend * over, bend * load_lanes(rows, to + OVER * n)
                        along = near_bend * cosine
                        away = away - far_bend * cosine
                        if widths:
                            more = pull * load_lanes(rows, to + ALONG * n)
                            along, away = along - more, away - more
                        fx = add(fx, along * jx - near_bend * kx, one)
                        fy = add(fy, along * jy - near_bend * ky, one)
                        fz = add(fz, along * jz - near_bend * kz, one)
                        push(rows, to + FX * n, -(away * kx + far_bend * jx))
                        push(rows, to + (FX + 1) * n, -(away * ky + far_bend * jy))
                        push(rows, to + (FX + 2) * n, -(away * kz + far_bend * jz))
                    land(rows, at + FX * n, fx)
                    land(rows, at + (FX + 1) * n, fy)
                    land(rows, at + (FX + 2) * n, fz)
                if measure:
                    xx, yy, zz, xy, xz, yz = nothing(), nothing(), nothing(), nothing(), nothing(), nothing()
                    for m in range(most):
                        at = m * ROWS * n
                        r = 2.0 * load_lanes(rows, at + R * n)
                        dx, dy, dz = (
                            r * load_lanes(rows, at),
                            r * load_lanes(rows, at + n),
                            r * load_lanes(rows, at + 2 * n),
                        )
                        fx, fy = force_of(rows, at + FX * n), force_of(rows, at + (FX + 1) * n)
                        fz = force_of(rows, at + (FX + 2) * n)
                        xx, yy, zz = add(xx, fx, dx), add(yy, fy, dy), add(zz, fz, dz)
                        xy, xz, yz = add(xy, fx, dy), add(xz, fx, dz), add(yz, fy, dz)
                    put(lanes, 0, whole(energy))
                    put(lanes, n, whole(xx))
                    put(lanes, 2 * n, whole(yy))
                    put(lanes, 3 * n, whole(zz))
                    put(lanes, 4 * n, whole(xy))
                    put(lanes, 5 * n, whole(xz))
                    put(lanes, 6 * n, whole(yz))
                    for lane in range(n):
                        for column in range(TALLY - 1):
                            tallies[TALLY * (group + lane) + column] = lanes[column * n + lane]
                # Forces on neighbors, and the opposite ones on the particles of the lanes.
                for lane in range(n):
                    own = RECORD * (group + lane)
                    for m in range(counts[lane]):
                        other, at = near[m * n + lane], (m * ROWS + FX) * n + lane
                        for d in range(3):
                            if exact:
                                value = rows[at + d * n] + rows[at + (d + FINER - FX) * n]
                                coarse, fine = coarse_and_fine(value)
                                pushed[2 * other + d] += coarse
                                pushed[2 * other + 4 + d] += fine
                                pushed[2 * own + d] -= coarse
                                pushed[2 * own + 4 + d] -= fine
                            else:
                                pushed[other + d] += rows[at + d * n]
                                pushed[own + d] -= rows[at + d * n]

    return jit(forces, key=("tersoff", form, shared, widths), math=REORDERED)
