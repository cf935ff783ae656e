"""The checksum in one pass over the words. See reference.py."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.checksum.reference import FACTOR, KEY
from hpckit.kernels.compile.jit import jit

_KEY, _FACTOR, _HALF = np.uint64(KEY), np.uint64(FACTOR), np.uint64(32)


@jit
def checksum(words, start=0):
    """The sum of the mixed words, modulo 2**64; see `reference.checksum`."""
    total, key = np.uint64(0), np.uint64(start) * _KEY
    for k in range(len(words)):
        mixed = (words[k] ^ key) * _FACTOR
        total += mixed ^ (mixed >> _HALF)
        key += _KEY
    return total
