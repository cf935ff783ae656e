"""Stillinger and Weber's potential on a GPU: one thread a particle over its full list, for moments and for forces."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.cuda_records import load_record, type_of_double
from hpckit.kernels.particles.many_body.stillinger_weber.reference import PAIR, TRIPLE, Tetrahedra
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

THREADS = threads(128)
RAW = 10  # numbers of a kind before they are mixed: s0, s1, s2
u8 = np.uint64


@cache
def moment_kernel(form: Form) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, pairs, triples, first, second, third), all arrays flat; see
    `run_moments`. form.types: kinds.
    """
    kinds, room = form.types, RAW * form.types

    @kernel
    def moments(records, slots, entries, stride, lengths, pairs, triples, first, second, third):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            raw = cuda.local.array(room, np.float64)
            for m in range(room):
                raw[m] = 0.0
            x, y, z, w = load_record(records, i * u8(4))
            kind = 0 if kinds == 1 else min(type_of_double(w), kinds - 1)
            at = i
            for _ in range(lengths[i]):
                other_x, other_y, other_z, w = load_record(records, u8(entries[at]) * u8(4))
                at += u8(stride)
                other = 0 if kinds == 1 else min(type_of_double(w), kinds - 1)
                dx, dy, dz = other_x - x, other_y - y, other_z - z
                r2, pair = dx * dx + (dy * dy + dz * dz), PAIR * (kinds * kind + other)
                if r2 < pairs[pair + 7] * pairs[pair + 7]:
                    r, m = math.sqrt(r2), RAW * other
                    g = math.exp(pairs[pair + 6] / (r - pairs[pair + 5]))
                    ux, uy, uz = dx / r, dy / r, dz / r
                    raw[m] += g
                    raw[m + 1], raw[m + 2], raw[m + 3] = raw[m + 1] + g * ux, raw[m + 2] + g * uy, raw[m + 3] + g * uz
                    raw[m + 4] += g * ux * ux
                    raw[m + 5] += g * uy * uy
                    raw[m + 6] += g * uz * uz
                    raw[m + 7] += g * ux * uy
                    raw[m + 8] += g * ux * uz
                    raw[m + 9] += g * uy * uz
            base = kinds * kinds * TRIPLE * kind
            for t in range(kinds):
                s0, sx, sy, sz, xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for s in range(kinds):
                    three, m = base + TRIPLE * (kinds * t + s), RAW * s
                    strength, once, twice = triples[three], triples[three + 1], triples[three + 2]
                    s0, sx = s0 + twice * raw[m], sx + once * raw[m + 1]
                    sy, sz = sy + once * raw[m + 2], sz + once * raw[m + 3]
                    xx, yy, zz = xx + strength * raw[m + 4], yy + strength * raw[m + 5], zz + strength * raw[m + 6]
                    xy, xz, yz = xy + strength * raw[m + 7], xz + strength * raw[m + 8], yz + strength * raw[m + 9]
                to = i * u8(4) + u8(t) * u8(len(first) // kinds)
                first[to], first[to + u8(1)], first[to + u8(2)], first[to + u8(3)] = s0, sx, sy, sz
                second[to], second[to + u8(1)], second[to + u8(2)], second[to + u8(3)] = xx, yy, zz, xy
                third[to], third[to + u8(1)] = xz, yz

    return moments


@cache
def force_kernel(form: Form, powers: tuple[float, float] | None) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, pairs, first, second, third, forces, tallies), all arrays
    flat; see `run_forces`. Without `measure`, tallies are left alone. powers are in `pairs`, too.
    """
    kinds, measure = form.types, form.measure

    @kernel
    def forces(records, slots, entries, stride, lengths, pairs, first, second, third, forces, tallies):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            own, apart = i * u8(4), u8(len(first) // kinds)
            x, y, z, w = load_record(records, own)
            kind = 0 if kinds == 1 else min(type_of_double(w), kinds - 1)
            fx, fy, fz, energy = 0.0, 0.0, 0.0, 0.0
            wxx, wyy, wzz, wxy, wxz, wyz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            at = i
            for _ in range(lengths[i]):
                j = u8(entries[at]) * u8(4)
                at += u8(stride)
                other_x, other_y, other_z, w = load_record(records, j)
                other = 0 if kinds == 1 else min(type_of_double(w), kinds - 1)
                dx, dy, dz = other_x - x, other_y - y, other_z - z
                r2, pair_at = dx * dx + (dy * dy + dz * dz), PAIR * (kinds * kind + other)
                if r2 < pairs[pair_at + 7] * pairs[pair_at + 7]:
                    most, least, p, q = pairs[pair_at], pairs[pair_at + 1], pairs[pair_at + 2], pairs[pair_at + 3]
                    sigma, width, alone = pairs[pair_at + 4], pairs[pair_at + 6], pairs[pair_at + 8]
                    r = math.sqrt(r2)
                    ux, uy, uz, gap = dx / r, dy / r, dz / r, 1.0 / (r - pairs[pair_at + 5])
                    here, there = own + u8(other) * apart, j + u8(kind) * apart
                    a0, ax, ay, az = load_record(first, here)
                    axx, ayy, azz, axy = load_record(second, here)
                    axz, ayz, _, _ = load_record(third, here)
                    b0, bx, by, bz = load_record(first, there)
                    bxx, byy, bzz, bxy = load_record(second, there)
                    bxz, byz, _, _ = load_record(third, there)
                    sx, sy, sz = ax - bx, ay - by, az - bz
                    xx, yy, zz, xy, xz, yz = axx + bxx, ayy + byy, azz + bzz, axy + bxy, axz + bxz, ayz + byz
                    g = math.exp(width * gap)
                    tx, ty = xx * ux + xy * uy + xz * uz, xy * ux + yy * uy + yz * uz
                    tz = xz * ux + yz * uy + zz * uz
                    along, across = tx * ux + ty * uy + tz * uz, sx * ux + sy * uy + sz * uz
                    bent = along - 2.0 * across + (a0 + b0) - alone * g
                    turn = 2.0 * g / r
                    repelling, attracting = most * r ** (-p), least * r ** (-q)
                    fade = math.exp(sigma * gap)
                    pair = (repelling - attracting) * fade
                    slope = (q * attracting - p * repelling) / r * fade - pair * (sigma * gap * gap)
                    radial = slope - width * gap * gap * g * bent - turn * (along - across)
                    gx, gy = radial * ux + turn * (tx - sx), radial * uy + turn * (ty - sy)
                    gz = radial * uz + turn * (tz - sz)
                    fx, fy, fz = fx + gx, fy + gy, fz + gz
                    flat = (axx * ux + 2.0 * (axy * uy + axz * uz)) * ux + ayy * uy * uy
                    flat += (azz * uz + 2.0 * ayz * uy) * uz
                    angles = g * (flat - 2.0 * (ax * ux + ay * uy + az * uz) + a0 - pairs[pair_at + 9] * g)
                    energy += pair + angles
                    wxx, wyy, wzz = wxx - gx * dx, wyy - gy * dy, wzz - gz * dz
                    wxy, wxz, wyz = wxy - gx * dy, wxz - gx * dz, wyz - gy * dz
            forces[own], forces[own + u8(1)], forces[own + u8(2)] = fx, fy, fz
            if measure:
                tally = i * u8(TALLY)
                tallies[tally], tallies[tally + u8(1)] = energy, wxx
                tallies[tally + u8(2)], tallies[tally + u8(3)] = wyy, wzz
                tallies[tally + u8(4)], tallies[tally + u8(5)] = wxy, wxz
                tallies[tally + u8(6)] = wyz

    return forces


def run_moments(made: Kernel, records: Any, slots: int, lists: Lists, given: Tetrahedra, parts: list[Any]) -> None:
    """Launch a kernel of `moment_kernel`: the three parts of the moments of the first `slots` slots, each flat."""
    entries = lists.entries.reshape(-1), lists.entries.shape[1]
    tables = given.pairs.reshape(-1), given.triples.reshape(-1)
    made[blocks(max(1, slots), THREADS), THREADS](records.reshape(-1), slots, *entries, lists.bounds, *tables, *parts)


def run_forces(
    made: Kernel, records: Any, slots: int, lists: Lists, given: Tetrahedra, parts: list[Any], out: Any, tallies: Any
) -> None:
    """Launch a kernel of `force_kernel`: into `out` forces float64 [slots, 4], and tallies float64 [slots, 8]."""
    entries, flat = (lists.entries.reshape(-1), lists.entries.shape[1]), (out.reshape(-1), tallies.reshape(-1))
    made[blocks(max(1, slots), THREADS), THREADS](
        records.reshape(-1), slots, *entries, lists.bounds, given.pairs.reshape(-1), *parts, *flat
    )
