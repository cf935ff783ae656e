"""Messages in memory shared by several processes: a call copies all that a rank sends, or all that it has got.

A table is int64[rows, FIELDS]: each row has pieces of equal length that stand equally far apart. It says the address of
the first where pieces are read and where they are written; how far apart they stand there, and here; how many there
are; the bytes of each; and the width of the words that they are copied by.
"""

from __future__ import annotations

import numpy as np

from hpckit.comm.shared.compiled.atomics import copy_bytes
from hpckit.comm.shared.compiled.flags import arrived, post
from hpckit.kernels.compile.addresses import values_at
from hpckit.kernels.compile.intrinsics import prefetch
from hpckit.kernels.compile.jit import STRICT, jit

FIELDS = 7
WORD = 8  # bytes
LINE = 8  # words
u8 = np.uint64
words = values_at("int64")


def copies(source: tuple[int, int], target: tuple[int, int], count: int, nbytes: int) -> list[int]:
    """A row: so many pieces of so many bytes; source, target: the address of the first, and how far apart they are."""
    whole = all(each % WORD == 0 for each in (*source, *target, nbytes))
    return [source[0], target[0], source[1], target[1], count, nbytes, WORD if whole else 1]


@jit(math=STRICT, noalias=True)
def _copy_words(source, target, step, pace, count, length):
    for k in range(count):
        there, here = u8(k * step), u8(k * pace)
        if length > u8(LINE):  # the processor does not foresee where the next piece begins
            for i in range(0, length, LINE):
                prefetch(source, there + u8(step + i))
        for i in range(length):
            target[here + i] = source[there + i]


@jit(math=STRICT)
def copy(table):
    """Copy all pieces of a table."""
    some = 1 << 60  # words: a row says itself how far it goes
    for row in table:
        source, target, step, pace, count, nbytes, width = row[0], row[1], row[2], row[3], row[4], row[5], row[6]
        if width == WORD:
            whole = words(source, some), words(target, some), step // WORD, pace // WORD
            _copy_words(*whole, count, u8(nbytes // WORD))
        else:
            for k in range(count):
                copy_bytes(target + k * pace, source + k * step, nbytes)


@jit(math=STRICT)
def send(table, flags, value):
    """Copy what leaves, and set the flags at these addresses (int64[:])."""
    copy(table)
    post(flags, value)


@jit(math=STRICT)
def take(table, flags, value):
    """Copy what has come, if all flags at these addresses have reached the value; whether they have."""
    if not arrived(flags, value, 0):
        return False
    copy(table)
    return True
