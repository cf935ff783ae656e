"""The checksum in NumPy: the oracle, and what it is.

Each word is mixed with its number by steps that can be undone (the first of the finalizer of splitmix64, Steele, Lea
and Flood 2014), so that another word always gives another summand: a change within one word is always seen, changes of
several words, and words that are swapped, but for one case in 2**64 or so.
"""

from __future__ import annotations

import numpy as np

KEY = 0x9E3779B97F4A7C15
FACTOR = 0xBF58476D1CE4E5B9


def checksum(words, start=0):
    """The sum, modulo 2**64, of the mixed words: uint64[n], the first of which has the number `start`."""
    with np.errstate(over="ignore"):
        numbers = np.arange(start, start + len(words), dtype=np.uint64)
        mixed = (words ^ (numbers * np.uint64(KEY))) * np.uint64(FACTOR)
        mixed ^= mixed >> np.uint64(32)
        return int(np.add.reduce(mixed, dtype=np.uint64))
