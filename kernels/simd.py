"""Explicit SIMD for Numba: values that are n numbers, their operators, and the intrinsics that kernels are made of.

`Vec(kind, n)` is n lanes of "d" (float64), "f" (float32), "i" (int32) or "m" (one bit, the result of a comparison). In
compiled code vectors take + - * / and unary minus, < > <= >=, & of masks, `**` with a constant integer, `math.sqrt`,
`math.exp` and `math.log`, with vectors of the same kind and with numbers, so that a function written for numbers
compiles for vectors too (and, with `kernels.dual`, to its own derivative). `Lanes(kind, n, isa)` holds the intrinsics
that depend on the kind or on the instruction set: "avx512" or "avx2"; a host without either takes plain loops, "scalar".

Arithmetic on vectors may be reordered and contracted (reassoc, nsz, arcp, contract): without reassoc the derivatives of
`kernels.dual` are 30 % slower. nnan and ninf are not given: lanes that a mask discards may hold inf. `rounded` is exempt.

Records are four numbers (x, y, z, w) side by side: eight half-record loads and three shuffles give four lanes each of
x, y and z, which is faster than gathers on every processor with AVX2 that was tried.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
ELEMENT = {"d": ir.DoubleType(), "f": ir.FloatType(), "i": I32, "m": ir.IntType(1)}
NUMBER = {"d": types.float64, "f": types.float32}
BYTES = {"d": 8, "f": 4, "i": 4}
FLAGS = ("reassoc", "nsz", "arcp", "contract")
MOST_TYPES = 1 << 15  # of particles, that w of a record can name
ISAS = ("avx512", "avx2", "scalar")
PERMUTE = {256: "llvm.x86.avx2.permd", 512: "llvm.x86.avx512.permvar.si.512"}  # by the bits of a register
PERMUTE_NEAR = {
    "d": {256: "llvm.x86.avx.vpermilvar.pd.256", 512: "llvm.x86.avx512.vpermilvar.pd.512"},
    "f": {256: "llvm.x86.avx.vpermilvar.ps.256"},
}
NEEDS = {"avx512": {"avx512f", "avx512vl", "avx512dq", "avx2", "fma"}, "avx2": {"avx2", "fma"}, "scalar": set()}


@functools.cache
def available() -> tuple[str, ...]:
    """The instruction sets that Numba compiles for on this host, best first; "scalar" is always there."""
    _, name, text = numba.core.registry.cpu_target.target_context.codegen().magic_tuple()
    named = {feature[1:] for feature in text.split(",") if feature.startswith("+")}
    if not text and name == llvmlite.binding.get_host_cpu_name():
        named = {feature for feature, there in llvmlite.binding.get_host_cpu_features().items() if there}
    return tuple(isa for isa in ISAS if NEEDS[isa] <= named)


class Vec(types.Type):
    """The type of n lanes of one kind."""

    def __init__(self, kind: str, n: int) -> None:
        self.kind, self.n = kind, n
        super().__init__(name=f"vec<{n} x {kind}>")


def llvm(vector: Vec) -> Any:
    """The LLVM type of a vector type."""
    return ir.VectorType(ELEMENT[vector.kind], vector.n)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vec) -> None:
        super().__init__(manager, vector, llvm(vector))


# ---- building blocks of the code generator


def constant(kind: Any, value: float | int) -> Any:
    """A constant of an LLVM type, in every lane of it where it is a vector."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def splat(b: Any, value: Any, n: int) -> Any:
    """A number in every lane."""
    empty = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    return b.shuffle_vector(b.insert_element(empty, value, I32(0)), empty, constant(ir.VectorType(I32, n), 0))


def shuffle(b: Any, first: Any, second: Any, pattern: Sequence[int]) -> Any:
    """The lanes `pattern` of (first, second) side by side."""
    return b.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(pattern)), list(pattern)))


def call(b: Any, name: str, result: Any, *values: Any) -> Any:
    """A call of an LLVM intrinsic by its whole name."""
    signature = ir.FunctionType(result, [value.type for value in values])
    return b.call(cgutils.get_or_insert_function(b.module, signature, name), values)


def overloaded(b: Any, name: str, *values: Any) -> Any:
    """A call of an LLVM intrinsic that exists for every type, as llvm.fma: the suffix is that of the first value."""
    kind = values[0].type
    element = {"double": "f64", "float": "f32"}[str(kind.element if isinstance(kind, ir.VectorType) else kind)]
    suffix = f"v{kind.count}{element}" if isinstance(kind, ir.VectorType) else element
    return call(b, f"llvm.{name}.{suffix}", kind, *values)


