"""Counter-based random numbers, Numba. What the functions compute is said in `reference`.

Normal numbers are made for a block of counters at once, in loops that vectorize. A block is always computed whole, so
that the bits of a number depend on its counter alone, not on its place among others.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.compile.scalar_functions import float_of, logarithm, turned
from hpckit.kernels.noise.reference import ROUNDS

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
FIRST, SECOND = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_FIRST, WEYL_SECOND = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
UNIT = 2.0**-32
BLOCK = 256  # counters, whose words and numbers stay in the first-level cache


@inlined
def four_words(seed, step, number, stream):
    """The four words of one counter."""
    c0, c1 = number & LOW, (number >> HALF) | (stream << np.uint64(16))
    c2, c3 = step & LOW, step >> HALF
    k0, k1 = seed & LOW, seed >> HALF
    for _ in range(ROUNDS):
        first, second = FIRST * (c0 & LOW), SECOND * (c2 & LOW)  # of 32 bits each: a quick instruction
        c0, c1, c2, c3 = (second >> HALF) ^ c1 ^ k0, second & LOW, (first >> HALF) ^ c3 ^ k1, first & LOW
        k0, k1 = (k0 + WEYL_FIRST) & LOW, (k1 + WEYL_SECOND) & LOW
    return c0, c1, c2, c3


@inlined
def block_normals(seed, step, ids, first, count, stream, words, numbers):
    """numbers[:, k]: four normal numbers for ids[first + k] where k is below `count`; words, uint64[4, BLOCK], and
    numbers, float64[4, BLOCK], are written in full.
    """
    for k in range(np.uint64(count)):
        words[0, k] = np.uint64(ids[np.uint64(first) + k])
    for k in range(np.uint64(count), np.uint64(BLOCK)):
        words[0, k] = np.uint64(0)
    for k in range(np.uint64(BLOCK)):
        a, b, c, d = four_words(np.uint64(seed), np.uint64(step), words[0, k], np.uint64(stream))
        words[0, k], words[1, k], words[2, k], words[3, k] = a, b, c, d
    for pair in range(np.uint64(0), np.uint64(4), np.uint64(2)):
        for k in range(np.uint64(BLOCK)):
            radius = math.sqrt(-2.0 * logarithm((float_of(np.int64(words[pair, k])) + 0.5) * UNIT))
            along, across = turned(words[pair + np.uint64(1), k])
            numbers[pair, k], numbers[pair + np.uint64(1), k] = radius * along, radius * across


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
    words, numbers = np.empty((4, BLOCK), np.uint64), np.empty((4, BLOCK))
    for first in range(0, len(ids), BLOCK):
        count = min(BLOCK, len(ids) - first)
        block_normals(seed, step, ids, first, count, stream, words, numbers)
        for k in range(count):
            if ids[first + k] >= 0:
                for d in range(4):
                    out[first + k, d] = numbers[d, k]
