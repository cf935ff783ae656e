"""The lists of a pipeline's ranks as steps of a plan: the computations and messages of each round, for all ranks.

In a round every rank works off its list as far as possible, up to and including one computation; its messages leave
then and arrive by the next round. A rank's cells are the results of its stages and the data they receive, numbered by
`StagePlaces`.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpckit.errors import InputError, PlanError
from hpckit.plan.protocol import NOTHING, Claim, Ends, Ints, Step, Work

COMPUTE = ("F", "B", "I", "W")
SENDS = ("SEND_F", "SEND_I", "SEND_T")
RECEIVES = ("RECV_F", "RECV_I", "RECV_T")
ENDINGS = ("TIE", "REDUCE")
NONE = -1
MADE = ("F", "I", "W")  # for each microbatch
TAKEN = ("RECV_F", "RECV_I")
ONCE = ("T", "RECV_T", "TIE", "REDUCE")  # T: the gradient of a weight that two stages share
Cell = tuple[int, str, int]  # stage, kind, microbatch; -1 for what there is once


_TEXT = re.compile(rf"(\d+)({'|'.join((*COMPUTE, *SENDS, *RECEIVES, *ENDINGS))})(\d*)(?:[<>](\d+))?")


class Action(NamedTuple):
    """What a rank does for one of its stages; `str` and `parse` are inverse: `2F0`, `2B0>1`, `2SEND_F0>3`, `2REDUCE`.

    kind: one of COMPUTE; a message with the rank `peer`: an output (F), the gradient of an input (I), the gradient of
    a weight that two stages share (T); `TIE` adds those two; `REDUCE` sums the gradients of a stage over the replicas.
    microbatch: -1 where an action is for the whole step. peer: -1 for what sends and receives nothing; B in a program
    sends the gradient of its stage's input to that rank when it is there, before its last W.
    """

    stage: int
    kind: str
    microbatch: int = NONE
    peer: int = NONE

    def __str__(self) -> str:
        number = "" if self.microbatch == NONE else str(self.microbatch)
        peer = "" if self.peer == NONE else f"{'<' if self.kind in RECEIVES else '>'}{self.peer}"
        return f"{self.stage}{self.kind}{number}{peer}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """The action that `text` says. Raises `InputError`."""
        found = _TEXT.fullmatch(text.strip())
        wants_number = found is not None and found[2] not in (*ENDINGS, "SEND_T", "RECV_T")
        peers = () if found is None else (True,) if found[2] in (*SENDS, *RECEIVES) else (False, found[2] == "B")
        if found is None or bool(found[3]) != wants_number or (found[4] is not None) not in peers:
            raise InputError(
                f"{text!r} is not an action", do="write stage, kind (F, B, I or W) and microbatch, as in 2F0 or 0W13"
            )
        action = cls(int(found[1]), found[2], int(found[3] or NONE), int(found[4] or NONE))
        if str(action) != text.strip():
            raise InputError(f"{text!r} is not an action", do=f"did you mean {action}?")
        return action

    @property
    def sends(self) -> Action | None:
        """The message that leaves: the action itself, or the gradient that B sends on its way."""
        if self.kind == "B" and self.peer != NONE:
            return self._replace(kind="SEND_I")
        return self if self.kind in SENDS else None

    def makes(self) -> tuple[Action, ...]:
        """What is there after the action, as the actions that others wait for: B makes what I and W make."""
        if self.kind == "B":
            halves = (Action(self.stage, "I", self.microbatch), Action(self.stage, "W", self.microbatch))
            return halves if self.sends is None else (*halves, self.sends)
        return (self,)


@dataclass(frozen=True)
class StagePlaces:
    """Where the data of stages is. rank_of: the rank of each stage; tied: the first and the last share a weight."""

    rank_of: tuple[int, ...]
    microbatches: int
    tied: bool = False

    @cached_property
    def width(self) -> int:
        """Cells of a stage."""
        return (len(MADE) + len(TAKEN)) * self.microbatches + len(ONCE)

    @cached_property
    def _offset(self) -> dict[str, int]:
        offsets = {kind: place * self.microbatches for place, kind in enumerate((*MADE, *TAKEN))}
        return offsets | {kind: self.width - len(ONCE) + place for place, kind in enumerate(ONCE)}

    def index(self, cell: Cell) -> int:
        """The global index of what a stage makes."""
        stage, kind, number = cell
        return stage * self.width + self._offset[kind] + max(number, 0)

    def place(self, cell: Cell) -> int:
        """Its number on its rank, whose stages stand one after the other."""
        return self.index((self._held[cell[0]], cell[1], cell[2]))

    @cached_property
    def _held(self) -> list[int]:
        """Which of its rank's stages each is."""
        return [self.rank_of[:stage].count(rank) for stage, rank in enumerate(self.rank_of)]

    def name(self, index: int) -> str:
        """What an index is."""
        stage, at = divmod(index, self.width)
        kind, number = divmod(at, self.microbatches)
        if kind < len(MADE) + len(TAKEN):
            return f"{stage}{(*MADE, *TAKEN)[kind]}{number}"
        return f"{stage}{ONCE[at - self.width + len(ONCE)]}"

    def needs(self, action: Action) -> list[tuple[Cell, Cell]]:
        """What an action needs: the cell where it must be, and what it must be."""
        stage, kind, number, _ = action
        last = len(self.rank_of) - 1
        if kind == "F":
            return [self._from(stage, stage - 1, "F", number)] if stage else []
        if kind in ("I", "B"):
            own = (stage, "F", number)
            return [(own, own)] + ([self._from(stage, stage + 1, "I", number)] if stage < last else [])
        if kind == "W":
            return [((stage, "I", number),) * 2]
        if kind == "REDUCE" and self.tied and stage in (0, last):
            return [((stage, "TIE", -1),) * 2]
        every = [((stage, "W", n),) * 2 for n in range(self.microbatches)]
        if kind != "TIE":
            return every
        other = last - stage
        if self.rank_of[other] == self.rank_of[stage]:
            return every + [((other, "W", n),) * 2 for n in range(self.microbatches)]
        return [*every, ((stage, "RECV_T", -1), (other, "T", -1))]

    def _from(self, stage: int, other: int, kind: str, number: int) -> tuple[Cell, Cell]:
        made = (other, kind, number)
        return (made if self.rank_of[other] == self.rank_of[stage] else (stage, f"RECV_{kind}", number)), made

    @staticmethod
    def makes(action: Action) -> list[Cell]:
        """What an action leaves."""
        stage, kind, number, _ = action
        kinds = {"B": ("I", "W"), "SEND_T": ("T",)}.get(kind, (kind,))
        return [(stage, each, -1 if each in ONCE else number) for each in kinds]

    def claim(self, ranks: int, promised: Sequence[Cell]) -> Claim:
        """Every promised cell is made, on the rank of its stage; nothing is there before."""
        most = max(map(self.rank_of.count, range(ranks)), default=0)
        start = np.full((ranks, most * self.width), NOTHING)
        end = start.copy()
        for cell in promised:
            end[self.rank_of[cell[0]], self.place(cell)] = self.index(cell)
        return Claim(start, end, index_name=self.name)


