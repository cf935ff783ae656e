"""Flags in memory shared by several processes: set some, wait for some. A flag is an aligned int64 that only grows.

A process that has seen a new value by `arrived` also sees everything written before its `post`. Addresses are int64.
"""

from __future__ import annotations

from hpckit.comm.shared.compiled.atomics import load_acquire, store_release
from hpckit.kernels.compile.addresses import values_at
from hpckit.kernels.compile.jit import STRICT, jit

NUMBER_AT = 8  # bytes behind the flag of a line
LINE = 64  # bytes
numbers = values_at("float64")


@jit
def post(flags, value):
    """Set the flags at these addresses (int64[:])."""
    for k in range(len(flags)):
        store_release(flags[k], value)


@jit
def arrived(flags, value, looks):
    """Whether all flags at these addresses (int64[:]) reach the value within that many polls."""
    for k in range(len(flags)):
        while load_acquire(flags[k]) < value:
            looks -= 1
            if looks < 0:
                return False
    return True


@jit(math=STRICT)
def largest(lines, own, turn, given, looks):
    """Show a number in this rank's line, and look at those of all: whether all ranks show theirs of this turn within
    that many polls, and the largest, nan if one is.

    lines: the addresses of the ranks' lines (int64[:]), a pair each, for odd and for even turns: a rank that shows its
    number of turn t + 2 has seen those of all of turn t + 1, who have read the ones of turn t. It may be asked again.
    """
    at = LINE * (turn & 1)
    numbers(lines[own] + at + NUMBER_AT, 1)[0] = given
    store_release(lines[own] + at, turn)
    found = given
    for k in range(len(lines)):
        while load_acquire(lines[k] + at) < turn:
            looks -= 1
            if looks < 0:
                return False, found
        shown = numbers(lines[k] + at + NUMBER_AT, 1)[0]
        if shown > found or shown != shown:
            found = shown
    return True, found
