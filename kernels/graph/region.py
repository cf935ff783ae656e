"""Where a sweep works: boxes of cells, and arrays with the place of the first owned cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpckit.kernels.graph.nodes import Offset

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""First cell and the one past the last in each dim; (0, 0, …) is the first owned cell, halos have negative numbers."""


@dataclass(frozen=True, eq=False)
class Block:
    """A rank's array. origin: the place of its first owned cell in each dim of the grid.

    The array has the dims of the grid, and may have one more: members of an ensemble side by side.
    """

    array: Any
    origin: tuple[int, ...]

    @property
    def members(self) -> int:
        """How many values a cell has."""
        return self.array.shape[-1] if self.array.ndim > len(self.origin) else 1

    def require(self, box: Box, reach: Sequence[tuple[int, int]]) -> None:
        """Raise `ValueError` unless the array holds the cells of a box and those within reach of them."""
        for a, b, (low, high), o, n in zip(*box, reach, self.origin, self.array.shape, strict=False):
            if a < b and (a + low + o < 0 or b + high + o > n):
                raise ValueError(f"cells {a + low} to {b + high} are needed of an array of {n}, whose first is {-o}")

    def part(self, box: Box, offset: Offset = ()) -> Any:
        """A view of the cells of a box, moved by an offset."""
        moves = offset or (0,) * len(self.origin)
        every = zip(*box, self.origin, moves, strict=True)
        return self.array[tuple(slice(a + o + move, b + o + move) for a, b, o, move in every)]

    def strides(self) -> tuple[int, int, int, int]:
        """For a C-contiguous array: the place of the first owned cell, and of one more along each of three dims."""
        pitches, pitch = [], self.members
        for n in reversed(self.array.shape[: len(self.origin)]):
            pitches.append(pitch)
            pitch *= n
        pitches.reverse()
        first = sum(o * p for o, p in zip(self.origin, pitches, strict=True))
        i, j, k = {1: (0, 0, *pitches), 2: (pitches[0], 0, pitches[-1]), 3: tuple(pitches)}[len(pitches)]
        return first, i, j, k


def loops(box: Box) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """The bounds of three loops (slabs, rows, cells of a row): grids of fewer dims have loops of one turn.

    In 2-D a slab is a row.
    """
    bounds = list(zip(*box, strict=True))
    one = (0, 1)
    return {1: (one, one, bounds[-1]), 2: (bounds[0], one, bounds[-1]), 3: tuple(bounds)}[len(bounds)]  # type: ignore[return-value]
