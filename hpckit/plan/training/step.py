"""A training step of all axes as one plan: what every rank computes, and what it sends along each of them.

In a round of the pipeline a rank takes an action of its list (F, B, I or W of a chunk) in three steps: it opens it and
sends its part of the tokens to the ranks of tp, its keys to those of cp, tokens to the experts of ep and etp; it
computes, and sends back what it made for the others; it adds what came, and passes the result to the next stage, which
has posted its receive as the pipeline's program says. The messages of all blocks of a chunk go as one. At the end
gradients are summed, and parameters gathered, in rings over dp and cp.

In DualPipe-V and ZB-V a rank with messages to experts takes a forward pass and the backward pass of another microbatch
together, half by half in turn: while one computes, the messages of cp, ep and etp of the other fly (DeepSeek-AI 2024,
arXiv:2412.19437, section 3.2.1). Those of tp are waited for. Without experts that would only delay what the next stage
waits for: a ring of keys hides behind its own attention.

`rounds` finds no order if ranks wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise

import numpy as np

from hpckit.plan.machine.machine import Machine
from hpckit.plan.pipeline.program import overlaps, pipeline_program, rounds_together
from hpckit.plan.pipeline.steps import Action, rounds
from hpckit.plan.protocol import NOTHING, AlikeUnits, Claim, Ends, Flags, Floats, Ints, Step, Work
from hpckit.plan.training.block import WAITED
from hpckit.plan.training.contents import GATHERED, NONE, OPENS, PARTIAL, Flying, StepContents, joined
from hpckit.plan.training.cost import share, step_cost
from hpckit.plan.training.links import compute_of
from hpckit.plan.training.rings import ending, gradients
from hpckit.plan.training.strategy import EXPERT_AXES, require

SENDING = "FIB"  # actions whose ranks exchange


@dataclass(frozen=True)
class Taken:
    """Actions of a round, one of each of some ranks of a pipeline, on all lines.

    work: what they need, make and take. home: ranks of the pipeline, [n]; rank: [n, lines]. mine, partial: what is
    there when they are open, and when they have computed, [n, lines]. backward: 0 or 1, [n]. own, made: the cells.
    paired: of which the rank has another one in this round, bool[n].
    """

    work: Work
    home: Ints
    rank: Ints
    mine: Ints
    partial: Ints
    backward: Ints
    own: int
    made: int
    paired: Floats


@dataclass(frozen=True)
class TrainingStep(StepContents):
    """A step of `model` split by `strategy`: what every rank computes and sends."""

    def title(self) -> str:
        """What it is, in a few words."""
        return f"a step of {self.model.name} on {self.ranks} ranks, {self.strategy}"

    @cached_property
    def seconds(self) -> dict[tuple[int, str], float]:
        """Of each stage and kind of action."""
        require(self.model, self.strategy)
        block, v = share(self.model, self.strategy, self.machine), self.strategy.chunks
        cost = step_cost(self.model, self.strategy, self.machine, block)
        head = cost.parts["head"] / self.strategy.microbatches / 3
        found = {}
        for stage in range(self.schedule.stages):
            more = head if stage == self.schedule.stages - 1 else 0.0
            found[stage, "F"] = block.forward / v + more
            found[stage, "I"] = (block.inputs + block.again) / v + more
            found[stage, "W"] = block.weights / v + more
            found[stage, "B"] = found[stage, "I"] + found[stage, "W"]
        return found

    def steps(self) -> Iterable[Step]:
        """The rounds of the pipeline in three steps each, then the rings of the gradients and parameters."""
        each = self.ranks // self.dp
        first = lambda ranks: replace(self, replicas=ranks // each)._pipelines()  # noqa: E731
        return AlikeUnits(self.ranks, each * self.strategy.together, first, lambda: ending(self))

    def _pipelines(self) -> Iterator[Step]:
        """The rounds of all pipelines, and the gradients when they are there."""
        behind = NONE
        for one, following in pairwise(chain(self._rounds(), [None])):
            assert one is not None
            soon, late = self._passed(one, following)
            yield from self._expanded(one, behind, soon)
            behind = late
        yield gradients(self)

    def claim(self) -> Claim:
        """Every stage computes everything of every microbatch on all its ranks; all hold all parameters in the end."""
        cells, last = self.schedule.cells(), self.cells - 1
        end = np.full((self.ranks, self.cells), NOTHING)
        lines = np.arange(self.lines) * self.made
        for cell in self.schedule.promised():
            rank = self.rank_of[self.schedule.rank_of[cell[0]]]
            end[rank, cells.place(cell)] = cells.index(cell) + lines
        for p in range(self.strategy.pp):
            end[self.rank_of[p], last] = self.content(GATHERED, p, np.arange(self.lines), self.ring - 1)
        return Claim(np.full((1, self.cells), NOTHING), end, index_name=self.name_of)

    def _rounds(self) -> Iterator[Step]:
        """Of one pipeline: its computations, and the messages between its stages, as its program posts them."""
        program = pipeline_program(self.schedule)
        if self._overlaps():
            return rounds_together(program, self.seconds)
        return rounds(self.schedule.cells(), program.actions, self.seconds, self.title())

    def _overlaps(self) -> bool:
        """Whether ranks take two computations together."""
        return (
            self.strategy.paired
            and overlaps(self.schedule)
            and any(each.axis in EXPERT_AXES for each in self.exchanges)
        )

    def _expanded(self, one: Step, behind: Flying, soon: Flying) -> Iterator[Step]:
        """A round of one pipeline on all lines. behind: what flies from the round before; soon: at its end."""
        work, across = one.work, np.arange(self.lines)
        assert work is not None
        kinds = np.array([Action.parse(name).kind for name in work.names])
        busy = np.array([kind in SENDING for kind in kinds], bool) if self.exchanges else np.zeros(len(kinds), bool)
        plain = self._work(work, np.flatnonzero(~busy), across)
        if not busy.any():
            yield soon.step(plain, behind)
            return
        some = np.flatnonzero(busy)
        home = work.rank[some]
        later = np.concatenate([[False], home[1:] == home[:-1]])  # the second ones of pairs
        paired = np.zeros(len(busy), bool)
        paired[some] = np.isin(home, home[later])
        groups = [self._taken(work, some[part], n, paired) for n, part in enumerate((~later, later)) if part.any()]
        first, second = groups[0], groups[1] if len(groups) > 1 else None
        yield self._swap(first, True).step(self._begun(first, None), behind)
        if second is not None:
            yield self._swap(second, True).step(self._begun(second, first))
        yield self._swap(first, False).step(joined(self._computed(first, second), plain))
        ends = self._ended(first)
        if second is not None:
            yield self._swap(second, False).step(self._computed(second, first))
            ends = joined(ends, self._ended(second))
        yield soon.step(ends)

    def _taken(self, work: Work, entries: Ints, number: int, paired: Flags) -> Taken:
        """Some actions of a round, of a rank each; number: 1 for the second ones of pairs; paired: of all entries."""
        own = self.first_cell + 2 * number * (1 + self.slots)
        key = work.makes[entries, 0]  # names the action
        across = np.arange(self.lines)
        return Taken(
            self._work(work, entries, across),
            work.rank[entries],
            self.rank_of[work.rank[entries]],
            self.content(OPENS, key[:, None], across),
            self.content(PARTIAL, key[:, None], across),
            np.array([Action.parse(work.names[entry]).kind != "F" for entry in entries], int),
            own,
            own + 1 + self.slots,
            paired[entries].astype(np.float64),
        )

    def _begun(self, it: Taken, before: Taken | None) -> Work:
        """Actions are opened; the second ones of pairs, as the first, are half computed, once tp has the first ones."""
        work, m = it.work, it.rank.size
        half = 0.5 * np.repeat(it.paired, self.lines)
        reads, needs = [work.reads], [work.needs]
        if before is not None:
            self._also(it, before, True, reads, needs)
        own, mine = np.full((m, 1), it.own), it.mine.reshape(-1, 1)
        names = [f"{n} opens" for n in work.names]
        return Work(it.rank.ravel(), half * work.seconds, np.hstack(reads), np.hstack(needs), own, mine, names)

    def _computed(self, it: Taken, other: Taken | None) -> Work:
        """Actions, or the second halves of those of pairs: with what the peers sent, but for what is late."""
        m, whole = it.rank.size, 1 - 0.5 * np.repeat(it.paired, self.lines)
        early, early_needs = self._peers(it.rank, it.mine, it.own, False, True)
        reads, needs = [np.full((m, 1), it.own), early], [it.mine.reshape(-1, 1), early_needs]
        if other is not None:
            self._also(it, other, it.own < other.own, reads, needs)
        made, partial = np.full((m, 1), it.made), it.partial.reshape(-1, 1)
        seconds = whole * it.work.seconds
        return Work(it.rank.ravel(), seconds, np.hstack(reads), np.hstack(needs), made, partial, it.work.names)

    def _ended(self, it: Taken) -> Work:
        """What came late and what came back is added."""
        m, work = it.rank.size, it.work
        late, late_needs = self._peers(it.rank, it.mine, it.own, True, True)
        back, back_needs = self._peers(it.rank, it.partial, it.made, False, False)
        reads = np.hstack([np.full((m, 1), it.made), late, back])
        needs = np.hstack([it.partial.reshape(-1, 1), late_needs, back_needs])
        names = [f"{n} ends" for n in work.names]
        return Work(it.rank.ravel(), np.zeros(m), reads, needs, work.writes, work.makes, names)

    def _also(self, it: Taken, other: Taken, before: bool, reads: list[Ints], needs: list[Ints]) -> None:
        """What tp sent for the other action of a pair, which the rank waits for: nothing for actions alone."""
        where = np.array([np.flatnonzero(other.home == home)[0] if home in other.home else -1 for home in it.home])
        content, cell = (other.mine, other.own) if before else (other.partial, other.made)
        for each in self.exchanges:
            if each.axis != "tp" or max(each.before if before else each.after) <= 0:
                continue
            for slot, giver in zip(each.slots, each.givers, strict=True):
                needed = np.where(where[:, None] >= 0, content[where][:, giver], NOTHING)
                reads.append(np.full((it.rank.size, 1), cell + 1 + slot))
                needs.append(needed.reshape(-1, 1))

    def _work(self, work: Work, entries: Ints, across: Ints) -> Work:
        """Some computations of one pipeline on all lines: entry by entry, all lines of each."""
        shift = (across * self.made)[None, :, None]

        def on_lines(table: Ints, contents: bool) -> Ints:
            wide = np.broadcast_to(table[entries][:, None, :], (len(entries), self.lines, table.shape[1]))
            moved = np.where(wide == NOTHING, NOTHING, wide + shift) if contents else wide
            return moved.reshape(len(entries) * self.lines, table.shape[1])

        return Work(
            self.rank_of[work.rank[entries]].ravel(),
            np.repeat(work.seconds[entries], self.lines),
            on_lines(work.reads, False),
            on_lines(work.needs, True),
            on_lines(work.writes, False),
            on_lines(work.makes, True),
            [name for entry in entries for name in [work.names[entry]] * self.lines],
        )

    def _passed(self, one: Step, following: Step | None) -> tuple[Flying, Flying]:
        """The messages between stages, on all lines, the ranks of tp send a part each: those that the following round
        waits for, and those that may share the links with its messages.
        """
        nbytes = self.strategy.item * self.strategy.tokens * self.model.width / self.strategy.tp
        awaited = set[tuple[int, int]]()
        if following is not None and following.work is not None:
            work = following.work
            awaited = {(int(r), int(cell)) for r, row in zip(work.rank, work.reads, strict=True) for cell in row}
        into = zip(one.receives.ranks().tolist(), one.receives.first.tolist(), strict=True)
        soon = np.array([following is None or each in awaited for each in into], bool)

        def on_lines(ends: Ends, chosen: Flags) -> Ends:
            first = np.repeat(ends.first[chosen], self.lines)
            return Ends(
                self.rank_of[ends.peer[chosen]].ravel(),
                first,
                first + 1,
                rank=self.rank_of[ends.ranks()[chosen]].ravel(),
                amount=np.full(len(first), nbytes),
            )

        def flying(chosen: Flags) -> Flying:
            sends = on_lines(one.sends, chosen)
            return Flying(sends, on_lines(one.receives, chosen), np.full(len(sends.peer), len(WAITED)))

        return flying(soon), flying(~soon)

    def _swap(self, it: Taken, before: bool) -> Flying:
        """The messages within a stage: from the cell of a rank to the slots behind it of all its peers."""
        rank, backward, cell = it.rank, it.backward, it.own if before else it.made
        source, target, slots, amounts, axes = [], [], [], [], []
        for each in self.exchanges:
            sizes = np.array(each.before if before else each.after)[backward]
            some, count = np.flatnonzero(sizes > 0), len(each.slot)
            if not some.size:
                continue
            source.append(rank[some][:, each.source].ravel())
            target.append(rank[some][:, each.target].ravel())
            slots.append(np.tile(each.slot, some.size))
            amounts.append(np.repeat(sizes[some], count))
            axes.append(np.full(some.size * count, WAITED.index(each.axis)))
        if not source:
            return NONE
        s, d, slot, amount, axis = map(np.concatenate, (source, target, slots, amounts, axes))
        order = np.argsort(slot.astype(np.int16), kind="stable")
        s, d, slot, amount, axis = (each[order] for each in (s, d, slot, amount, axis))
        out = np.full(len(s), cell)
        into = cell + 1 + slot
        sends, receives = (
            Ends(peer, cell, cell + 1, rank=own, amount=amount) for peer, cell, own in ((d, out, s), (s, into, d))
        )
        return Flying(sends, receives, axis)

    def _peers(self, rank: Ints, content: Ints, cell: int, late: bool, before: bool) -> tuple[Ints, Ints]:
        """What a computation needs of the peers: their cells, and what must be in them."""
        reads, needs = [], []
        for each in self.exchanges:
            if each.late != late and before:
                continue
            if not before and max(each.after) <= 0:
                continue
            reads.append(np.tile(cell + 1 + each.slots, (rank.size, 1)))
            needs.append(content[:, each.givers].transpose(0, 2, 1).reshape(rank.size, -1))
        if not reads:
            empty = np.zeros((rank.size, 0), np.int64)
            return empty, empty
        return np.hstack(reads), np.hstack(needs)


def reached(machine: Machine) -> Machine:
    """The machine with the rates that programs reach on its links."""
    part = compute_of(machine).efficiency
    levels = tuple(
        replace(level, bandwidth=level.bandwidth * part, uplink=level.uplink * part) for level in machine.levels
    )
    return replace(machine, levels=levels, reduction=machine.reduction * part)
