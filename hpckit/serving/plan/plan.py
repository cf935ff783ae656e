"""A step of serving as a plan of all ranks: what each computes, whose columns it waits for, and what it sends.

`program` is the list that a rank of a stage walks through, the same for every step; `ServingPlan` is that list on all
ranks with the texts and blocks of one step, so that `prove`, `price` and `draw` see what `ServedModel` runs. A rank
writes its columns of an array that its replica shares, and all of the replica wait before they read it: a step in
shared memory. Rows, and the plan itself, go from stage to stage as messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from hpckit.errors import InputError, PlanError
from hpckit.kernels.nn.paged.pages import PAGE
from hpckit.plan.protocol import NOTHING, Claim, Ends, Ints, Step, Work
from hpckit.serving.step import ServingStep as Pieces

EMBED, ATTEND, PROJECT, RAISE, LOWER, ANSWER = "embed", "attend", "project", "raise", "lower", "answer"
SHOWN = {ATTEND: "mixed", PROJECT: "branch", RAISE: "hidden", LOWER: "branch"}  # the array that an action writes to
ARRAYS = "mixed", "branch", "hidden", "logits"
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Places:
    """Where the ranks stand: `stages` of consecutive layers, of `replicas` that take texts of their own, of `columns`
    ranks that split every weight. Rank 0 is on the last stage, which has the logits.

    Raises `InputError` for numbers that do not make `ranks`.
    """

    ranks: int = 1
    stages: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.stages < 1 or self.ranks % self.stages:
            raise InputError(
                f"{self.ranks} rank(s) are not {self.stages} equal stages",
                do=f"give {_divisors(self.ranks)} stages, or the same number of ranks on each node",
            )
        if self.replicas < 1 or self.of_stage % self.replicas:
            of = " of a stage" if self.stages > 1 else ""
            raise InputError(
                f"{self.of_stage} rank(s){of} are not {self.replicas} equal replicas",
                do=f"give {_divisors(self.of_stage)} replicas, or a number of ranks (-n) that is a multiple of"
                f" {self.stages * max(1, self.replicas)}",
            )

    @property
    def of_stage(self) -> int:
        """Ranks of a stage."""
        return self.ranks // self.stages

    @property
    def columns(self) -> int:
        """Ranks of a replica on a stage."""
        return self.of_stage // self.replicas

    def place(self, rank: int) -> tuple[int, int, int]:
        """Stage, replica and column of a rank."""
        group, own = divmod(rank, self.of_stage)
        return (group - 1) % self.stages, *divmod(own, self.columns)

    def rank(self, stage: int, replica: int = 0, column: int = 0) -> int:
        """The rank at a place."""
        return (stage + 1) % self.stages * self.of_stage + replica * self.columns + column

    @property
    def leaders(self) -> list[int]:
        """The ranks that hear the plan from rank 0 for their stages, in their order."""
        return [group * self.of_stage for group in range(1, self.stages)]


class Computation(NamedTuple):
    """What a rank computes next, in layer `block` of its stage, and the array whose columns it shows to its replica
    before it goes on; "" for none.
    """

    does: str
    block: int = 0
    shows: str = ""


@cache
def program(stage: int, stages: int, layers: int) -> tuple[Computation, ...]:
    """What every rank of a stage with so many layers does in a step, between the rows that come and those that leave.

    After an array "branch" the rows are those before it plus the branch.
    """
    begin = [] if stage else [Computation(EMBED)]
    blocks = [Computation(does, block, shows) for block in range(layers) for does, shows in SHOWN.items()]
    return (*begin, *blocks, *([Computation(ANSWER)] if stage == stages - 1 else []))


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
        start = np.full((self.ranks, self._cells), NOTHING)
        end, fixed = start.copy(), np.zeros(start.shape, bool)
        start[0, 0] = end[:, 0] = self._index("the plan")
        for rank in range(self.ranks):
            stage, _, column = it.place(rank)
            for layer in range(self.layers[stage]):
                for piece in self.step.pieces:
                    for n, block in enumerate(piece.blocks):
                        cell = self._kept(layer, block)
                        before = self._index("keys and values before", stage, layer, column, block, rank)
                        if n * PAGE < piece.start:
                            start[rank, cell] = before
                        if (n + 1) * PAGE <= piece.start:
                            end[rank, cell], fixed[rank, cell] = before, True
                        else:
                            end[rank, cell] = self._after(stage, layer, column, piece.text, block)
        for replica in self._busy:
            if any(piece.answers for piece in self._own[replica]):
                for column in range(it.columns):
                    cell = self._cell("logits", replica, column)
                    end[0, cell] = self._index("columns", it.stages - 1, replica, column, ANSWER, 0)
        node = np.arange(self.ranks) // it.of_stage
        return Claim(start, end, fixed=fixed, node=node, cell_name=self._cell_name, index_name=self._name)

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
        it, work, shown = self.places, _Works(), _Sent()
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
                    cell = self._cell(action.shows, 0, column)
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
            return [(0, self._index("the plan"))]
        before = self._program(stage)[number - 1] if number else None
        found = [] if action.does in (PROJECT, LOWER) else [(1, self._rows(stage, number - 1, replica))]
        if before is not None and before.shows:
            for other in range(self.places.columns):
                index = self._index("columns", stage, replica, other, before.does, before.block)
                found.append((self._cell(before.shows, 0, other), index))
        if action.does == ATTEND:
            found.append((0, self._index("the plan")))
            rank = self.places.rank(stage, replica, column)
            for piece in pieces:
                for n, block in enumerate(piece.blocks):
                    if n * PAGE < piece.start:
                        index = self._index("keys and values before", stage, action.block, column, block, rank)
                        found.append((self._kept(action.block, block), index))
        return found

    def _made(self, stage: int, number: int, action: Computation, replica: int, column: int, pieces: Any) -> list:
        """Cells that an action writes, and what is in them then."""
        if action.does == EMBED:
            return [(1, self._rows(stage, number, replica))]
        whole = replica if action.does == ANSWER else 0
        index = self._index("columns", stage, replica, column, action.does, action.block)
        found = [(self._cell(action.shows or "logits", whole, column), index)]
        if action.does in (ATTEND, RAISE):  # which first add the branch before them
            found.append((1, self._rows(stage, number, replica)))
        if action.does == ATTEND:
            for piece in pieces:
                for block in piece.blocks[piece.start // PAGE :]:
                    kept = self._after(stage, action.block, column, piece.text, block)
                    found.append((self._kept(action.block, block), kept))
        return found

    def _rows(self, stage: int, number: int, replica: int) -> int:
        """The rows of a replica after some actions of a stage: they change where a branch has been added."""
        adds = (EMBED, ATTEND, RAISE)
        done = [at for at, action in enumerate(self._program(stage)) if at <= number and action.does in adds]
        return self._index("the rows", stage, replica, done[-1] if done else -1)

    # -- messages

    def _told(self, pairs: list[tuple[int, int]], place: Any, name: str) -> Step:
        sent = _Sent()
        for sender, receiver in pairs:
            sent.add(sender, receiver, [0], [0], float(self.step.words().nbytes), "plan")
        return sent.step(name, place)

    def _carried(self, stage: int) -> Iterator[Step]:
        """The rows of each replica from the stage before: added up there, sent once, and seen by all of the replica."""
        it, before, sent, seen, work = self.places, stage - 1, _Sent(), _Sent(), _Works()
        last = len(self._program(before))
        for replica in self._busy:
            nbytes = 4.0 * sum(len(piece.tokens) for piece in self._own[replica]) * self.widths["branch"]
            giver, taker = it.rank(before, replica), it.rank(stage, replica)
            rows = self._index("the rows", stage, replica, -1)
            work.add(giver, 0.0, self._needed(before, last, Computation(RAISE), replica, 0, []), [(1, rows)], "adds")
            sent.add(giver, taker, [1], [1], nbytes, "rows")
            for column in range(1, it.columns):
                seen.add(taker, it.rank(stage, replica, column), [1], [1], nbytes, "rows")
        yield sent.step(f"rows to stage {stage}", "messages", work.made())
        if it.columns > 1:
            yield seen.step(f"rows seen on stage {stage}")

    def _met(self) -> Step | None:
        """All of a stage wait for each other: what one replica wrote to blocks is there for all, and rank 0 has the
        answers.
        """
        it, sent = self.places, _Sent()
        for rank in range(self.ranks):
            stage, replica, column = it.place(rank)
            kept = [
                self._kept(layer, block)
                for layer in range(self.layers[stage])
                for piece in self._own[replica]
                for block in piece.blocks[piece.start // PAGE :]
            ]
            for twin in range(it.replicas):
                if twin != replica and kept:
                    sent.add(rank, it.rank(stage, twin, column), kept, kept, 0.0, "blocks")  # they are one memory
            answers = sum(piece.answers for piece in self._own[replica])
            if rank and stage == it.stages - 1 and answers:
                cell = self._cell("logits", replica, column)
                sent.add(rank, 0, [cell], [cell], 4.0 * answers * self.widths["logits"] / it.columns, "logits")
        return None if sent.empty else sent.step("all of a stage meet")

    # -- cells of a rank: the plan, rows, columns of the arrays, those of logits of every replica, blocks

    def _cell(self, array: str, replica: int, column: int) -> int:
        return 2 + (ARRAYS.index(array) + replica) * self.places.columns + column

    @cached_property
    def _block(self) -> dict[int, int]:
        """The blocks of the step, numbered."""
        return {block: n for n, block in enumerate(sorted({b for one in self.step.pieces for b in one.blocks}))}

    @cached_property
    def _first(self) -> int:
        return self._cell("logits", self.places.replicas - 1, self.places.columns - 1) + 1

    @property
    def _cells(self) -> int:
        return self._first + max(self.layers) * len(self._block)

    def _kept(self, layer: int, block: int) -> int:
        return self._first + layer * len(self._block) + self._block[block]

    @cached_property
    def _numbers(self) -> dict[Key, int]:
        return {}

    def _index(self, *key: Any) -> int:
        """The number of a content: the first one that asks for it gives it."""
        return self._numbers.setdefault(key, len(self._numbers))

    def _after(self, stage: int, layer: int, column: int, text: int, block: int) -> int:
        return self._index("keys and values after", stage, layer, column, block, text)

    def _name(self, index: int) -> str:
        what, *where = list(self._numbers)[index]
        names = {
            "columns": "stage {}, replica {}, column {}: {} {}",
            "the rows": "stage {}, replica {}, after action {}",
            "keys and values before": "stage {}, layer {}, column {}, block {}",
            "keys and values after": "stage {}, layer {}, column {}, block {}, of text {}",
        }
        return f"{what} ({names[what].format(*where)})" if where else what

    def _cell_name(self, rank: int, cell: int) -> str:
        if cell < 2:
            return ("the plan", "its rows")[cell]
        if cell >= self._first:
            layer, number = divmod(cell - self._first, len(self._block))
            return f"block {list(self._block)[number]} of layer {layer}"
        array, column = divmod(cell - 2, self.places.columns)
        told = f" of replica {array - 3}" if array >= 3 else ""
        return f"column {column} of {ARRAYS[min(array, 3)]}{told}"

    def _layer(self, stage: int, action: Computation) -> str:
        """The number of an action's layer in the model."""
        return "" if action.does in (EMBED, ANSWER) else str(sum(self.layers[:stage]) + action.block)


