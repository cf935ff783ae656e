"""Conditions and formulas as input scripts of LAMMPS have them: their tokens, and their values."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Operators of two values, those that bind least first; of one kind the left one first, in powers too.
OPERATORS: tuple[dict[str, Callable[[Any, Any], Any]], ...] = (
    {"||": lambda a, b: bool(a) or bool(b), "|^": lambda a, b: bool(a) != bool(b)},
    {"&&": lambda a, b: bool(a) and bool(b)},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.truediv, "%": math.fmod},
    {"^": math.pow},
)
COMPARISONS = OPERATORS[2] | OPERATORS[3]
OF_CONDITIONS = OPERATORS[:4]
SIGNS = r"&&|\|\||\|\^|[=!<>]=|[<>()!]"
CONDITION = re.compile(rf"\s*({SIGNS}|[^\s=!<>()&|]+)")
# Names, too: of all values so far, and of groups: count(GROUP), vcm(GROUP,x), bound(GROUP,xmin,REGION).
OF_SERIES = r"(?:trap|slope)\(f_\w+(?:\[\d+\])?\)"
OF_GROUP = (
    r"(?:(?:count|mass|charge|ke|gyration)\(\w+(?:,\w+)?\)|"
    r"(?:(?:xcm|vcm|fcm)\(\w+,[xyz]|bound\(\w+,[xyz](?:min|max))(?:,\w+)?\))"
)
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
FORMULA = re.compile(rf"\s*({OF_SERIES}|{OF_GROUP}|{SIGNS}|[-+*/%^,]|{NUMBER}|\w+(?:\[\d+\]){{0,2}})")
FUNCTIONS: dict[str, Callable[..., float]] = {
    **{name: getattr(math, name) for name in ("sqrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "atan2")},
    **{name: getattr(math, name) for name in ("ceil", "floor")},
    "ln": math.log,
    "log": math.log10,
    "abs": abs,
    "round": lambda x: math.ceil(x) if x - math.floor(x) >= 0.5 else math.floor(x),  # halves go up
}


# The same for many numbers at once.
FUNCTIONS_OF_MANY: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("sqrt", "exp", "sin", "cos", "tan", "ceil", "floor", "abs")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "atan2")},
    "ln": np.log,
    "log": np.log10,
    "round": lambda x: np.where(x - np.floor(x) >= 0.5, np.ceil(x), np.floor(x)),
}
OF_MANY: dict[str, Callable[[Any, Any], Any]] = {
    "||": np.logical_or,
    "|^": np.logical_xor,
    "&&": np.logical_and,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    **COMPARISONS,
}


def is_number(word: str) -> bool:
    """Whether a word is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def holds(condition: str) -> bool:
    """Whether a condition of numbers or texts is true: comparisons, !, &&, ||, |^ and parentheses.

    Raises `ValueError` where it cannot be read.
    """

    def value(token: str, left: list[str]) -> Any:
        return float(token) if is_number(token) else token

    try:
        found = _value_of(_tokens(condition, CONDITION), value, OF_CONDITIONS)
    except (ArithmeticError, IndexError, TypeError, ValueError):
        found = ""
    if isinstance(found, str):
        raise ValueError(f"the condition {condition!r} cannot be read")
    return bool(found)


def value_of(formula: str, named: Callable[[str], float]) -> float:
    """The value of a formula of numbers, names, operators and functions; named: that of a name.

    Raises what `named` raises, `ArithmeticError`, `IndexError`, `KeyError`, `TypeError` or `ValueError`.
    """
    return float(_evaluated(formula, named, FUNCTIONS, OPERATORS))


def values_of(formula: str, named: Callable[[str], Any]) -> Any:
    """The values of a formula of numbers or of arrays of them, as `value_of`; a division by zero is inf or nan."""
    operators = [{sign: OF_MANY[sign] for sign in level} for level in OPERATORS]
    with np.errstate(all="ignore"):
        return _evaluated(formula, named, FUNCTIONS_OF_MANY, operators)


def _evaluated(
    formula: str,
    named: Callable[[str], Any],
    functions: dict[str, Callable[..., Any]],
    operators: Sequence[dict[str, Callable[[Any, Any], Any]]],
) -> Any:
    """The value of a formula with these functions and operators."""

    def atom(token: str, left: list[str]) -> Any:
        if left[:1] == ["("]:
            function, values = functions[token], list[Any]()
            while left.pop(0) != ")":
                values.append(_value_of(left, atom, operators, whole=False))
            return function(*values)
        return float(token) if is_number(token) else named(token)

    return _value_of(_tokens(formula, FORMULA), atom, operators)


def names_in(formula: str) -> list[str]:
    """The names in a formula that stand for values. Raises `ValueError` where it cannot be read."""
    tokens = _tokens(formula, FORMULA)
    both = zip(tokens, [*tokens[1:], ""], strict=True)
    return [name for name, after in both if re.match(r"[^\W\d]", name) and after != "(" and not is_number(name)]


def _tokens(text: str, form: re.Pattern[str]) -> list[str]:
    """The tokens of a condition or a formula. Raises `ValueError` for what is none."""
    found = form.findall(text)
    if "".join(found) != "".join(text.split()):
        raise ValueError(f"{text!r} cannot be read")
    return found


def _value_of(
    tokens: list[str],
    atom: Callable[[str, list[str]], Any],
    operators: Sequence[dict[str, Callable[[Any, Any], Any]]],
    whole: bool = True,
) -> Any:
    """The value of an expression at the head of these tokens, which are taken out; atom: the value of a token that is
    no operator, from it and what follows. whole: nothing may be left. Raises `ValueError` or `IndexError`.
    """

    def single() -> Any:
        token = tokens.pop(0)
        if token == "(":
            found = level(0)
            if tokens.pop(0) != ")":
                raise ValueError("no closing parenthesis")
            return found
        if token == "!":
            return 1.0 * (single() == 0)
        if token in ("-", "+"):  # before powers, as in LAMMPS
            return -single() if token == "-" else single()
        return atom(token, tokens)

    def level(number: int) -> Any:
        if number == len(operators):
            return single()
        found = level(number + 1)
        while tokens and tokens[0] in operators[number]:
            sign = tokens.pop(0)
            both = found, level(number + 1)
            if sign in COMPARISONS and len({isinstance(each, str) for each in both}) > 1:
                both = str(both[0]), str(both[1])
            found = operators[number][sign](*both)
        return found

    found = level(0)
    if whole and tokens:
        raise ValueError("something is left")
    return found