def rounds(
    cells: StagePlaces,
    lists: Sequence[Sequence[Action]],
    seconds: Mapping[tuple[int, str], float],
    title: str,
    ordered: bool = True,
    paired: Collection[tuple[int, int]] = (),
) -> Iterator[Step]:
    """The steps of lists of actions with their messages. seconds: of a stage and a kind of action, where it takes any.
    ordered: the messages between two ranks meet in their order, else each the one that takes it. paired: ranks and
    places of computations that are done in one round with the rank's next one, which needs nothing of them.

    Raises `PlanError` if ranks wait for ever, and for messages without a receive.
    """
    at = [0] * len(lists)
    there: list[set[Cell]] = [set() for _ in lists]
    sent: dict[tuple[int, int, Cell | None], deque[Cell]] = defaultdict(deque)
    posted: dict[tuple[int, int, Cell | None], deque[Cell]] = defaultdict(deque)
    while any(place < len(actions) for place, actions in zip(at, lists, strict=True)):
        before = list(at)
        done: list[tuple[int, Action]] = []
        for rank, actions in enumerate(lists):
            computed = second = False  # second: that of a pair is still to be done
            while at[rank] < len(actions):
                action = actions[at[rank]]
                stage, kind, number, peer = action
                if kind.startswith("RECV"):
                    made = (stage + (1 if kind == "RECV_I" else -1), kind[-1], number)
                    posted[peer, rank, None if ordered else made].append((stage, kind, number))
                elif kind in ("SEND_F", "SEND_I"):
                    made = (stage, kind[-1], number)
                    if made not in there[rank]:
                        break
                    sent[rank, peer, None if ordered else made].append(made)
                else:
                    some = [action]
                    if (rank, at[rank]) in paired:
                        some.append(next(it for it in actions[at[rank] + 1 :] if it.kind in COMPUTE))
                    if computed != second or any(cell not in there[rank] for it in some for cell, _ in cells.needs(it)):
                        break
                    computed, second = True, len(some) > 1
                    done.append((rank, action))
                    there[rank].update(cells.makes(action))
                    if action.sends is not None:
                        made = (stage, "T", -1) if kind == "SEND_T" else (stage, "I", number)
                        sent[rank, peer, None if ordered else made].append(made)
                at[rank] += 1
        flying = []
        for way in [way for way, waiting in sent.items() if waiting]:
            while sent[way] and posted[way]:
                flying.append((way[0], way[1], sent[way].popleft(), posted[way].popleft()))
            if not ordered and not sent[way]:
                del sent[way], posted[way]
        for _, receiver, _, into in flying:
            there[receiver].add(into)
        if at == before and not flying:
            raise PlanError(f"{title}: the ranks wait for each other")
        yield _step(cells, done, flying, seconds)
    for verb, back, left in (("sends", "receives", sent), ("receives", "sends", posted)):
        for (a, b, _), waiting in left.items():
            if waiting:
                rank, other = (a, b) if left is sent else (b, a)
                what = cells.name(cells.index(waiting[0]))
                raise PlanError(f"{title}: rank {rank} {verb} {what}, which rank {other} never {back}")


