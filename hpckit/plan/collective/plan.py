"""A collective operation as a plan: steps that hold all ranks at once, over a buffer cut into slots.

A slot is a stretch of the buffer that moves as a whole: a chunk of an all-reduce, the block of one rank in a gather.
Only the plans that spread data (all-gather, broadcast, scatter) are written out; run backward, with additions instead
of copies, they are the plans that collect it (reduce-scatter, reduce, gather), see `backward`.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from hpckit.errors import InputError, PlanError
from hpckit.plan.blocks import block_starts
from hpckit.plan.protocol import NOBODY, NOTHING, OWN, Claim, Ends, Entries, Ints, Step, Steps, Strands

# Operation -> who holds a slot before, and who after: all ranks, the root, or the rank whose block it is.
OPERATIONS = {
    "all_reduce": ("every", "every"),
    "reduce": ("every", "root"),
    "reduce_scatter": ("every", "own"),
    "broadcast": ("root", "every"),
    "scatter": ("root", "own"),
    "gather": ("own", "root"),
    "all_gather": ("own", "every"),
    "all_to_all": ("blocks for all ranks", "blocks from all ranks"),
}
# Plans of more cells are proved by strands: dense arrays of 16,384 ranks and as many slots are 2 GiB each.
MOST_DENSE = 2**18


def messages(
    send_to: Ints, first: Ints, last: Ints, into: Ints | None = None, reduce: bool = False, wraps: bool = False
) -> Step:
    """A step from what its senders do: rank r sends its slots first[r] to last[r] (end excluded) to send_to[r].

    What they send arrives in the slots from `into` on, by default the same ones; reduce: it is added there. wraps: a
    range that passes the last slot goes on at the first.
    """
    ranks = np.arange(len(send_to))
    recv_from = np.full(len(send_to), NOBODY)
    if len(send_to) and send_to.min() >= 0:
        recv_from[send_to] = ranks
        if recv_from.min() >= 0:  # all ranks send and receive
            start = (first if into is None else into)[recv_from]
            receives = Ends(recv_from, start, start + (last - first)[recv_from])
            return Step(Ends(send_to, first, last), receives, add=reduce, wraps=wraps)
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
    memory of nodes. room: cells of shared memory that each rank has behind its slots. symmetries: permutations of the
    ranks and of the slots that map the steps to themselves, for proofs of many ranks (see `Strands`); by default the
    one that makes each rank the next is tried.
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
    symmetries: tuple[tuple[Ints, Ints], ...] = ()

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

    def claim(self) -> Claim | Strands:
        """What the operation promises; slots without data of their own hold nothing. Raises `PlanError` for fields that
        cannot be.
        """
        if self.operation not in OPERATIONS:
            raise PlanError(f"there is no operation {self.operation!r}: choose one of {', '.join(OPERATIONS)}")
        self._check_fields()
        if self.ranks * self.slots > MOST_DENSE and self.node is None and not self.room:
            return self._strands()
        every = np.arange(self.slots)
        start, end = (self._dense(self._held(side, every)) for side in (0, 1))
        size = np.broadcast_to(self._size_of(every), (self.ranks, self.slots))
        if self.room:
            behind = np.full((self.ranks, self.room), NOTHING)
            start, end, size = (np.hstack([each, behind]) for each in (start, end, size))
        return Claim(start, end, node=self.node, size=size, cell_name=self._cell_name)

    def _check_fields(self) -> None:
        """Raise `PlanError` for numbers that cannot be."""
        for name, least in (("ranks", 1), ("slots", 1), ("length", 0), ("lag", 1), ("room", 0), ("root", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise PlanError(
                    f"{self.operation} by {self.algorithm}: {name} is {value!r}, and must be {least} or more"
                )
        if self.root >= self.ranks:
            raise PlanError(f"{self.title()}: the root {self.root} is not one of the {self.ranks} ranks")
        if self.operation == "all_to_all" and self.slots != 2 * self.ranks:
            raise PlanError(f"{self.title()}: an all-to-all has 2 slots for each rank")
        if "own" in OPERATIONS.get(self.operation, ()) and self.slots % self.ranks:
            raise PlanError(f"{self.title()}: blocks of {self.ranks} ranks are not {self.slots} slots")
        for name, shapes in (("counts", [(self.slots,), (self.ranks, self.slots)]), ("node", [(self.ranks,)])):
            value = getattr(self, name)
            if value is None:
                continue
            if np.shape(value) not in shapes or np.asarray(value).dtype.kind not in "iu" or np.min(value) < 0:
                raise PlanError(f"{self.title()}: {name} must be {shapes[-1]} whole numbers, 0 or more")

    def _cell_name(self, rank: int, slot: int) -> str:
        return f"slot {slot}" if slot < self.slots else f"cell {slot - self.slots} of shared memory"

    def _dense(self, entries: Entries) -> Ints:
        """The global index of each slot of each rank."""
        rank, slot, index = entries
        dense = np.full((self.ranks, self.slots), NOTHING)
        if len(rank) == dense.size:
            return np.broadcast_to(np.arange(self.slots), dense.shape)  # of all ranks the same, which is quicker
        dense[rank, slot] = index
        return dense

    def _held(self, side: int, strands: Ints) -> Entries:
        """Of some strands the slots that hold data before (side 0) or after (side 1) the operation."""
        p, holder = self.ranks, OPERATIONS[self.operation][side]
        if self.operation == "all_to_all":
            # Strand r is what rank r gives: block q for rank q, which then has it behind its own blocks.
            strands = strands[strands < p]
            giver, taker = np.repeat(strands, p), np.tile(np.arange(p), len(strands))
            index = giver * p + taker
            return (giver, taker, index) if side == 0 else (taker, p + giver, index)
        if holder == "every":
            slots = np.tile(strands, p)
            return np.repeat(np.arange(p), len(strands)), slots, slots
        rank = strands * p // self.slots if holder == "own" else np.full(len(strands), self.root)
        return rank, strands, strands

    def _size_of(self, slots: Ints) -> Ints:
        """A number for each size that slots may have; of an all-to-all's slots for each rank."""
        if self.counts is not None:
            return np.asarray(self.counts, np.int64)
        if self.operation == "all_to_all":
            block = np.broadcast_to(np.arange(self.ranks), (self.ranks, self.ranks))
            return np.concatenate([block, block.T], axis=1)
        return slots

    def _strands(self) -> Strands:
        """The claim by slots, or of an all-to-all by what each rank gives."""
        p, slots = self.ranks, np.arange(self.slots)
        strand, one_size = slots, self.operation == "all_to_all" or self.counts is not None
        if self.operation == "all_to_all":
            strand = np.concatenate([np.full(p, OWN), np.arange(p)])
        found = tuple(each for each in self.symmetries or self._turn() if self._maps(*each))
        return Strands(
            self.slots,
            strand,
            functools.partial(self._held, 0),
            functools.partial(self._held, 1),
            found,
            size=None if one_size else slots,
            cell_name=self._cell_name,
        )

    def _turn(self) -> list[tuple[Ints, Ints]]:
        """The permutation that makes each rank the next, with the slots that belong to it."""
        p, slot = self.ranks, np.arange(self.slots)
        next_rank = (np.arange(p) + 1) % p
        if self.operation == "all_to_all":
            return [(next_rank, np.concatenate([next_rank, p + next_rank]))]
        return [(next_rank, (slot + self.slots // p) % self.slots)] if self.slots % p == 0 else []

    def _maps(self, rank_to: Ints, slot_to: Ints) -> bool:
        """Whether permutations of ranks and slots map the claim to itself."""
        p, slot = self.ranks, np.arange(self.slots)
        if self.operation == "all_to_all":
            return bool((slot_to == np.concatenate([rank_to, p + rank_to])).all())
        holders = OPERATIONS[self.operation]
        own = "own" not in holders or bool((slot_to * p // self.slots == rank_to[slot * p // self.slots]).all())
        return own and ("root" not in holders or rank_to[self.root] == self.root)

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
