"""A collective operation as a plan: steps that hold all ranks at once, over a buffer cut into slots.

A slot is a stretch of the buffer that moves as a whole: a chunk of an all-reduce, the block of one rank in a gather.
Only the plans that spread data (all-gather, broadcast, scatter) are written out; run backward, with additions instead
of copies, they are the plans that collect it (reduce-scatter, reduce, gather), see `backward`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.plan.protocol import NOBODY, NOTHING, Claim, Ends, Ints, Step, Steps

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "scatter", "gather", "all_to_all")


def messages(
    send_to: Ints, first: Ints, last: Ints, into: Ints | None = None, reduce: bool = False, wraps: bool = False
) -> Step:
    """A step from what its senders do: rank r sends its slots first[r] to last[r] (end excluded) to send_to[r].

    What they send arrives in the slots from `into` on, by default the same ones; reduce: it is added there. wraps: a
    range that passes the last slot goes on at the first.
    """
    ranks = np.arange(len(send_to))
    recv_from = np.full(len(send_to), NOBODY)
    active = send_to >= 0
    recv_from[send_to[active]] = ranks[active]
    met, taking = np.maximum(recv_from, 0), recv_from >= 0
    start = np.where(taking, (first if into is None else into)[met], 0)
    taken = np.where(taking, (last - first)[met], 0)
    sends = Ends(send_to, first * active, last * active)
    return Step(sends, Ends(recv_from, start, start + taken), add=reduce, wraps=wraps)


def _part(step: Step, segments: int, number: int) -> Step:
    """The step with one part of each slot, of a buffer whose slots are cut into `segments` parts."""
    if ((step.sends.last - step.sends.first)[step.sends.peer >= 0] > 1).any():
        raise InputError("only messages of a single slot can be cut into segments", do="use a ring or a tree")

    def cut(ends: Ends) -> Ends:
        first = ends.first * segments + number
        return replace(ends, first=first, last=first + ends.last - ends.first)

    return replace(step, sends=cut(step.sends), receives=cut(step.receives))


@dataclass(frozen=True)
class CollectivePlan:
    """One algorithm of one operation on `ranks` ranks: `length` steps, made when they are asked for, never stored.

    step: makes one by its number; its cells are slots. slots: how many the buffer has. lag: what a rank sends in step i
    was complete `lag` steps before, so that so many messages of a rank may be under way; 1 but for segmented plans.
    counts: the elements of each slot where the caller chose them (int64[slots], or int64[ranks, slots] where ranks
    differ); else the block rule cuts the buffer. runs: stretches of steps (first, end) that are alike but for which
    slots they move; pricing need not walk through them. node: int64[ranks], of each rank, where steps run in the shared
    memory of nodes. room: cells of shared memory that each rank has behind its slots.
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
    node: Ints | None = None
    room: int = 0

    @property
    def blocks(self) -> int:
        """How many slots hold one buffer."""
        return self.ranks if self.operation == "all_to_all" else self.slots

    def title(self) -> str:
        """What it is, in a few words."""
        counts = ((self.ranks, "rank"), (self.length, "step"), (self.slots, "slot"))
        said = ", ".join(f"{number} {thing}{'s' * (number != 1)}" for number, thing in counts)
        return f"{self.operation} by {self.algorithm}: {said}"

    def steps(self) -> Steps:
        """All steps in their order, with what their messages carry."""
        make, lag = self.step, self.lag
        if self.counts is None:
            blocks = self.blocks
            return Steps(self.length, lambda i: replace(make(i), lag=lag, parts=blocks), self.runs, lag)
        ends, ranks = _slot_ends(self.counts), np.arange(self.ranks)

        def counted(given: Ends) -> Ends:
            rank = ranks if given.rank is None else given.rank
            return replace(given, amount=_extent(ends, rank, given.first, given.last))

        def step(i: int) -> Step:
            it = make(i)
            return replace(it, lag=lag, sends=counted(it.sends), receives=counted(it.receives))

        return Steps(self.length, step, self.runs, lag)

    def claim(self) -> Claim:
        """What the operation promises; slots without data of their own hold nothing."""
        start, end = self._held()
        if self.room:
            behind = np.full((self.ranks, self.room), NOTHING)
            start, end = np.hstack([start, behind]), np.hstack([end, behind])
        return Claim(start, end, node=self.node, cell_name=self._cell_name)

    def _cell_name(self, rank: int, slot: int) -> str:
        return f"slot {slot}" if slot < self.slots else f"cell {slot - self.slots} of shared memory"

    def _held(self) -> tuple[Ints, Ints]:
        """The index of each slot of each rank before and after."""
        slot = np.arange(self.slots)
        every = np.broadcast_to(slot, (self.ranks, self.slots))
        ranks = np.arange(self.ranks)[:, None]
        root = np.where(ranks == self.root, every, NOTHING)
        own = np.where(ranks == slot * self.ranks // self.slots, every, NOTHING)  # blocks of the ranks
        if self.operation == "all_to_all":
            p = self.ranks
            given, nothing = np.arange(p * p).reshape(p, p), np.full((p, p), NOTHING)
            return np.hstack([given, nothing]), np.hstack([given * 0 + NOTHING, given.T])
        return {
            "all_reduce": (every, every),
            "reduce": (every, root),
            "reduce_scatter": (every, own),
            "broadcast": (root, every),
            "scatter": (root, own),
            "gather": (own, root),
            "all_gather": (own, every),
        }[self.operation]

    def sizes(self, count: int) -> Ints:
        """Elements in each slot: int64[slots], or int64[ranks, slots] where ranks differ (all-to-all)."""
        if self.counts is not None:
            return self.counts
        if self.operation != "all_to_all":
            return np.diff(block_starts(count, self.slots))
        given = np.broadcast_to(np.diff(block_starts(count, self.ranks)), (self.ranks, self.ranks))
        return np.concatenate([given, given.T], axis=1)

    def rounds(self) -> int:
        """Steps in which any message flies between ranks; those in shared memory are not counted."""
        steps = [step for step in map(self.step, range(self.length)) if step.place == "messages"]
        return sum(bool(((step.sends.peer >= 0) & (step.sends.peer != step.sends.ranks())).any()) for step in steps)

    def sent(self, count: int) -> Ints:
        """Elements that each rank sends to others in messages, of a buffer of `count`: int64[ranks]."""
        total = np.zeros(self.ranks, np.int64)
        ends = _slot_ends(self.sizes(count))
        for step in [step for step in map(self.step, range(self.length)) if step.place == "messages"]:
            it, ranks = step.sends, step.sends.ranks()
            away = (it.peer >= 0) & (it.peer != ranks)
            np.add.at(total, ranks[away], _extent(ends, ranks, it.first, it.last)[away])
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


def backward(plan: CollectivePlan, operation: str) -> CollectivePlan:
    """The plan run backward: an all-gather becomes a reduce-scatter, a broadcast a reduce, a scatter a gather.

    A rank sends every slot that it receives once in `plan` once here, after it has collected all contributions to it.
    """
    adds, n = operation != "gather", plan.length
    runs = tuple((n - end, n - first) for first, end in reversed(plan.runs))

    def step(i: int) -> Step:
        return replace(plan.step(n - 1 - i).backward(), add=adds, clears=False)

    return replace(plan, operation=operation, step=step, runs=runs)


def joined(operation: str, algorithm: str, *plans: CollectivePlan) -> CollectivePlan:
    """Plans over the same slots, one after the other."""
    ends = list(accumulate(plan.length for plan in plans))

    def step(i: int) -> Step:
        which = bisect_right(ends, i)
        return plans[which].step(i - (ends[which - 1] if which else 0))

    starts = [0, *ends]
    runs = tuple((a + begin, b + begin) for plan, begin in zip(plans, starts, strict=False) for a, b in plan.runs)
    node, room = next((plan.node for plan in plans if plan.node is not None), None), max(plan.room for plan in plans)
    return replace(
        plans[0], operation=operation, algorithm=algorithm, length=ends[-1], step=step, runs=runs, node=node, room=room
    )


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
        step=lambda i: _part(plan.step(i // segments), segments, i % segments),
        lag=plan.lag * segments,
        runs=tuple((a * segments, b * segments) for a, b in plan.runs),
    )
