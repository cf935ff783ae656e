"""Input values and expected results of measured collectives: whole numbers, exact in any order."""

from __future__ import annotations

import functools

import numpy as np

from hpckit.collectives.reduction import BFLOAT16, Reduction
from hpckit.plan.collective.plan import OPERATIONS

# The period of the values, so that expected results need no memory: a prime, so that a misplaced block shows.
PERIOD = 1021
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "scatter", "gather")
BLOCKS = tuple(name for name in OPERATIONS if name not in ("all_reduce", "reduce", "broadcast"))
NUMBERS = ("float32", "float64", "float16", BFLOAT16, "complex64", "complex128")
DTYPES = (*NUMBERS, *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "bool")
Piece = tuple[np.ndarray, int, int]  # repeated values, where among them it begins, how many it has


def array_dtype(name: str) -> np.dtype:
    """The dtype of the arrays: bfloat16 has its bits in uint16."""
    return np.dtype(np.uint16 if name == BFLOAT16 else name)


def reduction(dtype: str, op: str) -> Reduction:
    """The `Reduction` of numbers named so. Raises `InputError` for what cannot be combined."""
    return Reduction(array_dtype(dtype), op, kind=BFLOAT16 if dtype == BFLOAT16 else None)


class OperationValues:
    """The values of one operation on so many ranks. op: of operations that reduce, else None."""

    def __init__(self, operation: str, dtype: str, ranks: int, op: str | None, root: int) -> None:
        self.operation, self.dtype, self.ranks, self.op, self.root = operation, dtype, ranks, op, root
        self._drawn = [_drawn(rank, ranks, dtype, op) for rank in range(ranks)]
        self.given = [_stored(one, dtype) for one in self._drawn]

    @functools.cached_property
    def combined(self) -> np.ndarray:
        """All ranks' values combined."""
        assert self.op is not None
        total = functools.reduce(reduction(self.dtype, self.op).ufunc, self._drawn)
        return _stored(total / self.ranks if self.op == "mean" else total, self.dtype)

    def wanted(self, rank: int, count: int) -> list[Piece]:
        """The expected result of a rank, piece by piece, for a buffer (block) of `count`; empty without one."""
        operation, begin = self.operation, rank * count
        if operation in ("gather", "reduce") and rank != self.root:
            return []
        if operation in ("all_reduce", "reduce"):
            return [(self.combined, 0, count)]
        if operation == "reduce_scatter":
            return [(self.combined, begin, count)]
        if operation in ("broadcast", "scatter"):
            return [(self.given[self.root], begin if operation == "scatter" else 0, count)]
        return [(one, begin if operation == "all_to_all" else 0, count) for one in self.given]


def count_wrong(result: np.ndarray, wanted: list[Piece]) -> int:
    """The number of wrong values in a result."""
    wrong = start = 0
    for pattern, offset, count in wanted:
        piece, right = result[start : start + count], np.roll(pattern, -(offset % PERIOD))
        whole = count // PERIOD * PERIOD
        wrong += int(np.count_nonzero(piece[:whole].reshape(-1, PERIOD) != right))
        wrong += int(np.count_nonzero(piece[whole:] != right[: count - whole]))
        start += count
    return wrong + max(0, start - result.size)


def _drawn(rank: int, ranks: int, dtype: str, op: str | None) -> np.ndarray:
    """Whole numbers of one rank, small enough that every dtype holds them and their combination."""
    draw = np.random.default_rng((1, rank))
    letter = "f" if dtype == BFLOAT16 else np.dtype(dtype).kind

    def numbers(most: int) -> np.ndarray:
        return draw.integers(0 if letter == "u" else -most, most + 1, PERIOD)

    if letter == "b":
        return draw.integers(0, 2, PERIOD).astype(bool)
    if op == "prod":  # seldom 2, else 1, and signs or turns by 90 degrees
        turns = draw.integers(0, 4, PERIOD)
        units = {"c": 1j**turns, "u": 1}.get(letter, (-1) ** (turns % 2))
        return np.where(draw.integers(0, ranks, PERIOD) == 0, 2, 1) * units
    scale = ranks if op == "mean" else 1  # means are whole numbers, too
    found = scale * numbers(3 if op in ("sum", "mean") else 100)
    return found + 1j * scale * numbers(3) if letter == "c" else found


def _stored(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers in the arrays' dtype, wrapped and rounded as sums in it are."""
    if dtype != BFLOAT16:
        return numbers.astype(dtype)
    bits = np.empty(PERIOD, np.uint16)
    reduction(dtype, "sum").narrow(numbers.astype(np.float32), bits)
    return bits
