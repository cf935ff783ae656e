"""Flags in memory that several processes see: set some, wait for some. A flag is an aligned int64 that only grows.

What a process wrote before `post` is there for a process that has seen the new value by `arrived`. Addresses are int64.
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
    """Whether all flags at these addresses (int64[:]) have reached the value, after that many looks at most."""
    for k in range(len(flags)):
        while load_acquire(flags[k]) < value:
            looks -= 1
            if looks < 0:
                return False
    return True
