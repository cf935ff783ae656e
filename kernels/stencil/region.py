"""Regions: the cells of an array that a stencil updates, as boxes of integer bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Slices = tuple[slice, ...]
Region = Slices | Sequence[Slices] | None
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""First cell and the one past the last, in each dim."""


def boxes(shape: tuple[int, ...], region: Region, radius: int) -> list[Box]:
    """The boxes of a region, empty ones left out.

    region: a slice for each dim, a sequence of such tuples (as `field.rim`), or None for all cells that have `radius`
    neighbors on each side. ValueError for a step, a wrong number of slices, or a cell without its neighbors.
    """
    if region is None:
        whole = (radius,) * len(shape), tuple(n - radius for n in shape)
        return [whole] if all(n > 2 * radius for n in shape) else []
    parts: Any = [region] if region and isinstance(region[0], slice) else region
    found = (_box(shape, tuple(part), radius) for part in parts)
    return [box for box in found if all(a < b for a, b in zip(*box, strict=True))]


def grown(box: Box, cells: int) -> Box:
    """A box and some cells more on each side."""
    return tuple(a - cells for a in box[0]), tuple(b + cells for b in box[1])


def _box(shape: tuple[int, ...], slices: Slices, radius: int) -> Box:
    if len(slices) != len(shape):
        raise ValueError(f"a region of {len(slices)} slices does not fit an array of shape {shape}: give one a dim")
    first, stop = [], []
    for dim, (part, n) in enumerate(zip(slices, shape, strict=True)):
        begin, end, step = part.indices(n)
        if step != 1:
            raise ValueError(f"dim {dim} of the region has the step {step}: a stencil updates adjacent cells, step 1")
        if begin < end and (begin < radius or end > n - radius):
            raise ValueError(
                f"the region's cells {begin} to {end - 1} in dim {dim} of {n} lack neighbors: a stencil of radius "
                f"{radius} updates cells {radius} to {n - radius - 1}; widen the halo or narrow the region"
            )
        first.append(begin)
        stop.append(end)
    return tuple(first), tuple(stop)
