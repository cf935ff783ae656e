"""What lies between two joined stages: slabs of the first dim, or strips of them, a window that the cache holds."""

from __future__ import annotations

import math
from typing import NamedTuple

from hpckit.kernels.graph.nodes import Offset

WINDOW = 1 << 20  # bytes of what is between two joined stages: heat on 4096^2 cells is slower with half or double
STRIPS = 1 << 21  # the same, of strips: 1.13x for heat on 256^3 and 400^3 cells, 1.1x with half


class JoinedWindow(NamedTuple):
    """How two joined stages go on: in strips of so many rows of the second dim; the slabs that the first makes at a
    time; whether what is between them is then in the cache.
    """

    rows: int
    slabs: int
    fits: bool


def window_of(owned: Offset, wide: Offset, values: int) -> JoinedWindow:
    """For a box of so many cells, the second stage reading so far beside its own; values: between the two, of a cell.

    Slabs that are too large are taken in strips, alike, if what is computed twice at their edges is a quarter or less.
    """
    depth, beside, rows = wide[0], 2 * wide[1], owned[1]
    row = 8 * values * math.prod(n + 2 * w for n, w in zip(owned[2:], wide[2:], strict=True))
    slabs = WINDOW // (row * (rows + beside)) - 3 * depth
    if slabs >= max(1, 4 * depth):
        return JoinedWindow(rows, slabs, True)
    fitting = STRIPS // (row * (3 * depth + max(1, 8 * depth))) - beside
    if fitting < max(1, 4 * beside):
        return JoinedWindow(rows, max(slabs, 2 * depth, 1), False)
    rows = -(-rows // -(-rows // fitting))
    return JoinedWindow(rows, STRIPS // (row * (rows + beside)) - 3 * depth, True)
