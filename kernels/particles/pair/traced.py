"""The derivative of a Python function of the squared distance, as Python source, for GPUs.

The function is called once with values that write down what is done to them and to their slopes (dual numbers,
Clifford 1873, as `compile.dual` has them for the CPU); the result is a plain function without branches or calls, which
Numba-CUDA compiles like any other. All numbers in it are floats, so that `cuda_records.single` finds them.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import cache
from typing import Any

from hpckit.kernels.compile.jit import inlined

MOST_PRODUCTS = 64  # whole exponents up to this are products


class _Trace:
    """The lines written so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def name(self, expression: str) -> str:
        """A variable with the value of an expression."""
        self.lines.append(f"    t{len(self.lines)} = {expression}")
        return f"t{len(self.lines) - 1}"


class _Value:
    """A name or a number, and its slope by r2: one more, or None where that is zero."""

    def __init__(self, trace: _Trace, text: str, slope: str | None = None) -> None:
        self.trace, self.text, self.slope = trace, text, slope

    def of(self, other: Any) -> _Value:
        """An operand as a value."""
        return other if isinstance(other, _Value) else _Value(self.trace, repr(float(other)))

    def made(self, expression: str, *terms: str | None) -> _Value:
        """The value of an expression whose slope is the sum of some terms."""
        there = [term for term in terms if term is not None]
        text = self.trace.name(expression)
        return _Value(self.trace, text, self.trace.name(" + ".join(there)) if there else None)

    def times(self, factor: str) -> str | None:
        """The slope times a factor."""
        return None if self.slope is None else f"{self.slope} * {factor}"

    def __add__(self, other: Any) -> _Value:
        b = self.of(other)
        return self.made(f"{self.text} + {b.text}", self.slope, b.slope)

    def __neg__(self) -> _Value:
        return self.made(f"-{self.text}", self.times("(-1.0)"))

    def __sub__(self, other: Any) -> _Value:
        return self + (-self.of(other))

    def __rsub__(self, other: Any) -> _Value:
        return self.of(other) + (-self)

    def __mul__(self, other: Any) -> _Value:
        b = self.of(other)
        return self.made(f"{self.text} * {b.text}", self.times(b.text), b.times(self.text))

    def __truediv__(self, other: Any) -> _Value:
        b = self.of(other)
        inverse = self.trace.name(f"1.0 / {b.text}")
        quotient = self.trace.name(f"{self.text} * {inverse}")
        return self.made(quotient, self.times(inverse), b.times(f"(-{quotient} * {inverse})"))

    def __rtruediv__(self, other: Any) -> _Value:
        return self.of(other) / self

    def __pow__(self, other: Any) -> _Value:
        if not isinstance(other, _Value) and float(other).is_integer() and abs(other) <= MOST_PRODUCTS:
            return _power(self, int(other))
        b = self.of(other)
        value = self.trace.name(f"{self.text} ** {b.text}")
        with_base = self.times(f"({b.text} * {value} / {self.text})")
        return self.made(value, with_base, b.times(f"({value} * math.log({self.text}))") if b.slope else None)

    def __rpow__(self, other: Any) -> _Value:
        return self.of(other) ** self

    def __bool__(self) -> bool:
        raise TypeError("a pair potential for GPUs is written without `if`: use max and min")

    __radd__, __rmul__ = __add__, __mul__
    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: self  # used in `if` only, which says what is wrong


def _power(base: _Value, exponent: int) -> _Value:
    if exponent == 0:
        return base.of(1.0)
    if exponent < 0:
        return 1.0 / _power(base, -exponent)
    half = _power(base, exponent // 2) if exponent > 1 else None
    square = None if half is None else half * half
    return base if square is None else square * base if exponent % 2 else square


def _sqrt(x: Any) -> Any:
    if not isinstance(x, _Value):
        return math.sqrt(x)
    root = x.trace.name(f"math.sqrt({x.text})")
    return x.made(root, x.times(f"(0.5 / {root})"))


def _exp(x: Any) -> Any:
    if not isinstance(x, _Value):
        return math.exp(x)
    value = x.trace.name(f"math.exp({x.text})")
    return x.made(value, x.times(value))


def _log(x: Any) -> Any:
    return x.made(f"math.log({x.text})", x.times(f"(1.0 / {x.text})")) if isinstance(x, _Value) else math.log(x)


def _chosen(name: str, sign: str, a: Any, b: Any) -> Any:
    if not isinstance(a, _Value) and not isinstance(b, _Value):
        return max(a, b) if name == "max" else min(a, b)
    a = a if isinstance(a, _Value) else b.of(a)
    b = a.of(b)
    slope = f"({a.slope or '0.0'} if {a.text} {sign} {b.text} else {b.slope or '0.0'})"
    return a.made(f"{name}({a.text}, {b.text})", slope if a.slope or b.slope else None)


def _max(a: Any, b: Any) -> Any:
    return _chosen("max", ">", a, b)


def _min(a: Any, b: Any) -> Any:
    return _chosen("min", "<", a, b)


FUNCTIONS: dict[Any, Callable] = {math.sqrt: _sqrt, math.exp: _exp, math.log: _log, max: _max, min: _min}
MATH = types.SimpleNamespace(**vars(math) | {"sqrt": _sqrt, "exp": _exp, "log": _log})


def _twin(value: Any) -> Any:
    """A function that calls the functions of this module in place of math's, by name or from its closure."""
    value = getattr(value, "py_func", value)
    if value is math:
        return MATH
    if isinstance(value, types.BuiltinFunctionType):
        return FUNCTIONS.get(value, value)
    if not isinstance(value, types.FunctionType):
        return value
    named = {name: value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__}
    names = {**value.__globals__, "max": _max, "min": _min, **{name: _twin(each) for name, each in named.items()}}
    cells = tuple(types.CellType(_twin(cell.cell_contents)) for cell in value.__closure__ or ())
    return types.FunctionType(value.__code__, names, value.__name__, value.__defaults__, cells or None)


@cache
def derived(energy: Any, parameters: int) -> tuple[Any, Any]:
    """The pieces force(r2, p) = -2 dE/d(r2), which is -dE/dr / r, and both E and that, of a function energy(r2, p).

    p: a tuple of `parameters` numbers. Raises `TypeError` for a function with branches on its values.
    """
    trace = _Trace()
    given = tuple(_Value(trace, f"p[{k}]") for k in range(parameters))
    found = _Value(trace, "r2", "1.0").of(_twin(energy)(_Value(trace, "r2", "1.0"), given))
    force = f"-2.0 * {found.slope}" if found.slope else "0.0 * r2"
    pieces = []
    for name, result in (("force", force), ("energy_and_force", f"({found.text}, {force})")):
        source = "\n".join([f"def {name}(r2, p):", *trace.lines, f"    return {result}"])
        made: dict[str, Any] = {"math": math}
        exec(compile(source, f"<derivative of {getattr(energy, '__name__', 'energy')}>", "exec"), made)
        pieces.append(inlined(made[name]))
    return pieces[0], pieces[1]
