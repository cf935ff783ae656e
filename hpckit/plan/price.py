"""What a plan costs on a machine: time of each rank, what the critical path is made of, load of the links.

The model is that of the LogGP family (Alexandrov et al. 1995) with levels and shared links: a rank sends one message
at a time and takes one at a time; messages of one step share the uplinks of the units that they leave and enter; a
rank adds what it received with its own speed, beside its next messages where the plan allows it (`lag`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.collective.plan import CollectivePlan
from hpckit.plan.grid.halo import HaloPlan
from hpckit.plan.machine.clocks import PARTS, Clocks, Prepared
from hpckit.plan.machine.machine import Machine
from hpckit.plan.machine.timeline import Floats, depth_of, flight_count, flights, ranks_of, runs
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.schedule import Schedule

# A stretch of alike steps counts as steady once its clocks move on by equal amounts, to this relative accuracy.
STEADY = 1e-9


@dataclass(frozen=True)
class Price:
    """Times in s. rank_seconds: float64[ranks]. critical: s of latency (with overheads), transfer (as if alone on the
    links), contention (what sharing adds) and reduction on the path that ends last. link_bytes: for each level the most
    that leaves one of its units; for the outermost the most that one rank sends across it.
    """

    rank_seconds: Floats
    critical: dict[str, float]
    link_bytes: dict[str, float]
    steps: int

    @property
    def seconds(self) -> float:
        """When the last rank is done."""
        return float(self.rank_seconds.max(initial=0.0))


@functools.singledispatch
def price(plan: object, *arguments: Any, **options: Any) -> Any:
    """What a plan costs on a machine: a `CollectivePlan` or `HaloPlan` by `price_messages`, which gives a `Price`, a
    pipeline's `Schedule` by `price_schedule`, which gives a `SchedulePrice`; they name the arguments.
    """
    raise InputError(
        f"a halo plan, a collective plan or a pipeline's schedule can be priced, not {type(plan).__name__}"
    )


@price.register(CollectivePlan)
@price.register(HaloPlan)
def price_messages(plan: CollectivePlan | HaloPlan, machine: Machine, nbytes: float = 0.0, itemsize: int = 8) -> Price:
    """The price of a collective over a buffer of `nbytes`, or of a halo exchange of one field of `itemsize` items.

    Blocks count as equally large unless the plan's counts are given.
    """
    clocks = Clocks(ranks_of(plan), machine, depth_of(plan), nbytes)
    alike = {run.first: run for run in runs(plan) if run.end > run.first}
    number, length = 0, flight_count(plan)
    while number < length:
        run = alike.get(number)
        if run is None:
            stop = min([first for first in alike if first > number], default=length)
            for flight in islice(flights(plan, nbytes, itemsize, number), stop - number):
                prepared = clocks.prepare(flight)
                clocks.fly(prepared)
                clocks.count(prepared)
            number = stop
        else:
            period = list(islice(flights(plan, nbytes, itemsize, number), run.period))
            clocks = _repeated(clocks, [clocks.prepare(flight) for flight in period], (run.end - number) // run.period)
            number = run.end
    done, parts = clocks.done()
    last = int(done.argmax())
    load = {level.name: float(clocks.load[level.name].max()) for level in machine.levels}
    return Price(done, dict(zip(PARTS, map(float, parts[last]), strict=True)), load, length)


def walk_length(plan: CollectivePlan | HaloPlan, machine: Machine) -> int:
    """How many messages `price_messages` may have to look at: in stretches of alike steps those of all ranks, where not
    all units of the machine are full.
    """
    ranks, unit = ranks_of(plan), machine.largest_unit()
    stretches = sum(run.end - run.first for run in runs(plan))
    return (flight_count(plan) - stretches) * ranks + stretches * (unit if unit and ranks % unit == 0 else ranks)


def at_least(plan: CollectivePlan | HaloPlan, machine: Machine, nbytes: float = 0.0, itemsize: int = 8) -> float:
    """A time, s, that a plan takes at the least, found without walking: that of its stretches of alike steps.

    Of these the larger of two: how long the busiest link out of a rank is taken; and how long a chain of messages
    through all steps takes on average over the ranks where it may begin, as the slowest chain takes no less. Stretches
    count in which all ranks send.
    """
    clocks = Clocks(ranks_of(plan), machine, depth_of(plan), nbytes)
    links, chain = np.zeros(clocks.ranks), 0.0
    for run in runs(plan):
        flight = clocks.prepare(next(flights(plan, nbytes, itemsize, run.first)))
        if len(flight.sender) == clocks.ranks:
            add = 0.0 if flight.add is None else flight.add[:, 0]
            links += (run.end - run.first) * flight.occupy[:, 0]
            whole = flight.occupy[:, 0] + flight.arrive[:, 0] + add
            chain += (run.end - run.first) // run.period * float(whole.mean())
    return max(chain, float(links.max()))


def _repeated(clocks: Clocks, period: list[Prepared], times: int) -> Clocks:
    """The clocks after a stretch of alike steps, `period` flown so many times.

    Once one period has moved all clocks as the one before it, the rest is taken whole. Where the machine and the
    messages look the same from every unit of its largest level, as in a ring, one unit is walked for all.
    """
    for flight in period:
        clocks.count(flight, times)
    unit = clocks.machine.largest_unit()
    whole = clocks.ranks
    folded = unit and whole > unit and whole % unit == 0 and all(flight.repeats(unit, whole) for flight in period)
    if folded and clocks.repeats(unit):
        clocks, period = clocks.folded(unit), [flight.folded(unit) for flight in period]
    # Where latencies rule, the pace of a rank repeats only after the messages have passed a whole unit.
    watches, done = [_Steady(clocks, stride) for stride in {1, max(unit, 1)}], 0
    while done < times:
        for flight in period:
            clocks.fly(flight)
        done += 1
        for watch in watches:
            done += watch.jump(clocks, done, times)
    return clocks.tiled(whole)


class _Steady:
    """Sees whether every so many periods move all clocks by equal amounts, and takes the rest of them whole."""

    def __init__(self, clocks: Clocks, stride: int) -> None:
        self._stride = stride
        self._before = clocks.state.copy()
        self._moved: Floats | None = None

    def jump(self, clocks: Clocks, done: int, times: int) -> int:
        """Look at the clocks after `done` of `times` periods; return how many were taken whole, mostly 0."""
        if done % self._stride:
            return 0
        step = clocks.state - self._before
        moved, self._moved = self._moved, step[..., 0]
        jumps = 0
        if moved is not None and _level(step[0, :, 0]) and np.allclose(step[..., 0], moved, rtol=STEADY, atol=0.0):
            jumps = (times - done) // self._stride
            clocks.move_on(step, jumps)
        self._before[...] = clocks.state
        return jumps * self._stride


def _level(values: Floats) -> bool:
    """Whether all that moved has moved alike."""
    moved = values[values > 0]
    return bool(moved.size and np.ptp(moved) <= STEADY * moved.max())


price.register(Schedule, price_schedule)


@dataclass(frozen=True)
class Event:
    """One message on the time axis, s: under way from begin to end (the adding included); number: of its step."""

    number: int
    sender: int
    receiver: int
    slot: int
    nbytes: float
    begin: float
    end: float
    reduce: bool


def timeline(
    plan: CollectivePlan | HaloPlan, machine: Machine, nbytes: float = 0.0, itemsize: int = 8
) -> Iterator[Event]:
    """Every message of a plan with its times, step by step: for drawings of a few ranks."""
    clocks = Clocks(ranks_of(plan), machine, depth_of(plan), nbytes)
    for number, flight in enumerate(flights(plan, nbytes, itemsize)):
        begin, end = clocks.fly(clocks.prepare(flight))
        rows = zip(flight.sender, flight.receiver, flight.slot, flight.nbytes, begin, end, strict=True)
        for sender, receiver, slot, size, start, stop in rows:
            yield Event(
                number, int(sender), int(receiver), int(slot), float(size), float(start), float(stop), flight.reduce
            )
