"""Explicit SIMD for Numba: values that are n numbers, and their operators.

`Vec(kind, n)` is n lanes of "d" (float64), "f" (float32), "w" (float64, computed as written), "e" (float64) and "h"
(float32) with the bits of NumPy, "i" (int32) or "m" (one bit, the result of a comparison). In compiled code vectors
take + - * / and unary minus, < > <= >= == !=, & | and `not` of masks, `**` with a constant integer, `math.sqrt`,
`math.exp` and `math.log`, with vectors of the same kind and with numbers, so that a function written for numbers
compiles for vectors too (`compile.functions`). Intrinsics for any width are in `compile.intrinsics`, those that depend
on the kind or on the instruction set in `compile.lanes`.

Arithmetic on vectors may be reordered and contracted (reassoc, nsz, arcp, contract): without reassoc the derivatives of
potentials are 30 % slower. nnan and ninf are not given: lanes that a mask discards may hold inf. `rounded` is exempt,
vectors of "w" are only contracted, as `jit` does it: for kernels whose balances must cancel to the bit, and those of
"e" and "h" are not even that.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, models, register_model, type_callable

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
ELEMENT = {**dict.fromkeys("dwe", ir.DoubleType()), **dict.fromkeys("fh", ir.FloatType()), "i": I32, "m": ir.IntType(1)}
NUMBER = {**dict.fromkeys("dwe", types.float64), **dict.fromkeys("fh", types.float32)}
BYTES = {**dict.fromkeys("dwe", 8), **dict.fromkeys("fhi", 4)}
FLAGS = ("reassoc", "nsz", "arcp", "contract")
AS_WRITTEN = ("nsz", "contract")
FREEDOM: dict[str, tuple[str, ...]] = {"w": AS_WRITTEN, "e": (), "h": ()}
MOST_TYPES = 1 << 15  # of particles, that w of a record can name
ISAS = ("avx512", "avx2", "scalar")
NEEDS = {"avx512": {"avx512f", "avx512vl", "avx512dq", "avx2", "fma"}, "avx2": {"avx2", "fma"}, "scalar": set()}


@functools.cache
def features() -> frozenset[str]:
    """What the processor that Numba compiles for can do, by LLVM's names."""
    _, name, text = numba.core.registry.cpu_target.target_context.codegen().magic_tuple()
    named = {feature[1:] for feature in text.split(",") if feature.startswith("+")}
    if not text and name == llvmlite.binding.get_host_cpu_name():
        named = {feature for feature, there in llvmlite.binding.get_host_cpu_features().items() if there}
    return frozenset(named)


@functools.cache
def available() -> tuple[str, ...]:
    """The instruction sets that Numba compiles for on this host, best first; "scalar" is always there."""
    return tuple(isa for isa in ISAS if NEEDS[isa] <= features())


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
    """fadd, fsub, fmul or fdiv of what may be reordered."""
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
            return one if one.kind in NUMBER and (other == one or is_number(other)) else None
    return None


BINARY = {
    "fadd": (operator.add, operator.iadd),
    "fsub": (operator.sub, operator.isub),
    "fmul": (operator.mul, operator.imul),
    "fdiv": (operator.truediv, operator.itruediv),
}
COMPARISONS = {operator.lt: "<", operator.gt: ">", operator.le: "<=", operator.ge: ">=", operator.eq: "=="}
COMPARISONS |= {operator.ne: "!="}


def _register_binary(function: Callable, result: Callable, lower: Callable) -> None:
    """Type and lower function(a, b) for two vectors, and for a vector and a number in either order."""
    type_callable(function)(lambda context: lambda a, b: result(a, b))
    lower_builtin(function, Vec, Vec)(lower)
    for number in (types.Float, types.Integer):
        lower_builtin(function, Vec, number)(lower)
        lower_builtin(function, number, Vec)(lower)


def _lower_arithmetic(operation: str) -> Callable:
    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        vector = signature.return_type
        x, y = (to_lanes(c, b, *pair, vector) for pair in zip(values, signature.args, strict=True))
        return getattr(b, operation)(x, y, flags=FREEDOM.get(vector.kind, FLAGS))

    return lower


def _lower_comparison(symbol: str) -> Callable:
    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        meet = common(*signature.args)
        x, y = (to_lanes(c, b, *pair, meet) for pair in zip(values, signature.args, strict=True))
        return (b.fcmp_unordered if symbol == "!=" else b.fcmp_ordered)(symbol, x, y)  # as nan compares

    return lower


def _mask_of(a: Any, b: Any) -> Vec | None:
    meet = common(a, b)
    return None if meet is None else Vec("m", meet.n)


for _operation, _functions in BINARY.items():
    for _function in _functions:
        _register_binary(_function, common, _lower_arithmetic(_operation))
for _function, _symbol in COMPARISONS.items():
    _register_binary(_function, _mask_of, _lower_comparison(_symbol))


def _is_mask(t: Any) -> bool:
    return isinstance(t, Vec) and t.kind == "m"


for _function in (operator.and_, operator.or_):
    type_callable(_function)(lambda context: lambda a, b: a if _is_mask(a) and a == b else None)
lower_builtin(operator.and_, Vec, Vec)(lambda c, b, signature, values: b.and_(*values))
lower_builtin(operator.or_, Vec, Vec)(lambda c, b, signature, values: b.or_(*values))
type_callable(operator.not_)(lambda context: lambda a: a if _is_mask(a) else None)
lower_builtin(operator.not_, Vec)(lambda c, b, signature, values: b.not_(*values))


@type_callable(operator.neg)
def _type_neg(context: Any) -> Callable:
    return lambda a: a if isinstance(a, Vec) and a.kind in NUMBER else None


@lower_builtin(operator.neg, Vec)
def _lower_neg(c: Any, b: Any, signature: Any, values: Any) -> Any:
    return b.fneg(values[0])
