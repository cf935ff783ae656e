"""The price of a plan on a machine: the time of each rank, the parts of the critical path, the load of the links.

The model is of the LogGP family (Alexandrov et al. 1995) with levels and shared links: a rank sends the messages of one
step after those of the step before; those of one step share its adapter, that of their receiver, and the uplinks of the
units that they leave and enter; a rank adds received data at its own speed, concurrently with its next messages if the
plan allows it (`lag`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpckit.plan.machine.clocks import Clocks
from hpckit.plan.machine.costs import PARTS
from hpckit.plan.machine.flights import flights
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.machine.stretches import repeated
from hpckit.plan.machine.walk import Walk, flights_on, fly_all
from hpckit.plan.protocol import NOBODY, AlikeUnits, Floats, Plan, Steps, require_plan

REAL = 8.0  # bytes of an item, where nobody says
FREE = Machine("free", (Level("all", 0, 0.0, float("inf")),), 0.0, float("inf"))


@dataclass(frozen=True)
class Price:
    """Times in s. rank_seconds: float64[ranks]. critical: s of latency (with overheads), transfer (as if alone on the
    links), contention (the cost of sharing) and reduction on the path that ends last. link_bytes: for each level the
    largest load out of one of its units; for the outermost the most that one rank sends across it. busy:
    float64[ranks], the compute time of each rank.
    """

    rank_seconds: Floats
    critical: dict[str, float]
    link_bytes: dict[str, float]
    steps: int
    busy: Floats

    @property
    def seconds(self) -> float:
        """When the last rank is done."""
        return float(self.rank_seconds.max(initial=0.0))

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they do not compute."""
        total = len(self.busy) * self.seconds
        return (total - float(self.busy.sum())) / total if total else 0.0


def traffic(plan: Plan) -> tuple[Floats, Floats]:
    """How many messages each rank sends to others, and the bytes of all: float64[ranks] each; for steps that count
    in items.
    """
    messages, sent = np.zeros(plan.ranks), np.zeros(plan.ranks)
    for step in plan.steps():
        ends = step.sends
        rank, away = ends.ranks(), (ends.peer != NOBODY) & (ends.peer != ends.ranks())
        amount = ends.last - ends.first if ends.amount is None else ends.amount
        np.add.at(messages, rank[away], 1)
        np.add.at(sent, rank[away], amount[away] * (step.itemsize or REAL))
    return messages, sent


def price(plan: Plan, machine: Machine = FREE, nbytes: float = 0.0, itemsize: float = REAL) -> Price:
    """The price of a plan over a buffer of `nbytes`, or of items of `itemsize` bytes, whichever its steps count in.

    Without a machine messages cost nothing. Blocks of a collective count as equal in size unless the plan has counts.
    """
    require_plan(plan)
    steps = plan.steps()
    if not isinstance(steps, Steps):
        return _walked(plan, machine, nbytes, itemsize)
    clocks = Clocks(plan.ranks, machine, steps.lag, nbytes, _place(steps))
    alike = {first: end for first, end in steps.runs if end > first}
    number = 0
    while number < steps.length:
        end = alike.get(number)
        if end is None:
            step = steps[number]
            prepared = [clocks.costs.prepare(flight) for flight in flights_on(machine, step, nbytes, itemsize)]
            fly_all(clocks, step, prepared)
            number += 1
            continue
        lag = steps[number].lag
        period = [flights(steps[at], nbytes, itemsize) for at in range(number, number + lag)]
        if any(len(each) > 1 for each in period):
            del alike[number]  # several messages of a rank in a step: one by one
            continue
        clocks = repeated(clocks, [clocks.costs.prepare(flight) for (flight,) in period], (end - number) // lag)
        number = end
    return _price(clocks, steps.length, np.zeros(plan.ranks))


def _price(clocks: Clocks, steps: int, busy: Floats) -> Price:
    done, parts = clocks.done()
    last = int(done.argmax())
    load = {level.name: float(clocks.load[level.name].max()) for level in clocks.machine.levels}
    return Price(done, dict(zip(PARTS, map(float, parts[last]), strict=True)), load, steps, busy)


def _place(steps: Steps) -> str:
    return steps[0].place if steps.length else "messages"


def _walked(plan: Plan, machine: Machine, nbytes: float, itemsize: float) -> Price:
    """The price of steps that come one by one; where they begin alike on units of ranks, one unit is walked for all."""
    steps = plan.steps()
    whole = AlikeUnits(plan.ranks, plan.ranks, lambda ranks: steps, lambda: ())
    units = steps if isinstance(steps, AlikeUnits) else whole
    ranks, count = priced_ranks(units, machine), 0
    walk = Walk(plan, machine, nbytes, itemsize, ranks)
    for step in units.first(ranks):
        walk.take(step)
        count += 1
    if ranks < plan.ranks:
        walk = walk.tiled(plan.ranks, units.rest())
    for step in units.rest():
        walk.take(step)
        count += 1
    return _price(walk.clocks, count, walk.busy)


def priced_ranks(steps: AlikeUnits, machine: Machine) -> int:
    """How many ranks are walked for all: the fewest, of whole units, that the machine treats as those beside them."""

    def repeats(ranks: int) -> bool:
        """Whether each level has its units within these ranks, or them in one of its units, which shares nothing."""
        return all(
            (level.ranks and ranks % level.ranks == 0)
            or (not level.shared and (not level.ranks or level.ranks % ranks == 0))
            for level in machine.levels
        )

    if machine.measured:  # what a message takes depends on how many there are
        return steps.ranks
    sizes = range(steps.unit, steps.ranks, steps.unit)
    return next((n for n in sizes if steps.ranks % n == 0 and repeats(n)), steps.ranks)


def walk_length(plan: Plan, machine: Machine) -> int:
    """How many messages `price` may have to look at: in stretches of alike steps those of all ranks, where not all
    units of the machine are full.
    """
    steps = plan.steps()
    if not isinstance(steps, Steps):
        return plan.ranks * sum(1 for _ in steps)
    ranks, unit = plan.ranks, machine.largest_unit()
    stretches = sum(end - first for first, end in steps.runs)
    return (steps.length - stretches) * ranks + stretches * (unit if unit and ranks % unit == 0 else ranks)


def at_least(plan: Plan, machine: Machine, nbytes: float = 0.0, itemsize: float = 8) -> float:
    """A time, s, that a plan takes at the least, found without walking: that of its stretches of alike steps.

    Of these the larger of two: how long the busiest link out of a rank is taken; and how long a chain of messages
    through all steps takes on average over the ranks where it may begin, as the slowest chain takes no less. Stretches
    count in which all ranks send.
    """
    steps = plan.steps()
    if not isinstance(steps, Steps):
        return 0.0
    clocks = Clocks(plan.ranks, machine, steps.lag, nbytes)
    links, chain = np.zeros(clocks.ranks), 0.0
    for first, end in steps.runs:
        step = steps[first]
        made = flights(step, nbytes, itemsize)
        if len(made) == 1 and not made[0].memory and len(made[0].sender) == clocks.ranks:
            flight = clocks.costs.prepare(made[0])
            add = 0.0 if flight.add is None else flight.add[:, 0]
            links += (end - first) * flight.occupy[:, 0]
            whole = flight.occupy[:, 0] + flight.arrive[:, 0] + add
            chain += (end - first) // step.lag * float(whole.mean())
    return max(chain, float(links.max()))
