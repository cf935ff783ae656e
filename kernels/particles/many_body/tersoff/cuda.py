"""Tersoff's potential on a GPU: one thread a particle, which finds zeta of each of its bonds over its list, and pushes
its neighbors. They are pushed by many threads: additions are atomic, in no fixed order, so last bits vary.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.cuda_records import load_record, type_of_double
from hpckit.kernels.particles.many_body.tersoff.reference import LEAST, MOST, PAIR, TRIPLE
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY

THREADS = threads(128)
u8 = np.uint64


@inlined
def _fading(r, middle, half):
    """F and f'."""
    x = (r - middle) / half
    if x <= -1.0:
        return 1.0, 0.0
    if x >= 1.0:
        return 0.0, 0.0
    return 0.5 - 0.5 * math.sin(0.5 * math.pi * x), -0.25 * math.pi / half * math.cos(0.5 * math.pi * x)


@inlined
def _grown(near, far, width, cubed):
    """The exponential in zeta, and its derivative over it."""
    x = width * (near - far)
    power = x * (1.0 + cubed * (x * x - 1.0))
    return math.exp(max(min(power, MOST), -MOST)), width * (1.0 + cubed * (3.0 * x * x - 1.0))


@cache
def force_kernel(form: Form, shared: bool, widths: bool) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, pairs, triples, types, cutoff, pushed, tallies), all arrays
    flat; see `run_forces`. f is computed anew for each third particle, whether or not it is `shared`.
    """
    measure = form.measure

    @kernel
    def forces(records, slots, entries, stride, lengths, pairs, triples, types, cutoff, pushed, tallies):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            x, y, z, word = load_record(records, i * u8(4))
            own, last, limit = u8(type_of_double(word)), u8(types) - u8(1), cutoff * cutoff
            fx, fy, fz, energy = 0.0, 0.0, 0.0, 0.0
            wxx, wyy, wzz, wxy, wxz, wyz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for jn in range(lengths[i]):
                j = u8(entries[i + u8(jn) * u8(stride)])
                jx, jy, jz, word = load_record(records, j * u8(4))
                jx, jy, jz = jx - x, jy - y, jz - z
                r2 = jx * jx + (jy * jy + jz * jz)
                if r2 >= limit:
                    continue
                pair = own * u8(types) + min(u8(type_of_double(word)), last)
                a, fall_a, b, fall_b = load_record(pairs, pair * u8(PAIR))
                beta, power, middle, half = load_record(pairs, pair * u8(PAIR) + u8(4))
                r = math.sqrt(r2)
                ux, uy, uz = jx / r, jy / r, jz / r
                fade, drop = _fading(r, middle, half)
                if fade == 0.0:
                    continue
                zeta = 0.0
                for kn in range(lengths[i]):
                    kx, ky, kz, word = load_record(records, u8(entries[i + u8(kn) * u8(stride)]) * u8(4))
                    kx, ky, kz = kx - x, ky - y, kz - z
                    r2 = kx * kx + (ky * ky + kz * kz)
                    if kn == jn or r2 >= limit:
                        continue
                    at = (pair * u8(types) + min(u8(type_of_double(word)), last)) * u8(TRIPLE)
                    h, d2, gamma, q = load_record(triples, at)
                    width, cubed, middle, half = load_record(triples, at + u8(4))
                    far = math.sqrt(r2)
                    other, _ = _fading(far, middle, half)
                    if widths:
                        grown, _ = _grown(r, far, width, cubed)
                        other = other * grown
                    c = h - (ux * kx + (uy * ky + uz * kz)) / far
                    zeta += other * (gamma + q * (c * c) / (d2 + c * c))
                raised = math.exp(power * math.log(max(beta * zeta, LEAST)))
                order = math.exp((-0.5 / power) * math.log(1.0 + raised))
                slope = -0.5 * order * raised / ((1.0 + raised) * max(zeta, LEAST))
                repelling, attracting = a * math.exp(-fall_a * r), b * math.exp(-fall_b * r)
                bond = repelling - order * attracting
                energy += fade * bond
                radial = 0.5 * (drop * bond + fade * (fall_b * order * attracting - fall_a * repelling))
                pull = -0.5 * fade * attracting * slope
                gx, gy, gz = -radial * ux, -radial * uy, -radial * uz
                for kn in range(lengths[i]):
                    k = u8(entries[i + u8(kn) * u8(stride)])
                    kx, ky, kz, word = load_record(records, k * u8(4))
                    kx, ky, kz = kx - x, ky - y, kz - z
                    r2 = kx * kx + (ky * ky + kz * kz)
                    if kn == jn or r2 >= limit:
                        continue
                    at = (pair * u8(types) + min(u8(type_of_double(word)), last)) * u8(TRIPLE)
                    h, d2, gamma, q = load_record(triples, at)
                    width, cubed, middle, half = load_record(triples, at + u8(4))
                    far = math.sqrt(r2)
                    other, fall = _fading(far, middle, half)
                    vx, vy, vz = kx / far, ky / far, kz / far
                    cosine = ux * vx + (uy * vy + uz * vz)
                    c = h - cosine
                    over = 1.0 / (d2 + c * c)
                    g, bend = gamma + q * (c * c) * over, (-2.0 * q * d2) * c * (over * over)
                    more = 0.0
                    if widths:
                        grown, stretch = _grown(r, far, width, cubed)
                        other, fall = other * grown, fall * grown
                        more = pull * other * g * stretch
                    bend = pull * other * bend
                    along = bend / r * cosine - more
                    away = pull * fall * g - bend / far * cosine - more
                    gx, gy, gz = (
                        gx + along * ux - bend / r * vx,
                        gy + along * uy - bend / r * vy,
                        gz + along * uz - bend / r * vz,
                    )
                    px = -(away * vx + bend / far * ux)
                    py = -(away * vy + bend / far * uy)
                    pz = -(away * vz + bend / far * uz)
                    cuda.atomic.add(pushed, k * u8(4), px)
                    cuda.atomic.add(pushed, k * u8(4) + u8(1), py)
                    cuda.atomic.add(pushed, k * u8(4) + u8(2), pz)
                    fx, fy, fz = fx - px, fy - py, fz - pz
                    if measure:
                        wxx, wyy, wzz = wxx + 2.0 * px * kx, wyy + 2.0 * py * ky, wzz + 2.0 * pz * kz
                        wxy, wxz, wyz = wxy + 2.0 * px * ky, wxz + 2.0 * px * kz, wyz + 2.0 * py * kz
                cuda.atomic.add(pushed, j * u8(4), gx)
                cuda.atomic.add(pushed, j * u8(4) + u8(1), gy)
                cuda.atomic.add(pushed, j * u8(4) + u8(2), gz)
                fx, fy, fz = fx - gx, fy - gy, fz - gz
                if measure:
                    wxx, wyy, wzz = wxx + 2.0 * gx * jx, wyy + 2.0 * gy * jy, wzz + 2.0 * gz * jz
                    wxy, wxz, wyz = wxy + 2.0 * gx * jy, wxz + 2.0 * gx * jz, wyz + 2.0 * gy * jz
            cuda.atomic.add(pushed, i * u8(4), fx)
            cuda.atomic.add(pushed, i * u8(4) + u8(1), fy)
            cuda.atomic.add(pushed, i * u8(4) + u8(2), fz)
            if measure:
                tally = i * u8(TALLY)
                tallies[tally], tallies[tally + u8(1)] = energy, wxx
                tallies[tally + u8(2)], tallies[tally + u8(3)] = wyy, wzz
                tallies[tally + u8(4)], tallies[tally + u8(5)] = wxy, wxz
                tallies[tally + u8(6)] = wyz

    return forces


def run_forces(
    made: Kernel, records: Any, slots: int, lists: Lists, pairs: Any, triples: Any, cutoff: float, pushed: Any,
    tallies: Any,
) -> None:  # fmt: skip
    """Launch a kernel of `force_kernel`: forces of the energies of the first `slots` slots are added to `pushed`,
    float64 [all slots, 4], and tallies float64 [slots, 8] are written; pairs and triples are those of `Tersoff`, flat.
    """
    types = round(math.sqrt(len(pairs) // PAIR))
    entries = lists.entries.reshape(-1), lists.entries.shape[1]
    made[blocks(max(1, slots), THREADS), THREADS](
        records.reshape(-1), slots, *entries, lists.bounds, pairs, triples, types, float(cutoff),
        pushed.reshape(-1), tallies.reshape(-1),
    )  # fmt: skip
