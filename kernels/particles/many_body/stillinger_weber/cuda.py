"""Stillinger and Weber's potential on a GPU: one thread a particle over its full list, for moments and for forces."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.cuda_records import load_record
from hpckit.kernels.particles.many_body.stillinger_weber.reference import Silicon
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

THREADS = threads(128)
u8 = np.uint64


@cache
def moment_kernel(form: Form) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, given, first, second, third), all arrays flat; see
    `run_moments`.
    """

    @kernel
    def moments(records, slots, entries, stride, lengths, given, first, second, third):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            reach, width, cutoff = given[7], given[8], given[9]
            x, y, z, _ = load_record(records, i * u8(4))
            s0, sx, sy, sz, g2 = 0.0, 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            at = i
            for _ in range(lengths[i]):
                other_x, other_y, other_z, _ = load_record(records, u8(entries[at]) * u8(4))
                at += u8(stride)
                dx, dy, dz = other_x - x, other_y - y, other_z - z
                r2 = dx * dx + (dy * dy + dz * dz)
                if r2 < cutoff * cutoff:
                    r = math.sqrt(r2)
                    g = math.exp(width / (r - reach))
                    ux, uy, uz = dx / r, dy / r, dz / r
                    s0, sx, sy, sz, g2 = s0 + g, sx + g * ux, sy + g * uy, sz + g * uz, g2 + g * g
                    xx, yy, zz = xx + g * ux * ux, yy + g * uy * uy, zz + g * uz * uz
                    xy, xz, yz = xy + g * ux * uy, xz + g * ux * uz, yz + g * uy * uz
            at = i * u8(4)
            first[at], first[at + u8(1)], first[at + u8(2)], first[at + u8(3)] = s0, sx, sy, sz
            second[at], second[at + u8(1)], second[at + u8(2)], second[at + u8(3)] = xx, yy, zz, xy
            third[at], third[at + u8(1)], third[at + u8(2)] = xz, yz, g2

    return moments


@inlined
def _energy(first, second, third, at, strength, c):
    """See `reference.energies`."""
    s0, sx, sy, sz = load_record(first, at)
    xx, yy, zz, xy = load_record(second, at)
    xz, yz, g2, _ = load_record(third, at)
    squares = xx * xx + yy * yy + zz * zz + 2.0 * (xy * xy + xz * xz + yz * yz)
    flat = c * c * s0 * s0 - 2.0 * c * (sx * sx + sy * sy + sz * sz) - (1.0 - c) * (1.0 - c) * g2
    return 0.5 * strength * (squares + flat)


@cache
def force_kernel(form: Form, p: float, q: float) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, given, first, second, third, forces, tallies), all arrays
    flat; see `run_forces`. Without `measure`, tallies are left alone. p, q are in `given`, too.
    """
    measure = form.measure

    @kernel
    def forces(records, slots, entries, stride, lengths, given, first, second, third, forces, tallies):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            strength, c, most, least, p, q = given[0], given[1], given[2], given[3], given[4], given[5]
            sigma, reach, width, cutoff = given[6], given[7], given[8], given[9]
            own = i * u8(4)
            x, y, z, _ = load_record(records, own)
            a0, ax, ay, az = load_record(first, own)
            axx, ayy, azz, axy = load_record(second, own)
            axz, ayz, _, _ = load_record(third, own)
            fx, fy, fz, energy = 0.0, 0.0, 0.0, 2.0 * _energy(first, second, third, own, strength, c)
            wxx, wyy, wzz, wxy, wxz, wyz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            at = i
            for _ in range(lengths[i]):
                j = u8(entries[at]) * u8(4)
                at += u8(stride)
                other_x, other_y, other_z, _ = load_record(records, j)
                dx, dy, dz = other_x - x, other_y - y, other_z - z
                r2 = dx * dx + (dy * dy + dz * dz)
                if r2 < cutoff * cutoff:
                    r = math.sqrt(r2)
                    ux, uy, uz, gap = dx / r, dy / r, dz / r, 1.0 / (r - reach)
                    b0, bx, by, bz = load_record(first, j)
                    bxx, byy, bzz, bxy = load_record(second, j)
                    bxz, byz, _, _ = load_record(third, j)
                    sx, sy, sz = ax - bx, ay - by, az - bz
                    xx, yy, zz, xy, xz, yz = axx + bxx, ayy + byy, azz + bzz, axy + bxy, axz + bxz, ayz + byz
                    g = math.exp(width * gap)
                    tx, ty = xx * ux + xy * uy + xz * uz, xy * ux + yy * uy + yz * uz
                    tz = xz * ux + yz * uy + zz * uz
                    along, across = tx * ux + ty * uy + tz * uz, sx * ux + sy * uy + sz * uz
                    bent = along - 2.0 * c * across + c * c * (a0 + b0) - 2.0 * (1.0 - c) * (1.0 - c) * g
                    turn = 2.0 * strength * g / r
                    repelling, attracting = most * r ** (-p), least * r ** (-q)
                    fade = math.exp(sigma * gap)
                    pair = (repelling - attracting) * fade
                    slope = (q * attracting - p * repelling) / r * fade - pair * (sigma * gap * gap)
                    radial = slope - strength * width * gap * gap * g * bent - turn * (along - c * across)
                    gx, gy = radial * ux + turn * (tx - c * sx), radial * uy + turn * (ty - c * sy)
                    gz = radial * uz + turn * (tz - c * sz)
                    fx, fy, fz, energy = fx + gx, fy + gy, fz + gz, energy + pair
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


def run_moments(made: Kernel, records: Any, slots: int, lists: Lists, given: Silicon, parts: list[Any]) -> None:
    """Launch a kernel of `moment_kernel`: the three parts of the moments of the first `slots` slots, each flat."""
    entries = lists.entries.reshape(-1), lists.entries.shape[1]
    made[blocks(max(1, slots), THREADS), THREADS](
        records.reshape(-1), slots, *entries, lists.bounds, tuple(map(float, given)), *parts
    )


def run_forces(
    made: Kernel, records: Any, slots: int, lists: Lists, given: Silicon, parts: list[Any], out: Any, tallies: Any
) -> None:
    """Launch a kernel of `force_kernel`: into `out` forces float64 [slots, 4], and tallies float64 [slots, 8]."""
    entries, flat = (lists.entries.reshape(-1), lists.entries.shape[1]), (out.reshape(-1), tallies.reshape(-1))
    made[blocks(max(1, slots), THREADS), THREADS](
        records.reshape(-1), slots, *entries, lists.bounds, tuple(map(float, given)), *parts, *flat
    )
