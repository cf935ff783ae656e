"""A pipeline schedule as a value: the compute actions of the stages for each microbatch, in order on every rank.

A network is cut into stages, a batch into microbatches. Of every microbatch a stage computes F (forward), then B (the
whole backward pass), or its halves I (gradient of the input, which the stage before waits for) and W (gradient of the
weights, for which no stage waits: Qi et al., Zero bubble pipeline parallelism, 2024, arXiv:2401.10241). A schedule
holds only compute actions; the passes of `program.py` add messages and reductions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hpckit.errors import PlanError
from hpckit.plan.pipeline.steps import COMPUTE, MADE, NONE, Action, Cell, StagePlaces, rounds
from hpckit.plan.protocol import Claim, Step

# How many ranks that wait for each other a message names, and how many faults; the others are counted.
MOST_NAMED = 4
MOST_FAULTS = 8
UNITS = {"F": 1.0, "I": 1.0, "W": 1.0, "B": 2.0}


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

    def steps(self) -> Iterator[Step]:
        """The steps of a plan, see `hpckit.plan.pipeline.steps`: each of F, I and W takes one unit of time."""
        goes_to = receivers(self)
        lists: list[list[Action]] = []
        for rank, actions in enumerate(self.actions):
            lists.append([])
            for action in actions:
                stage, kind, number, _ = action
                for need in self.needs(action):
                    home = self.rank_of[need.stage]
                    if home != rank:
                        lists[rank].append(Action(stage, f"RECV_{need.kind}", number, home))
                peer = goes_to.get((stage, kind))
                lists[rank].append(action)
                if peer is not None:
                    lists[rank].append(Action(stage, "SEND_F" if kind == "F" else "SEND_I", number, peer))
        seconds = {(stage, kind): unit for stage in range(self.stages) for kind, unit in UNITS.items()}
        return rounds(self.cells(), lists, seconds, self.title(), ordered=False)

    def claim(self) -> Claim:
        """Every stage computes F, and B or I and W, of every microbatch once, on its rank, and all ranks end."""
        wrong = schedule_faults(self)
        if wrong:
            raise PlanError(f"{self.title()}: {first_of(wrong)}", do=_allowed(self))
        deque(self.in_order(), maxlen=0)
        return self.cells().claim(self.ranks, self.promised())

    def live(self) -> list[int]:
        """For each rank the most microbatches that it holds at once, summed over its stages: from F until W (or B)."""
        peaks = []
        for actions in self.actions:
            live = peak = 0
            for action in actions:
                live += (action.kind == "F") - (action.kind in "BW")
                peak = max(peak, live)
            peaks.append(peak)
        return peaks

    def cells(self, tied: bool = False) -> StagePlaces:
        """Where the data of the stages is."""
        return StagePlaces(self.rank_of, self.microbatches, tied)

    def promised(self) -> list[Cell]:
        """What must be made in the end."""
        return [(stage, kind, n) for stage in range(self.stages) for kind in MADE for n in range(self.microbatches)]

    def in_order(self) -> Iterator[tuple[int, Action]]:
        """All actions with their ranks, each after what it needs; raises `PlanError` where ranks wait for ever."""
        return in_order(self.actions, self.needs, self.title())


def in_order(
    lists: Sequence[Sequence[Action]], needs: Callable[[Action], list[Action]], title: str
) -> Iterator[tuple[int, Action]]:
    """Each list's actions in its order, each after what it needs, with the number of the list.

    Raises `PlanError` with the actions that wait for each other, or for a missing action, when all are stuck.
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


def _counted(count: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{count} {noun if count == 1 else plural}"


def receivers(schedule: Schedule) -> dict[tuple[int, str], int]:
    """The rank that gets what a stage makes by a kind of action, where it is another one.

    Outputs (F) go to the next stage, gradients of inputs (I, B) to the one before.
    """
    found = {}
    for stage, rank in enumerate(schedule.rank_of):
        for kind, other in (("F", stage + 1), ("I", stage - 1), ("B", stage - 1)):
            if 0 <= other < schedule.stages and schedule.rank_of[other] != rank:
                found[stage, kind] = schedule.rank_of[other]
    return found


def schedule_faults(schedule: Schedule) -> list[str]:
    """What is missing, twice, or not where it belongs, a sentence each."""
    wrong = []
    for stage, rank in enumerate(schedule.rank_of):
        if not 0 <= rank < schedule.ranks:
            wrong.append(f"stage {stage} is on rank {rank}, there are {schedule.ranks} ranks")
    seen: Counter[Action] = Counter()
    for rank, actions in enumerate(schedule.actions):
        for action in actions:
            wrong += _misplaced(schedule, rank, action)
            seen[action] += 1
    for action, times in seen.items():
        if times > 1:
            wrong.append(f"stage {action.stage} does {action} {times} times")
    for stage in range(schedule.stages):
        for number in range(schedule.microbatches):
            kinds = "".join(kind for kind in COMPUTE if (Action(stage, kind, number)) in seen)
            if kinds not in ("FB", "FIW"):
                wrong.append(_incomplete(stage, number, kinds))
    return wrong


def _misplaced(schedule: Schedule, rank: int, action: Action) -> Iterator[str]:
    if action.kind not in COMPUTE or action.peer != NONE:
        yield f"rank {rank} does {action}, which is not F, B, I or W"
    elif not 0 <= action.stage < schedule.stages:
        yield f"rank {rank} does {action}, there are {schedule.stages} stages"
    elif not 0 <= action.microbatch < schedule.microbatches:
        yield f"rank {rank} does {action}, there are {schedule.microbatches} microbatches"
    elif schedule.rank_of[action.stage] != rank:
        yield f"rank {rank} does {action}, stage {action.stage} is on rank {schedule.rank_of[action.stage]}"


def _incomplete(stage: int, number: int, kinds: str) -> str:
    if "B" in kinds and ("I" in kinds or "W" in kinds):
        return f"stage {stage} does B of microbatch {number} and its half {'I' if 'I' in kinds else 'W'} again"
    missing = [kind for kind in "FIW" if kind not in kinds and not ("B" in kinds and kind in "IW")]
    if missing[-2:] == ["I", "W"]:
        missing[-2:] = ["B (or I and W)"]
    return f"stage {stage} never does {', '.join(missing)} of microbatch {number}"


def first_of(wrong: list[str]) -> str:
    """Some of what is wrong, as a sentence."""
    more = f"; and {len(wrong) - MOST_FAULTS} more" if len(wrong) > MOST_FAULTS else ""
    return "; ".join(wrong[:MOST_FAULTS]) + more


def _allowed(schedule: Schedule) -> str:
    last = schedule.microbatches - 1
    return f"let each stage do F, and B or both I and W, of every microbatch 0 to {last} once, on its rank"
