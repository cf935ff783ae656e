"""The halo exchange as a plan: who sends which box to whom, in which phase, by which way.

One phase a dim. A message carries the full local extent of all other dims, halos included, so what an earlier phase
brought travels on with a later one: corners and edges arrive with two messages a dim (in 3-D, 6 messages reach 26
neighbors). The price is that phases follow each other. Dims held by one rank go first: their phase is a copy within
the rank (or nothing, at walls), and the messages of the split dims then carry it along as whole, contiguous slabs.

Several fields go in one exchange. A large slab of one piece of memory is a message of its own, from array to array.
Of all others, those for a rank of the same node go through shared memory, where the plan knows the nodes; for the rest
slabs of one piece are joined into one message, and slabs of many pieces are packed into one.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpckit.plan.grid.decomposition import Decomposition, Slices
from hpckit.plan.protocol import EMPTY, IN_ORDER, NOBODY, NOTHING, Claim, Ends, Factors, Ints, Plan, Step
from hpckit.plan.topology import Topology

# A slab of one piece above this size is a message of its own, from array to array by MPI. Below it the latency of a
# message costs more than gathering the slabs of several fields (a third to a half of an exchange at blocks of 32^3 to
# 64^3), and than two copies through memory that both ranks see (a quarter at 64^3; at 128^3 MPI is quicker by a tenth).
LARGE = 64 * 1024
# The ways of a message, whose tags are apart; `SINGLE + number` is that of a field of its own. Messages in shared
# memory have no tag. BACK and SEAL are for halos on their way back to their owners, and for checksums.
PACKED, JOINED, BACK, SEAL, SINGLE = range(5)
MEMORY = -1
SIDES = (-1, 1)


@dataclass(frozen=True)
class HaloField:
    """One field of an exchange. components: that lead its dims. itemsize: bytes of a value; 0 where it is not known,
    and then its slabs count as packed ones.
    """

    decomposition: Decomposition
    components: tuple[int, ...] = ()
    itemsize: int = 0


@dataclass(frozen=True)
class HaloStep:
    """All ranks' messages of one field along one dim in one direction; rank r sends to `send_to[r]`, receives from
    `recv_from[r]`.

    `side` is the side of the sender's block that its message leaves by: -1 low, +1 high; it arrives in the halo on
    the opposite side. -1 stands for nobody: a wall. Along `dim` rank r sends its local cells send[0][r] to send[1][r]
    and stores what it gets in recv[0][r] to recv[1][r]; all other dims move in full. tag: of the direction. sent_by,
    taken_by: the ways of what rank r sends and receives, int64[ranks].
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


@dataclass(frozen=True)
class Part:
    """What a message holds of one field: boxes of the local array, components left out, sent and received."""

    field: int
    send: Slices
    recv: Slices


@dataclass(frozen=True)
class Message:
    """One rank's part of a direction of a phase: what it sends to `send_to` and receives from `recv_from` by one way.

    None stands for nobody: a wall, or another way. Where both ranks are the rank itself, the message is a copy. way:
    `PACKED` into a buffer, `JOINED` in place, `MEMORY` of the node, or `SINGLE` + the field. tag: of the exchange,
    below `HaloPlan.tags`; that of the direction in shared memory.
    """

    axis: str
    dim: int
    side: int
    way: int
    tag: int
    send_to: int | None
    recv_from: int | None
    parts: tuple[Part, ...]

    @property
    def send(self) -> Slices:
        """The box that leaves the first field."""
        return self.parts[0].send

    @property
    def recv(self) -> Slices:
        """The box that takes what arrives in the first field."""
        return self.parts[0].recv

    def back(self) -> Message:
        """The same way the other way round: the halo returns to its owner, which adds it."""
        parts = tuple(Part(part.field, part.recv, part.send) for part in self.parts)
        return replace(self, send_to=self.recv_from, recv_from=self.send_to, parts=parts)


