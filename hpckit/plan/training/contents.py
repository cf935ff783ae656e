"""The ranks, cells and contents of a training step: who exchanges what with whom, and the numbers of all that is made.

Contents are numbered by who makes them, so that `prove` sees a message that comes from the wrong rank, microbatch or
stage, and a cell that is read before it is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpckit.plan.machine.machine import Machine
from hpckit.plan.pipeline.schedule import Schedule
from hpckit.plan.pipeline.schedules import pipeline_schedule
from hpckit.plan.protocol import NOTHING, Ends, Floats, Ints, Step, Work
from hpckit.plan.training.block import WAITED
from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.strategy import Strategy

OPENS, FINISHED, PARTIAL, SUMMED, GATHERED = range(5)  # kinds of contents that are not cells of the pipeline
NO_INTS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Exchange:
    """What a rank sends to each other rank of a line in an action. before, after: bytes of a message, in F and in I.

    axis: of the mesh. late: what is sent before is needed only at the end, as keys in a ring are. In each slot every
    line is sent to.
    """

    source: Ints
    target: Ints
    slot: Ints
    before: tuple[float, float]
    after: tuple[float, float]
    axis: str
    late: bool = False

    @cached_property
    def slots(self) -> Ints:
        """Its slots, int64[n]."""
        return np.unique(self.slot)

    @cached_property
    def givers(self) -> Ints:
        """Who sends to each line, int64[n, lines], slot by slot."""
        order = np.lexsort((self.target, self.slot))
        return self.source[order].reshape(len(self.slots), -1)


@dataclass(frozen=True)
class StepContents:
    """Where what a step of `model`, split by `strategy`, makes and sends is; computations take what `block_times` says
    on `machine`.

    replicas: of dp that are part of the plan, 0 for all; with fewer, as for a drawing, the ring over all of them is one
    computation that takes as long as its formula says. They are a multiple of `Strategy.together`.
    """

    model: LanguageModel
    strategy: Strategy
    machine: Machine
    replicas: int = 0

    @property
    def dp(self) -> int:
        """Replicas in the plan."""
        return self.replicas or self.strategy.dp

    @property
    def lines(self) -> int:
        """Pipelines beside each other."""
        return self.dp * self.strategy.cp * self.strategy.tp

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.lines * self.strategy.pp

    @cached_property
    def schedule(self) -> Schedule:
        """The order of the pipeline."""
        it = self.strategy
        options = {"chunks": it.chunks} if it.schedule == "interleaved" else {}
        return pipeline_schedule(it.schedule, it.pp, it.microbatches, **options)

    @cached_property
    def rank_of(self) -> Ints:
        """int64[pp, lines]: tp innermost, then cp, pp, dp."""
        it = self.strategy
        d, c, t = np.unravel_index(np.arange(self.lines), (self.dp, it.cp, it.tp))
        return np.array([((d * it.pp + p) * it.cp + c) * it.tp + t for p in range(it.pp)])

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Those of tp, cp, ep and etp."""
        model, it = self.model, self.strategy
        blocks, n, t = math.ceil(model.layers / (it.pp * it.chunks)), it.tokens, it.tp
        with_experts = blocks * (model.layers - model.dense_layers) / model.layers
        again = 2 if it.recompute == "full" else 1
        found, slot = [], 0

        def add(
            axis: str, neighbors: Ints, before: tuple[float, float], after: tuple[float, float], late: bool = False
        ) -> None:
            nonlocal slot
            size = neighbors.shape[1]
            source, target, slots = [], [], []
            place = np.arange(size)
            for shift in range(1, size):  # to the next one first, so that nobody is sent to by two at once
                source.append(neighbors[:, place].ravel())
                target.append(neighbors[:, (place + shift) % size].ravel())
                slots.append(np.full(neighbors.size, slot))
                slot += 1
            if size > 1:
                ends = [np.concatenate(each) for each in (source, target, slots)]
                found.append(Exchange(ends[0], ends[1], ends[2], before, after, axis, late))

        cube = np.arange(self.lines).reshape(self.dp, it.cp, t)
        ways = 2 * (blocks - with_experts) + with_experts * (2 if model.experts and model.experts.shared else 1)
        one = ways * self.strategy.item * n * model.width / t
        add("tp", cube.reshape(-1, t), (one, again * one), (one, again * one))
        keys = blocks * self.strategy.item * n * max(model.kv_heads / t, 1) * (model.head + model.value)
        along = cube.transpose(0, 2, 1).reshape(-1, it.cp)
        if it.context_by == "ulysses":
            whole = keys + blocks * self.strategy.item * n * model.heads / t * (model.head + model.value)
            part = whole / it.cp / 2
            add("cp", along, (part, again * part), (part, again * part))
        else:
            add("cp", along, (keys, (again + 1) * keys), (0.0, 0.0), late=it.context_by == "ring")
        if model.experts is not None:
            rows = with_experts * self.strategy.item * n / t * model.experts.active * model.width
            lines, part = np.arange(self.lines).reshape(-1, it.ep, it.etp), rows / it.ep
            add("ep", lines.transpose(0, 2, 1).reshape(-1, it.ep), (part, again * part), (part, again * part))
            add("etp", lines.reshape(-1, it.etp), (rows, again * rows), (rows, again * rows))
        return found

    @cached_property
    def slots(self) -> int:
        """Peers of a rank on all axes."""
        return max((int(each.slot.max()) + 1 for each in self.exchanges), default=0)

    @property
    def ring(self) -> int:
        """Ranks of the ring of gradients in the plan."""
        return self.dp * self.strategy.cp if self.dp == self.strategy.dp else 1

    @cached_property
    def made(self) -> int:
        """Contents that a pipeline makes."""
        return self.schedule.cells().width * self.schedule.stages

    @cached_property
    def first_cell(self) -> int:
        """The first cell behind those of the pipeline: twice own, slots, made, slots; gradient, scratch, all."""
        return self.schedule.cells().width * max(map(self.schedule.rank_of.count, range(self.strategy.pp)))

    @property
    def cells(self) -> int:
        """Cells of a rank."""
        return self.first_cell + 4 * (1 + self.slots) + 3

    def content(self, kind: int, key: int | Ints, line: Ints, number: int = 0) -> Ints:
        """The global index of a content: its kind, an action or a rank of the pipeline, a line, a place in a ring."""
        base = self.made * self.lines * (1 + kind)
        if kind in (SUMMED, GATHERED):
            return base + (np.asarray(key) * self.lines + line) * (self.strategy.dp * self.strategy.cp) + number
        return base + np.asarray(key) * self.lines + line

    def name_of(self, index: int) -> str:
        """What a content is, in words."""
        cells, whole = self.schedule.cells(), self.made * self.lines
        kind, rest = divmod(index, whole)
        if kind == 0:
            line, made = divmod(rest, self.made)
            return f"{cells.name(made)} of line {line}"
        if kind <= 1 + PARTIAL:
            made, line = divmod(rest, self.lines)
            return f"{('the part', 'the end', 'the share')[kind - 1]} of {cells.name(made)} of line {line}"
        return "the gradients and parameters"


