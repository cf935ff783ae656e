"""Dual numbers for Numba: a value and its slope, so that a function of r2 gives its own derivative (Clifford 1873).

`seed(x)` has slope 1; + - * / ** and unary minus, `math.sqrt`, `math.exp`, `math.log`, `max` and `min` carry slopes
along, for numbers and for vectors of `compile.vectors`; `value_of` and `slope_of` read the result. Vectors get the same
functions here, so one Python function of r2 compiles to numbers, to vectors, and to the slope of either.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from hpckit.kernels.compile.elementary import exp, log
from hpckit.kernels.compile.vectors import (
    BINARY,
    COMPARISONS,
    ELEMENT,
    I32,
    Vec,
    arithmetic,
    common,
    constant,
    is_number,
    overloaded,
    splat,
    to_lanes,
)


class Dual(types.Type):
    """value + slope * epsilon, both of a type `base`: a `Vec`, or a float."""

    def __init__(self, base: Any) -> None:
        self.base = base
        super().__init__(name=f"dual<{base}>")


@register_model(Dual)
class _DualModel(models.StructModel):
    def __init__(self, manager: Any, dual: Dual) -> None:
        super().__init__(manager, dual, [("value", dual.base), ("slope", dual.base)])


def _meet(a: Any, b: Any) -> Dual | None:
    """The type in which two operands meet, one of them a dual; None where they do not fit."""
    base = (a if isinstance(a, Dual) else b).base
    for one in (a, b):
        other = one.base if isinstance(one, Dual) else one
        if other != base and not is_number(other):
            return None
    return Dual(base)


def _parts(c: Any, b: Any, value: Any, given: Any, base: Any) -> tuple[Any, Any]:
    """Value and slope of an operand; the slope of a plain number is None."""
    if isinstance(given, Dual):
        pair = cgutils.create_struct_proxy(given)(c, b, value=value)
        return pair.value, pair.slope
    return to_lanes(c, b, value, given, base), None


def _dual(c: Any, b: Any, kind: Dual, value: Any, slope: Any) -> Any:
    pair = cgutils.create_struct_proxy(kind)(c, b)
    pair.value = value
    pair.slope = constant(value.type, 0.0) if slope is None else slope
    return pair._getvalue()


def _combine(b: Any, operation: str, x: Any, dx: Any, y: Any, dy: Any) -> tuple[Any, Any]:
    """Value and slope of an operation on values x, y with slopes dx, dy (None for 0)."""

    def do(name: str, one: Any, other: Any) -> Any:
        return arithmetic(b, name, one, other)

    if operation in ("fadd", "fsub"):
        value = do(operation, x, y)
        if dy is None:
            return value, dx
        if dx is None:
            return value, dy if operation == "fadd" else b.fneg(dy)
        return value, do(operation, dx, dy)
    if operation == "fmul":
        terms = [do("fmul", *pair) for pair in ((dx, y), (x, dy)) if None not in pair]
        return do("fmul", x, y), terms[0] if len(terms) == 1 else do("fadd", *terms)
    inverse = do("fdiv", constant(y.type, 1.0), y)  # one division serves value and slope
    value = do("fmul", x, inverse)
    if dy is None:
        return value, do("fmul", dx, inverse)
    fall = do("fmul", value, dy)
    return value, do("fmul", b.fneg(fall) if dx is None else do("fsub", dx, fall), inverse)


def _register(function: Callable, operation: str) -> None:
    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        kind = signature.return_type
        x, dx = _parts(c, b, values[0], signature.args[0], kind.base)
        y, dy = _parts(c, b, values[1], signature.args[1], kind.base)
        return _dual(c, b, kind, *_combine(b, operation, x, dx, y, dy))

    def typer(context: Any) -> Callable:
        return lambda a, b: _meet(a, b) if isinstance(a, Dual) or isinstance(b, Dual) else None

    type_callable(function)(typer)
    lower_builtin(function, Dual, Dual)(lower)
    for other in (Vec, types.Float, types.Integer):
        lower_builtin(function, Dual, other)(lower)
        lower_builtin(function, other, Dual)(lower)


for _operation, _functions in BINARY.items():
    for _function in _functions:
        _register(_function, _operation)


def _register_comparison(function: Callable, symbol: str) -> None:
    """Duals compare by their values."""

    def typer(context: Any) -> Callable:
        def compared(a: Any, b: Any) -> Any:
            if not (isinstance(a, Dual) or isinstance(b, Dual)):
                return None
            meet = _meet(a, b)
            if meet is None:
                return None
            return Vec("m", meet.base.n) if isinstance(meet.base, Vec) else types.boolean

        return compared

    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        meet = _meet(*signature.args)
        assert meet is not None
        x, y = (_parts(c, b, *pair, meet.base)[0] for pair in zip(values, signature.args, strict=True))
        return b.fcmp_ordered(symbol, x, y)

    type_callable(function)(typer)
    lower_builtin(function, Dual, Dual)(lower)
    for other in (Vec, types.Float, types.Integer):
        lower_builtin(function, Dual, other)(lower)
        lower_builtin(function, other, Dual)(lower)


for _function, _symbol in COMPARISONS.items():
    _register_comparison(_function, _symbol)


# ---- functions of one number


def _is_ours(t: Any) -> bool:
    return isinstance(t, Dual) or (isinstance(t, Vec) and t.kind in "dfw")


def _unary(function: Callable, value_of: Callable, slope_of: Callable) -> None:
    """value_of(b, x); slope_of(b, x, y, dx) with y = value_of(x)."""
    type_callable(function)(lambda context: lambda a: a if _is_ours(a) else None)

    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        return value_of(b, values[0])

    def lower_dual(c: Any, b: Any, signature: Any, values: Any) -> Any:
        x, dx = _parts(c, b, values[0], signature.args[0], signature.args[0].base)
        y = value_of(b, x)
        return _dual(c, b, signature.return_type, y, slope_of(b, x, y, dx))

    if function is not operator.neg:
        lower_builtin(function, Vec)(lower)
    lower_builtin(function, Dual)(lower_dual)


def _sqrt(b: Any, x: Any) -> Any:
    return overloaded(b, "sqrt", x)


def _slope_of_sqrt(b: Any, x: Any, y: Any, dx: Any) -> Any:
    # Without the flag arcp the division is not moved behind what the slope is multiplied by: it runs beside that.
    return arithmetic(b, "fmul", dx, b.fdiv(constant(y.type, 0.5), y, flags=("nsz",)))


_unary(operator.neg, lambda b, x: b.fneg(x), lambda b, x, y, dx: b.fneg(dx))
_unary(math.sqrt, _sqrt, _slope_of_sqrt)
_unary(math.exp, exp, lambda b, x, y, dx: arithmetic(b, "fmul", dx, y))
_unary(math.log, log, lambda b, x, y, dx: arithmetic(b, "fdiv", dx, x))


def _register_extremum(function: Callable, symbol: str) -> None:
    """`max` and `min` of a vector or dual and a number, or another of its kind."""

    def typer(context: Any) -> Callable:
        def extremum(a: Any, b: Any) -> Any:
            if isinstance(a, Dual) or isinstance(b, Dual):
                return _meet(a, b)
            return common(a, b) if isinstance(a, Vec) or isinstance(b, Vec) else None

        return extremum

    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        kind = signature.return_type
        base = kind.base if isinstance(kind, Dual) else kind
        sides = [_parts(c, b, *pair, base) for pair in zip(values, signature.args, strict=True)]
        first = b.fcmp_ordered(symbol, sides[0][0], sides[1][0])
        value = b.select(first, sides[0][0], sides[1][0])
        if not isinstance(kind, Dual):
            return value
        slopes = [constant(value.type, 0.0) if slope is None else slope for _, slope in sides]
        return _dual(c, b, kind, value, b.select(first, *slopes))

    type_callable(function)(typer)
    lower_builtin(function, Dual, Dual)(lower)
    lower_builtin(function, Vec, Vec)(lower)
    lower_builtin(function, Dual, Vec)(lower)
    lower_builtin(function, Vec, Dual)(lower)
    for number in (types.Float, types.Integer):
        for ours in (Dual, Vec):
            lower_builtin(function, ours, number)(lower)
            lower_builtin(function, number, ours)(lower)


_register_extremum(max, ">")
_register_extremum(min, "<")


# ---- powers


@type_callable(operator.pow)
def _type_power(context: Any) -> Callable:
    return lambda a, n: a if _is_ours(a) and is_number(n) else None


def _power(b: Any, x: Any, n: Any) -> Any:
    """x^n for a whole number n, an LLVM i32: a constant becomes multiplications."""
    kind = x.type
    element = "f64" if (kind.element if isinstance(kind, ir.VectorType) else kind) == ELEMENT["d"] else "f32"
    suffix = f"v{kind.count}{element}" if isinstance(kind, ir.VectorType) else element
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(kind, [kind, I32]), f"llvm.powi.{suffix}.i32")
    return b.call(function, [x, n], fastmath=("reassoc", "nsz", "arcp", "contract"))


def _as_lanes(b: Any, value: Any, like: Any) -> Any:
    return splat(b, value, like.type.count) if isinstance(like.type, ir.VectorType) else value


@lower_builtin(operator.pow, Vec, types.Integer)
def _lower_power(c: Any, b: Any, signature: Any, values: Any) -> Any:
    return _power(b, values[0], c.cast(b, values[1], signature.args[1], types.int32))


@lower_builtin(operator.pow, Vec, types.Float)
def _lower_real_power(c: Any, b: Any, signature: Any, values: Any) -> Any:
    exponent = to_lanes(c, b, values[1], signature.args[1], signature.args[0])
    return exp(b, arithmetic(b, "fmul", exponent, log(b, values[0])))


@lower_builtin(operator.pow, Dual, types.Integer)
def _lower_power_of_dual(c: Any, b: Any, signature: Any, values: Any) -> Any:
    x, dx = _parts(c, b, values[0], signature.args[0], signature.args[0].base)
    n = c.cast(b, values[1], signature.args[1], types.int32)
    below = _power(b, x, b.sub(n, I32(1)))  # serves value and slope
    element = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    factor = arithmetic(b, "fmul", _as_lanes(b, b.sitofp(n, element), x), below)
    return _dual(c, b, signature.return_type, arithmetic(b, "fmul", below, x), arithmetic(b, "fmul", factor, dx))


@lower_builtin(operator.pow, Dual, types.Float)
def _lower_real_power_of_dual(c: Any, b: Any, signature: Any, values: Any) -> Any:
    x, dx = _parts(c, b, values[0], signature.args[0], signature.args[0].base)
    exponent = to_lanes(c, b, values[1], signature.args[1], signature.args[0].base)
    value = exp(b, arithmetic(b, "fmul", exponent, log(b, x)))
    slope = arithmetic(b, "fmul", arithmetic(b, "fmul", exponent, arithmetic(b, "fdiv", value, x)), dx)
    return _dual(c, b, signature.return_type, value, slope)


# ---- reading and making


@intrinsic
def seed(context, x):
    """The variable: x with slope 1."""
    kind = Dual(x)

    def generate(c, b, signature, values):
        return _dual(c, b, kind, values[0], constant(values[0].type, 1.0))

    return kind(x), generate


@intrinsic
def force_seed(context, r2):
    """A squared distance with slope -2: the slope of E(r2) is then -dE/dr / r."""
    kind = Dual(r2)

    def generate(c, b, signature, values):
        return _dual(c, b, kind, values[0], constant(values[0].type, -2.0))

    return kind(r2), generate


def _component(dual: Any, of_dual: int) -> Any:
    """A dual's value (0) or slope (1); a number or vector is its own value, and has slope 0."""

    def generate(c: Any, b: Any, signature: Any, values: Any) -> Any:
        if isinstance(dual, Dual):
            return _parts(c, b, values[0], dual, dual.base)[of_dual]
        return values[0] if of_dual == 0 else constant(values[0].type, 0.0)

    kind = dual.base if isinstance(dual, Dual) else dual
    return kind(dual), generate


@intrinsic
def value_of(context, dual):
    """The value."""
    return _component(dual, 0)


@intrinsic
def slope_of(context, dual):
    """The slope; 0 of what does not depend on the variable."""
    return _component(dual, 1)


__all__ = ["Dual", "common", "force_seed", "seed", "slope_of", "value_of"]