def _step(
    cells: StagePlaces,
    done: Sequence[tuple[int, Action]],
    flying: Sequence[tuple[int, int, Cell, Cell]],
    seconds: Mapping[tuple[int, str], float],
) -> Step:
    needs = [cells.needs(action) for _, action in done]
    makes = [cells.makes(action) for _, action in done]
    work = Work(
        rank=np.array([rank for rank, _ in done], np.int64),
        seconds=np.array([seconds.get((action.stage, action.kind), 0.0) for _, action in done]),
        reads=_table([[cells.place(cell) for cell, _ in each] for each in needs]),
        needs=_table([[cells.index(made) for _, made in each] for each in needs]),
        writes=_table([[cells.place(cell) for cell in each] for each in makes]),
        makes=_table([[cells.index(cell) for cell in each] for each in makes]),
        names=[str(action) for _, action in done],
    )
    sender, receiver = (np.array([each[end] for each in flying], np.int64) for end in (0, 1))
    out = np.array([cells.place(each[2]) for each in flying], np.int64)
    into = np.array([cells.place(each[3]) for each in flying], np.int64)
    return Step(
        Ends(receiver, out, out + 1, rank=sender),
        Ends(sender, into, into + 1, rank=receiver),
        parts=1,
        work=work,
        texts=lambda: [cells.name(cells.index(each[2])) for each in flying],
    )


def _table(rows: Sequence[Sequence[int]]) -> Ints:
    """Rows of unequal lengths as one array, filled up with NOTHING."""
    longest = max(map(len, rows), default=0)
    return np.array([[*row, *[NOTHING] * (longest - len(row))] for row in rows], np.int64).reshape(len(rows), longest)
