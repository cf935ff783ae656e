"""A halo exchange by its steps and cells: what `prove` executes, on all ranks or on one line of them a dim."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpckit.errors import PlanError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.protocol import EMPTY, NOBODY, NOTHING, Claim, Ends, Ints, Step
from hpckit.plan.topology import Topology

# The ways of a message, whose tags are apart; `SINGLE + number` is that of a field of its own. Messages in shared
# memory have no tag. BACK and SEAL are for halos on their way back to their owners, and for checksums.
PACKED, JOINED, BACK, SEAL, SINGLE = range(5)
MEMORY = -1


@dataclass(frozen=True)
class HaloStep:
    """All ranks' messages of one field along one dim in one direction; rank r sends to `send_to[r]`, receives from
    `recv_from[r]`.

    `side` is the side of the sender's block that its message leaves by: -1 low, +1 high; it arrives in the halo on
    the opposite side. -1 stands for no rank: a wall. Along `dim` rank r sends its local cells send[0][r] to send[1][r]
    and stores the data it receives in recv[0][r] to recv[1][r]; all other dims move in full. tag: of the direction.
    sent_by, taken_by: the ways of the messages that rank r sends and receives, int64[ranks].
    """

    field: int
    dim: int
    side: int
    tag: int
    send_to: Ints
    recv_from: Ints
    send: tuple[Ints, Ints]
    recv: tuple[Ints, Ints]
    sent_by: Ints
    taken_by: Ints


def ways_of(steps: Sequence[HaloStep]) -> list[int]:
    """The ways of the messages of steps."""
    found = [step.sent_by[step.send_to != NOBODY] for step in steps] + [
        step.taken_by[step.recv_from != NOBODY] for step in steps
    ]
    ways = np.concatenate(found)
    if not ways.size or ways.min() == ways.max():
        return ways[:1].tolist()
    return np.unique(ways).tolist()


class HaloCells:
    """A halo exchange by its cells: what `prove` executes.

    It keeps the cells within two halo widths of each end of a dim, and one for all cells between: the cost of a rank
    does not depend on its block.
    """

    def __init__(
        self, fields: Sequence[Decomposition], phases: Sequence[Sequence[HaloStep]], node: Sequence[int] | None
    ) -> None:
        self._fields, self._phases, self._node = fields, phases, node
        self._kept = [_Kept(dec) for dec in fields]
        self._starts = [0, *itertools.accumulate(kept.cells for kept in self._kept)]

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self._fields[0].topology.size

    def title(self) -> str:
        """A short title."""
        return f"halo exchange of {self._fields[0].shape} cells on {self.ranks} ranks"

    def steps(self) -> Iterator[Step]:
        """A step for each field, direction and way."""
        for steps in self._phases:
            lag = 0
            for step in steps:
                for way in ways_of([step]):
                    lag += 1
                    yield Step(
                        self._end(step, step.send_to, step.sent_by == way, step.send),
                        self._end(step, step.recv_from, step.taken_by == way, step.recv),
                        lag=lag,
                        tag=step.tag + step.field * 2 * len(self._fields[0].shape),
                        place="memory" if way == MEMORY else "messages",
                        name=f"{self._fields[0].topology.names[step.dim]} {'low' if step.side < 0 else 'high'}",
                    )

    def claim(self) -> Claim:
        """The claim of `HaloPlan`, cell by cell."""
        points, owned = zip(*(kept.points() for kept in self._kept), strict=True)
        # Points of one field after those of the others.
        ends = itertools.accumulate((math.prod(dec.global_shape) for dec in self._fields[:-1]), initial=0)
        end = np.hstack([np.where(each >= 0, each + first, EMPTY) for each, first in zip(points, ends, strict=True)])
        mine = np.hstack(owned)
        return Claim(
            start=np.where(mine, end, NOTHING),
            end=end,
            fixed=mine,
            node=None if self._node is None else np.array(self._node),
            cell_name=self._cell_name,
            index_name=self._point_name,
        )

    def _end(self, step: HaloStep, peer: Ints, on: npt.NDArray[np.bool_], bounds: tuple[Ints, Ints]) -> Ends:
        peer = np.where(on | (peer < NOBODY), peer, NOBODY)
        active = np.flatnonzero(peer != NOBODY)
        low, high = bounds[0][active], bounds[1][active]
        first, last, cells, kept = self._kept[step.field].boxes(step.dim, active, low, high)
        if (kept != high - low).any():
            at = int(np.argmax(kept != high - low))
            raise PlanError(
                f"{self.title()}: rank {active[at]} exchanges its local cells {low[at]} to {high[at]} along "
                f"{self._fields[0].topology.names[step.dim]}, which are not halo or next to it within its local array"
            )
        return Ends(
            peer[active],
            first,
            last,
            rank=active,
            amount=high - low,
            cells=cells + self._starts[step.field],
        )

    def _cell_name(self, rank: int, cell: int) -> str:
        field = next(n for n, end in enumerate(self._starts[1:]) if cell < end)
        place = self._kept[field].place(rank, cell - self._starts[field])
        return f"the local cell {place}" + f" of field {field}" * (len(self._fields) > 1)

    def _point_name(self, index: int) -> str:
        for dec in self._fields:
            points = math.prod(dec.global_shape)
            if index < points:
                return "the point " + str(tuple(int(i) for i in np.unravel_index(index, dec.global_shape)))
            index -= points
        return f"the index {index}"


class _Kept:
    """The local indices of a field that stand for its dims: tables by the coordinate of a rank, -1 beyond their end."""

    def __init__(self, dec: Decomposition) -> None:
        self._dec = dec
        self._coords = dec.topology.all_coords()
        self.tables = []
        for d, size in enumerate(dec.topology.sizes):
            stride = math.prod(dec.topology.sizes[d + 1 :])
            owned = dec.all_owned()[d][np.arange(size) * stride]
            rows = [_ends_of(int(n) + 2 * dec.halo[d], dec.halo[d]) for n in owned]
            longest = max(map(len, rows))
            self.tables.append(np.array([[*row, *[-1] * (longest - len(row))] for row in rows], np.int64))
        self.shape = tuple(table.shape[1] for table in self.tables)
        self.cells = math.prod(self.shape)

    def points(self) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """The number of the global point of each cell, below 0 for none, and whether the rank owns it."""
        dec, ranks = self._dec, self._coords.shape[1]
        number, valid, own = (np.full((ranks,) + (1,) * dec.ndim, it) for it in (np.int64(0), True, True))
        for d, n in enumerate(dec.global_shape):
            local = self.tables[d][self._coords[d]]
            owned = dec.all_owned()[d][:, None]
            point = local - dec.halo[d] + dec.all_starts()[d][:, None]
            mine = (local >= dec.halo[d]) & (local < dec.halo[d] + owned)
            there = local >= 0
            if not dec.periodic[d]:
                there &= (point >= 0) & (point < n)
            along = (ranks, *(-1 if other == d else 1 for other in range(dec.ndim)))
            number = number * n + (point % n).reshape(along)
            valid, own = valid & there.reshape(along), own & mine.reshape(along)
        return np.where(valid, number, NOTHING).reshape(ranks, -1), own.reshape(ranks, -1)

    def boxes(self, dim: int, ranks: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The cells of boxes from low to high along a dim: where those of each rank begin and end in a list, the list,
        and how many local indices of each box are kept.
        """
        count = [(self.tables[d] >= 0).sum(1)[self._coords[d, ranks]] for d in range(len(self.shape))]
        along = self.tables[dim][self._coords[dim, ranks]]
        bounds = [((along < each[:, None]) & (along >= 0)).sum(1) for each in (low, high)]
        rows = list(zip(*(each.tolist() for each in (*bounds, *count)), strict=True))
        kinds = {kind: number for number, kind in enumerate(dict.fromkeys(rows))}
        lists = []
        for begin, end, *counts in kinds:
            ranges = [np.arange(n) for n in counts]
            ranges[dim] = np.arange(begin, max(begin, end))
            lists.append(np.ravel_multi_index(np.meshgrid(*ranges, indexing="ij"), self.shape).reshape(-1))
        starts = np.array([0, *itertools.accumulate(map(len, lists))])
        which = np.array([kinds[row] for row in rows], np.int64)
        cells = np.concatenate([*lists, np.zeros(0, np.int64)]).astype(np.int64)
        return starts[which], starts[which + 1], cells, bounds[1] - bounds[0]

    def place(self, rank: int, cell: int) -> tuple[int, ...]:
        """The local cell that a kept one is."""
        at = np.unravel_index(cell, self.shape)
        return tuple(int(self.tables[d][self._coords[d, rank], i]) for d, i in enumerate(at))


