"""A schedule made ready to run: each rank's actions with its messages, by passes over the compute actions.

A rank works its list off in one loop: RECV posts a receive and goes on, SEND starts a send and goes on, B starts one
from within (the stage before need not wait for the W behind it), a compute action first waits for the receive that it
needs. Between two ranks receives stand in the order of the sends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hpckit.errors import InputError, PlanError
from hpckit.plan.pipeline.price import intervals
from hpckit.plan.pipeline.schedule import UNITS, Schedule, first_of, in_order, receivers, schedule_faults
from hpckit.plan.pipeline.steps import COMPUTE, NONE, RECEIVES, Action, rounds
from hpckit.plan.protocol import Claim, Step

# Schedules that can take a forward pass and the backward pass of another microbatch together, turn by turn, so that
# messages of one fly while the other computes.
OVERLAPPED = "dualpipe_v", "zb_v"


@dataclass(frozen=True)
class Program:
    """What every rank does in a step, compute actions, messages and reductions in order.

    actions: for each rank; a message names its `peer`. tied: the first and the last stage share a weight, whose
    gradients are added (`TIE`). reduced: gradients are summed over the replicas (`REDUCE`). seconds: of each stage and
    kind of action (`StageTimes.table`), by default one unit for each of F, I and W.
    """

    schedule: Schedule
    actions: tuple[tuple[Action, ...], ...]
    tied: bool
    reduced: bool
    seconds: Mapping[tuple[int, str], float] | None = None

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.schedule.ranks

    def title(self) -> str:
        """What it is, in a few words."""
        return self.schedule.title()

    def steps(self) -> Iterator[Step]:
        """The steps of a plan, see `hpckit.plan.pipeline.steps`."""
        units = {(stage, kind): unit for stage in range(self.schedule.stages) for kind, unit in UNITS.items()}
        return rounds(self.schedule.cells(self.tied), self.actions, self.seconds or units, self.title())

    def claim(self) -> Claim:
        """A program computes what its schedule says, all its messages meet, and all ranks end.

        Checked here: the compute actions stand in the schedule's order; every boundary between ranks is crossed once by
        each microbatch in each direction, between the right ranks; any two ranks receive in the order of the sends (so
        one tag is enough); gradients are reduced once, when they are complete; no rank waits for ever.
        """
        schedule = self.schedule
        wrong = schedule_faults(schedule) or list(_order_faults(self))
        wrong = wrong or [*_message_faults(self), *_ending_faults(self)]
        wrong = wrong or list(_meeting_faults(self))
        if wrong:
            raise PlanError(f"{self.title()}: {first_of(wrong)}")
        deque(in_order(self.actions, self.needs, self.title()), maxlen=0)
        ends = (0, schedule.stages - 1) if self.tied else ()
        promised = [*schedule.promised(), *((stage, "TIE", -1) for stage in ends)]
        if self.reduced:
            promised += [(stage, "REDUCE", -1) for stage in range(schedule.stages)]
        return schedule.cells(self.tied).claim(self.ranks, promised)

    def posted(self) -> list[int]:
        """For each rank the most receives that are posted at once, until the action that uses them: its buffers."""
        peaks = []
        for actions in self.actions:
            open_now: set[tuple[int, str, int]] = set()
            peak = 0
            for stage, kind, number, _ in actions:
                if kind in RECEIVES:
                    open_now.add((stage, kind[-1], number))
                    peak = max(peak, len(open_now))
                else:
                    open_now.discard((stage, {"B": "I", "TIE": "T"}.get(kind, kind), number))
            peaks.append(peak)
        return peaks

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


class Together(NamedTuple):
    """Two computations of a rank that are taken together: a forward pass, and the backward pass of another microbatch.

    before: the receives between them, which are posted first. after: what the forward pass sends, as soon as it is
    over, and before what the other one sends. place, end: of the first among the rank's actions, and behind the last.
    """

    forward: Action
    backward: Action
    before: tuple[Action, ...]
    after: tuple[Action, ...]
    place: int
    end: int


def overlaps(schedule: Schedule) -> bool:
    """Whether ranks with messages to experts take computations together; with fewer microbatches they would wait for
    each other.
    """
    return schedule.name in OVERLAPPED and schedule.microbatches >= schedule.ranks


def together(actions: Sequence[Action]) -> Iterator[Together]:
    """The computations of a rank that are taken together: those that follow each other in its list."""
    places = [place for place, action in enumerate(actions) if action.kind in COMPUTE]
    taken = -1
    for one, other in pairwise(places):
        first, second, between = actions[one], actions[other], actions[one + 1 : other]
        if first.kind == "F" and second.kind in "BI" and first.microbatch != second.microbatch and one != taken:
            before = tuple(action for action in between if action.kind in RECEIVES)
            after = tuple(action for action in between if action.kind not in RECEIVES)
            yield Together(first, second, before, after, one, other + 1)
            taken = other


def rounds_together(program: Program, seconds: Mapping[tuple[int, str], float]) -> Iterator[Step]:
    """The steps of a program whose ranks take computations `together`. Raises `PlanError` if ranks wait for ever."""
    lists, paired = [], set[tuple[int, int]]()
    for rank, actions in enumerate(program.actions):
        posted = list(actions)
        for it in together(actions):  # both wait for what they need before they begin
            posted[it.place : it.end - 1] = [*it.before, it.forward, *it.after]
            paired.add((rank, it.place + len(it.before)))
        lists.append(posted)
    return rounds(program.schedule.cells(program.tied), lists, seconds, program.title(), paired=paired)


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
    """REDUCE after the last W (or B) of each stage, except the stages in `later`.

    It goes behind the messages that follow: another rank waits for them, but no rank waits for the sum yet.
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