@dataclass(frozen=True)
class HaloPlan:
    """The halo exchange of some fields over one topology, for all ranks; see `halo_plan`.

    order: the dims of the phases. node: the node of each rank, where ranks of a node exchange in its shared memory.
    """

    fields: tuple[HaloField, ...]
    order: tuple[int, ...]
    node: tuple[int, ...] | None = None
    large: int = LARGE

    @property
    def decomposition(self) -> Decomposition:
        """That of the first field."""
        return self.fields[0].decomposition

    @property
    def topology(self) -> Topology:
        """The ranks on their axes."""
        return self.decomposition.topology

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.topology.size

    @property
    def tags(self) -> int:
        """How many tags an exchange uses: one a way, dim and direction."""
        return (SINGLE + len(self.fields)) * self.tags_of_a_way

    @property
    def tags_of_a_way(self) -> int:
        """How many tags one way uses; those of way w begin at w times as many."""
        return 2 * self.decomposition.ndim

    def title(self) -> str:
        """What it is, in a few words."""
        shape, more = self.decomposition.shape, f" in {len(self.fields)} fields" * (len(self.fields) > 1)
        return f"halo exchange of {shape} cells{more} on {self.ranks} ranks, {len(self.order)} phases"

    def phases(self) -> Iterator[tuple[HaloStep, ...]]:
        """The phases in their order; the steps of a phase (all fields leaving low, then high) fly together."""
        for dim in self.order:
            yield self._phase[dim]

    def messages(self, rank: int) -> tuple[tuple[Message, ...], ...]:
        """The program of one rank: for each phase its messages; ways and walls without a peer are left out."""
        return tuple(tuple(self._messages(steps, rank)) for steps in self.phases())

    def messages_back(self, rank: int) -> tuple[tuple[Message, ...], ...]:
        """The program of one rank that takes halos back to their owners, of `transposed(plan)`: all packed, with the
        tags of `BACK`; a dim that is not split is a copy as before.
        """
        plan = replace(self, fields=tuple(replace(each, itemsize=0) for each in self.fields), node=None)
        first = BACK * self.tags_of_a_way
        return tuple(
            tuple(replace(message.back(), tag=first + message.tag) for message in phase)
            for phase in reversed(plan.messages(rank))
        )

    def nbytes(self, rank: int, itemsize: int) -> int:
        """Bytes that the rank sends to other ranks in one exchange of fields of items of `itemsize` bytes."""
        return sum(
            each.itemsize or itemsize * math.prod(each.components) * _volume(part.send)
            for phase in self.messages(rank)
            for message in phase
            for part in message.parts
            for each in [self.fields[part.field]]
            if message.send_to not in (None, rank)
        )

    def steps(self) -> Iterator[Step]:
        """A step for each way of each direction; those of a phase fly together. Cells are layers along its dim."""
        known = all(each.itemsize for each in self.fields)
        for steps in self.phases():
            lag = 0
            for _, same in itertools.groupby(steps, key=lambda step: step.side):
                parts = list(same)
                for way in _ways(parts):
                    lag += 1
                    yield Step(
                        self._end(parts, way, sending=True),
                        self._end(parts, way, sending=False),
                        lag=lag,
                        tag=IN_ORDER if way == MEMORY else way * self.tags_of_a_way + parts[0].tag,
                        place="memory" if way == MEMORY else "messages",
                        itemsize=1.0 if known else 0.0,
                        name=self._name(parts[0]),
                        texts=functools.partial(self._texts, parts, way),
                    )

    def claim(self) -> Factors:
        """Owned cells hold their points, every halo cell ends with its point, corners included, wrapped where the grid
        is periodic; halo beyond walls gets nothing, owned cells are never written.
        """
        phases = list(self.phases())
        lines: list[Plan] = []
        for number, each in enumerate(self.fields):
            own = [tuple(step for step in steps if step.field == number) for steps in phases]
            found = _lines_of(each.decomposition, [steps for steps in own if steps], self.node)
            if found is None:
                lines.clear()
                break
            lines += found
        decompositions = [each.decomposition for each in self.fields]
        whole = functools.partial(HaloCells, decompositions, phases, self.node)
        return Factors(tuple(lines) or (whole(),), whole)

    @cached_property
    def _phase(self) -> dict[int, tuple[HaloStep, ...]]:
        """Made once: they hold all ranks, and each rank asks for its column."""
        return {
            dim: tuple(
                self._made(number, dim, side)
                for side in SIDES
                for number, each in enumerate(self.fields)
                if each.decomposition.halo[dim]
            )
            for dim in self.order
        }

    def _made(self, field: int, dim: int, side: int) -> HaloStep:
        dec = self.fields[field].decomposition
        name, width = dec.topology.names[dim], dec.halo[dim]
        owned = dec.all_owned()[dim]
        # Local cells: halo 0..w, owned w..w+n, halo w+n..w+n+w.
        low_edge, high_edge = np.full_like(owned, width), owned.copy()
        low_halo, high_halo = np.zeros_like(owned), owned + width
        send, recv = (low_edge, high_halo) if side < 0 else (high_edge, low_halo)
        send_to, recv_from = dec.topology.all_shifted(name, side), dec.topology.all_shifted(name, -side)
        return HaloStep(
            field=field,
            dim=dim,
            side=side,
            tag=2 * dim + (side > 0),
            send_to=send_to,
            recv_from=recv_from,
            send=(send, send + width),
            recv=(recv, recv + width),
            sent_by=self._way(field, dim, send_to),
            taken_by=self._way(field, dim, recv_from),
        )

    def _way(self, field: int, dim: int, peer: Ints) -> Ints:
        """The way of each rank's message along a dim to or from its peer."""
        it = self.fields[field]
        dec, ranks = it.decomposition, np.arange(len(peer))
        ways = np.full(len(peer), PACKED)
        if not it.itemsize or dec.topology.sizes[dim] == 1:
            return ways
        extents = [n + 2 * width for n, width in zip(dec.all_owned(), dec.halo, strict=True)]
        pieces = math.prod(it.components) * math.prod(extents[:dim], start=np.ones(len(peer), np.int64))
        layer = math.prod(extents[dim + 1 :], start=np.ones(len(peer), np.int64)) * it.itemsize
        large = (pieces == 1) & (dec.halo[dim] * layer > self.large)
        ways[pieces == 1] = JOINED
        if self.node is not None:
            node = np.array(self.node)
            ways[(peer >= 0) & (peer != ranks) & (node[peer] == node)] = MEMORY
        ways[large] = SINGLE + field
        return ways

    def _end(self, parts: Sequence[HaloStep], way: int, sending: bool) -> Ends:
        """One end of the messages of a direction by one way, of all fields together."""
        ranks = self.ranks
        peer, amount = np.full(ranks, NOBODY), np.zeros(ranks)
        first, last = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        for step in reversed(parts):
            there, by = (step.send_to, step.sent_by) if sending else (step.recv_from, step.taken_by)
            low, high = step.send if sending else step.recv
            on = (there >= 0) & (by == way)
            it = self.fields[step.field]
            cells = np.full(ranks, float(math.prod(it.components) * (it.itemsize or 1)))
            for dim, (n, width) in enumerate(zip(it.decomposition.all_owned(), it.decomposition.halo, strict=True)):
                cells *= high - low if dim == step.dim else n + 2 * width
            peer, amount = np.where(on, there, peer), amount + np.where(on, cells, 0.0)
            first, last = np.where(on, low, first), np.where(on, high, last)
        return Ends(peer, first, last, amount=amount)

    def _name(self, step: HaloStep) -> str:
        return f"{self.topology.names[step.dim]} {'low' if step.side < 0 else 'high'}"

    def _texts(self, parts: Sequence[HaloStep], way: int) -> list[str]:
        """What a drawing says of each rank: the boxes that it sends, `2x16`."""
        texts = []
        for rank in range(self.ranks):
            boxes = []
            for step in parts:
                if step.send_to[rank] >= 0 and step.sent_by[rank] == way:
                    box = list(self.fields[step.field].decomposition.local_shape(rank))
                    box[step.dim] = int(step.send[1][rank] - step.send[0][rank])
                    boxes.append("x".join(map(str, box)))
            texts.append("+".join(dict.fromkeys(boxes)))
        return texts

    def _messages(self, steps: Sequence[HaloStep], rank: int) -> Iterator[Message]:
        for _, same in itertools.groupby(steps, key=lambda step: step.side):
            parts = list(same)
            for way in _ways(parts):
                on = [
                    step
                    for step in parts
                    if (step.send_to[rank] >= 0 and step.sent_by[rank] == way)
                    or (step.recv_from[rank] >= 0 and step.taken_by[rank] == way)
                ]
                if not on:
                    continue
                one = on[0]
                yield Message(
                    axis=self.topology.names[one.dim],
                    dim=one.dim,
                    side=one.side,
                    way=way,
                    tag=one.tag + max(way, 0) * self.tags_of_a_way,
                    send_to=_somebody(one.send_to[rank], one.sent_by[rank] == way),
                    recv_from=_somebody(one.recv_from[rank], one.taken_by[rank] == way),
                    parts=tuple(self._part(step, rank) for step in on),
                )

    def _part(self, step: HaloStep, rank: int) -> Part:
        shape = self.fields[step.field].decomposition.local_shape(rank)
        full = tuple(slice(0, n) for n in shape)

        def box(bounds: tuple[Ints, Ints]) -> Slices:
            along = slice(int(bounds[0][rank]), int(bounds[1][rank]))
            return (*full[: step.dim], along, *full[step.dim + 1 :])

        return Part(step.field, box(step.send), box(step.recv))