class _Works:
    """Computations of a step while they are collected."""

    def __init__(self) -> None:
        self._all: list[tuple[int, float, list, list, str]] = []

    def add(self, rank: int, seconds: float, reads: list, writes: list, name: str) -> None:
        self._all.append((rank, seconds, reads, writes, name))

    def made(self) -> Work | None:
        if not self._all:
            return None
        ranks, seconds, reads, writes, names = zip(*self._all, strict=True)
        read, need = _tables(reads)
        write, make = _tables(writes)
        return Work(np.array(ranks), np.array(seconds, np.float64), read, need, write, make, list(names))


class _Sent:
    """Messages of a step while they are collected."""

    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._from: list[int] = []
        self._into: list[int] = []
        self._starts = [0]
        self._amounts: list[float] = []
        self._texts: list[str] = []

    @property
    def empty(self) -> bool:
        return not self._pairs

    def add(self, sender: int, receiver: int, cells: list[int], into: list[int], nbytes: float, text: str) -> None:
        self._texts.append(text)
        self._pairs.append((sender, receiver))
        self._from += cells
        self._into += into
        self._starts.append(len(self._from))
        self._amounts.append(nbytes)

    def step(self, name: str, place: Any = "memory", work: Work | None = None) -> Step:
        """The step of these messages and computations."""
        sends, receives = self._ends()
        texts = self._texts
        return Step(sends, receives, itemsize=1.0, place=place, work=work, name=name, texts=lambda: texts)

    def _ends(self) -> tuple[Ends, Ends]:
        sender, receiver = np.array(self._pairs, np.int64).reshape(-1, 2).T
        first, last = np.array(self._starts[:-1], np.int64), np.array(self._starts[1:], np.int64)
        amount, out, into = np.array(self._amounts), np.array(self._from, np.int64), np.array(self._into, np.int64)
        return (
            Ends(receiver, first, last, rank=sender, amount=amount, cells=out),
            Ends(sender, first, last, rank=receiver, amount=amount, cells=into),
        )


def _tables(rows: tuple[list, ...]) -> tuple[Ints, Ints]:
    """Cells and contents of some computations as tables, filled up with NOTHING."""
    width = max(map(len, rows))
    cells, contents = (np.full((len(rows), width), NOTHING) for _ in range(2))
    for at, row in enumerate(rows):
        if row:
            cells[at, : len(row)], contents[at, : len(row)] = zip(*row, strict=True)
    return np.maximum(cells, 0), contents


def _divisors(ranks: int) -> str:
    return " or ".join(str(n) for n in range(1, ranks + 1) if ranks % n == 0)
