"""Counter-based random numbers, Numba. What the functions compute is said in `reference`."""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.noise.reference import ROUNDS

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
FIRST, SECOND = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_FIRST, WEYL_SECOND = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
UNIT = 2.0**-32


@inlined
def four_words(seed, step, number, stream):
    """The four words of one counter."""
    c0, c1 = number & LOW, (number >> HALF) | (stream << np.uint64(16))
    c2, c3 = step & LOW, step >> HALF
    k0, k1 = seed & LOW, seed >> HALF
    for _ in range(ROUNDS):
        first, second = FIRST * c0, SECOND * c2
        c0, c1, c2, c3 = (second >> HALF) ^ c1 ^ k0, second & LOW, (first >> HALF) ^ c3 ^ k1, first & LOW
        k0, k1 = (k0 + WEYL_FIRST) & LOW, (k1 + WEYL_SECOND) & LOW
    return c0, c1, c2, c3


@jit
def uniforms(seed, step, ids, stream, out):
    for i in range(len(ids)):
        if ids[i] >= 0:
            a, b, c, d = four_words(np.uint64(seed), np.uint64(step), np.uint64(ids[i]), np.uint64(stream))
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = (
                (a + 0.5) * UNIT,
                (b + 0.5) * UNIT,
                (c + 0.5) * UNIT,
                (d + 0.5) * UNIT,
            )


@jit
def normals(seed, step, ids, stream, out):
    for i in range(len(ids)):
        if ids[i] >= 0:
            a, b, c, d = four_words(np.uint64(seed), np.uint64(step), np.uint64(ids[i]), np.uint64(stream))
            radius, angle = math.sqrt(-2 * math.log((a + 0.5) * UNIT)), 2 * math.pi * (b + 0.5) * UNIT
            out[i, 0], out[i, 1] = radius * math.cos(angle), radius * math.sin(angle)
            radius, angle = math.sqrt(-2 * math.log((c + 0.5) * UNIT)), 2 * math.pi * (d + 0.5) * UNIT
            out[i, 2], out[i, 3] = radius * math.cos(angle), radius * math.sin(angle)
