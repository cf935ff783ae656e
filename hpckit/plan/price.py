"""The price of a plan on a machine: the time of each rank, the parts of the critical path, the load of the links.

The model is of the LogGP family (Alexandrov et al. 1995) with levels and shared links: a rank sends the messages of one
step after those of the step before; those of one step share its adapter, that of their receiver, and the uplinks of the
units that they leave and enter; a rank adds received data at its own speed, concurrently with its next messages if the
plan allows it (`lag`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hpckit.plan.machine.clocks import PARTS, Clocks, Flight, PreparedFlight, flights, messages
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.protocol import (
    NOBODY,
    NOTHING,
    AlikeUnits,
    Claim,
    Ends,
    Floats,
    Ints,
    Plan,
    Step,
    Steps,
    Work,
    require_plan,
)

FREE = Machine("free", (Level("all", 0, 0.0, float("inf")),), 0.0, float("inf"))
# A stretch of alike steps counts as steady once its clocks move on by equal amounts, to this relative accuracy.
STEADY = 1e-9


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


def price(plan: Plan, machine: Machine = FREE, nbytes: float = 0.0, itemsize: float = 8) -> Price:
    """The price of a plan over a buffer of `nbytes`, or of items of `itemsize` bytes, whichever its steps count in.

    Without a machine messages cost nothing. Blocks of a collective count as equally large unless the plan's counts are
    given.
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
            prepared = [clocks.prepare(flight) for flight in _flights(machine, step, nbytes, itemsize)]
            _fly(clocks, step, prepared)
            number += 1
            continue
        lag = steps[number].lag
        period = [flights(steps[at], nbytes, itemsize) for at in range(number, number + lag)]
        if any(len(each) > 1 for each in period):
            del alike[number]  # several messages of a rank in a step: one by one
            continue
        clocks = _repeated(clocks, [clocks.prepare(flight) for (flight,) in period], (end - number) // lag)
        number = end
    return _price(clocks, steps.length, np.zeros(plan.ranks))


def _price(clocks: Clocks, steps: int, busy: Floats) -> Price:
    done, parts = clocks.done()
    last = int(done.argmax())
    load = {level.name: float(clocks.load[level.name].max()) for level in clocks.machine.levels}
    return Price(done, dict(zip(PARTS, map(float, parts[last]), strict=True)), load, steps, busy)


def _place(steps: Steps) -> str:
    return steps[0].place if steps.length else "messages"


def _flights(machine: Machine, step: Step, nbytes: float, itemsize: float) -> list[Flight]:
    """The messages of a step: at once, where links are shared; one after the other, where a core copies them."""
    return flights(step, nbytes, itemsize) if machine.measured else [messages(step, nbytes, itemsize)]


def _fly(clocks: Clocks, step: Step, prepared: list[PreparedFlight]) -> list[tuple[Floats, Floats]]:
    """Let the messages of a step fly, one of each rank after the other; when those of each flight begin and end."""
    times = []
    ready = clocks.ready(step.lag) if len(prepared) != 1 else None
    for flight in prepared:
        times.append(clocks.fly(flight, None if ready is None else ready[flight.sender]))
        clocks.count(flight)
    if ready is not None:
        clocks.end_step()
    return times


def _walked(plan: Plan, machine: Machine, nbytes: float, itemsize: float) -> Price:
    """The price of steps that come one by one; where they begin alike on units of ranks, one unit is walked for all."""
    steps = plan.steps()
    whole = AlikeUnits(plan.ranks, plan.ranks, lambda ranks: steps, lambda: ())
    units = steps if isinstance(steps, AlikeUnits) else whole
    ranks, count = priced_ranks(units, machine), 0
    walk = _Walk(plan, machine, nbytes, itemsize, ranks)
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


class _Walk:
    """Takes the steps of a plan one by one. Where ranks compute, clocks of cells say what a message waits for."""

    def __init__(self, plan: Plan, machine: Machine, nbytes: float, itemsize: float, ranks: int = 0) -> None:
        """ranks: the first ones alone, where the plan's steps begin alike on units of ranks; 0: all."""
        depth, place, works = 1, "", False
        steps, ranks = plan.steps(), ranks or plan.ranks
        alike = isinstance(steps, AlikeUnits)
        for step in steps.first(ranks) if isinstance(steps, AlikeUnits) else steps:
            if alike and place and works:
                break
            depth = max(depth, step.lag)
            if not place and (_leaves(step.sends) or step.sends.pieces is not None):
                place = step.place if step.parts else "pieces"  # what an exchange of fields does first
            works = works or step.work is not None
        self.clocks = Clocks(ranks, machine, depth, nbytes, place or "messages")
        self._sizes = nbytes, itemsize
        claim = plan.claim() if works else None
        self._cells = claim.start.shape[1] if isinstance(claim, Claim) else 0
        self._there = np.zeros((ranks * self._cells, 1 + len(PARTS)))
        self.busy = np.zeros(ranks)
        self._core = np.zeros((ranks, 1 + len(PARTS)))

    def tiled(self, ranks: int, later: Iterable[Step]) -> _Walk:
        """The walk of so many ranks, unit after unit as here; of the cells, what later steps read."""
        other, times = copy.copy(self), ranks // self.clocks.ranks
        other.clocks = self.clocks.tiled(ranks)
        other.clocks.load = self.clocks.tiled_load(ranks)
        other.busy, other._core = np.tile(self.busy, times), np.tile(self._core, (times, 1))
        read: set[int] = set()
        for step in later:
            read.update(np.unique(step.sends.first).tolist())
            read.update(np.unique(step.work.reads[step.work.needs != NOTHING]).tolist() if step.work else ())
        kept = np.array(sorted(read), np.int64)
        # The zeros of the other cells take no memory until they are written.
        other._there = np.zeros((ranks * self._cells, 1 + len(PARTS)))
        own = self._there.reshape(-1, self._cells, 1 + len(PARTS))[:, kept]
        other._there.reshape(ranks, self._cells, -1)[:, kept] = np.tile(own, (times, 1, 1))
        return other

    def take(self, step: Step) -> tuple[list[tuple[Ints, Floats, Floats]], tuple[Floats, Floats] | None]:
        """Of each flight the entries of the step's sends, and when they begin and end; the same of its work, s."""
        worked = None if step.work is None else self._compute(step.work)
        all_flights = _flights(self.clocks.machine, step, *self._sizes)
        prepared = [self.clocks.prepare(flight) for flight in all_flights]
        if not self._cells:
            times = _fly(self.clocks, step, prepared)
            return [(f.entry, *each) for f, each in zip(all_flights, times, strict=True)], worked
        found = []
        matched = _receives_of(step)
        for flight, it in zip(all_flights, prepared, strict=True):
            begin, end = self.clocks.fly(it, self._latest(step.sends, flight.sender, flight.entry))
            self.clocks.count(it)
            entry = matched[flight.entry]
            if _single(step.receives, entry):
                own = flight.receiver * self._cells + step.receives.first[entry]
                self._there[own] = 0.0
                self._there[own, 0] = end
            else:
                cells = _cells_of(step.receives, flight.receiver, entry, self._cells)
                for stop, each in zip(end, cells, strict=True):
                    self._there[each] = 0.0
                    self._there[each, 0] = stop
            found.append((flight.entry, begin, end))
        self.clocks.end_step()
        return found, worked

    def _compute(self, work: Work) -> tuple[Floats, Floats]:
        begin = self._core[work.rank, 0]
        cells = work.rank[:, None] * self._cells
        there = np.where(work.needs != NOTHING, self._there[cells + np.maximum(work.reads, 0), 0], 0.0)
        begin = np.maximum(begin, there.max(axis=1, initial=0.0))
        end = begin + work.seconds
        self._core[work.rank, 0] = end
        np.add.at(self.busy, work.rank, work.seconds)
        made = work.makes != NOTHING
        self._there[(cells + work.writes)[made], 0] = np.broadcast_to(end[:, None], made.shape)[made]
        complete = self.clocks.state[0]
        complete[work.rank, 0] = np.maximum(complete[work.rank, 0], end)
        return begin, end

    def _latest(self, ends: Ends, rank: Ints, entry: Ints) -> Floats:
        """When all cells of each message were there."""
        if _single(ends, entry):
            return self._there[rank * self._cells + ends.first[entry]]
        rows = [self._there[own] for own in _cells_of(ends, rank, entry, self._cells)]
        latest = np.zeros((len(rows), 1 + len(PARTS)))
        for m, row in enumerate(rows):
            if len(row):
                latest[m] = row[row[:, 0].argmax()]
        return latest


def _single(ends: Ends, entry: Ints) -> bool:
    """Whether each of some entries has one cell."""
    return ends.cells is None and bool((ends.last[entry] - ends.first[entry] == 1).all())


def _leaves(ends: Ends) -> bool:
    """Whether a message goes to another rank."""
    return bool(((ends.peer != NOBODY) & (ends.peer != ends.ranks())).any())


def _cells_of(ends: Ends, rank: Ints, entry: Ints, cells: int) -> list[Ints]:
    """The cells of some entries, each as an array."""
    listed = np.arange(2 * cells) % cells if ends.cells is None else ends.cells
    return [r * cells + listed[ends.first[m] : ends.last[m]] for r, m in zip(rank, entry, strict=True)]


def _receives_of(step: Step) -> Ints:
    """For each entry of the sends the entry of the receives that it meets."""
    sends, receives = step.sends, step.receives
    if sends.rank is None and receives.rank is None:
        return np.maximum(sends.peer, 0)
    ends, begins = sends.ranks(), receives.ranks()
    if len(ends) == len(begins) and (sends.peer == begins).all() and (receives.peer == ends).all():
        return np.arange(len(ends))  # both in one order
    out, into = np.flatnonzero(sends.peer != NOBODY), np.flatnonzero(receives.peer != NOBODY)
    out = out[np.lexsort((sends.peer[out], sends.ranks()[out]))]
    into = into[np.lexsort((receives.ranks()[into], receives.peer[into]))]
    met = np.zeros(len(sends.peer), np.int64)
    met[out] = into
    return met


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
            flight = clocks.prepare(made[0])
            add = 0.0 if flight.add is None else flight.add[:, 0]
            links += (end - first) * flight.occupy[:, 0]
            whole = flight.occupy[:, 0] + flight.arrive[:, 0] + add
            chain += (end - first) // step.lag * float(whole.mean())
    return max(chain, float(links.max()))


def _repeated(clocks: Clocks, period: list[PreparedFlight], times: int) -> Clocks:
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


@dataclass(frozen=True)
class MessageTime:
    """One message on the time axis, s: under way from begin to end (the adding included); number: of its step.

    first: its first cell. text: what the plan says of it. Work of a rank has itself as sender and receiver.
    """

    number: int
    sender: int
    receiver: int
    first: int
    begin: float
    end: float
    add: bool
    text: str
    work: bool = False


def timeline(
    plan: Plan, machine: Machine | None, nbytes: float = 0.0, itemsize: float = 8, shown: Ints | None = None
) -> Iterator[MessageTime]:
    """All that a plan does with its times, step by step, for drawings of a few ranks; without a machine a step takes
    a unit of time. shown: the ranks whose work and whose sent messages are asked for; None: all.
    """
    require_plan(plan)
    walk = None if machine is None else _Walk(plan, machine, nbytes, itemsize)
    chosen = np.full(plan.ranks, shown is None)
    chosen[[] if shown is None else shown] = True
    for number, step in enumerate(plan.steps()):
        ends, ranks = step.sends, step.sends.ranks()
        entries = np.flatnonzero(ends.peer != NOBODY)
        unit = np.full(len(entries), float(number)), np.full(len(entries), number + 0.9)
        found, worked = ([(entries, *unit)], None) if walk is None else walk.take(step)
        work = step.work
        texts = step.texts() if step.texts is not None and not (work and not len(entries)) else None
        if work is not None:
            begin, end = worked or (np.full(len(work.rank), float(number)), np.full(len(work.rank), number + 0.9))
            for m in np.flatnonzero(chosen[work.rank]).tolist():
                rank, name = int(work.rank[m]), work.names[m] if len(work.names) else "computes"
                yield MessageTime(number, rank, rank, 0, float(begin[m]), float(end[m]), False, name, True)
        for entry, begin, end in found:
            asked = chosen[ranks[entry]]
            for m, start, stop in zip(entry[asked].tolist(), begin[asked], end[asked], strict=True):
                text = texts[m] if texts is not None else _range(step, m, plan)
                yield MessageTime(
                    number,
                    int(ranks[m]),
                    int(ends.peer[m]),
                    int(ends.first[m]),
                    float(start),
                    float(stop),
                    step.add,
                    text,
                )


def _range(step: Step, entry: int, plan: Plan) -> str:
    """The cells of a message, in words."""
    first, last = int(step.sends.first[entry]), int(step.sends.last[entry]) - 1
    if step.wraps:
        claim = plan.claim()
        last %= claim.start.shape[1] if isinstance(claim, Claim) else last + 1
    return str(first) if first == last else f"{first}-{last}"
