"""A schedule made ready to run: each rank's actions with its messages, by passes over the compute actions.

A rank works its list off in one loop: RECV posts a receive and goes on, SEND starts a send and goes on, B starts one
from within (the stage before need not wait for the W behind it), a compute action first waits for the receive that it
needs. Between two ranks receives stand in the order of the sends.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from hpckit.errors import InputError
from hpckit.plan.pipeline.price import intervals, receivers
from hpckit.plan.pipeline.schedule import COMPUTE, Action, Schedule


@dataclass(frozen=True)
class Program:
    """What every rank does in a step, compute actions, messages and reductions in order.

    actions: for each rank; a message names its `peer`. tied: the first and the last stage share a weight, whose
    gradients are added (`TIE`). reduced: gradients are summed over the replicas (`REDUCE`).
    """

    schedule: Schedule
    actions: tuple[tuple[Action, ...], ...]
    tied: bool
    reduced: bool

    def __str__(self) -> str:
        lines = [f"rank {rank}: {' '.join(map(str, actions))}" for rank, actions in enumerate(self.actions)]
        return "\n".join([self.schedule.title(), *lines])

    def needs(self, action: Action) -> list[Action]:
        """What must be there before an action: data of this rank, and what has arrived from others."""
        schedule, (stage, kind, number, peer) = self.schedule, action
        if kind.startswith("RECV"):
            return []
        if kind in ("SEND_F", "SEND_I"):
            return [Action(stage, kind[-1], number)]
        if kind in ("SEND_T", "REDUCE", "TIE"):
            own = [Action(stage, "W", n) for n in range(schedule.microbatches)]
            if kind == "SEND_T" or not self.tied or stage not in (0, schedule.stages - 1):
                return own
            if kind == "REDUCE":
                return [Action(stage, "TIE")]
            other = schedule.stages - 1 - stage
            peer = schedule.rank_of[other]
            if peer == schedule.rank_of[stage]:
                return own + [Action(other, "W", n) for n in range(schedule.microbatches)]
            return [*own, *_arrival(schedule, other, stage, "T", -1)]
        there = []
        for need in schedule.needs(action):
            if schedule.rank_of[need.stage] == schedule.rank_of[stage]:
                there.append(need)
            else:
                there += _arrival(schedule, need.stage, stage, need.kind, number)
        return there


def pipeline_program(schedule: Schedule, reduce: bool = False, tied: bool = False) -> Program:
    """The schedule with its sends and receives, ready to run.

    tied: the first and the last stage hold copies of one weight (an embedding): after their last W each gets the
    other's gradient, and TIE adds the two in the order of the stages. reduce: REDUCE sums a stage's gradients over the
    replicas as soon as its last W is done, while the rank works on. Raises `PlanError` where the schedule itself waits
    for ever, and `InputError` for ties of a single stage.
    """
    if tied and schedule.stages == 1:
        raise InputError("a single stage has nothing to tie", do="leave out `tied`: the weight is there once")
    lists = _with_messages(schedule)
    if reduce:
        later = (0, schedule.stages - 1) if tied else ()
        lists = [_with_reductions(actions, schedule.microbatches, later) for actions in lists]
    if tied:
        lists = _with_ties(schedule, lists, reduce)
    return Program(schedule, tuple(map(tuple, lists)), tied, reduce)


def _with_messages(schedule: Schedule) -> list[list[Action]]:
    """Sends after F and I, which make what is sent, or within B; receives where they are posted in time.

    The receiver posts before the sender begins what it will send, by the clock of equal times: before the action that
    it is at itself at that moment, for behind it the message may be there, and would wait to be asked for. So receives
    stand in the order of the sends between any two ranks, and no earlier than a buffer is worth it.
    """
    goes_to = receivers(schedule)
    done = list(intervals(schedule))
    clocks: list[list[tuple[float, float]]] = [[] for _ in range(schedule.ranks)]
    for rank, _, begin, end in done:
        clocks[rank].append((begin, end))
    events: list[tuple[float, bool, int, int, Action]] = []
    for number, (rank, action, begin, end) in enumerate(done):
        peer = goes_to.get((action.stage, action.kind))
        stage, kind, microbatch, _ = action
        if kind == "B" and peer is not None:
            action = action._replace(peer=peer)
        events.append((begin, True, number, rank, action))
        if peer is not None:
            kind, neighbor = ("F", stage + 1) if kind == "F" else ("I", stage - 1)
            if action.sends is None:
                events.append((end, False, number, rank, Action(stage, f"SEND_{kind}", microbatch, peer)))
            posted = _turn(clocks[peer], begin)
            events.append((posted, False, number, peer, Action(neighbor, f"RECV_{kind}", microbatch, rank)))
    lists: list[list[Action]] = [[] for _ in range(schedule.ranks)]
    # At one moment messages come before the actions that begin then.
    for *_, rank, action in sorted(events, key=lambda event: event[:3]):
        lists[rank].append(action)
    return lists


def _turn(clock: list[tuple[float, float]], moment: float) -> float:
    """When a rank last passes between two actions before or at a moment; clock: their begins and ends, in order."""
    at = bisect_right(clock, moment, key=lambda times: times[0]) - 1
    return clock[at][0] if at >= 0 and moment < clock[at][1] else moment


def _with_reductions(actions: list[Action], microbatches: int, later: tuple[int, ...]) -> list[Action]:
    """REDUCE after the last W (or B) of each stage but those that are reduced `later`.

    It stands behind the messages that follow: another rank waits for them, and for the sum nobody does yet.
    """
    left: dict[int, int] = {}
    done: list[Action] = []
    due: list[Action] = []
    for action in actions:
        if action.kind in COMPUTE:
            done += due
            due.clear()
        done.append(action)
        if action.kind in ("W", "B") and action.stage not in later:
            left[action.stage] = left.get(action.stage, microbatches) - 1
            if not left[action.stage]:
                due.append(Action(action.stage, "REDUCE"))
    return done + due


def _with_ties(schedule: Schedule, lists: list[list[Action]], reduce: bool) -> list[list[Action]]:
    """The gradients of the shared weight cross, and are added, at the end of the ranks that hold a copy."""
    ends = (0, schedule.stages - 1)
    lists = [list(actions) for actions in lists]
    for stage, other in (ends, ends[::-1]):
        rank, peer = schedule.rank_of[stage], schedule.rank_of[other]
        if rank != peer:
            lists[rank] += [Action(stage, "RECV_T", peer=peer), Action(stage, "SEND_T", peer=peer)]
    for stage in ends:
        lists[schedule.rank_of[stage]] += [Action(stage, "TIE"), *([Action(stage, "REDUCE")] if reduce else [])]
    return lists


def _arrival(schedule: Schedule, source: int, target: int, kind: str, number: int) -> list[Action]:
    """The send and the receive that bring what stage `source` has for stage `target`."""
    sender, receiver = schedule.rank_of[source], schedule.rank_of[target]
    return [
        Action(target, f"RECV_{kind}", number, sender),
        Action(source, f"SEND_{kind}", number, receiver),
    ]
