"""Whole numbers as users write them: one for all dims or one a dim, of Python's or NumPy's kinds."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from hpckit.errors import InputError


def count(given: Any, what: str) -> int:
    """`given` as an int; `InputError` for what is no whole number (also True, which would pass for 1)."""
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)
    except TypeError:
        raise InputError(f"{what} is a whole number, not {given!r}") from None


def counts(given: Any, what: str, dims: int | None = None) -> tuple[int, ...]:
    """`given` as a tuple of ints: a number stands for all `dims` (for one dim where `dims` is None).

    Raises `InputError` for other things, and for a sequence of another length than `dims`.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return (count(given, what),) * (1 if dims is None else dims)
    each = tuple(count(one, what) for one in given)
    if dims is not None and len(each) != dims:
        raise InputError(f"{what} is one number for all dims or one for each of {dims}, not {each}")
    return each


def checked_root(root: Any, ranks: int) -> int:
    """A rank of so many. Raises `InputError`."""
    number = count(root, "the root")
    if not 0 <= number < ranks:
        raise InputError(f"root {number} is none of the {ranks} ranks of the axis", do=f"choose 0 to {ranks - 1}")
    return number
