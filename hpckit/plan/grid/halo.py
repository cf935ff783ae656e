"""The halo exchange as a plan: the boxes that ranks send to each other, their phases, and the way of each message.

There is one phase per dim. A message carries the full local extent of all other dims, halos included, so later phases
forward the data of earlier ones: corners and edges arrive with two messages per dim (in 3-D, 6 messages reach 26
neighbors). The price is that phases are sequential. Dims held by one rank go first: their phase is a copy within the
rank (or nothing, at walls), and the messages of the split dims then carry it along as whole, contiguous slabs.

Several fields go in one exchange. A large contiguous slab is a message of its own, from array to array. Of all others,
those for a rank of the same node go through shared memory, if the plan knows the nodes; for the rest, contiguous slabs
are joined into one message, and the other slabs are packed into one.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hpckit.plan.grid.decomposition import Decomposition, Slices
from hpckit.plan.grid.halo_cells import BACK, JOINED, MEMORY, PACKED, SINGLE, HaloCells, HaloStep, lines_of, ways_of
from hpckit.plan.protocol import IN_ORDER, NOBODY, Ends, Factors, Floats, Ints, Plan, Step
from hpckit.plan.topology import Topology

# A slab of one piece above this size is a message of its own, from array to array by MPI. Below it the latency of a
# message costs more than gathering the slabs of several fields (a third to a half of an exchange at blocks of 32^3 to
# 64^3), and than two copies through memory that both ranks see (a quarter at 64^3; at 128^3 MPI is quicker by a tenth).
LARGE = 64 * 1024
SIDES = (-1, 1)


@dataclass(frozen=True)
class HaloField:
    """One field of an exchange. components: the dims before those of the grid. itemsize: bytes of a value; 0 if not
    known: its slabs are then packed.
    """

    decomposition: Decomposition
    components: tuple[int, ...] = ()
    itemsize: int = 0


@dataclass(frozen=True)
class FieldPart:
    """The part of a message from one field: the boxes of the local array, without components, sent and received."""

    field: int
    send: Slices
    recv: Slices


@dataclass(frozen=True)
class Message:
    """One rank's part of a direction of a phase: its message to `send_to` and that from `recv_from`, by one way.

    None stands for no message: a wall, or another way. If both ranks are the rank itself, the message is a copy. way:
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
    parts: tuple[FieldPart, ...]

    @property
    def send(self) -> Slices:
        """The box sent from the first field."""
        return self.parts[0].send

    @property
    def recv(self) -> Slices:
        """The box received into the first field."""
        return self.parts[0].recv

    def back(self) -> Message:
        """The reverse message: the halo returns to its owner, which adds it."""
        parts = tuple(FieldPart(part.field, part.recv, part.send) for part in self.parts)
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
        """A short title."""
        shape, more = self.decomposition.shape, f" in {len(self.fields)} fields" * (len(self.fields) > 1)
        return f"halo exchange of {shape} cells{more} on {self.ranks} ranks, {len(self.order)} phases"

    def phases(self) -> Iterator[tuple[HaloStep, ...]]:
        """The phases in their order; the steps of a phase (all fields leaving low, then high) fly together."""
        for dim in self.order:
            yield from self._phase[dim]

    def messages(self, rank: int) -> tuple[tuple[Message, ...], ...]:
        """The program of one rank: for each phase its messages; ways and walls without a peer are left out."""
        return tuple(tuple(self._messages(steps, rank)) for steps in self.phases())

    def messages_back(self, rank: int) -> tuple[tuple[Message, ...], ...]:
        """The program of one rank in `transposed(plan)`, which returns halos to their owners: all messages are packed,
        with the tags of `BACK`; a dim that is not split is still a copy.
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
                for way in ways_of(parts):
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
            found = lines_of(each.decomposition, [steps for steps in own if steps], self.node)
            if found is None:
                lines.clear()
                break
            lines += found
        decompositions = [each.decomposition for each in self.fields]
        whole = functools.partial(HaloCells, decompositions, phases, self.node)
        return Factors(tuple(lines) or (whole(),), whole)

    @cached_property
    def _phase(self) -> dict[int, tuple[tuple[HaloStep, ...], ...]]:
        """Of each dim its rounds. Made once: they hold all ranks, and each rank asks for its column."""
        found = {}
        for dim in self.order:
            made = [self._made(number, dim, side) for side in SIDES for number in range(len(self.fields))]
            rounds = itertools.zip_longest(*made)
            found[dim] = tuple(tuple(step for step in steps if step is not None) for steps in rounds)
        return found

    @cached_property
    def _beside(self) -> dict[int, dict[int, Ints]]:
        """The neighbors of every rank by dim and side."""
        names, shifted = self.topology.names, self.topology.all_shifted
        return {dim: {side: shifted(names[dim], side) for side in SIDES} for dim in self.order}

    @cached_property
    def _extents(self) -> list[list[Ints]]:
        """Of each field and dim the local cells of every rank."""
        decs = [each.decomposition for each in self.fields]
        return [[n + 2 * width for n, width in zip(dec.all_owned(), dec.halo, strict=True)] for dec in decs]

    @cached_property
    def _across(self) -> list[list[Floats]]:
        """Of each field and dim the values, or bytes, of a layer of every rank across that dim."""
        found = []
        for it, extents in zip(self.fields, self._extents, strict=True):
            one = np.full(self.ranks, float(math.prod(it.components) * (it.itemsize or 1)))
            found.append([one * math.prod(extents[:dim] + extents[dim + 1 :]) for dim in range(len(extents))])
        return found

    def _made(self, field: int, dim: int, side: int) -> list[HaloStep]:
        """The rounds of a direction: the first moves owned layers, later ones those of the halo that came before."""
        dec = self.fields[field].decomposition
        width = dec.halo[dim]
        owned = self._extents[field][dim] - 2 * width
        send_to, recv_from = self._beside[dim][side], self._beside[dim][-side]
        found: list[HaloStep] = []
        filled = np.zeros_like(owned)  # layers of the halo that face the sender
        while width:
            there = np.where(recv_from >= 0, np.minimum(width, (owned + filled)[recv_from]), 0)  # after this round
            takes, gives = there > filled, (send_to >= 0) & (there > filled)[send_to]
            if found and not takes.any():
                break
            # Local cells: halo 0..w, owned w..w+n, halo w+n..w+n+w. Layers are counted from the border of two blocks.
            # Where nothing moves in a late round, both ends are the same.
            idle = np.minimum(width, owned) if not found else 0
            first, last = np.where(gives, filled[send_to], 0), np.where(gives, there[send_to], idle)
            until = np.where(takes, there, filled + idle)
            if side < 0:
                send, recv = (width + first, width + last), (width + owned + filled, width + owned + until)
            else:
                send, recv = (width + owned - last, width + owned - first), (width - until, width - filled)
            found.append(
                HaloStep(
                    field=field,
                    dim=dim,
                    side=side,
                    tag=2 * dim + (side > 0),
                    send_to=np.where(gives, send_to, NOBODY),
                    recv_from=np.where(takes, recv_from, NOBODY),
                    send=send,
                    recv=recv,
                    sent_by=self._way(field, dim, send_to, len(found)),
                    taken_by=self._way(field, dim, recv_from, len(found)),
                )
            )
            filled = there
        return found

    def _way(self, field: int, dim: int, peer: Ints, turn: int = 0) -> Ints:
        """The way of each rank's message along a dim to or from its peer, in a round."""
        it = self.fields[field]
        dec, ranks = it.decomposition, np.arange(len(peer))
        ways = np.full(len(peer), PACKED)
        if not it.itemsize or dec.topology.sizes[dim] == 1:
            return ways
        extents = self._extents[field]
        pieces = self._pieces(field, dim)
        layer = math.prod(extents[dim + 1 :], start=np.ones(len(peer), np.int64)) * it.itemsize
        large = (pieces == 1) & (dec.halo[dim] * layer > self.large)
        ways[pieces == 1] = JOINED
        if self.node is not None and not turn:  # a direction has one place in shared memory
            node = np.array(self.node)
            ways[(peer >= 0) & (peer != ranks) & (node[peer] == node)] = MEMORY
        ways[large] = SINGLE + field
        return ways

    def _pieces(self, field: int, dim: int) -> Ints:
        """In how many pieces of memory each rank's slabs along a dim lie."""
        outer = math.prod(self._extents[field][:dim], start=np.ones(self.ranks, np.int64))
        return math.prod(self.fields[field].components) * outer

    def _end(self, parts: Sequence[HaloStep], way: int, sending: bool) -> Ends:
        """One end of the messages of a direction by one way, of all fields together."""
        ranks = self.ranks
        peer, amount, pieces = np.full(ranks, NOBODY), np.zeros(ranks), np.zeros(ranks, np.int64)
        first, last = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        for step in reversed(parts):
            there, by = (step.send_to, step.sent_by) if sending else (step.recv_from, step.taken_by)
            low, high = step.send if sending else step.recv
            on = (there >= 0) & (by == way)
            cells, own = self._across[step.field][step.dim] * (high - low), self._pieces(step.field, step.dim)
            if len(parts) == 1 and on.all():
                return Ends(there, low, high, amount=cells, pieces=own)
            peer, amount = np.where(on, there, peer), amount + np.where(on, cells, 0.0)
            pieces = pieces + np.where(on, own, 0)
            first, last = np.where(on, low, first), np.where(on, high, last)
        return Ends(peer, first, last, amount=amount, pieces=pieces)

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
            for way in ways_of(parts):
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
                    send_to=_somebody((step.send_to[rank], step.sent_by[rank] == way) for step in on),
                    recv_from=_somebody((step.recv_from[rank], step.taken_by[rank] == way) for step in on),
                    parts=tuple(self._part(step, rank) for step in on),
                )

    def _part(self, step: HaloStep, rank: int) -> FieldPart:
        shape = self.fields[step.field].decomposition.local_shape(rank)
        full = tuple(slice(0, n) for n in shape)

        def box(bounds: tuple[Ints, Ints]) -> Slices:
            along = slice(int(bounds[0][rank]), int(bounds[1][rank]))
            return (*full[: step.dim], along, *full[step.dim + 1 :])

        return FieldPart(step.field, box(step.send), box(step.recv))


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


def _somebody(peers: Iterable[tuple[np.int64, bool]]) -> int | None:
    """The peer of a message, from those of its fields: in a late round of an exchange some have none."""
    return next((int(rank) for rank, on in peers if on and rank >= 0), None)


def _volume(box: Slices) -> int:
    return math.prod(part.stop - part.start for part in box)
