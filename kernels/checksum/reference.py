"""The checksum in NumPy: definition and test oracle.

Each word is mixed with its index by an invertible function (the first steps of the finalizer of splitmix64, Steele, Lea
and Flood 2014), so different words give different summands. A change of one word is always detected; changes of
several words, and swapped words, go undetected with a probability of about 2**-64.
"""

from __future__ import annotations

import numpy as np

KEY = 0x9E3779B97F4A7C15
FACTOR = 0xBF58476D1CE4E5B9


def checksum(words, start=0):
    """The sum of the mixed words, modulo 2**64. words: uint64[n]; start: index of the first word."""
    with np.errstate(over="ignore"):
        numbers = np.arange(start, start + len(words), dtype=np.uint64)
        mixed = (words ^ (numbers * np.uint64(KEY))) * np.uint64(FACTOR)
        mixed ^= mixed >> np.uint64(32)
        return int(np.add.reduce(mixed, dtype=np.uint64))
