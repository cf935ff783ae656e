"""Whole numbers from arguments, of Python or NumPy types: one for all dims or one per dim."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from hpckit.errors import InputError


def count(given: Any, what: str) -> int:
    """`given` as an int; raises `InputError` if it is not a whole number (nor is True, which would pass for 1)."""
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)
    except TypeError:
        raise InputError(f"{what} is a whole number, not {given!r}") from None


def counts(given: Any, what: str, dims: int | None = None) -> tuple[int, ...]:
    """`given` as a tuple of ints: a single number is repeated for all `dims` (once if `dims` is None).

    Raises `InputError` if it is neither, or if the length of a sequence is not `dims`.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return (count(given, what),) * (1 if dims is None else dims)
    each = tuple(count(one, what) for one in given)
    if dims is not None and len(each) != dims:
        raise InputError(f"{what} must be one number for all dims or one for each of {dims}, not {each}")
    return each


def checked_root(root: Any, ranks: int) -> int:
    """`root` as an int; raises `InputError` if it is not a rank below `ranks`."""
    number = count(root, "the root")
    if not 0 <= number < ranks:
        raise InputError(f"root {number} is not one of the {ranks} ranks of the axis", do=f"choose 0 to {ranks - 1}")
    return number
