"""Flags in memory shared by several processes: set some, wait for some. A flag is an aligned int64 that only grows.

A process that has seen a new value by `arrived` also sees everything written before its `post`. Addresses are int64.
"""

from __future__ import annotations

from hpckit.comm.shared.compiled.atomics import load_acquire, store_release
from hpckit.kernels.compile.jit import jit


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
