"""Flags in memory that several processes see: set one, wait for some. A flag is an aligned int64 that only grows.

What a process wrote before `post` is there for a process that has seen the new value by `arrived`. Addresses are int64.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hpckit.kernels.jit import jit

I64 = ir.IntType(64)


@intrinsic
def load_acquire(context, address):
    """The int64 at an address; nothing behind it in the program is read before it."""

    def generate(c, b, signature, values):
        return b.load_atomic(b.inttoptr(values[0], I64.as_pointer()), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def store_release(context, address, value):
    """Store an int64 at an address, after everything before it in the program."""

    def generate(c, b, signature, values):
        b.store_atomic(values[1], b.inttoptr(values[0], I64.as_pointer()), "release", 8)
        return c.get_dummy_value()

    return types.void(types.int64, types.int64), generate


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
