"""Counter-based random numbers, NumPy: Philox 4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
(SC11), and normal numbers from it by Box and Muller (1958).

A number is a function of (seed, step, id, stream): a particle's noise depends neither on the rank that holds it nor on
the number of ranks. `stream` separates uses that share seed, step and id.
"""

from __future__ import annotations

import numpy as np

ROUNDS = 10
FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Four 32-bit words, as uint64 [4, n], for the counters, uint64 [4, n], under a key of two words."""
    c = [np.asarray(word, np.uint64) & LOW for word in counter]
    k0, k1 = np.uint64(key[0]) & LOW, np.uint64(key[1]) & LOW
    for _ in range(ROUNDS):
        first, second = FACTORS[0] * c[0], FACTORS[1] * c[2]
        c = [(second >> HALF) ^ c[1] ^ k0, second & LOW, (first >> HALF) ^ c[3] ^ k1, first & LOW]
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return np.array(c)


def uniforms(seed: int, step: int, ids: np.ndarray, stream: int, out: np.ndarray) -> None:
    """Set out[i], float64 [n, 4], to four numbers in (0, 1) for ids[i]: (k + 1/2) 2^-32.

    Rows with a negative id are left as they are.
    """
    out[ids >= 0] = _uniforms(seed, step, ids[ids >= 0].astype(np.uint64), stream)


def normals(seed: int, step: int, ids: np.ndarray, stream: int, out: np.ndarray) -> None:
    """Set out[i], float64 [n, 4], to four independent normal numbers for ids[i], unless it is negative."""
    u = _uniforms(seed, step, ids[ids >= 0].astype(np.uint64), stream)
    radius = np.sqrt(-2 * np.log(u[:, ::2]))
    angle = 2 * np.pi * u[:, 1::2]
    out[ids >= 0] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2).reshape(-1, 4)


def _uniforms(seed: int, step: int, ids: np.ndarray, stream: int) -> np.ndarray:
    steps = np.full(ids.shape, step, np.uint64)
    counter = [ids & LOW, (ids >> HALF) | np.uint64(stream << 16), steps & LOW, steps >> HALF]
    words = philox(np.array(counter), (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    return (words.T + 0.5) * 2.0**-32
