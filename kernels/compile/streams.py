"""Lines of the cache as vectors: stores that pass the cache by, parts of a vector, and the lanes beside one.

A plain store reads the line that it writes; a streaming one does not, which saves a third of what a copy moves. What it
has written is not in the cache, so it pays only where a sweep moves more than the cache holds.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hpckit.kernels.compile.vectors import BYTES, I8, I32, address, call, llvm, shuffle

LINE = 64  # bytes of a line of the cache
STREAMED = 1 << 25  # bytes that a sweep moves, from which on it streams: more than a core's share of the cache


@intrinsic
def stream(context, array, index, value):
    """array[index : index + n] = value past the cache; the place starts at a multiple of the vector's size."""

    def generate(c, b, signature, values):
        place = address(c, b, signature.args[0], values[0], values[1], llvm(value))
        stored = b.store(values[2], place, align=BYTES[value.kind] * value.n)
        stored.set_metadata("nontemporal", b.module.add_metadata([I32(1)]))
        return c.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def settle(context):
    """What was streamed is seen by other processes before what is written from here on."""

    def generate(c, b, signature, values):
        b.fence("seq_cst")
        return c.get_dummy_value()

    return types.void(), generate


@intrinsic
def store_part(context, array, index, value, first, stop):
    """array[index + k] = lane k of `value`, for the lanes from `first` to `stop`."""

    def generate(c, b, signature, values):
        array, index, lanes, first, stop = values
        place = address(c, b, signature.args[0], array, index, llvm(value))
        numbers = ir.VectorType(first.type, value.n)
        steps = ir.Constant(numbers, list(range(value.n)))
        empty = ir.Constant(numbers, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(I32, value.n), [0] * value.n)
        low, high = (b.shuffle_vector(b.insert_element(empty, each, I32(0)), empty, zeros) for each in (first, stop))
        mask = b.and_(b.icmp_unsigned(">=", steps, low), b.icmp_unsigned("<", steps, high))
        element = "f64" if BYTES[value.kind] == 8 else "f32"
        name = f"llvm.masked.store.v{value.n}{element}.p0"
        call(b, name, ir.VoidType(), lanes, b.bitcast(place, I8.as_pointer()), I32(BYTES[value.kind]), mask)
        return c.get_dummy_value()

    return types.void(array, types.intp, value, types.uint64, types.uint64), generate


@intrinsic
def before(context, previous, value):
    """The lanes of `value` one further: the last of `previous` comes first."""
    n = value.n
    return value(value, value), lambda c, b, s, values: shuffle(b, *values, range(n - 1, 2 * n - 1))


@intrinsic
def after(context, value, following):
    """The lanes of `value` one nearer: the first of `following` comes last."""
    n = value.n
    return value(value, value), lambda c, b, s, values: shuffle(b, *values, range(1, n + 1))
