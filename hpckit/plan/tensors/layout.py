"""Layouts: which part of a tensor each rank of a mesh holds.

Along each mesh axis a tensor is cut (`Shard(dim)`), copied (`Replicate()`), or a sum of what the ranks hold
(`Partial()`). Cuts follow the block rule of the whole package, so shards may differ by a row and may be empty. Two axes
may cut one dim: the first named cuts it, the second cuts each of its blocks. The index ranges of every rank are plain
numbers (`bounds`), and `check` shows that every element has its owners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hpckit.errors import InputError, PlanError
from hpckit.plan.blocks import owner
from hpckit.plan.inputs.numbers import counts
from hpckit.plan.protocol import Ints
from hpckit.plan.topology import Topology


@dataclass(frozen=True)
class Shard:
    """Along a mesh axis a dim of the tensor is cut into blocks, one a coordinate."""

    dim: int

    def __str__(self) -> str:
        return f"S{self.dim}"


@dataclass(frozen=True)
class Replicate:
    """Along a mesh axis all ranks hold the same."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial:
    """Along a mesh axis the tensor is the sum of what the ranks hold, added in pairs of neighbors (a binary tree)."""

    def __str__(self) -> str:
        return "P"


Placement = Shard | Replicate | Partial


@dataclass(frozen=True)
class Layout:
    """A tensor of a shape on mesh axes: `Layout((5, 7), {"dp": 2, "tp": 2}, {"dp": Shard(0), "tp": Shard(0)})`.

    axes: a `Topology`, or sizes by name, the last axis varying fastest with the rank. placements: by the name of the
    axis; an axis without one replicates. Where two axes cut a dim, the one named first cuts it first. Afterwards
    `placements` holds one for each axis, and `cuts` for each dim the numbers of the axes that cut it, in their order.

    Raises `InputError` that names every mistake.
    """

    shape: tuple[int, ...]
    axes: Topology
    placements: Any = ()
    cuts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        shape = counts(self.shape, "the shape of a tensor")
        given = self.axes
        topology = (
            Topology(given.names, given.sizes)
            if isinstance(given, Topology)
            else Topology(tuple(given), tuple(given.values()))
        )
        placed = self.placements
        if not isinstance(placed, Mapping):
            named = dict(zip(topology.names, placed, strict=False))
            order = [topology.names[axis] for cut in self.cuts for axis in cut]
            placed = {name: named[name] for name in [*order, *(name for name in named if name not in order)]}
        wrong = [f"a dim has {size} elements" for size in shape if size < 0]
        wrong += [f"there is no mesh axis {name!r}" for name in placed if name not in topology.names]
        for name, placement in placed.items():
            if not isinstance(placement, Shard | Replicate | Partial):
                wrong.append(f"{name} has {placement!r}")
            elif isinstance(placement, Shard) and not 0 <= placement.dim < len(shape):
                wrong.append(f"{name} cuts dim {placement.dim} of {len(shape)}")
        if wrong:
            dims = f"Shard(0) to Shard({len(shape) - 1})" if shape else "no Shard"
            raise InputError(
                f"a layout of {shape}: {'; '.join(wrong)}",
                do=f"give {dims}, Replicate() or Partial() for the axes {', '.join(topology.names)}",
            )
        cuts = tuple(
            tuple(topology.axis(name) for name, placement in placed.items() if placement == Shard(dim))
            for dim in range(len(shape))
        )
        for name, value in (
            ("shape", shape),
            ("axes", topology),
            ("placements", tuple(placed.get(name, Replicate()) for name in topology.names)),
            ("cuts", cuts),
        ):
            object.__setattr__(self, name, value)

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.axes.size

    def __str__(self) -> str:
        """`5 x 7: dp=2 S0, tp=2 S0`; axes that cut a dim in another order than the mesh's say so: `S0 after tp`."""
        return f"{' x '.join(map(str, self.shape)) or 'a number'}: {self.text()}"

    def text(self) -> str:
        """The placements in words."""
        said = []
        for number, (name, size, placement) in enumerate(
            zip(self.axes.names, self.axes.sizes, self.placements, strict=True)
        ):
            before = () if not isinstance(placement, Shard) else self._before(placement.dim, number)
            after = (
                f" after {', '.join(self.axes.names[axis] for axis in before)}"
                if max(before, default=0) > number
                else ""
            )
            said.append(f"{name}={size} {placement}{after}")
        return ", ".join(said)

    def _before(self, dim: int, axis: int) -> tuple[int, ...]:
        return self.cuts[dim][: self.cuts[dim].index(axis)]

    def placed(self, **placements: Placement) -> Layout:
        """The same layout with other placements; an axis that now cuts a dim cuts it last."""
        order = [self.axes.names[axis] for cut in self.cuts for axis in cut]
        kept = dict(zip(self.axes.names, self.placements, strict=True))
        named = {name: kept[name] for name in [*order, *kept] if name not in placements}
        return Layout(self.shape, self.axes, named | placements)

    @property
    def gradient(self) -> Layout:
        """The layout of the gradient by a tensor of this layout: copies give parts of a sum, parts take copies."""
        dual = {Replicate(): Partial(), Partial(): Replicate()}
        return Layout(self.shape, self.axes, tuple(dual.get(each, each) for each in self.placements), self.cuts)

    def bounds(self) -> Ints:
        """The index ranges of all ranks: int64[ranks, dims, 2], start and stop of each dim."""
        return self._bounds.copy()

    @cached_property
    def _bounds(self) -> Ints:
        coords = self.axes.all_coords()
        found = np.zeros((self.ranks, len(self.shape), 2), np.int64)
        for dim, (size, cut) in enumerate(zip(self.shape, self.cuts, strict=True)):
            start, length = np.zeros(self.ranks, np.int64), np.full(self.ranks, size, np.int64)
            for axis in cut:
                each, rest = np.divmod(length, self.axes.sizes[axis])
                start += coords[axis] * each + np.minimum(coords[axis], rest)
                length = each + (coords[axis] < rest)
            found[:, dim, 0], found[:, dim, 1] = start, start + length
        return found

    def slices(self, rank: int) -> tuple[slice, ...]:
        """The part of the whole tensor that a rank holds, or of which it holds a copy or a summand."""
        return tuple(slice(int(start), int(stop)) for start, stop in self.bounds()[rank])

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's part."""
        return tuple(each.stop - each.start for each in self.slices(rank))

    def owners(self, dim: int, index: int) -> dict[int, int]:
        """The coordinates of the ranks that hold an index of a dim, by the numbers of the axes that cut it."""
        found, start, length = {}, 0, self.shape[dim]
        for axis in self.cuts[dim]:
            parts = self.axes.sizes[axis]
            found[axis] = owner(length, parts, index - start)
            each, rest = divmod(length, parts)
            start += found[axis] * each + min(found[axis], rest)
            length = each + (found[axis] < rest)
        return found

    def check(self) -> None:
        """Raise `PlanError` unless every element has one owner in each group of ranks that together hold the tensor.

        Such a group has the same coordinates on all axes that do not cut. It looks at `bounds` alone.
        """
        bounds, coords = self.bounds(), self.axes.all_coords()
        cutting = [axis for cut in self.cuts for axis in cut]
        apart = [axis for axis in range(len(self.axes.sizes)) if axis not in cutting]
        group = np.zeros(self.ranks, np.int64)
        for axis in apart:
            group = group * self.axes.sizes[axis] + coords[axis]
        for dim, size in enumerate(self.shape):
            ranges = bounds[:, dim]
            beyond = (ranges < 0).any(axis=1) | (ranges > size).any(axis=1) | (ranges[:, 0] > ranges[:, 1])
            if beyond.any():
                rank = int(np.argmax(beyond))
                raise PlanError(f"{self}: rank {rank} has indices {ranges[rank].tolist()} of dim {dim}, of {size}")
        edges = [np.unique(np.concatenate([bounds[:, dim].ravel(), [0, size]])) for dim, size in enumerate(self.shape)]
        shape = [len(each) - 1 for each in edges]
        for one in np.unique(group):
            members = np.flatnonzero(group == one)
            held = np.full(shape, -1)
            for rank in members.tolist():
                box = tuple(slice(*np.searchsorted(each, bounds[rank, dim]).tolist()) for dim, each in enumerate(edges))
                if (held[box] >= 0).any():
                    place = np.argwhere(held[box] >= 0)[0]
                    other = int(held[box][tuple(place)])
                    at = [int(each[i + part.start]) for each, i, part in zip(edges, place, box, strict=True)]
                    raise PlanError(f"{self}: the element {at} belongs to ranks {other} and {rank}")
                held[box] = rank
            if (held < 0).any():
                at = [int(each[i]) for each, i in zip(edges, np.argwhere(held < 0)[0], strict=True)]
                raise PlanError(f"{self}: the element {at} belongs to no rank")