def halo_plan(
    fields: Decomposition | HaloField | Sequence[HaloField],
    axes: Iterable[str] | None = None,
    node: Sequence[int] | None = None,
    large: int = LARGE,
) -> HaloPlan:
    """The plan that fills the halos of fields on every rank, corners included.

    fields: over one topology; a decomposition stands for a field of it. axes: names of those to exchange along, all by
    default. node: the node of each rank, for messages in its shared memory; without it all are messages. large: bytes
    above which a slab of one piece of memory is a message of its own. Dims without a halo have no phase.
    `plan.messages(rank)` is what one rank executes, `prove(plan)` checks all ranks.
    """
    if isinstance(fields, Decomposition):
        fields = HaloField(fields)
    given = (fields,) if isinstance(fields, HaloField) else tuple(fields)
    topology = given[0].decomposition.topology
    chosen = range(len(topology.names)) if axes is None else sorted(topology.axis(name) for name in axes)
    dims = [dim for dim in chosen if any(each.decomposition.halo[dim] for each in given)]
    return HaloPlan(given, _phase_order(topology, dims), None if node is None else tuple(map(int, node)), large)


def _phase_order(topology: Topology, dims: Iterable[int]) -> tuple[int, ...]:
    """The order of the phases of some dims: whole ones first (see above), among equals the unit-stride dim, so that
    the slabs of dim 0, contiguous in memory, carry all the others.
    """
    return tuple(sorted(dims, key=lambda d: (topology.sizes[d] > 1, -d)))


