"""A step of serving as a plan of all ranks: what each computes, whose columns it waits for, and what it sends.

`program` is the list that a rank of a stage walks through, the same for every step; `ServingPlan` is that list on all
ranks with the texts and blocks of one step, so that `prove`, `price` and `draw` see what `ServedModel` runs. Rows, and
the plan itself, go from stage to stage as messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from hpckit.errors import PlanError
from hpckit.kernels.nn.paged.pages import PAGE
from hpckit.plan.protocol import NOTHING, Claim, Step
from hpckit.serving.plan.builders import MessageBuilder, WorkBuilder
from hpckit.serving.plan.contents import PLAN, ROWS, Contents
from hpckit.serving.plan.places import Places
from hpckit.serving.plan.program import ANSWER, ARRAYS, ATTEND, EMBED, LOWER, PROJECT, RAISE, Computation, program
from hpckit.serving.step import ServingStep as Pieces


@dataclass(frozen=True, eq=False)
class ServingPlan:
    """A step of serving on all ranks.

    layers: of each stage. step: the texts' pieces. widths: numbers of a row in the arrays mixed, branch, hidden and
    logits, for the bytes of messages. seconds: what an action takes on a rank of a replica with these pieces, for
    prices: `seconds(does, pieces)`; without it computations take no time.

    `prove` finds a block that two texts write, or that one writes and another reads, a column that a rank reads before
    it is there, rows that come from another stage or replica, logits that rank 0 does not get. What the blocks hold
    from the steps before is for `hpckit.serving.StepReplay`.
    """

    places: Places
    layers: tuple[int, ...]
    step: Pieces
    widths: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(ARRAYS, 1))
    seconds: Any = None

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.places.ranks

    def title(self) -> str:
        """What it is, in a few words."""
        told, it = f"{self.step.rows} tokens of {len(self.step.pieces)} texts", self.places
        return f"a serving step of {told} on {it.stages} x {it.replicas} x {it.columns} ranks (pp x dp x tp)"

    def steps(self) -> Iterator[Step]:
        """The plan to all ranks; stage by stage its actions, each with what it shows; what all of a stage see."""
        it = self.places
        if it.stages > 1:
            yield self._told([(0, leader) for leader in it.leaders], "messages", "tells the stages")
        if it.of_stage > 1:
            hearers = [(lead, lead + n) for lead in [0, *it.leaders] for n in range(1, it.of_stage)]
            yield self._told(hearers, "memory", "tells its stage")
        for stage in range(it.stages):
            if stage:
                yield from self._carried(stage)
            for number, action in enumerate(self._program(stage)):
                yield self._acted(stage, number, action)
        if (last := self._met()) is not None:
            yield last

    def claim(self) -> Claim:
        """All hear the plan; each stage's ranks hold the keys and values of all tokens, and rank 0 has all answers.

        Raises `PlanError` for pieces that no step can have.
        """
        it = self.places
        for piece in self.step.pieces:
            if not 0 <= piece.replica < it.replicas or len(piece.blocks) != -(-piece.end // PAGE) or not piece.tokens:
                raise PlanError(
                    f"{self.title()}: the piece of text {piece.text} is of replica {piece.replica}, with "
                    f"{len(piece.blocks)} blocks for {piece.end} tokens"
                )
        contents = self._contents
        start = np.full((self.ranks, contents.count), NOTHING)
        end, fixed = start.copy(), np.zeros(start.shape, bool)
        start[0, PLAN] = end[:, PLAN] = contents.the_plan()
        for rank in range(self.ranks):
            stage, _, column = it.place(rank)
            for layer, piece in product(range(self.layers[stage]), self.step.pieces):
                for n, block in enumerate(piece.blocks):
                    cell, before = contents.block_cell(layer, block), contents.before(stage, layer, column, block, rank)
                    if n * PAGE < piece.start:
                        start[rank, cell] = before
                    if (n + 1) * PAGE <= piece.start:
                        end[rank, cell], fixed[rank, cell] = before, True
                    else:
                        end[rank, cell] = contents.after(stage, layer, column, block, piece.text)
        for replica in self._busy:
            if any(piece.answers for piece in self._own[replica]):
                for column in range(it.columns):
                    cell = contents.column_cell("logits", replica, column)
                    end[0, cell] = contents.columns(it.stages - 1, replica, column, ANSWER, 0)
        node = np.arange(self.ranks) // it.of_stage
        return Claim(start, end, fixed=fixed, node=node, cell_name=contents.cell_name, index_name=contents.index_name)

    @cached_property
    def _contents(self) -> Contents:
        blocks = (block for piece in self.step.pieces for block in piece.blocks)
        return Contents(self.places, max(self.layers), blocks)

    # -- the actions of a stage

    def _program(self, stage: int) -> tuple[Computation, ...]:
        return program(stage, self.places.stages, self.layers[stage])

    @cached_property
    def _own(self) -> list[list[Any]]:
        """The pieces of each replica."""
        return [[one for one in self.step.pieces if one.replica == replica] for replica in range(self.places.replicas)]

    @cached_property
    def _busy(self) -> list[int]:
        return [replica for replica, pieces in enumerate(self._own) if pieces]

    def _acted(self, stage: int, number: int, action: Computation) -> Step:
        """An action of all busy ranks of a stage, and their columns in the shared memory of their replica."""
        it, work, shown = self.places, WorkBuilder(), MessageBuilder()
        for replica in self._busy:
            pieces = self._own[replica]
            answers = sum(piece.answers for piece in pieces)
            if action.does == ANSWER and not answers:
                continue
            rows = sum(len(piece.tokens) for piece in pieces)
            took = 0.0 if self.seconds is None else self.seconds(action.does, pieces)
            for column in range(it.columns):
                rank = it.rank(stage, replica, column)
                reads = self._needed(stage, number, action, replica, column, pieces)
                writes = self._made(stage, number, action, replica, column, pieces)
                work.add(rank, took, reads, writes, f"{action.does} {self._layer(stage, action)}".strip())
                if action.shows:
                    cell = self._contents.column_cell(action.shows, 0, column)
                    nbytes = 4 * rows * self.widths[action.shows] / it.columns
                    for other in range(it.columns):
                        if other != column:
                            shown.add(rank, it.rank(stage, replica, other), [cell], [cell], nbytes, action.shows)
        where = f"on stage {stage}" if it.stages > 1 else ""
        name = " ".join(filter(None, [action.does, self._layer(stage, action), where]))
        return shown.step(name, work=work.made())

    def _needed(self, stage: int, number: int, action: Computation, replica: int, column: int, pieces: Any) -> list:
        """Cells that an action reads, and what must be in them."""
        if action.does == EMBED:
            return [(PLAN, self._contents.the_plan())]
        before = self._program(stage)[number - 1] if number else None
        found = [] if action.does in (PROJECT, LOWER) else [(ROWS, self._rows(stage, number - 1, replica))]
        if before is not None and before.shows:
            for other in range(self.places.columns):
                index = self._contents.columns(stage, replica, other, before.does, before.block)
                found.append((self._contents.column_cell(before.shows, 0, other), index))
        if action.does == ATTEND:
            found.append((PLAN, self._contents.the_plan()))
            rank = self.places.rank(stage, replica, column)
            for piece in pieces:
                for n, block in enumerate(piece.blocks):
                    if n * PAGE < piece.start:
                        index = self._contents.before(stage, action.block, column, block, rank)
                        found.append((self._contents.block_cell(action.block, block), index))
        return found

    def _made(self, stage: int, number: int, action: Computation, replica: int, column: int, pieces: Any) -> list:
        """Cells that an action writes, and what is in them then."""
        if action.does == EMBED:
            return [(ROWS, self._rows(stage, number, replica))]
        whole = replica if action.does == ANSWER else 0
        index = self._contents.columns(stage, replica, column, action.does, action.block)
        found = [(self._contents.column_cell(action.shows or "logits", whole, column), index)]
        if action.does in (ATTEND, RAISE):  # which first add the branch before them
            found.append((ROWS, self._rows(stage, number, replica)))
        if action.does == ATTEND:
            for piece in pieces:
                for block in piece.blocks[piece.start // PAGE :]:
                    kept = self._contents.after(stage, action.block, column, block, piece.text)
                    found.append((self._contents.block_cell(action.block, block), kept))
        return found

    def _rows(self, stage: int, number: int, replica: int) -> int:
        """The rows of a replica after some actions of a stage: they change where a branch has been added."""
        adds = (EMBED, ATTEND, RAISE)
        done = [at for at, action in enumerate(self._program(stage)) if at <= number and action.does in adds]
        return self._contents.rows(stage, replica, done[-1] if done else -1)

    # -- messages

    def _told(self, pairs: list[tuple[int, int]], place: Any, name: str) -> Step:
        sent = MessageBuilder()
        for sender, receiver in pairs:
            sent.add(sender, receiver, [PLAN], [PLAN], float(self.step.words().nbytes), "plan")
        return sent.step(name, place)

    def _carried(self, stage: int) -> Iterator[Step]:
        """The rows of each replica from the stage before: added up there, sent once, and seen by all of the replica."""
        it, before, sent, seen, work = self.places, stage - 1, MessageBuilder(), MessageBuilder(), WorkBuilder()
        last = len(self._program(before))
        for replica in self._busy:
            nbytes = 4.0 * sum(len(piece.tokens) for piece in self._own[replica]) * self.widths["branch"]
            giver, taker = it.rank(before, replica), it.rank(stage, replica)
            rows = self._contents.rows(stage, replica, -1)
            work.add(giver, 0.0, self._needed(before, last, Computation(RAISE), replica, 0, []), [(ROWS, rows)], "adds")
            sent.add(giver, taker, [ROWS], [ROWS], nbytes, "rows")
            for column in range(1, it.columns):
                seen.add(taker, it.rank(stage, replica, column), [ROWS], [ROWS], nbytes, "rows")
        yield sent.step(f"rows to stage {stage}", "messages", work.made())
        if it.columns > 1:
            yield seen.step(f"rows seen on stage {stage}")

    def _met(self) -> Step | None:
        """All of a stage wait for each other: what one replica wrote to blocks is there for all, and rank 0 has the
        answers.
        """
        it, sent = self.places, MessageBuilder()
        for rank in range(self.ranks):
            stage, replica, column = it.place(rank)
            kept = [
                self._contents.block_cell(layer, block)
                for layer in range(self.layers[stage])
                for piece in self._own[replica]
                for block in piece.blocks[piece.start // PAGE :]
            ]
            for twin in range(it.replicas):
                if twin != replica and kept:
                    sent.add(rank, it.rank(stage, twin, column), kept, kept, 0.0, "blocks")  # they are one memory
            answers = sum(piece.answers for piece in self._own[replica])
            if rank and stage == it.stages - 1 and answers:
                cell = self._contents.column_cell("logits", replica, column)
                sent.add(rank, 0, [cell], [cell], 4.0 * answers * self.widths["logits"] / it.columns, "logits")
        return None if sent.empty else sent.step("all of a stage meet")

    def _layer(self, stage: int, action: Computation) -> str:
        """The number of an action's layer in the model."""
        return "" if action.does in (EMBED, ANSWER) else str(sum(self.layers[:stage]) + action.block)
