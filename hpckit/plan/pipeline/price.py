"""What a pipeline schedule costs: when each action runs, and how much of the ranks' time is bubble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.plan.machine.machine import Machine
from hpckit.plan.pipeline.schedule import COMPUTE, Action, Schedule, receivers
from hpckit.plan.pipeline.times import UNIT, StageTimes

Rows = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """One action on the time axis, s."""

    rank: int
    action: Action
    begin: float
    end: float


@dataclass(frozen=True)
class SchedulePrice:
    """The step of a pipeline on the time axis, s.

    intervals: every action with its times. busy: the time that each rank computes. sent: bytes that each rank sends.
    messages: between ranks, in all.
    """

    intervals: tuple[Interval, ...]
    busy: tuple[float, ...]
    sent: tuple[float, ...]
    messages: int

    @property
    def seconds(self) -> float:
        """When the last rank is done."""
        return max(interval.end for interval in self.intervals)

    @property
    def period(self) -> float:
        """The time between successive steps without a barrier between them.

        It is the longest time of a rank from its first action to its last: a step that starts so much later finds every
        rank free.
        """
        begin, end = [float("inf")] * len(self.busy), [0.0] * len(self.busy)
        for interval in self.intervals:
            begin[interval.rank] = min(begin[interval.rank], interval.begin)
            end[interval.rank] = max(end[interval.rank], interval.end)
        return max(stop - start for start, stop in zip(begin, end, strict=True))

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they do not compute, from the start of the step until all are done."""
        return self._idle(self.seconds)

    @property
    def open_bubble(self) -> float:
        """The bubble of steps without a barrier between them, as Qi et al. 2024 count it; see `period`."""
        return self._idle(self.period)

    def _idle(self, seconds: float) -> float:
        total = len(self.busy) * seconds
        return (total - sum(self.busy)) / total if total else 0.0


def price_schedule(
    schedule: Schedule,
    machine: Machine | None = None,
    nbytes: float = 0.0,
    times: StageTimes = UNIT,
    stride: int = 1,
) -> SchedulePrice:
    """The price of a step. times: of the stages, by default 1 for each of F, I and W.

    machine: what messages cost; without it they cost nothing. A message is an activation, or its gradient, of one
    microbatch: `nbytes`. It costs both ranks the overhead, and waits for the ones that its sender sent before; links
    are not shared with other pipelines. stride: ranks of the machine from one rank of the pipeline to the next. Raises
    `InputError` for a stride below 1 and for negative sizes, `PlanError` for a schedule that waits forever.
    """
    if stride < 1 or nbytes < 0:
        raise InputError(f"a stride of {stride} and messages of {nbytes} bytes", do="give 1 or more, and 0 or more")
    done = tuple(intervals(schedule, times, machine, nbytes, stride))
    busy, sent, messages = [0.0] * schedule.ranks, [0.0] * schedule.ranks, 0
    seconds, goes_to = times.table(schedule), receivers(schedule)
    for rank, action, *_ in done:
        busy[rank] += seconds[action[:2]]
        if action[:2] in goes_to:
            sent[rank] += nbytes
            messages += 1
    return SchedulePrice(done, tuple(busy), tuple(sent), messages)


def intervals(
    schedule: Schedule,
    times: StageTimes = UNIT,
    machine: Machine | None = None,
    nbytes: float = 0.0,
    stride: int = 1,
) -> Iterator[Interval]:
    """Every action of a schedule with its times, each after what it needs; arguments as of `price_schedule`."""
    seconds, goes_to = times.table(schedule), receivers(schedule)
    costs = _message_costs(schedule, machine, nbytes, stride)
    overhead = machine.overhead if machine else 0
    done: dict[Action, float] = {}  # on the rank that made it
    arrived: dict[Action, float] = {}  # on the rank that was sent it
    free: list[float] = [0] * schedule.ranks  # ints stay ints: equal times give exact bubbles
    link: list[float] = [0] * schedule.ranks
    for rank, action in schedule.in_order():
        begin, taken = free[rank], 0
        for need in schedule.needs(action):
            own = schedule.rank_of[need.stage] == rank
            begin = max(begin, done[need] if own else arrived[need])
            taken += not own
        begin += overhead * taken
        end = begin + seconds[action[:2]]
        yield Interval(rank, action, begin, end)
        free[rank] = end
        made = action.makes()
        done.update(dict.fromkeys(made, end))
        peer = goes_to.get(action[:2])
        if peer is not None:
            transfer, latency = costs[rank, peer]
            free[rank] += overhead
            link[rank] = max(link[rank], free[rank]) + transfer
            arrived[made[0]] = link[rank] + latency


def _message_costs(
    schedule: Schedule, machine: Machine | None, nbytes: float, stride: int
) -> dict[tuple[int, int], tuple[float, float]]:
    """For the pairs of ranks that hold neighboring stages: how long the link is busy, and the latency, s."""
    pairs = [pair for pair in pairwise(schedule.rank_of) if pair[0] != pair[1]]
    pairs += [(b, a) for a, b in pairs]
    if machine is None:
        return dict.fromkeys(pairs, (0, 0))
    costs = {}
    for pair in pairs:
        sender, receiver = (np.array([rank * stride]) for rank in pair)
        level = machine.levels[int(machine.level_of(sender, receiver)[0])]
        costs[pair] = (nbytes / level.bandwidth, level.latency)
    return costs


@dataclass(frozen=True)
class MeasuredStep:
    """A step as it ran. price: its actions on the time axis, as of a simulated one, s.

    times: what the stages took for a microbatch, mean over the steps measured; goes to `price` and `draw`.
    """

    schedule: Schedule
    price: SchedulePrice
    times: StageTimes

    @classmethod
    def of(cls, schedule: Schedule, actions: list[Rows], sent: list[Rows], times: list[Rows]) -> MeasuredStep:
        """From what the ranks recorded, one array a rank.

        actions: rows of stage, kind (its place in COMPUTE), microbatch, begin and end, s, on one clock. sent: one row
        of messages and bytes. times: rows of stage, F, I and W, s.
        """
        origin = min((float(rows[:, 3].min()) for rows in actions if len(rows)), default=0.0)
        intervals = [
            Interval(rank, Action(int(stage), COMPUTE[int(kind)], int(number)), begin - origin, end - origin)
            for rank, rows in enumerate(actions)
            for stage, kind, number, begin, end in rows.tolist()
        ]
        intervals.sort(key=lambda interval: interval.begin)
        busy = tuple(float((rows[:, 4] - rows[:, 3]).sum()) for rows in actions)
        nbytes = tuple(float(rows[0, 1]) for rows in sent)
        price = SchedulePrice(tuple(intervals), busy, nbytes, int(sum(rows[0, 0] for rows in sent)))
        stages = np.concatenate(times)
        stages = stages[np.argsort(stages[:, 0])]
        forward, backward_input, backward_weight = stages[:, 1:].T.tolist()
        return cls(schedule, price, StageTimes(forward, backward_input, backward_weight))