def arithmetic(b: Any, operation: str, x: Any, y: Any) -> Any:
    """fadd, fsub, fmul or fdiv with the flags of this module."""
    return getattr(b, operation)(x, y, flags=FLAGS)


def address(c: Any, b: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    """A pointer to element `index` of a contiguous array, as pointer to `kind`."""
    data = c.make_array(array_type)(c, b, array).data
    return b.bitcast(b.gep(data, [index]), kind.as_pointer())


def is_number(t: Any) -> bool:
    """Whether a Numba type is a number that mixes with vectors."""
    return isinstance(t, types.Float | types.Integer)


def to_lanes(c: Any, b: Any, value: Any, given: Any, wanted: Any) -> Any:
    """A vector or number of type `given` as `wanted` (a Vec, or a float type)."""
    if given == wanted:
        return value
    number = NUMBER[wanted.kind] if isinstance(wanted, Vec) else wanted
    value = c.cast(b, value, given, number)
    return splat(b, value, wanted.n) if isinstance(wanted, Vec) else value


# ---- operators of vectors


def common(a: Any, b: Any) -> Vec | None:
    """The type in which two operands meet: that of the vector among them; None where they do not fit."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Vec):
            return one if one.kind in "df" and (other == one or is_number(other)) else None
    return None


BINARY = {
    "fadd": (operator.add, operator.iadd),
    "fsub": (operator.sub, operator.isub),
    "fmul": (operator.mul, operator.imul),
    "fdiv": (operator.truediv, operator.itruediv),
}
COMPARISONS = {operator.lt: "<", operator.gt: ">", operator.le: "<=", operator.ge: ">="}


def _register_binary(function: Callable, result: Callable, lower: Callable) -> None:
    """Type and lower function(a, b) for two vectors, and for a vector and a number in either order."""
    type_callable(function)(lambda context: lambda a, b: result(a, b))
    lower_builtin(function, Vec, Vec)(lower)
    for number in (types.Float, types.Integer):
        lower_builtin(function, Vec, number)(lower)
        lower_builtin(function, number, Vec)(lower)


def _lower_arithmetic(operation: str) -> Callable:
    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        x, y = (to_lanes(c, b, *pair, signature.return_type) for pair in zip(values, signature.args, strict=True))
        return arithmetic(b, operation, x, y)

    return lower


def _lower_comparison(symbol: str) -> Callable:
    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        meet = common(*signature.args)
        x, y = (to_lanes(c, b, *pair, meet) for pair in zip(values, signature.args, strict=True))
        return b.fcmp_ordered(symbol, x, y)

    return lower


def _mask_of(a: Any, b: Any) -> Vec | None:
    meet = common(a, b)
    return None if meet is None else Vec("m", meet.n)


for _operation, _functions in BINARY.items():
    for _function in _functions:
        _register_binary(_function, common, _lower_arithmetic(_operation))
for _function, _symbol in COMPARISONS.items():
    _register_binary(_function, _mask_of, _lower_comparison(_symbol))


@type_callable(operator.and_)
def _type_and(context: Any) -> Callable:
    return lambda a, b: a if isinstance(a, Vec) and a.kind == "m" and a == b else None


@lower_builtin(operator.and_, Vec, Vec)
def _lower_and(c: Any, b: Any, signature: Any, values: Any) -> Any:
    return b.and_(*values)


@type_callable(operator.neg)
def _type_neg(context: Any) -> Callable:
    return lambda a: a if isinstance(a, Vec) and a.kind in "df" else None


@lower_builtin(operator.neg, Vec)
def _lower_neg(c: Any, b: Any, signature: Any, values: Any) -> Any:
    return b.fneg(values[0])


# ---- intrinsics of any width


@intrinsic
def store(context, array, index, value):
    """array[index : index + n] = value, for a contiguous array."""

    def generate(c, b, signature, values):
        place = address(c, b, signature.args[0], values[0], values[1], llvm(value))
        b.store(values[2], place, align=BYTES[value.kind])
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
def minimum(context, first, second):
    """The smaller of two in each lane."""
    return first(first, first), lambda c, b, s, v: b.select(b.fcmp_ordered("<", *v), *v)


@intrinsic
def bits(context, mask):
    """A mask as an int32, lane 0 in the lowest bit."""
    return types.int32(mask), lambda c, b, s, v: b.zext(b.bitcast(v[0], ir.IntType(mask.n)), I32)


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


@functools.cache
def numbers(count: int, stride: int = 1) -> Any:
    """numbers(a, i): the `count` numbers a[i], a[i + stride], … as a tuple."""

    @intrinsic
    def numbers(context, array, index):
        def generate(c, b, signature, values):
            base = c.make_array(signature.args[0])(c, b, values[0]).data
            found = [b.load(b.gep(base, [b.add(values[1], I64(stride * k))])) for k in range(count)]
            return c.make_tuple(b, signature.return_type, found)

        return types.UniTuple(array.dtype, count)(array, types.intp), generate

    return numbers


@intrinsic
def prefetch(context, array, index):
    """Ask for the cache line of array[index], which may lie beyond its end."""

    def generate(c, b, signature, values):
        place = address(c, b, signature.args[0], values[0], values[1], I8)
        call(b, "llvm.prefetch.p0", ir.VoidType(), place, I32(0), I32(3), I32(1))
        return c.get_dummy_value()

    return types.void(array, types.intp), generate


def halves(b: Any, value: Any) -> tuple[Any, Any]:
    """The lower and the upper half of the lanes."""
    n = value.type.count // 2
    return shuffle(b, value, value, range(n)), shuffle(b, value, value, range(n, 2 * n))


def narrowed(b: Any, value: Any) -> Any:
    """Four float64 that add up to all lanes; lanes of float32 are widened before they meet, four at a time."""
    while value.type.count > (8 if value.type.element == ELEMENT["f"] else 4):
        value = arithmetic(b, "fadd", *halves(b, value))
    if value.type.element == ELEMENT["f"]:
        wide = ir.VectorType(ELEMENT["d"], 4)
        value = arithmetic(b, "fadd", *(b.fpext(half, wide) for half in halves(b, value)))
    return value


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


def lane_table() -> np.ndarray:
    """Row `bits`: four times the numbers of the lanes that are set, uint8[256 * 8]; what `append` looks up."""
    table = np.zeros((256, 8), np.uint8)
    for row in range(256):
        lanes = [4 * lane for lane in range(8) if row >> lane & 1]
        table[row, : len(lanes)] = lanes
    return table.ravel()


@functools.cache
def append(isa: str) -> Any:
    """append(list, m, base, bits, table): list[m:] = base + 4 lane for the lanes that are set in `bits`.

    Eight entries are written (int32), those behind the last one are left to be written over: the caller advances m by
    `count_ones(bits)`. AVX-512 compresses a register; elsewhere `table` is `lane_table()`.
    """
    eight = ir.VectorType(I32, 8)

    @intrinsic
    def append(context, array, m, base, lanes, table):
        def generate(c, b, signature, values):
            list_, m, base, lanes, table = values
            if isa == "avx512":
                entries = b.add(splat(b, base, 8), ir.Constant(eight, list(range(0, 32, 4))))
                mask = b.bitcast(b.trunc(lanes, I8), ir.VectorType(ir.IntType(1), 8))
                nothing = ir.Constant(eight, ir.Undefined)
                entries = call(b, "llvm.experimental.vector.compress.v8i32", eight, entries, mask, nothing)
            else:
                row = address(
                    c, b, signature.args[4], table, b.mul(b.zext(lanes, I64), I64(8)), ir.VectorType(I8, 8)
                )
                entries = b.add(splat(b, base, 8), b.zext(b.load(row, align=1), eight))
            b.store(entries, address(c, b, signature.args[0], list_, m, eight), align=4)
            return c.get_dummy_value()

        return types.void(array, types.intp, types.int32, types.int32, table), generate

    return append


class Lanes:
    """The intrinsics of n lanes of "d" or "f" for an instruction set; made by `lanes`, which keeps them.

    load(a, i): a[i : i + n] · broadcast(x): x in all lanes · gather(a, offset, index): a[offset + index[lane]] ·
    load_records(a, list, k): x, y, z of the records that start at a[list[k + lane]] · load_records_w: the same with w.
    """

    def __init__(self, kind: str, n: int, isa: str) -> None:
        self.kind, self.n, self.isa = kind, n, isa
        self.vector, self.number = Vec(kind, n), NUMBER[kind]
        self.types_in_register = 4 if (kind, n) == ("d", 4) else 8
        self.load, self.broadcast = self._load(), self._broadcast()
        self.gather = self._gather()
        self.load_records, self.load_records_w = self._load_records(3), self._load_records(4)

    def load_row(self, count: int) -> Any:
        """load_row(a, i): the `count` vectors that follow each other from a[i], as a tuple."""
        vector = self.vector

        @intrinsic
        def load_row(context, array, index):
            def generate(c, b, signature, values):
                base = address(c, b, signature.args[0], values[0], values[1], llvm(vector))
                rows = [b.load(b.gep(base, [I64(row)]), align=BYTES[vector.kind]) for row in range(count)]
                return c.make_tuple(b, signature.return_type, rows)

            return types.UniTuple(vector, count)(array, types.intp), generate

        return load_row

    def lookup_row(self, count: int) -> Any:
        """lookup_row(row, w): of each vector of a row the entry of the type that w carries, lane by lane.

        The low bits of w are the places of its type's words in a register (`kernels.records`).
        """
        return self._permute_row(count, self.n * BYTES[self.kind] // 4, PERMUTE, I32)

    def lookup_row_near(self, count: int) -> Any:
        """`lookup_row` for as many types as fit 16 bytes, each vector of the row repeating them: a quicker instruction.

        For float64 it looks at bit 1 of w, for float32 at bits 0 and 1: `kernels.records` has the type there.
        """
        return self._permute_row(count, self.n, PERMUTE_NEAR[self.kind], I64 if self.kind == "d" else I32)

    def _permute_row(self, count: int, places: int, names: dict[int, str], word: Any) -> Any:
        vector, index_kind = self.vector, ir.VectorType(word, places)
        value_kind = llvm(vector) if places == self.n and names is not PERMUTE else index_kind

        @intrinsic
        def lookup_row(context, row, w):
            def generate(c, b, signature, values):
                index, name = b.bitcast(values[1], index_kind), names[places * word.width]
                found = [
                    b.bitcast(call(b, name, value_kind, b.bitcast(one, value_kind), index), llvm(vector))
                    for one in cgutils.unpack_tuple(b, values[0], count)
                ]
                return c.make_tuple(b, signature.return_type, found)

            return row(row, vector), generate

        return lookup_row

    def gather_row(self, count: int, stride: int) -> Any:
        """gather_row(table, first, w): table[first + type + stride * k] for each k below `count` and the type in w."""
        vector = self.vector

        @intrinsic
        def gather_row(context, table, first, w):
            def generate(c, b, signature, values):
                index = self._types(b, values[2])
                base = address(c, b, signature.args[0], values[0], values[1], ELEMENT[vector.kind])
                found = [self._gathered(b, b.gep(base, [I64(stride * k)]), index) for k in range(count)]
                return c.make_tuple(b, signature.return_type, found)

            return types.UniTuple(vector, count)(table, types.intp, vector), generate

        return gather_row

    def _types(self, b: Any, w: Any) -> Any:
        """The types that w carries, int32."""
        if self.kind == "f":
            return b.and_(
                b.bitcast(w, ir.VectorType(I32, self.n)), constant(ir.VectorType(I32, self.n), MOST_TYPES - 1)
            )
        words = b.bitcast(w, ir.VectorType(I32, 2 * self.n))
        return b.lshr(shuffle(b, words, words, range(0, 2 * self.n, 2)), constant(ir.VectorType(I32, self.n), 1))

    def _gathered(self, b: Any, base: Any, index: Any) -> Any:
        """base[index[lane]]."""
        kind = llvm(self.vector)
        if self.isa == "avx512" and self.kind == "d" and self.n == 8:
            return _gather_eight(b, base, index)
        result = ir.Constant(kind, ir.Undefined)
        for lane in range(self.n):
            number = b.load(b.gep(base, [b.sext(b.extract_element(index, I32(lane)), I64)]))
            result = b.insert_element(result, number, I32(lane))
        return result

    def _load(self) -> Any:
        vector = self.vector

        @intrinsic
        def load(context, array, index):
            def generate(c, b, signature, values):
                place = address(c, b, signature.args[0], values[0], values[1], llvm(vector))
                return b.load(place, align=BYTES[vector.kind])

            return vector(array, types.intp), generate

        return load

    def _broadcast(self) -> Any:
        vector, number = self.vector, self.number

        @intrinsic
        def broadcast(context, value):
            return vector(number), lambda c, b, s, values: splat(b, values[0], vector.n)

        return broadcast

    def _gather(self) -> Any:
        vector = self.vector

        @intrinsic
        def gather(context, array, offset, index):
            def generate(c, b, signature, values):
                base = address(c, b, signature.args[0], values[0], values[1], ELEMENT[vector.kind])
                return self._gathered(b, base, values[2])

            return vector(array, types.intp, Vec("i", vector.n)), generate

        return gather

    def _load_records(self, parts: int) -> Any:
        vector, n, kind = self.vector, self.n, self.kind
        gathers = self.isa == "avx512" and kind == "d" and n == 8

        @intrinsic
        def load_records(context, array, list_, k):
            def generate(c, b, signature, values):
                if gathers:
                    index = b.load(address(c, b, signature.args[1], *values[1:], ir.VectorType(I32, n)), align=4)
                    data = c.make_array(signature.args[0])(c, b, values[0]).data
                    found = [_gather_eight(b, b.gep(data, [I64(part)]), index) for part in range(parts)]
                else:
                    data = c.make_array(signature.args[0])(c, b, values[0]).data
                    entries = address(c, b, signature.args[1], *values[1:], I32)
                    places = [b.zext(b.load(b.gep(entries, [I64(lane)])), I64) for lane in range(n)]
                    found = (_transpose_halves if kind == "d" else _transpose)(
                        b, [b.gep(data, [place]) for place in places], parts
                    )
                return c.make_tuple(b, signature.return_type, found)

            return types.UniTuple(vector, parts)(array, list_, types.intp), generate

        return load_records


def _gather_eight(b: Any, base: Any, index: Any) -> Any:
    """base[index[lane]] for eight lanes of float64, by the instruction of AVX-512."""
    eight, mask = ir.VectorType(ELEMENT["d"], 8), constant(ir.VectorType(ir.IntType(1), 8), 1)
    name, pointer = "llvm.x86.avx512.mask.gather.dpd.512", b.bitcast(base, I8.as_pointer())
    return call(b, name, eight, constant(eight, 0.0), pointer, index, mask, I32(8))


def _transpose_halves(b: Any, records: list, parts: int) -> list:
    """x, y, z (and w) of records of float64, two numbers a load; the lanes in the order of the records.

    A half that is loaded into the upper part of a register needs no shuffle.
    """
    n = len(records)
    two = ir.VectorType(ELEMENT["d"], 2)
    even = [lane + (n - 1) * (lane % 2) for lane in range(n)]
    odd = [lane + 1 for lane in even]
    found = []
    for half in range((parts + 1) // 2):
        loaded = [
            b.load(b.bitcast(b.gep(record, [I64(2 * half)]), two.as_pointer()), align=16) for record in records
        ]
        first, second = _side_by_side(b, loaded[0::2]), _side_by_side(b, loaded[1::2])
        found += [shuffle(b, first, second, even), shuffle(b, first, second, odd)]
    return found[:parts]


def _transpose(b: Any, records: list, parts: int) -> list:
    """x, y, z (and w) of records of float32, four numbers a load; the lanes in the order of the records."""
    n = len(records)
    four = ir.VectorType(ELEMENT["f"], 4)
    loaded = [b.load(b.bitcast(record, four.as_pointer()), align=16) for record in records]
    rows = [_side_by_side(b, loaded[row::4]) for row in range(4)]

    def each(low: Sequence[int]) -> list[int]:
        return [start + lane for start in range(0, n, 4) for lane in low]

    def pair(first: Any, second: Any, offset: int) -> Any:
        return shuffle(b, first, second, each((offset, n + offset, offset + 1, n + offset + 1)))

    found = []
    for offset in range(0, parts, 2):
        first, second = pair(rows[0], rows[1], offset), pair(rows[2], rows[3], offset)
        found.append(shuffle(b, first, second, each((0, 1, n, n + 1))))
        found.append(shuffle(b, first, second, each((2, 3, n + 2, n + 3))))
    return found[:parts]


def _side_by_side(b: Any, vectors: list) -> Any:
    while len(vectors) > 1:
        n = 2 * vectors[0].type.count
        vectors = [shuffle(b, *vectors[i : i + 2], range(n)) for i in range(0, len(vectors), 2)]
    return vectors[0]


lanes = functools.cache(Lanes)
