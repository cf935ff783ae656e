"""A plan walked step by step on clocks, with what ranks compute in between."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np

from hpckit.plan.machine.clocks import Clocks
from hpckit.plan.machine.costs import PARTS, PreparedFlight
from hpckit.plan.machine.flights import Flight, flights, messages
from hpckit.plan.machine.machine import Machine
from hpckit.plan.protocol import NOBODY, NOTHING, AlikeUnits, Claim, Ends, Floats, Ints, Plan, Step, Work


class Walk:
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

    def tiled(self, ranks: int, later: Iterable[Step]) -> Walk:
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
        all_flights = flights_on(self.clocks.machine, step, *self._sizes)
        prepared = [self.clocks.costs.prepare(flight) for flight in all_flights]
        if not self._cells:
            times = fly_all(self.clocks, step, prepared)
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


def flights_on(machine: Machine, step: Step, nbytes: float, itemsize: float) -> list[Flight]:
    """The messages of a step: at once, where links are shared; one after the other, where a core copies them."""
    return flights(step, nbytes, itemsize) if machine.measured else [messages(step, nbytes, itemsize)]


def fly_all(clocks: Clocks, step: Step, prepared: list[PreparedFlight]) -> list[tuple[Floats, Floats]]:
    """Let the messages of a step fly, one of each rank after the other; when those of each flight begin and end."""
    times = []
    ready = clocks.ready(step.lag) if len(prepared) != 1 else None
    for flight in prepared:
        times.append(clocks.fly(flight, None if ready is None else ready[flight.sender]))
        clocks.count(flight)
    if ready is not None:
        clocks.end_step()
    return times