def nobody() -> Ends:
    """An end without messages."""
    return Ends(NO_INTS, NO_INTS, NO_INTS, rank=NO_INTS, amount=np.zeros(0))


def only(work: Work) -> Step:
    """A step without messages."""
    return Step(nobody(), nobody(), itemsize=1.0, work=work)


class Flying(NamedTuple):
    """Messages that are under way together: both ends, and the place of their axes in WAITED."""

    sends: Ends
    receives: Ends
    axis: Ints

    def step(self, work: Work, behind: Flying | None = None) -> Step:
        """The step of these messages, with those `behind`."""
        sends, receives, axis = self
        if behind is not None and len(behind.sends.peer):
            sends, receives = _both(behind.sends, sends), _both(behind.receives, receives)
            axis = np.concatenate([behind.axis, axis])
        return Step(sends, receives, itemsize=1.0, work=work, texts=lambda: np.array((*WAITED, "pp"))[axis].tolist())


def _both(one: Ends, more: Ends) -> Ends:
    assert one.amount is not None
    assert more.amount is not None
    tables = zip((one.peer, one.first, one.last), (more.peer, more.first, more.last), strict=True)
    peer, first, last = (np.concatenate(pair) for pair in tables)
    return Ends(
        peer,
        first,
        last,
        rank=np.concatenate([one.ranks(), more.ranks()]),
        amount=np.concatenate([one.amount, more.amount]),
    )


def joined(first: Work, second: Work) -> Work:
    """Computations of one step."""
    if not len(second.rank):
        return first

    def both(a: Ints, b: Ints) -> Ints:
        width = max(a.shape[1], b.shape[1])

        def wide(table: Ints) -> Ints:
            return np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=NOTHING)

        return np.concatenate([wide(a), wide(b)])

    seconds: Floats = np.concatenate([first.seconds, second.seconds])
    return Work(
        np.concatenate([first.rank, second.rank]),
        seconds,
        both(first.reads, second.reads),
        both(first.needs, second.needs),
        both(first.writes, second.writes),
        both(first.makes, second.makes),
        [*first.names, *second.names],
    )


NONE = Flying(nobody(), nobody(), NO_INTS)
