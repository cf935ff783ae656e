"""One change of layout as a plan: which boxes of a tensor go from which rank to which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.protocol import EMPTY, NOTHING, Claim, Ends, Ints, Step
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard

MOST_CELLS = 40_000_000  # of all ranks together: a proof takes some gigabytes


class HeldBoxes(NamedTuple):
    """Boxes that ranks hold, one an entry: its rank, its place among the boxes of the rank, its numbers along dims."""

    rank: Ints
    place: Ints
    ids: Ints  # [dims, entries]


class Moves(NamedTuple):
    """Boxes that go from a rank's cell to a rank's cell, sorted by messages."""

    sender: Ints
    receiver: Ints
    out: Ints
    into: Ints
    ids: Ints
    first: Ints  # of each message, and the end


@dataclass(frozen=True, eq=False)
class Hop:
    """From one layout to another on the same mesh. Cells are the boxes that the cuts of both make.

    Each rank gets its boxes from ranks with its own coordinates on all axes that replicate. axis: the mesh axis whose
    summands are added, -1 for none. Their order is a binary tree: neighbors in pairs, then pairs of pairs; so the bits
    do not depend on the algorithm. doubling: the ranks of the axis exchange all that they hold, with those 1, 2, 4, …
    away, which takes few messages; else each rank receives the summands of its own boxes and adds them.
    """

    source: Layout
    target: Layout
    axis: int = -1
    doubling: bool = False
    itemsize: float = 8.0

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.source.ranks

    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.name} of {' x '.join(map(str, self.source.shape))}: {self.source.text()} to {self.target.text()}"

    @property
    def name(self) -> str:
        """The collective that it amounts to."""
        if self.doubling:
            return "all-reduce"
        if self.axis >= 0:
            return "reduce-scatter" if isinstance(self.target.placements[self.axis], Shard) else "all-reduce"
        pairs = list(zip(self.source.placements, self.target.placements, strict=True))
        moved = [(one, other) for one, other in pairs if one != other and not isinstance(other, Partial)]
        if self.source.cuts == self.target.cuts or all(one == Replicate() for one, _ in moved):
            return "slice" if self.source.cuts != self.target.cuts and not self._regroups else "exchange"
        gathers = all(other == Replicate() for _, other in moved)
        return "all-gather" if gathers and moved else "all-to-all"

    @property
    def _regroups(self) -> bool:
        """Whether a dim that was cut before is cut by other axes before those."""
        return any(new[: len(old)] != old for old, new in zip(self.source.cuts, self.target.cuts, strict=True))

    # ---- boxes

    @cached_property
    def edges(self) -> list[Ints]:
        """Where the cuts of both layouts are, along each dim."""
        both = np.concatenate([self.source.bounds(), self.target.bounds()])
        return [np.unique(np.concatenate([both[:, dim].ravel(), [0, n]])) for dim, n in enumerate(self.source.shape)]

    def _ranges(self, layout: Layout) -> tuple[Ints, Ints]:
        """The first box of each rank along each dim and how many: int64[dims, ranks] each."""
        bounds = layout.bounds()
        found = [np.searchsorted(each, bounds[:, dim]) for dim, each in enumerate(self.edges)]
        ends = np.array(found, np.int64).reshape(len(self.edges), self.ranks, 2)
        return ends[:, :, 0], ends[:, :, 1] - ends[:, :, 0]

    def cells(self, layout: Layout) -> HeldBoxes:
        """All boxes of all ranks, those of a rank in the order of rows.

        Raises `InputError` where they are too many for this machine.
        """
        if self.size > MOST_CELLS:
            raise InputError(
                f"{self.title()}: {self.size} boxes on {self.ranks} ranks",
                do=f"change the layout along axes of fewer ranks, one after the other: {MOST_CELLS} boxes at most",
            )
        first, count = self._ranges(layout)
        own = count.prod(axis=0)
        total = int(own.sum())
        rank = np.repeat(np.arange(self.ranks), own)
        place = np.arange(total) - np.repeat(np.cumsum(own) - own, own)
        ids, rest = np.empty((len(self.edges), total), np.int64), place.copy()
        for dim in reversed(range(len(self.edges))):
            extent = count[dim, rank]
            ids[dim] = first[dim, rank] + rest % extent
            rest //= extent
        return HeldBoxes(rank, place, ids)

    def _places(self, layout: Layout, rank: Ints, ids: Ints) -> Ints:
        """The places of boxes among those of a rank."""
        first, count = self._ranges(layout)
        place = np.zeros(len(rank), np.int64)
        for dim in range(len(ids)):
            place = place * count[dim, rank] + ids[dim] - first[dim, rank]
        return place

    def volumes(self, ids: Ints) -> Ints:
        """Elements of boxes."""
        found = np.ones(ids.shape[1], np.int64)
        for dim, each in enumerate(self.edges):
            found *= np.diff(each)[ids[dim]]
        return found

    @cached_property
    def room(self) -> tuple[int, int]:
        """The most boxes of a rank before and after."""
        return tuple(int(self._ranges(each)[1].prod(axis=0).max(initial=0)) for each in (self.source, self.target))  # type: ignore[return-value]

    @property
    def width(self) -> int:
        """Cells of a rank."""
        return self.room[0] if self.doubling else self.slot(self.summands)

    @property
    def size(self) -> int:
        """Cells of all ranks, at most as many boxes as move."""
        return self.ranks * self.width

    @property
    def summands(self) -> int:
        """How many are added."""
        return self.source.axes.sizes[self.axis] if self.axis >= 0 else 1

    # ---- who sends what

    def _filled(self, cells: HeldBoxes) -> np.ndarray:
        """Which boxes of the target hold data: of new summands the rank's own part, or that of coordinate 0."""
        coords = self.source.axes.all_coords()
        filled = np.ones(len(cells.rank), bool)
        for axis, (before, after) in enumerate(zip(self.source.placements, self.target.placements, strict=True)):
            if isinstance(after, Partial) and not isinstance(before, Partial):
                wanted = self._owner(axis, before.dim, cells.ids) if isinstance(before, Shard) else 0
                filled &= coords[axis, cells.rank] == wanted
        return filled

    def _owner(self, axis: int, dim: int, ids: Ints) -> Ints:
        """The coordinate on an axis, of the source's owners of boxes."""
        table = [self.source.owners(dim, int(start)).get(axis, 0) for start in self.edges[dim][:-1]]
        return np.array(table, np.int64)[ids[dim]]

    @cached_property
    def moves(self) -> Moves:
        """All boxes that move, or stay; `into` counts the cells of each summand on."""
        target = self.cells(self.target)
        filled = self._filled(target)
        rank, place, ids = target.rank[filled], target.place[filled], target.ids[:, filled]
        axes, coords = self.source.axes, self.source.axes.all_coords()
        found = []
        for summand in range(self.summands):
            sender = np.zeros(len(rank), np.int64)
            for axis, placement in enumerate(self.source.placements):
                if axis == self.axis:
                    at: Ints | int = summand
                else:
                    at = self._owner(axis, placement.dim, ids) if isinstance(placement, Shard) else coords[axis, rank]
                sender = sender * axes.sizes[axis] + at
            found.append((sender, rank, self._places(self.source, sender, ids), self.slot(summand) + place, ids))
        sender, receiver, out, into = (np.concatenate([each[n] for each in found]) for n in range(4))
        every = np.concatenate([each[4] for each in found], axis=1)
        order = np.lexsort((into, receiver, sender))
        pair = (sender * self.ranks + receiver)[order]
        starts = np.flatnonzero(np.diff(pair, prepend=-1))
        sender, receiver, out, into = (each[order] for each in (sender, receiver, out, into))
        return Moves(sender, receiver, out, into, every[:, order], np.append(starts, len(order)))

    def slot(self, summand: int) -> int:
        """The first cell of a summand: the target's own cells, or memory behind them."""
        return self.room[0] + summand * self.room[1]

    def steps(self) -> Iterator[Step]:
        """The messages; then the additions, each within a rank."""
        yield from self._doubled() if self.doubling else self._exchanged()

    def _exchanged(self) -> Iterator[Step]:
        moves = self.moves
        first, last = moves.first[:-1], moves.first[1:]
        amount = np.add.reduceat(self.volumes(moves.ids), first) if len(first) else np.zeros(0, np.int64)
        sender, receiver = moves.sender[first], moves.receiver[first]
        yield Step(
            Ends(receiver, first, last, sender, amount, moves.out),
            Ends(sender, first, last, receiver, amount, moves.into),
            itemsize=self.itemsize,
            name=self.name,
            texts=lambda: [self._text(moves.ids[:, begin:end]) for begin, end in zip(first, last, strict=True)],
        )
        _, count = self._ranges(self.target)
        own = count.prod(axis=0)
        step = 1
        while step < self.summands:
            into = np.arange(0, self.summands - step, 2 * step)
            rank = np.repeat(np.flatnonzero(own), len(into))
            take, give = (self.slot(0) + np.tile(each, (own > 0).sum()) * self.room[1] for each in (into, into + step))
            amount = np.repeat(self._elements(self.target)[own > 0], len(into))
            yield Step(
                Ends(rank, give, give + own[rank], rank, amount),
                Ends(rank, take, take + own[rank], rank, amount),
                add=True,
                itemsize=self.itemsize,
                name="add",
            )
            step *= 2

    def _doubled(self) -> Iterator[Step]:
        axes, parts = self.source.axes, self.summands
        own = self._ranges(self.source)[1].prod(axis=0)
        elements, coords = self._elements(self.source), axes.all_coords()
        stride, size = int(np.prod(axes.sizes[self.axis + 1 :], dtype=np.int64)), 1
        while size < parts:
            giver = doubling_peer(coords[self.axis], parts, size)
            rank = np.flatnonzero((giver >= 0) & (own > 0))
            sender = rank + (giver[rank] - coords[self.axis][rank]) * stride
            zero = np.zeros(len(rank), np.int64)
            order = np.lexsort((rank, sender))
            yield Step(
                Ends(rank[order], zero, own[sender[order]], sender[order], elements[sender[order]]),
                Ends(sender, zero, own[rank], rank, elements[rank]),
                add=True,
                itemsize=self.itemsize,
                name=self.name,
            )
            size *= 2

    def _elements(self, layout: Layout) -> Ints:
        bounds = layout.bounds()
        return (bounds[:, :, 1] - bounds[:, :, 0]).prod(axis=1)

    def _text(self, ids: Ints) -> str:
        """The box of a message: `[0:2,3:7]`."""
        ends = [(each[own.min()], each[own.max() + 1]) for each, own in zip(self.edges, ids, strict=True)]
        return f"[{','.join(f'{start}:{stop}' for start, stop in ends)}]"

    # ---- the claim

    def claim(self) -> Claim:
        """Each rank of the source's layout gives its boxes, each of the target's holds its own.

        Raises `PlanError` for a layout in which an element has no owner, or two.
        """
        self.source.check()
        self.target.check()
        before, after = self.cells(self.source), self.cells(self.target)
        width = self.width
        start, end = (np.full((self.ranks, width), NOTHING) for _ in range(2))
        start[before.rank, before.place] = self._index(before)
        held = np.where(self._filled(after), self._index(after), EMPTY)
        end[after.rank, after.place + (0 if self.doubling else self.room[0])] = held
        start[~np.isin(start, end)] = NOTHING  # a copy that nobody takes
        fixed = None if self.doubling else np.broadcast_to(np.arange(width) < self.room[0], start.shape)
        return Claim(start, end, zeros=True, fixed=fixed, cell_name=self._cell_name, index_name=self._index_name)

    @cached_property
    def _copies(self) -> tuple[int, ...]:
        """The axes along which ranks hold copies, or summands that stay: their coordinates tell contents apart."""
        return tuple(
            axis
            for axis, placement in enumerate(self.source.placements)
            if axis != self.axis and not isinstance(placement, Shard)
        )

    def _index(self, cells: HeldBoxes) -> Ints:
        """The number of what a cell holds: its box, and which copy of it."""
        coords, index = self.source.axes.all_coords(), np.zeros(len(cells.rank), np.int64)
        for dim, each in enumerate(self.edges):
            index = index * max(len(each) - 1, 1) + cells.ids[dim]
        for axis in self._copies:
            index = index * self.source.axes.sizes[axis] + coords[axis, cells.rank]
        return index

    def _index_name(self, index: int) -> str:
        sizes = [*(max(len(each) - 1, 1) for each in self.edges), *(self.source.axes.sizes[a] for a in self._copies)]
        ids = np.array(np.unravel_index(index, sizes)) if sizes else np.zeros(0, np.int64)
        return f"the elements {self._text(ids[: len(self.edges), None])}"

    def _cell_name(self, rank: int, cell: int) -> str:
        layout = self.source if cell < self.room[0] else self.target
        summand, place = (0, cell) if cell < self.room[0] else divmod(cell - self.room[0], max(self.room[1], 1))
        first, count = (each[:, rank] for each in self._ranges(layout))
        if place >= count.prod():
            return "memory behind its part"
        ids = first + np.array(np.unravel_index(place, tuple(count))) if len(first) else first
        told = f" of summand {summand}" if summand else ""
        return f"its elements {self._text(ids[:, None])}{told} {'before' if layout is self.source else 'after'}"


def doubling_peer(coordinate: Ints, parts: int, size: int) -> Ints:
    """Of whom each coordinate takes the sum of the block of `size` beside its own; -1 where there is none."""
    block = coordinate // size
    start = (block ^ 1) * size
    there = start < parts
    width = np.where(there, np.minimum(size, parts - start), 1)
    return np.where(there, start + (coordinate - block * size) % width, -1)