def _ends_of(n: int, width: int) -> list[int]:
    """The local indices that stand for a dim of n: both ends, two halo widths deep, and one between."""
    edge = 2 * width
    return list(range(n)) if n <= 2 * edge + 1 else [*range(edge), n // 2, *range(n - edge, n)]


def lines_of(
    dec: Decomposition, phases: Sequence[Sequence[HaloStep]], node: Sequence[int] | None
) -> list[HaloCells] | None:
    """One line of ranks for each dim, with its part of the phases; None if the lines of an axis differ.

    If the peers of each step differ from a rank in one coordinate only, and peers and extents depend only on that
    coordinate, the phases act on the dims one by one: the cell (i, j) of a rank at (a, b) ends with the value of the
    owned cell that i leads to on the line of a, and j on the line of b. So the halo of all ranks is right if it is
    right on one line of each axis.
    """
    every = [{step.dim for step in steps} for steps in phases]
    dims = [dim for dim, _ in itertools.groupby(every)]  # the rounds of a dim follow each other
    if any(len(each) != 1 for each in dims) or len(set().union(*dims)) < len(dims):
        return None
    coords, lines = dec.topology.all_coords(), []
    for dim, (name, size) in enumerate(zip(dec.topology.names, dec.topology.sizes, strict=True)):
        stride = math.prod(dec.topology.sizes[dim + 1 :])
        own: list[tuple[HaloStep, ...]] = []
        for steps in phases:
            if steps[0].dim == dim:
                made = [_on_line(step, coords[dim], size, stride, node) for step in steps]
                if None in made:
                    return None
                own.append(tuple(step for step in made if step is not None))
        closed = (name,) if dec.periodic[dim] else ()
        axis = Topology((name,), (size,), closed)
        line = Decomposition((dec.shape[dim],), axis, dec.halo[dim], dec.location[dim], dec.deep)
        lines.append(HaloCells([line], own, None))
    return lines


def _on_line(step: HaloStep, coord: Ints, size: int, stride: int, node: Sequence[int] | None) -> HaloStep | None:
    """The step on the first line of its axis; None where another line does something else, or ways do not meet."""
    first = np.arange(size) * stride  # the ranks of that line
    ranks = np.arange(len(coord))
    peers = []
    for there in (step.send_to, step.recv_from):
        peer = there[first]
        to = np.where(peer >= 0, peer // stride, -1)
        alike = np.where(to[coord] >= 0, ranks + (to[coord] - coord) * stride, -1)
        if (to >= size).any() or (there != alike).any():
            return None
        peers.append(to)
    ends = [end for bounds in (step.send, step.recv) for end in bounds]
    if any((end != end[first][coord]).any() for end in ends):
        return None
    sends = np.flatnonzero(step.send_to >= 0)
    to = step.send_to[sends]
    if (step.sent_by[sends] != step.taken_by[to]).any():
        return None
    inside = step.sent_by[sends] == MEMORY
    if inside.any() and (node is None or (np.array(node)[sends] != np.array(node)[to])[inside].any()):
        return None
    low, high, into, until = (end[first] for end in ends)
    packed = np.full(size, PACKED)
    return HaloStep(0, 0, step.side, step.tag, peers[0], peers[1], (low, high), (into, until), packed, packed)