def _order_faults(program: Program) -> Iterator[str]:
    """The compute actions of each rank are those of the schedule, in its order."""
    for rank, (actions, wanted) in enumerate(zip(program.actions, program.schedule.actions, strict=True)):
        computed = [action._replace(peer=NONE) for action in actions if action.kind in COMPUTE]
        for at, (is_there, belongs) in enumerate(zip(computed, wanted, strict=False)):
            if is_there != belongs:
                yield f"rank {rank} computes {is_there} as number {at}, the schedule says {belongs}"
                return
        if len(computed) != len(wanted):
            yield f"rank {rank} computes {len(computed)} actions, the schedule has {len(wanted)}"


def _expected(program: Program) -> Iterator[tuple[int, Action]]:
    """Every message, as what its sender and its receiver do, with the rank that does it."""
    schedule = program.schedule
    for (stage, kind), receiver in receivers(schedule).items():
        if kind == "B":  # the same message as after I
            continue
        sender, other = schedule.rank_of[stage], stage + (1 if kind == "F" else -1)
        for number in range(schedule.microbatches):
            yield sender, Action(stage, f"SEND_{kind}", number, receiver)
            yield receiver, Action(other, f"RECV_{kind}", number, sender)
    last = schedule.stages - 1
    for stage, other in ((0, last), (last, 0)) if program.tied else ():
        rank, peer = schedule.rank_of[stage], schedule.rank_of[other]
        if rank != peer:
            yield rank, Action(stage, "SEND_T", peer=peer)
            yield rank, Action(stage, "RECV_T", peer=peer)


def _message_faults(program: Program) -> Iterator[str]:
    """Every message leaves and arrives once, and there are no others."""
    found: Counter[tuple[int, Action]] = Counter()
    for rank, actions in enumerate(program.actions):
        messages = (action if action.kind in RECEIVES else action.sends for action in actions)
        found.update((rank, message) for message in messages if message is not None)
    expected = Counter(_expected(program))
    for rank, action in expected - found:
        yield f"rank {rank} never does {action}"
    for rank, action in found - expected:
        again = " again" if (rank, action) in expected else ", which is not a message of this schedule"
        yield f"rank {rank} does {action}{again}"


def _ending_faults(program: Program) -> Iterator[str]:
    """Gradients are tied and reduced once, where asked for, on the rank that has them."""
    schedule = program.schedule
    found = Counter(
        (rank, act) for rank, actions in enumerate(program.actions) for act in actions if act.kind in ("TIE", "REDUCE")
    )
    expected = Counter((rank, Action(stage, "REDUCE")) for stage, rank in enumerate(schedule.rank_of))
    if not program.reduced:
        expected.clear()
    if program.tied:
        expected.update((schedule.rank_of[stage], Action(stage, "TIE")) for stage in (0, schedule.stages - 1))
    for rank, action in expected - found:
        yield f"rank {rank} never does {action}"
    for rank, action in found - expected:
        yield f"rank {rank} does {action} once too often"


def _meeting_faults(program: Program) -> Iterator[str]:
    """Between any two ranks the receives stand in the order of the sends."""
    sends: dict[tuple[int, int], list[Action]] = {}
    takes: dict[tuple[int, int], list[Action]] = {}
    for rank, actions in enumerate(program.actions):
        for action in actions:
            if action.sends is not None:
                sends.setdefault((rank, action.peer), []).append(action.sends)
            elif action.kind in RECEIVES:
                takes.setdefault((action.peer, rank), []).append(action)
    last = program.schedule.stages - 1
    for (sender, receiver), sent in sends.items():
        for number, (out, into) in enumerate(zip(sent, takes[sender, receiver], strict=True)):
            kind = out.kind[-1]
            stage = {"F": out.stage + 1, "I": out.stage - 1, "T": last - out.stage}[kind]
            if (stage, f"RECV_{kind}", out.microbatch) != into[:3]:
                yield f"message {number} from rank {sender} to rank {receiver} is sent by {out} and taken by {into}"
                break
