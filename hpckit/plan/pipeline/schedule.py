"""A pipeline schedule as a value: which stage computes what for which microbatch, in which order on every rank.

A network is cut into stages, a batch into microbatches. Of every microbatch a stage computes F (forward), then B (the
whole backward pass), or its halves I (gradient of the input, which the stage before waits for) and W (gradient of the
weights, for which nobody waits: Qi et al., Zero bubble pipeline parallelism, 2024, arXiv:2401.10241). A schedule holds
compute actions only; messages and reductions are added by the passes of `program.py`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpckit.errors import InputError, PlanError

COMPUTE = ("F", "B", "I", "W")
SENDS = ("SEND_F", "SEND_I", "SEND_T")
RECEIVES = ("RECV_F", "RECV_I", "RECV_T")
ENDINGS = ("TIE", "REDUCE")
NONE = -1
# How many ranks that wait for each other a message names.
MOST_NAMED = 4
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
                f"{text!r} is no action", do="write stage, kind (F, B, I or W) and microbatch, as in 2F0 or 0W13"
            )
        action = cls(int(found[1]), found[2], int(found[3] or NONE), int(found[4] or NONE))
        if str(action) != text.strip():
            raise InputError(f"{text!r} is no action", do=f"did you mean {action}?")
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
class Schedule:
    """The compute actions of one training step, in order on every rank.

    microbatches: how many. rank_of: the rank of each stage. actions: for each rank what it does, one after the other.
    """

    name: str
    microbatches: int
    rank_of: tuple[int, ...]
    actions: tuple[tuple[Action, ...], ...]

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.actions)

    @property
    def stages(self) -> int:
        """How many stages, on all ranks together."""
        return len(self.rank_of)

    @property
    def chunks(self) -> int:
        """The most stages that a rank holds."""
        return max(map(self.rank_of.count, range(self.ranks)), default=0)

    def __str__(self) -> str:
        lines = [f"rank {rank}: {' '.join(map(str, actions))}" for rank, actions in enumerate(self.actions)]
        return "\n".join([self.title(), *lines])

    def title(self) -> str:
        """What it is, in a few words."""
        held = "" if self.chunks == 1 else f", {self.stages} stages"
        return f"{self.name}: {_counted(self.ranks, 'rank')}{held}, {_counted(self.microbatches, 'microbatch')}"

    def needs(self, action: Action) -> list[Action]:
        """What must be there before a compute action."""
        stage, kind, number, _ = action
        if kind == "F":
            return [Action(stage - 1, "F", number)] if stage else []
        if kind == "W":
            return [Action(stage, "I", number)]
        later = [Action(stage + 1, "I", number)] if stage + 1 < self.stages else []
        return [Action(stage, "F", number), *later]

    def in_order(self) -> Iterator[tuple[int, Action]]:
        """All actions with their ranks, each after what it needs; raises `PlanError` where ranks wait for ever."""
        return in_order(self.actions, self.needs, self.title())


def in_order(
    lists: Sequence[Sequence[Action]], needs: Callable[[Action], list[Action]], title: str
) -> Iterator[tuple[int, Action]]:
    """Each list's actions in its order, each after what it needs, with the number of the list.

    Raises `PlanError` with the actions that wait for each other, or for what nobody does, once nothing can go on.
    """
    there: set[Action] = set()
    place = [0] * len(lists)
    waiting: dict[Action, list[int]] = {}
    ready = deque(range(len(lists)))
    while ready:
        rank = ready.popleft()
        while place[rank] < len(lists[rank]):
            action = lists[rank][place[rank]]
            missing = next((need for need in needs(action) if need not in there), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(rank)
                break
            yield rank, action
            place[rank] += 1
            for made in action.makes():
                there.add(made)
                ready.extend(waiting.pop(made, ()))
    if waiting:
        raise _stuck(lists, place, waiting, title)


def _stuck(
    lists: Sequence[Sequence[Action]], place: list[int], waiting: dict[Action, list[int]], title: str
) -> PlanError:
    """Who waits for what, and where that is: behind what another rank, or the same one, waits for."""
    home = {made: (rank, at) for rank, own in enumerate(lists) for at, act in enumerate(own) for made in act.makes()}
    said = []
    for missing, ranks in waiting.items():
        for rank in ranks:
            action, (other, at) = lists[rank][place[rank]], home.get(missing, (NONE, 0))
            if other == NONE:
                where = "which no rank does"
            elif other == rank:
                where = "which comes later on the same rank"
            else:
                where = f"which rank {other} has {at - place[other]} actions behind {lists[other][place[other]]}"
            said.append((other != rank, rank, f"rank {rank} waits in {action} for {missing}, {where}"))
    more = f" (and {len(said) - MOST_NAMED} ranks more)" if len(said) > MOST_NAMED else ""
    first = [text for *_, text in sorted(said)[:MOST_NAMED]]
    return PlanError(f"{title}: deadlock: " + "; ".join(first) + more)


def peak_live(schedule: Schedule) -> list[int]:
    """For each rank the most microbatches that it holds at once, summed over its stages: from F until W (or B)."""
    peaks = []
    for actions in schedule.actions:
        live = peak = 0
        for action in actions:
            live += (action.kind == "F") - (action.kind in "BW")
            peak = max(peak, live)
        peaks.append(peak)
    return peaks


def _counted(count: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{count} {noun if count == 1 else plural}"
