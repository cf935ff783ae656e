"""A collective operation as a plan: steps that hold all ranks at once, over a buffer cut into slots.

A slot is a stretch of the buffer that moves as a whole: a chunk of an all-reduce, the block of one rank in a gather.
Plans that spread data (all-gather, broadcast, scatter) are the ones that are written down; each of them, run backward
with additions in place of copies, is the plan that collects it (reduce-scatter, reduce, gather), see `transposed`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.plan.collective.rows import Flags, Ints

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "scatter", "gather", "all_to_all")
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Step:
    """Messages that may fly together: at most one leaves a rank and one arrives.

    Rank r sends its slots send[0][r] to send[1][r] (end excluded) to `send_to[r]`, and what `recv_from[r]` sends
    arrives in its slots recv[0][r] to recv[1][r]: added to what is there if `reduce`, else stored. -1 is nobody. A
    range that passes the last of the plan's slots goes on at the first. Where both ranks are one, the message is a
    copy. All are int64[ranks].
    """

    send_to: Ints
    recv_from: Ints
    send: tuple[Ints, Ints]
    recv: tuple[Ints, Ints]
    reduce: bool

    def transposed(self, reduce: bool) -> Step:
        """The same messages in the other direction, added where they arrive or stored."""
        return Step(self.recv_from, self.send_to, self.recv, self.send, reduce)

    def part(self, segments: int, number: int) -> Step:
        """The step with one part of each slot, of a buffer whose slots are cut into `segments` parts."""
        if ((self.send[1] - self.send[0])[self.send_to >= 0] > 1).any():
            raise InputError("only messages of a single slot can be cut into segments", do="use a ring or a tree")

        def cut(side: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
            first = side[0] * segments + number
            return first, first + side[1] - side[0]

        return replace(self, send=cut(self.send), recv=cut(self.recv))


def messages(send_to: Ints, first: Ints, last: Ints, into: Ints | None = None, reduce: bool = False) -> Step:
    """A step from what its senders do; what they send arrives in the slots from `into` on, by default the same ones."""
    ranks = np.arange(len(send_to))
    recv_from = np.full(len(send_to), NOBODY)
    active = send_to >= 0
    recv_from[send_to[active]] = ranks[active]
    met, taking = np.maximum(recv_from, 0), recv_from >= 0
    start = np.where(taking, (first if into is None else into)[met], 0)
    taken = np.where(taking, (last - first)[met], 0)
    return Step(send_to, recv_from, (first * active, last * active), (start, start + taken), reduce)


@dataclass(frozen=True)
class CollectivePlan:
    """One algorithm of one operation on `ranks` ranks: `length` steps, made when they are asked for, never stored.

    slots: how many the buffer has. lag: what a rank sends in step i was complete `lag` steps before, so that so many
    messages of a rank may be under way; 1 but for segmented plans. counts: the elements of each slot where the caller
    chose them (int64[slots], or int64[ranks, slots] where ranks differ); else the block rule cuts the buffer. runs:
    stretches of steps (first, end) that are alike but for which slots they move; pricing need not walk through them.
    """

    operation: str
    algorithm: str
    ranks: int
    slots: int
    length: int
    step: Callable[[int], Step]
    root: int = 0
    lag: int = 1
    counts: Ints | None = None
    runs: tuple[tuple[int, int], ...] = ()

    @property
    def blocks(self) -> int:
        """How many slots hold one buffer."""
        return self.ranks if self.operation == "all_to_all" else self.slots

    def steps(self) -> Iterator[Step]:
        """All steps in their order."""
        return map(self.step, range(self.length))

    def slot_starts(self, count: int) -> Ints:
        """Where the slots start in a buffer of `count` elements, and its end: int64[slots + 1], or a row a rank."""
        sizes = self.sizes(count)
        return np.concatenate([np.zeros_like(sizes[..., :1]), np.cumsum(sizes, axis=-1)], axis=-1)

    def sizes(self, count: int) -> Ints:
        """Elements in each slot: int64[slots], or int64[ranks, slots] where ranks differ (all-to-all)."""
        if self.counts is not None:
            return self.counts
        if self.operation != "all_to_all":
            return np.diff(block_starts(count, self.slots))
        given = np.broadcast_to(np.diff(block_starts(count, self.ranks)), (self.ranks, self.ranks))
        return np.concatenate([given, given.T], axis=1)

    def rounds(self) -> int:
        """Steps in which any message flies between ranks."""
        ranks = np.arange(self.ranks)
        return sum(bool(((step.send_to >= 0) & (step.send_to != ranks)).any()) for step in self.steps())

    def sent(self, count: int) -> Ints:
        """Elements that each rank sends to others, of a buffer of `count`: int64[ranks]."""
        ranks, total = np.arange(self.ranks), np.zeros(self.ranks, np.int64)
        ends = _slot_ends(self.sizes(count))
        for step in self.steps():
            away = (step.send_to >= 0) & (step.send_to != ranks)
            total += np.where(away, _extent(ends, ranks, *step.send), 0)
        return total


def _slot_ends(sizes: Ints) -> Ints:
    """Running ends of the slots, twice around: int64[2 * slots + 1], or a row of them a rank."""
    twice = np.concatenate([sizes, sizes], axis=-1)
    return np.concatenate([np.zeros_like(twice[..., :1]), np.cumsum(twice, axis=-1)], axis=-1)


def _extent(ends: Ints, ranks: Ints, first: Ints, last: Ints) -> Ints:
    """Elements in the slots from first to last of each rank."""
    if ends.ndim == 1:
        return ends[last] - ends[first]
    return ends[ranks, last] - ends[ranks, first]


def extents(plan: CollectivePlan, count: int) -> Callable[[Step], tuple[Ints, Ints]]:
    """A function that says how many elements each rank sends and takes in a step."""
    ends, ranks = _slot_ends(plan.sizes(count)), np.arange(plan.ranks)
    return lambda step: (_extent(ends, ranks, *step.send), _extent(ends, ranks, *step.recv))


def transposed(plan: CollectivePlan, operation: str) -> CollectivePlan:
    """The plan run backward: of an all-gather the reduce-scatter, of a broadcast the reduce, of a scatter the gather.

    Every slot that a rank is sent once in `plan` it sends away once here, after all that it was to collect for it.
    """
    adds, n = operation != "gather", plan.length
    runs = tuple((n - end, n - first) for first, end in reversed(plan.runs))
    return replace(plan, operation=operation, step=lambda i: plan.step(n - 1 - i).transposed(adds), runs=runs)


def joined(operation: str, algorithm: str, *plans: CollectivePlan) -> CollectivePlan:
    """Plans over the same slots, one after the other."""
    ends = list(accumulate(plan.length for plan in plans))

    def step(i: int) -> Step:
        which = bisect_right(ends, i)
        return plans[which].step(i - (ends[which - 1] if which else 0))

    starts = [0, *ends]
    runs = tuple((a + begin, b + begin) for plan, begin in zip(plans, starts, strict=False) for a, b in plan.runs)
    return replace(plans[0], operation=operation, algorithm=algorithm, length=ends[-1], step=step, runs=runs)


def segmented(plan: CollectivePlan, segments: int) -> CollectivePlan:
    """The plan with each slot cut into so many parts that follow each other: one travels while another is added.

    Raises `InputError` for plans whose messages hold several slots, and for counts of the caller's.
    """
    if segments < 1:
        raise InputError(f"a slot is cut into 1 segment or more, not {segments}")
    if segments == 1:
        return plan
    if plan.counts is not None:
        raise InputError(f"{plan.operation} with counts of the caller's cannot be segmented")
    return replace(
        plan,
        slots=plan.slots * segments,
        length=plan.length * segments,
        step=lambda i: plan.step(i // segments).part(segments, i % segments),
        lag=plan.lag * segments,
        runs=tuple((a * segments, b * segments) for a, b in plan.runs),
    )


def starts_with(plan: CollectivePlan) -> Flags:
    """Which slots of each rank hold its own data before the first step: bool[ranks, slots]."""
    held = np.zeros((plan.ranks, plan.slots), bool)
    if plan.operation in ("all_reduce", "reduce", "reduce_scatter"):
        held[:] = True
    elif plan.operation in ("broadcast", "scatter"):
        held[plan.root] = True
    elif plan.operation == "all_to_all":
        held[:, : plan.ranks] = True
    else:
        held[_own(plan)] = True
    return held


def ends_with(plan: CollectivePlan) -> Flags:
    """Which slots of each rank the operation promises after the last step: bool[ranks, slots]."""
    held = np.zeros((plan.ranks, plan.slots), bool)
    if plan.operation in ("all_reduce", "broadcast", "all_gather"):
        held[:] = True
    elif plan.operation in ("reduce", "gather"):
        held[plan.root] = True
    elif plan.operation == "all_to_all":
        held[:, plan.ranks :] = True
    else:
        held[_own(plan)] = True
    return held


def slot_owner(plan: CollectivePlan) -> Ints:
    """The rank whose block each slot is part of, for operations with a block a rank: int64[slots]."""
    return np.arange(plan.slots) * plan.ranks // plan.slots


def _own(plan: CollectivePlan) -> tuple[Ints, Ints]:
    """Ranks and slots of the blocks that belong to each rank."""
    return slot_owner(plan), np.arange(plan.slots)