def _ways(steps: Sequence[HaloStep]) -> list[int]:
    """The ways of the messages of steps."""
    found = [step.sent_by[step.send_to >= 0] for step in steps] + [step.taken_by[step.recv_from >= 0] for step in steps]
    return np.unique(np.concatenate(found)).tolist()


def _somebody(rank: np.int64, on: bool) -> int | None:
    return int(rank) if on and rank >= 0 else None


def _volume(box: Slices) -> int:
    return math.prod(part.stop - part.start for part in box)


class HaloCells:
    """A halo exchange by its cells: what `prove` executes.

    Of each dim the cells within two halo widths of an end stand, and one for all between: the cost of a rank does not
    depend on its block.
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
        """What it is, in a few words."""
        return f"halo exchange of {self._fields[0].shape} cells on {self.ranks} ranks"

    def steps(self) -> Iterator[Step]:
        """A step for each field, direction and way."""
        for steps in self._phases:
            lag = 0
            for step in steps:
                for way in _ways([step]):
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
        """As of `HaloPlan`, cell by cell."""
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
        peer = np.where(on, peer, NOBODY)
        active = np.flatnonzero(peer >= 0)
        first, last, cells = self._kept[step.field].boxes(step.dim, active, bounds[0][active], bounds[1][active])
        return Ends(
            peer[active],
            first,
            last,
            rank=active,
            amount=(bounds[1] - bounds[0])[active],
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

    def boxes(self, dim: int, ranks: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
        """The cells of boxes from low to high along a dim: where those of each rank begin and end in a list."""
        count = [(self.tables[d] >= 0).sum(1)[self._coords[d, ranks]] for d in range(len(self.shape))]
        along = self.tables[dim][self._coords[dim, ranks]]
        bounds = [((along < each[:, None]) & (along >= 0)).sum(1) for each in (low, high)]
        kinds, which = np.unique(np.stack([*bounds, *count], axis=1), axis=0, return_inverse=True)
        lists = []
        for begin, end, *counts in kinds.tolist():
            ranges = [np.arange(n) for n in counts]
            ranges[dim] = np.arange(begin, max(begin, end))
            lists.append(np.ravel_multi_index(np.meshgrid(*ranges, indexing="ij"), self.shape).reshape(-1))
        starts = np.array([0, *itertools.accumulate(map(len, lists))])
        which = which.reshape(-1)
        cells = np.concatenate([*lists, np.zeros(0, np.int64)]).astype(np.int64)
        return starts[which], starts[which + 1], cells

    def place(self, rank: int, cell: int) -> tuple[int, ...]:
        """The local cell that a kept one is."""
        at = np.unravel_index(cell, self.shape)
        return tuple(int(self.tables[d][self._coords[d, rank], i]) for d, i in enumerate(at))


def _ends_of(n: int, width: int) -> list[int]:
    """The local indices that stand for a dim of n: both ends, two halo widths deep, and one between."""
    edge = 2 * width
    return list(range(n)) if n <= 2 * edge + 1 else [*range(edge), n // 2, *range(n - edge, n)]


def _lines_of(
    dec: Decomposition, phases: Sequence[Sequence[HaloStep]], node: Sequence[int] | None
) -> list[HaloCells] | None:
    """One line of ranks for each dim, with its part of the phases; None where not all lines of an axis are alike.

    Where the peers of each step differ from a rank in one coordinate only, and peers and extents depend on that
    coordinate only, the phases act on the dims one by one: the cell (i, j) of a rank at (a, b) ends with the value of
    the owned cell that i leads to on the line of a, and j on the line of b. So the halo of all ranks is right where it
    is on one line of each axis.
    """
    dims = [{step.dim for step in steps} for steps in phases]
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
        line = Decomposition((dec.shape[dim],), Topology((name,), (size,), closed), dec.halo[dim], dec.location[dim])
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
