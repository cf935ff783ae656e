"""The order of a sweep's lines, so that the next sweep's halo travels while inner lines are computed.

The lines of a sweep (rows, columns, strips of them) are independent. Lines at the edges of the block, which the
neighbors need, are swept first; then the exchange starts, and the lines between are swept meanwhile. No cell is
computed twice, so the bits do not change.
"""

from __future__ import annotations

from dataclasses import dataclass

Lines = tuple[int, int]  # half-open range


@dataclass(frozen=True)
class Order:
    """The lines to sweep before the exchange starts, and those to sweep while it is under way, if any."""

    first: tuple[Lines, ...]
    meanwhile: Lines | None = None


def edges_first(count: int, width: int) -> Order:
    """The order for `count` lines of which `width` at either edge go first.

    Blocks of fewer than four times `width` lines are swept at once: too little work would remain to hide the
    exchange.
    """
    if count < 4 * width:
        return Order(((0, count),))
    return Order(((0, width), (count - width, count)), (width, count - width))
