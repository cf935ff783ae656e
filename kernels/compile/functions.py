"""Functions of vectors: `math.sqrt`, `fabs`, `exp`, `log`, `atan2`, `max`, `min`, `**` of `compile.vectors`; choices.

With them one Python function of numbers compiles to vectors, too; importing this module makes them known to Numba.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, type_callable

from hpckit.kernels.compile.elementary import angle, exp, log
from hpckit.kernels.compile.vectors import ELEMENT, I32, Vec, arithmetic, common, is_number, overloaded, to_lanes


def _is_ours(t: Any, kinds: str = "dfw") -> bool:
    return isinstance(t, Vec) and t.kind in kinds


def _unary(function: Callable, value_of: Callable, kinds: str = "dfw") -> None:
    type_callable(function)(lambda context: lambda a: a if _is_ours(a, kinds) else None)
    lower_builtin(function, Vec)(lambda c, b, signature, values: value_of(b, values[0]))


_unary(math.sqrt, lambda b, x: overloaded(b, "sqrt", x), "dfweh")  # is exact: it has the bits of NumPy
_unary(math.fabs, lambda b, x: overloaded(b, "fabs", x), "dfweh")
_unary(math.exp, exp)
_unary(math.log, log)


@type_callable(math.atan2)
def _type_angle(context: Any) -> Callable:
    return lambda y, x: y if _is_ours(y) and x == y else None


@lower_builtin(math.atan2, Vec, Vec)
def _lower_angle(c: Any, b: Any, signature: Any, values: Any) -> Any:
    return angle(b, *values)


def _register_extremum(function: Callable, symbol: str) -> None:
    """`max` and `min` of a vector and a number, or another of its kind."""

    def typer(context: Any) -> Callable:
        return lambda a, b: common(a, b) if isinstance(a, Vec) or isinstance(b, Vec) else None

    def lower(c: Any, b: Any, signature: Any, values: Any) -> Any:
        kind = signature.return_type
        x, y = (to_lanes(c, b, *pair, kind) for pair in zip(values, signature.args, strict=True))
        return b.select(b.fcmp_ordered(symbol, x, y), x, y)

    type_callable(function)(typer)
    lower_builtin(function, Vec, Vec)(lower)
    for number in (types.Float, types.Integer):
        lower_builtin(function, Vec, number)(lower)
        lower_builtin(function, number, Vec)(lower)


_register_extremum(max, ">")
_register_extremum(min, "<")


@type_callable(operator.pow)
def _type_power(context: Any) -> Callable:
    return lambda a, n: a if _is_ours(a) and is_number(n) else None


@lower_builtin(operator.pow, Vec, types.Integer)
def _lower_power(c: Any, b: Any, signature: Any, values: Any) -> Any:
    """x^n for a whole number n: a constant becomes multiplications."""
    kind = values[0].type
    suffix = f"v{kind.count}{'f64' if kind.element == ELEMENT['d'] else 'f32'}"
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(kind, [kind, I32]), f"llvm.powi.{suffix}.i32")
    n = c.cast(b, values[1], signature.args[1], types.int32)
    return b.call(function, [values[0], n], fastmath=("reassoc", "nsz", "arcp", "contract"))


@lower_builtin(operator.pow, Vec, types.Float)
def _lower_real_power(c: Any, b: Any, signature: Any, values: Any) -> Any:
    exponent = to_lanes(c, b, values[1], signature.args[1], signature.args[0])
    return exp(b, arithmetic(b, "fmul", exponent, log(b, values[0])))


@intrinsic
def chosen(context, mask, yes, no, like):
    """`yes` where the mask holds, else `no`, each a vector or a number, as values of the type of `like`."""

    def generate(c, b, signature, values):
        sides = (to_lanes(c, b, values[k], signature.args[k], like) for k in (1, 2))
        return b.select(values[0], *sides)

    return like(mask, yes, no, like), generate
