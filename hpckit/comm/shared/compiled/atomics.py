"""Access to memory by address, for kernels of several processes on shared memory: flags, copies, and calls of kernels.

A flag is an aligned int64. A process that sees a new value by `load_acquire` also sees everything written before its
`store_release`. All addresses are int64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import OpaqueModel
from numba.extending import NativeValue, intrinsic, register_model, unbox

I32, I64 = ir.IntType(32), ir.IntType(64)
int64 = types.int64
REDUCER = "void(int64, int64, int64, int64, int64, int64, int64)"

# Functions of the C library; `clock_gettime` writes seconds and nanoseconds to an address.
sched_yield = types.ExternalFunction("sched_yield", types.int32())
usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
copy_bytes = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
kill = types.ExternalFunction("kill", types.int32(types.int32, types.int32))
process_vm_readv = types.ExternalFunction(
    "process_vm_readv",
    types.int64(types.int32, types.int64, types.int64, types.int64, types.int64, types.int64),
)


@intrinsic
def load_acquire(context, address):
    """The int64 at an address; no later read in program order moves before it."""

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


@intrinsic
def pause(context):
    """Tell the processor that this is a spin loop, where it knows such a hint."""

    def generate(c, b, signature, values):
        nothing = ir.VoidType()
        if b.module.triple.startswith("x86"):
            hint = ir.FunctionType(nothing, [])
            b.call(cgutils.get_or_insert_function(b.module, hint, "llvm.x86.sse2.pause"), [])
        elif b.module.triple.startswith("aarch64"):
            hint = ir.FunctionType(nothing, [I32])
            b.call(cgutils.get_or_insert_function(b.module, hint, "llvm.aarch64.hint"), [I32(1)])
        return c.get_dummy_value()

    return types.void(), generate


@intrinsic
def widen_half(context, bits):
    """The float32 of a float16 that is given by its bits (uint16)."""

    def generate(c, b, signature, values):
        return b.fpext(b.bitcast(values[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def narrow_half(context, value):
    """The bits (uint16) of the float16 nearest to a float32, ties to even."""

    def generate(c, b, signature, values):
        return b.bitcast(b.fptrunc(values[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@intrinsic
def float_bits(context, value):
    """The bits of a float32 as uint32."""
    return types.uint32(types.float32), lambda c, b, s, values: b.bitcast(values[0], ir.IntType(32))


@intrinsic
def float_of(context, bits):
    """The float32 of its bits, uint32."""
    return types.float32(types.uint32), lambda c, b, s, values: b.bitcast(values[0], ir.FloatType())


@intrinsic
def call_reducer(context, function, sources, ranks, targets, copies, count, factors, scratch):
    """Call the kernel at the address `function` with the seven others: see `shared_memory.simd`."""

    def generate(c, b, signature, values):
        kind = ir.FunctionType(ir.VoidType(), [I64] * 7)
        b.call(b.inttoptr(values[0], kind.as_pointer()), values[1:])
        return c.get_dummy_value()

    return types.void(*[types.int64] * 8), generate


@intrinsic
def call_at(context, function, arguments):
    """What the kernel at the address `function` returns, called with a tuple of int64: an int64 as well."""

    def generate(c, b, signature, values):
        kind = ir.FunctionType(I64, [I64] * arguments.count)
        return b.call(b.inttoptr(values[0], kind.as_pointer()), cgutils.unpack_tuple(b, values[1]))

    return types.int64(types.int64, arguments), generate


class _Object(types.Opaque):
    """The type of an argument that is any object of Python: kernels get its address."""

    def __init__(self) -> None:
        super().__init__("object of Python by its address")


register_model(_Object)(OpaqueModel)
unbox(_Object)(lambda kind, given, context: NativeValue(given))
OBJECT = _Object()


@intrinsic
def address_of_object(context, given):
    """The address of an object of Python."""
    return types.int64(OBJECT), lambda c, b, s, values: b.ptrtoint(values[0], I64)


@functools.cache
def entry_of(kernel: Any, arguments: Any) -> Callable[..., Any]:
    """A kernel (made by `jit`) compiled for the types of its arguments, as in "(int64[::1], float64)".

    Calling it is faster than calling the kernel, which dispatches on types: it accepts only these types.
    """
    entry: Callable[..., Any] = kernel.compile(arguments)
    return entry
