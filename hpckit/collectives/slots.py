"""The buffers of a collective, cut into the slots of its plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.plan.blocks import block_starts


class Slots:
    """A flat array (NumPy's or a GPU's) whose slot i holds the elements starts[i] to starts[i + 1]."""

    def __init__(self, values: Any, starts: list[int]) -> None:
        self.values, self.starts = values, starts

    @property
    def kind(self) -> Any:
        """An array of the kind of memory that they are in."""
        return self.values

    def view(self, first: int, last: int) -> Any:
        """The elements of the slots from first to last (excluded), which are adjacent."""
        return self.values[self.starts[first] : self.starts[last]]


class PairedSlots:
    """Slots of two arrays, as all-to-all has them: those of what is given come first, then those of what is taken."""

    def __init__(self, given: Slots, taken: Slots) -> None:
        self._given, self._taken = given, taken
        self._count = len(given.starts) - 1

    @property
    def kind(self) -> Any:
        """An array of the kind of memory that they are in."""
        return self._given.values

    def view(self, first: int, last: int) -> Any:
        """The elements of the slots from first to last, all of one of the arrays."""
        if first >= self._count:
            return self._taken.view(first - self._count, last - self._count)
        return self._given.view(first, last)


def even_slots(values: Any, slots: int) -> Slots:
    """Slots by the block rule."""
    return Slots(values, block_starts(values.size, slots).tolist())


def counted_slots(values: Any, counts: np.ndarray) -> Slots:
    """Slots of counts[i] elements."""
    return Slots(values, [0, *np.cumsum(counts).tolist()])


def segmented_slots(values: Any, sizes: np.ndarray, slots: int) -> Slots:
    """Blocks of these sizes, each cut by the block rule into as many slots."""
    segments = slots // len(sizes)
    if segments <= 1:
        return counted_slots(values, sizes)
    starts = np.cumsum(sizes) - sizes
    within = [block_starts(int(size), segments)[:-1] + start for size, start in zip(sizes, starts, strict=True)]
    return Slots(values, [*np.concatenate(within).tolist(), int(sizes.sum())])


def flat_like(values: Any, count: int) -> Any:
    """An array of `count` elements like those of a flat array; what it holds is left open."""
    if type(values).__module__ != "cupy":
        return np.empty(count, values.dtype)
    import cupy

    return cupy.empty(count, values.dtype)
