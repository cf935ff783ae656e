"""Python functions of numbers as graphs, and graphs as Python functions of numbers.

A function is called once with stand-ins, and what it does becomes nodes, whose derivatives follow from the table of
`derivatives`. `source` writes nodes down as a plain function without branches or calls of its own, which Numba compiles
for numbers, for vectors (`compile.functions`) and for GPUs. All numbers in it are floats.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from hpckit.kernels.graph.derivatives import pushed_forward
from hpckit.kernels.graph.nodes import Node, constant, make, ordered
from hpckit.kernels.graph.standin import StandIn, function, line, line_of
from hpckit.kernels.graph.text import expression, literal

MOST_PRODUCTS = 64  # whole exponents up to this are products


class Scalar(StandIn):
    """The stand-in of a number."""

    __slots__ = ()

    def _apply(self, op: str, *args: Any) -> Scalar:
        return Scalar(make(op, *map(_node, args), line=line()))

    def __pow__(self, exponent: Any) -> Any:
        if isinstance(exponent, Real):
            n = float(exponent)
            if n.is_integer() and abs(n) <= MOST_PRODUCTS:
                return _whole_power(self, int(n))
        return EXP(exponent * LOG(self))

    def __rpow__(self, base: Any) -> Any:
        return EXP(self * LOG(base))

    def __bool__(self) -> bool:
        raise TypeError(f"an `if` (or `and`, `or`, `not`) decides on {self._said()}")

    def __float__(self) -> float:
        raise TypeError(f"a plain number is made of {self._said()}")

    __int__ = __index__ = __float__

    def _said(self) -> str:
        names = sorted({str(node.value) for node in ordered([self.node]) if not node.args and node.op != "constant"})
        return f"{', '.join(names)} ({line().split(':')[0]})"


def _whole_power(base: Scalar, exponent: int) -> Any:
    if exponent == 0:
        return 1.0
    if exponent < 0:
        return 1.0 / _whole_power(base, -exponent)
    half = _whole_power(base, exponent // 2) if exponent > 1 else None
    square = None if half is None else half * half
    return base if square is None else square * base if exponent % 2 else square


def _node(value: Any) -> Node:
    if isinstance(value, Scalar):
        return value.node
    if isinstance(value, Real | np.bool_) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return constant(float(value))
    raise TypeError(f"a value of type {type(value).__name__} beside a number ({line().split(':')[0]})")


def _folded(op: str, plain: Callable) -> Callable:
    two = function(op, plain)
    return lambda *args: functools.reduce(two, args if len(args) > 1 else args[0])


SQRT, EXP, LOG = function("sqrt", math.sqrt), function("exp", math.exp), function("log", math.log)
MAX, MIN = _folded("maximum", max), _folded("minimum", min)
FUNCTIONS: dict[Any, Callable] = {math.sqrt: SQRT, math.exp: EXP, math.log: LOG, max: MAX, min: MIN}
FUNCTIONS |= {each: function(each.__name__, each) for each in (math.sin, math.cos, math.tanh)}
FUNCTIONS |= {math.fabs: function("absolute", math.fabs), math.pow: lambda a, b: a**b}


def _refused(plain: Any) -> Any:
    """A function of `math` that has no node: of plain numbers only."""

    def refuse(*args: Any) -> Any:
        if any(isinstance(arg, Scalar) for arg in args):
            raise TypeError(f"{plain.__name__} cannot be taken of a traced number ({line().split(':')[0]})")
        return plain(*args)

    return refuse


MATH = types.SimpleNamespace(
    **{
        name: FUNCTIONS.get(value) or (_refused(value) if callable(value) else value)
        for name, value in vars(math).items()
        if not name.startswith("__")
    }
)


def twin(value: Any) -> Any:
    """A function that calls the functions of this module in place of math's, by name or from its closure."""
    return _twin(value, {})


def _twin(value: Any, known: dict[int, Any]) -> Any:
    value = getattr(value, "py_func", value)
    if value is math:
        return MATH
    if isinstance(value, types.BuiltinFunctionType):
        return FUNCTIONS.get(value) or (_refused(value) if value.__module__ == "math" else value)
    if not isinstance(value, types.FunctionType):
        return value
    if id(value) not in known:
        names = {**value.__globals__, "max": MAX, "min": MIN}
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        made = types.FunctionType(value.__code__, names, value.__name__, value.__defaults__, cells or None)
        made.__kwdefaults__ = value.__kwdefaults__
        known[id(value)] = made  # before what it calls, which may call it
        for name in value.__code__.co_names:
            if name in value.__globals__:
                names[name] = _twin(value.__globals__[name], known)
        for cell, own in zip(cells, value.__closure__ or (), strict=True):
            cell.cell_contents = _twin(own.cell_contents, known)
    return known[id(value)]


def traced(given: Callable, *args: Any) -> Node:
    """The node of what a function returns for stand-ins and plain values.

    Raises `TypeError`, with the line, for a function that cannot be traced or that does not return a number.
    """
    try:
        found = twin(given)(*args)
    except IndexError as error:  # there are as many parameters as values were given for
        raise TypeError(f"it reads a parameter that was not given ({line_of(error).split(':')[0]})") from error
    if isinstance(found, StandIn | Real):
        return _node(found)
    raise TypeError(f"it returns a {type(found).__name__}, and no number")


def slope(output: Node, variable: Node, seed: float = 1.0) -> Node | None:
    """The derivative of a value by a leaf, times a seed; None where it does not depend on it."""
    found: dict[Node, Node | None] = {variable: constant(seed)}
    for node in ordered([output]):
        if node not in found:
            found[node] = pushed_forward(node, found)
    return found[output]


def source(name: str, arguments: str, outputs: Sequence[Node], leaves: Mapping[Node, str]) -> str:
    """The function name(arguments) of the outputs as Python, a tuple if they are several; leaves: their expressions.

    A choice is a call of `chosen(mask, yes, no, like)`, `like` the first argument. Divisions by one value share one
    reciprocal.
    """
    names = dict(leaves)
    inverse: dict[Node, str] = {}
    lines = [f"def {name}({arguments}):"]

    def put(text: str) -> str:
        lines.append(f"    t{len(lines)} = {text}")
        return f"t{len(lines) - 1}"

    for node in ordered(outputs):
        if node in names:
            continue
        if node.op == "constant":
            names[node] = literal(node.value)
            continue
        args = [names[arg] for arg in node.args]
        if node.op == "div":
            top, below = node.args
            if below not in inverse:
                inverse[below] = put(f"1.0 / {args[1]}")
            names[node] = inverse[below] if top.value == 1.0 else put(f"{args[0]} * {inverse[below]}")
        elif node.op in EXTREMES:
            names[node] = put(f"{EXTREMES[node.op]}({', '.join(args)})")
        elif node.op == "where":
            names[node] = put(f"chosen({', '.join(args)}, {arguments.split(',')[0]})")
        else:
            names[node] = put(expression(node.op, args))
    found = [names[node] for node in outputs]
    return "\n".join([*lines, f"    return {found[0] if len(found) == 1 else '(' + ', '.join(found) + ')'}", ""])


EXTREMES = {"maximum": "max", "minimum": "min"}
NAMES = {name: getattr(math, name) for name in ("sqrt", "exp", "log", "sin", "cos", "tanh", "fabs", "nan", "inf")}


def from_source(text: str, **names: Any) -> Any:
    """The function of a source, with more names that it may call."""
    space: dict[str, Any] = {**NAMES, **names}
    exec(compile(text, "<traced>", "exec"), space)
    return space[text[len("def ") : text.index("(")]]