def matmul_layout(a: Layout, b: Layout) -> Layout:
    """The layout of the product of [..., K] and [K, N], computed by each rank from what it holds.

    Along an axis: rows cut, or columns cut, stay cut; K cut on both sides, or a summand on one, gives summands. Raises
    `InputError` for other pairs, with the redistribution that is missing.
    """
    if a.axes != b.axes or len(a.shape) < 1 or len(b.shape) != 2 or a.shape[-1] != b.shape[0]:
        raise InputError(f"a tensor {a} does not multiply a tensor {b}", do="give [..., K] and [K, N] on one mesh")
    last = len(a.shape) - 1
    found: dict[str, Placement] = {}
    for name, one, other in zip(a.axes.names, a.placements, b.placements, strict=True):
        if one == Shard(last) and other == Shard(0):
            found[name] = Partial()
        elif isinstance(one, Shard) and one != Shard(last) and other == Replicate():
            found[name] = one
        elif one == Replicate() and other == Shard(1):
            found[name] = Shard(last)
        elif {one, other} in ({Replicate()}, {Replicate(), Partial()}):
            found[name] = Partial() if Partial() in (one, other) else Replicate()
        else:
            raise InputError(
                f"along {name} a product of {one} and {other} is not there for a rank to compute",
                do=f"redistribute one of them: S{last} meets S0, a cut of rows or P meets R, R meets R, S1 or P",
            )
    if a.cuts[last] != b.cuts[0]:
        raise InputError(
            "K is cut by the same axes in another order on both sides", do="name the axes in the same order"
        )
    order = [a.axes.names[axis] for cut in (*a.cuts[:last], b.cuts[1]) for axis in cut]
    placed = {name: found[name] for name in [*order, *(name for name in found if name not in order)]}
    return Layout((*a.shape[:-1], b.shape[1]), a.axes, placed)
