"""Parameters of pairs of types that follow from numbers of each type, which the loop over clusters makes by itself.

A table of many types costs more to look up than a pair takes: eight loads for each parameter. Most tables are made by
mixing rules, whose columns are all the same, or products, or means of two numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.graph.scalars import from_source
from hpckit.kernels.particles.loops import REORDERED

SAME, PRODUCT, MEAN = "same", "product", "mean"
ROUNDING = 4e-15


def rules_of(table: np.ndarray) -> tuple[tuple[str, ...], np.ndarray] | None:
    """The rule of each column of a table [types, types, parameters], and the numbers of each type for those that are
    not the same throughout, float64[varying, types]; None where a column follows no rule, or all are the same.
    """
    rules, numbers = [], []
    for column in np.moveaxis(table, -1, 0):
        own = column.diagonal()
        size = float(np.abs(column).max(initial=0.0))
        roots = np.sqrt(np.abs(own))
        if (column == column[0, 0]).all():
            rules.append(SAME)
        elif (own >= 0).all() and np.allclose(np.multiply.outer(roots, roots), column, ROUNDING, ROUNDING * size):
            rules.append(PRODUCT)
            numbers.append(roots)
        elif np.allclose(0.5 * np.add.outer(own, own), column, ROUNDING, ROUNDING * size):
            rules.append(MEAN)
            numbers.append(0.5 * own)
        else:
            return None
    return (tuple(rules), np.array(numbers)) if numbers else None


@cache
def mixed(rules: tuple[str, ...]) -> Any:
    """The piece (a, b, common): the parameters of a pair by the numbers of both sides, and those of all pairs."""
    parts, place = [], 0
    for column, rule in enumerate(rules):
        if rule == SAME:
            parts.append(f"common[{column}]")
            continue
        parts.append(f"a[{place}] {'*' if rule == PRODUCT else '+'} b[{place}]")
        place += 1
    return inlined(from_source(f"def mixed(a, b, common):\n    return ({', '.join(parts)},)\n"), math=REORDERED)


@cache
def taken(count: int) -> Any:
    """The piece (load, numbers, slot, slots): what `load` takes at a slot behind the first of each row of numbers
    [count, slots].
    """
    parts = ", ".join(f"load(numbers, {row} * slots, slot)" for row in range(count))
    return inlined(from_source(f"def taken(load, numbers, slot, slots):\n    return ({parts},)\n"))
