"""Which lines of a sweep go first, so that the halo of the next sweep travels while the others are computed.

A sweep treats its lines (rows, columns, strips of them) apart from each other. Those at the edges of the block, which
the neighbors wait for, are swept first; then the exchange starts, and the lines between are swept meanwhile. No cell is
computed twice, so the bits stay.
"""

from __future__ import annotations

from dataclasses import dataclass

Lines = tuple[int, int]  # from the first to the one after the last


@dataclass(frozen=True)
class Order:
    """The lines to sweep before the exchange starts, and those to sweep while it is under way, if any."""

    first: tuple[Lines, ...]
    meanwhile: Lines | None = None


def edges_first(count: int, width: int) -> Order:
    """The order for `count` lines of which `width` at either edge go first.

    Thin blocks, of fewer than four times that many lines, are swept in one: too little would be left to hide the
    exchange behind.
    """
    if count < 4 * width:
        return Order(((0, count),))
    return Order(((0, width), (count - width, count)), (width, count - width))
