"""The order in which a tape is played: operation by operation, or all of them side by side, slab by slab.

Where what a turn reads and writes does not fit the cache of a core, each operation would bring all of it from afar. So
they go over the slabs of the first dim together, some turns of a loop at once: each follows those that it depends on by
as few slabs as it can (its `lag`), and what they made is still near. (Wavefronts in time, Wellein et al. 2009,
COMPSAC, 579-586.) What an operation does in a slab is the same, and so are the bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

NEAR, FAR = 5 << 18, 8 << 20  # bytes of slabs: of the second cache, not all of which are in use at once; of the third
MOST = 8  # turns at once


class Access(NamedTuple):
    """What an operation reads or writes of an array: of slab i the slabs i + low to i + high; one that is done at once,
    those from low to high - 1.
    """

    array: int
    low: int
    high: int
    writes: bool


class SlabWork(NamedTuple):
    """An operation on the slabs from `first` to `stop` - 1, in this order; at once: when slab `stop` - 1 is come to."""

    first: int
    stop: int
    at_once: bool
    accesses: tuple[Access, ...]


class SlabOrder(NamedTuple):
    """All work by steps of `slabs` slabs. lags: int64[turns, operations]; step s takes of each operation the slabs that
    are `lag` behind those from s x slabs on.
    """

    slabs: int
    begin: int
    end: int
    lags: np.ndarray


class SlabOrders:
    """The orders of a tape, by which arrays of some turns are the same.

    layouts: of each slot the first owned slab of its array, and the array's shape; slots below 0 are the same array in
    all turns. again: how many slabs an operation computes again where it starts. far: whether the arrays do not fit a
    core's share of the third cache.
    """

    def __init__(
        self, works: Sequence[SlabWork], layouts: Mapping[int, tuple[int, ...]], again: int, far: bool
    ) -> None:
        self._works, self._layouts, self._again = works, layouts, again
        self._bytes = FAR if far else NEAR
        self._given = [slot for slot in layouts if slot >= 0]
        self._known: dict[tuple[int, ...], tuple[int, SlabOrder | None]] = {}

    @property
    def needless(self) -> bool:
        """Whether all arrays fit the cache, even if no two of them are the same."""
        return sum(8 * math.prod(shape[1:]) for shape in self._layouts.values()) <= self._bytes

    def of(self, addresses: np.ndarray) -> tuple[int, SlabOrder | None]:
        """How many of these turns are played together, and in which order; None: one operation after the other.

        addresses: int64[turns, slots], at most `MOST` turns.
        """
        names: dict[int, int] = {}
        pattern = tuple([names.setdefault(each, len(names)) for each in addresses[:, self._given].ravel().tolist()])
        if pattern not in self._known:
            self._known[pattern] = self._choice(np.array(pattern).reshape(len(addresses), -1).tolist())
        return self._known[pattern]

    def _choice(self, names: Sequence[Sequence[int]]) -> tuple[int, SlabOrder | None]:
        plain = len(names), None
        arrays = [{slot: slot for slot in self._layouts} | dict(zip(self._given, row, strict=True)) for row in names]
        lie: dict[int, tuple[int, ...]] = {}
        for array in arrays:
            if any(lie.setdefault(array[slot], layout) != layout for slot, layout in self._layouts.items()):
                return plain  # one array in two ways
        turns = [
            [
                work._replace(accesses=tuple(each._replace(array=array[each.array]) for each in work.accesses))
                for work in self._works
            ]
            for array in arrays
        ]
        slab = sum(8 * math.prod(lie[each][2:]) for each in set(arrays[0].values()))
        room = self._bytes // slab  # slabs
        step = max(room // 2, 1)
        if slab * max(shape[1] for shape in lie.values()) <= self._bytes or step < 4 * self._again:
            return plain
        lags = lags_of(turns)
        together = int(np.searchsorted(lags.max(axis=1), room - step, side="right"))
        return (together, order_of(turns[:together], step, lags[:together])) if together > 1 else plain


def lags_of(turns: Sequence[Sequence[SlabWork]]) -> np.ndarray:
    """The least lags, int64[turns, operations], with which each operation finds what those before it have written, and
    overwrites nothing that they are still to read.
    """
    seen: dict[int, list[tuple[SlabWork, Access, int]]] = {}
    found = []
    for work in (each for turn in turns for each in turn):
        lag = 0
        for access in work.accesses:
            for before, other, behind in seen.get(access.array, ()):
                if access.writes or other.writes:
                    lag = max(lag, behind + _distance(before, other, work, access))
        for access in work.accesses:
            seen.setdefault(access.array, []).append((work, access, lag))
        found.append(lag)
    return np.array(found, np.int64).reshape(len(turns), -1)


def order_of(turns: Sequence[Sequence[SlabWork]], slabs: int, lags: np.ndarray) -> SlabOrder:
    """Of all turns together, in steps of so many slabs, with these `lags_of` them."""
    every = [
        (work, int(lag)) for turn, row in zip(turns, lags, strict=True) for work, lag in zip(turn, row, strict=True)
    ]
    begin = min((work.stop - 1 if work.at_once else work.first) + lag for work, lag in every)
    end = max(work.stop + lag for work, lag in every)
    return SlabOrder(slabs, begin // slabs, -(-end // slabs), lags)


def _slabs(work: SlabWork, access: Access) -> tuple[int, int]:
    """The slabs of an array that work touches."""
    if work.at_once:
        return access.low, access.high
    return work.first + access.low, work.stop + access.high


def _distance(before: SlabWork, other: Access, work: SlabWork, access: Access) -> int:
    """How far work must be behind other work on the same array; very small where they touch no slab in common."""
    (a, b), (c, d) = _slabs(before, other), _slabs(work, access)
    first, last = max(a, c), min(b, d) - 1
    if first > last:
        return -(1 << 40)

    def done(slab: int) -> int:
        """How far the work before must have come to be done with a slab."""
        return before.stop if before.at_once else min(slab - other.low, before.stop - 1) + 1

    def begun(slab: int) -> int:
        """How far the work comes when it touches a slab."""
        return work.stop if work.at_once else max(slab - access.high, work.first) + 1

    bends = (work.first + access.high, before.stop - 1 + other.low)
    points = [first, last, *(min(max(slab, first), last) for slab in bends)]
    return max(done(slab) - begun(slab) for slab in points)


__all__ = ["MOST", "Access", "SlabOrder", "SlabOrders", "SlabWork", "lags_of", "order_of"]
