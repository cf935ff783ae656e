"""What the kernel of Tersoff's forces is made of, for a form: each is one of its loops, which become part of it.

Near neighbors stand in rows, the first of all lanes, the second, and so on; the rows of vectors are named below.
"""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.compile import (
    functions,  # noqa: F401  (math.sqrt, exp and log, max and min of vectors)
    intrinsics,
)
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.cells.constants import RECORD
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
from hpckit.kernels.particles.many_body.tersoff.reference import MOST, PAIR
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

# Rows of a neighbor: unit vector, distance, its inverse, f and f'; force, and its second part; of a triplet four more.
UX, UY, UZ, R, OVER, FADE, DROP, FX, FINER, COSINE, BEND, ALONG, LOSS = 0, 1, 2, 3, 4, 5, 6, 7, 10, 13, 14, 15, 16
ROWS = 17
FARTHER = 1.0 + 1e-9  # than the cutoff: what lanes without a neighbor are held to, where f is 0 and not its last bit
SINES = tuple((-1) ** k * (0.5 * math.pi) ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11))
COSINES = tuple((-1) ** k * (0.5 * math.pi) ** (2 * k) / math.factorial(2 * k) for k in range(11))


def tables_of(form: Form) -> tuple[Any, Any]:
    """What is made of parameters: `parameters(table, places, k, shift)` and `fading(r, middle, half)`."""
    one_type = form.types == 1
    _, broadcast, _, _, _, _, _, zero_unless, _, _, _, load_four = pieces(form)

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

    return parameters, fading


def finder_of(form: Form, shared: bool) -> tuple[Any, Any, Any]:
    """`find(…)` sets the near neighbors of each lane side by side in rows and returns how many rows there are;
    `fill(…)` completes the rows, and `lay(…)` writes their unit vectors and what else is of one neighbor.
    """
    n, exact, one_type = form.lanes, form.exact, form.types == 1
    load, broadcast, _, keep, _, ones, _, _, minimum, _, _, _ = pieces(form)
    put = put_number if form.isa == "scalar" else intrinsics.store
    parameters, fading = tables_of(form)

    @inlined(math=REORDERED)
    def find(records, start, entries, group, limit, near, line, counts):
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
        return most

    @inlined(math=REORDERED)
    def fill(records, group, most, types, pad, near, line, counts, pair_at):
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

    @inlined(math=REORDERED)
    def lay(records, most, held, pairs, near, line, pair_at, rows):
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

    return find, fill, lay


def around_of(form: Form, shared: bool, widths: bool) -> tuple[Any, Any]:
    """The loops over the third bodies of a bond: `zeta_of(…)` of the bond to row j, which notes what the forces need,
    and `bend_bond(…)`, which adds to the rows the forces that a pull on zeta and one along the bond make.
    """
    n, exact, one_type = form.lanes, form.exact, form.types == 1
    scalar = form.isa == "scalar"
    _, broadcast, load_lanes, _, _, _, _, _, _, _, _, _ = pieces(form)
    nothing, add, _, _ = sums(form)
    put = put_number if scalar else intrinsics.store
    rounded = rounded_number if scalar else intrinsics.rounded
    parameters, fading = tables_of(form)
    whole = whole_of(form)

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

    @inlined(math=REORDERED)
    def grown(near, far, width, cubed):
        """The exponential of zeta, and its derivative over it."""
        x = width * (near - far)
        once = 1.0 + cubed * (x * x - 1.0)
        return math.exp(max(min(x * once, MOST), -MOST)), width * (1.0 + cubed * (3.0 * x * x - 1.0))

    @inlined(math=REORDERED)
    def zeta_of(j, most, r, bond, triples, types, pair_at, triple_at, rows, one):
        jx, jy, jz = bond
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
        return whole(zeta)

    @inlined(math=REORDERED)
    def bend_bond(j, most, radial, pull, over, bond, rows, one):
        at = j * ROWS * n
        jx, jy, jz = bond
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

    return zeta_of, bend_bond


def whole_of(form: Form) -> Any:
    """A sum as vectors."""
    exact = form.exact

    @inlined
    def whole(total):
        return total[0] + total[1] if exact else total

    return whole


def ends_of(form: Form) -> tuple[Any, Any]:
    """`tally(…)` sets energies and virials of the lanes, and `hand_out(…)` adds forces on neighbors, and the opposite
    ones on the particles of the lanes.
    """
    n, exact = form.lanes, form.exact
    load_lanes = pieces(form).load_lanes
    nothing, add, _, _ = sums(form)
    put = put_number if form.isa == "scalar" else intrinsics.store
    whole = whole_of(form)

    @inlined
    def force_of(rows, at):
        if exact:
            return load_lanes(rows, at) + load_lanes(rows, at + (FINER - FX) * n)
        return load_lanes(rows, at)

    @inlined(math=REORDERED)
    def tally(group, most, energy, rows, lanes, tallies):
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

    @inlined(math=REORDERED)
    def hand_out(group, near, counts, rows, pushed):
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

    return tally, hand_out
