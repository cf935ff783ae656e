"""Intrinsics for vectors of any width, and for numbers: what kernels are made of beside operators of vectors."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hpckit.kernels.compile.vectors import (
    AS_WRITTEN,
    BYTES,
    ELEMENT,
    I8,
    I32,
    I64,
    NEEDS,
    Vec,
    address,
    arithmetic,
    call,
    constant,
    features,
    llvm,
    overloaded,
    shuffle,
    splat,
    to_lanes,
)


@intrinsic
def store(context, array, index, value):
    """array[index : index + n] = value, for a contiguous array."""

    def generate(c, b, signature, values):
        place = address(c, b, signature.args[0], values[0], values[1], llvm(value))
        b.store(values[2], place, align=BYTES[value.kind])
        return c.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def store_whole(context, array, index, value):
    """array[index : index + n] = the whole parts of `value`, for a contiguous array of int32; a vector or a number."""

    def generate(c, b, signature, values):
        found = whole(b, values[2])
        b.store(found, address(c, b, signature.args[0], values[0], values[1], found.type), align=4)
        return c.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def select(context, mask, yes, no):
    """`yes` in the lanes of the mask, `no` in the others."""
    return yes(mask, yes, yes), lambda c, b, signature, values: b.select(*values)


@intrinsic
def zero_unless(context, mask, value):
    """`value` in the lanes of the mask, 0 in the others, also where the value is inf or nan."""
    return value(mask, value), lambda c, b, s, values: b.select(*values, constant(values[1].type, 0.0))


@intrinsic
def nan_unless(context, mask, value):
    """`value` in the lanes of the mask, nan in the others; also for a number and a truth value."""
    return value(mask, value), lambda c, b, s, v: b.select(*v, constant(v[1].type, float("nan")))


@intrinsic
def held(context, value, most):
    """`value` between 0 and `most`, 0 where it is nan; vectors or numbers."""

    def generate(c, b, signature, values):
        value, most = values[0], to_lanes(c, b, values[1], signature.args[1], signature.args[0])
        zero = constant(value.type, 0.0)
        value = b.select(b.fcmp_ordered(">", value, zero), value, zero)
        return b.select(b.fcmp_ordered("<", value, most), value, most)

    return value(value, most), generate


def whole(b: Any, value: Any) -> Any:
    """The whole parts of lanes or of a number, int32."""
    kind = ir.VectorType(I32, value.type.count) if isinstance(value.type, ir.VectorType) else I32
    return b.fptosi(value, kind)


@intrinsic
def floor(context, value):
    """The largest whole numbers that are not above the lanes of a vector."""
    return value(value), lambda c, b, s, v: overloaded(b, "floor", v[0])


@intrinsic
def truncated(context, value):
    """`value` without what is behind the point, of a magnitude below 2^31; a vector or a number."""
    return value(value), lambda c, b, s, v: b.sitofp(whole(b, v[0]), v[0].type)


@intrinsic
def minimum(context, first, second):
    """The smaller of two in each lane."""
    return first(first, first), lambda c, b, s, v: b.select(b.fcmp_ordered("<", *v), *v)


@intrinsic
def bits(context, mask):
    """A mask as an int32, lane 0 in the lowest bit."""
    return types.int32(mask), lambda c, b, s, v: b.zext(b.bitcast(v[0], ir.IntType(mask.n)), I32)


@functools.cache
def mask_of(n: int) -> Any:
    """The intrinsic `(bits)`: the mask of the n lowest bits of an int64, lane 0 in the lowest.

    Where masks are lanes of all bits or none, each lane looks for its own bit: taken apart, they cost four
    instructions each.
    """

    @intrinsic
    def mask_of(context, value):
        def generate(c, b, signature, values):
            if NEEDS["avx512"] <= features():
                return b.bitcast(b.trunc(values[0], ir.IntType(n)), ir.VectorType(ir.IntType(1), n))
            word = ir.IntType(min(256 // n, 64))
            own = ir.Constant(ir.VectorType(word, n), [1 << lane for lane in range(n)])
            given = values[0] if word == I64 else b.trunc(values[0], word)
            return b.icmp_unsigned("==", b.and_(splat(b, given, n), own), own)

        return Vec("m", n)(types.int64), generate

    return mask_of


@functools.cache
def inverse_root(isa: str) -> Any:
    """The intrinsic `(x)`: 1 / sqrt(x) of a vector above 0, to about two units in the last place.

    From the processor's estimate and a series where that is quicker, which it is but for float64 of AVX2.
    """

    @intrinsic
    def inverse_root(context, value):
        def generate(c, b, signature, values):
            x, kind = values[0], values[0].type
            one, half = constant(kind, 1.0), constant(kind, 0.5)
            if value.kind == "f" and value.n == 8:
                y = call(b, "llvm.x86.avx.rsqrt.ps.256", kind, x)
            elif value.kind == "f" and value.n == 16:
                mask = ir.Constant(ir.IntType(16), 0xFFFF)
                y = call(b, "llvm.x86.avx512.rsqrt14.ps.512", kind, x, constant(kind, 0.0), mask)
            elif value.kind == "d" and isa == "avx512":
                name = f"llvm.x86.avx512.rsqrt14.pd.{64 * value.n}"
                y = call(b, name, kind, x, constant(kind, 0.0), I8(255))
            else:
                return arithmetic(b, "fdiv", one, overloaded(b, "sqrt", x))
            # With the miss e = 1 - x y^2, 1 / sqrt(x) is y (1 + e / 2 + 3 e^2 / 8 + 5 e^3 / 16 + ...).
            miss = overloaded(b, "fma", b.fneg(arithmetic(b, "fmul", x, y)), y, one)
            series = half
            if value.kind == "d":  # e is below 2^-13: what is left out, below 2^-53
                series = overloaded(b, "fma", miss, constant(kind, 0.3125), constant(kind, 0.375))
                series = overloaded(b, "fma", miss, series, half)
            return overloaded(b, "fma", arithmetic(b, "fmul", y, miss), series, y)

        return value(value), generate

    return inverse_root


@intrinsic
def join(context, first, second):
    """The lanes of two vectors side by side."""
    kind = Vec(first.kind, 2 * first.n)
    return kind(first, second), lambda c, b, s, v: shuffle(b, v[0], v[1], range(kind.n))


@intrinsic
def lower(context, value):
    """The lower half of the lanes."""
    return Vec(value.kind, value.n // 2)(value), lambda c, b, s, v: halves(b, v[0])[0]


@intrinsic
def upper(context, value):
    """The upper half of the lanes."""
    return Vec(value.kind, value.n // 2)(value), lambda c, b, s, v: halves(b, v[0])[1]


@intrinsic
def single(context, value):
    """A vector as float32."""
    return Vec("f", value.n)(
        value
    ), lambda c, b, s, v: v[0] if value.kind == "f" else b.fptrunc(v[0], ir.VectorType(ELEMENT["f"], value.n))


@intrinsic
def take_from(context, array, index, value):
    """array[index : index + n] -= value, of a float64 array, also for a vector of float32."""

    def generate(c, b, signature, values):
        wide = ir.VectorType(ELEMENT["d"], value.n)
        place = address(c, b, signature.args[0], values[0], values[1], wide)
        taken = b.fpext(values[2], wide) if value.kind == "f" else values[2]
        b.store(b.fsub(b.load(place, align=8), taken, flags=AS_WRITTEN), place, align=8)
        return c.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def count_ones(context, value):
    """The number of bits that are set in an int32."""
    return types.int32(types.int32), lambda c, b, s, v: call(b, "llvm.ctpop.i32", I32, v[0])


@intrinsic
def rounded(context, value, shift):
    """(value + shift) - shift, kept as written: with shift = 1.5 2^(52-k), value rounded to a multiple of 2^-k."""

    def generate(c, b, signature, values):
        # An instruction without any flag would be given those of the function that it ends up in; nsz changes nothing.
        return b.fsub(b.fadd(*values, flags=("nsz",)), values[1], flags=("nsz",))

    return value(value, value), generate


@intrinsic
def fused(context, x, y, z):
    """The sum x * y + z, in one rounding where the processor has an instruction for that; vectors or numbers.

    Of two products that are added the compiler may choose either to be fused, and not the same one everywhere.
    """

    def generate(c, b, signature, values):
        return overloaded(b, "fmuladd", *(to_lanes(c, b, v, t, x) for v, t in zip(values, (x, y, z), strict=True)))

    return x(x, y, z), generate


@intrinsic
def called(context):
    """In a kernel's body: it stays a function of its own, which gives the same bits wherever it is called from.

    Where a kernel becomes part of its callers the compiler may fuse other products with sums in one than in another.
    """

    def generate(c, b, signature, values):
        b.function.attributes.add("noinline")
        return c.get_dummy_value()

    return types.none(), generate


@functools.cache
def numbers(count: int, stride: int = 1) -> Any:
    """The intrinsic `(a, i)`: the `count` numbers a[i], a[i + stride], … as a tuple."""

    @intrinsic
    def numbers(context, array, index):
        def generate(c, b, signature, values):
            base = c.make_array(signature.args[0])(c, b, values[0]).data
            found = [b.load(b.gep(base, [b.add(values[1], I64(stride * k))])) for k in range(count)]
            return c.make_tuple(b, signature.return_type, found)

        return types.UniTuple(array.dtype, count)(array, types.intp), generate

    return numbers


def _asking(level: int, said: str) -> Any:
    @intrinsic
    def prefetch(context, array, index):
        def generate(c, b, signature, values):
            place = address(c, b, signature.args[0], values[0], values[1], I8)
            call(b, "llvm.prefetch.p0", ir.VoidType(), place, I32(0), I32(level), I32(1))
            return c.get_dummy_value()

        return types.void(array, types.intp), generate

    prefetch.__doc__ = said
    return prefetch


prefetch = _asking(3, "Ask for the cache line of array[index], which may lie beyond its end.")
prefetch_second = _asking(2, "As `prefetch`, for the second-level cache.")


def halves(b: Any, value: Any) -> tuple[Any, Any]:
    """The lower and the upper half of the lanes."""
    n = value.type.count // 2
    return shuffle(b, value, value, range(n)), shuffle(b, value, value, range(n, 2 * n))


def narrowed(b: Any, value: Any) -> Any:
    """Four float64 that add up to all lanes; lanes of float32 are widened before they meet, four at a time."""
    if value.type.count <= 4:
        return b.fpext(value, ir.VectorType(ELEMENT["d"], 4)) if value.type.element == ELEMENT["f"] else value
    return arithmetic(b, "fadd", *(narrowed(b, half) for half in halves(b, value)))


@intrinsic
def sum_lanes(context, value):
    """The sum of the lanes, float64."""

    def generate(c, b, signature, values):
        total = narrowed(b, values[0])
        while total.type.count > 1:
            total = arithmetic(b, "fadd", *halves(b, total))
        return b.extract_element(total, I32(0))

    return types.float64(value), generate


@intrinsic
def store_sums(context, array, index, x, y, z, w):
    """array[index : index + 4] = the sums over the lanes of x, y, z and w; a float64 array."""

    def generate(c, b, signature, values):
        x, y, z, w = (narrowed(b, value) for value in values[2:])
        low, high = (0, 4, 2, 6), (1, 5, 3, 7)  # of pairs of lanes, as one instruction takes them
        xy = arithmetic(b, "fadd", shuffle(b, x, y, low), shuffle(b, x, y, high))
        zw = arithmetic(b, "fadd", shuffle(b, z, w, low), shuffle(b, z, w, high))
        total = arithmetic(b, "fadd", shuffle(b, xy, zw, (0, 1, 4, 5)), shuffle(b, xy, zw, (2, 3, 6, 7)))
        b.store(total, address(c, b, signature.args[0], values[0], values[1], total.type), align=8)
        return c.get_dummy_value()

    return types.void(array, types.intp, x, x, x, x), generate
