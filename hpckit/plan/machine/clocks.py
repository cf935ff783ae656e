"""The clocks of all ranks while a plan is priced: when its data is complete, and its links and its adder are free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from hpckit.errors import PlanError
from hpckit.plan.machine.costs import PARTS, Costs, PreparedFlight
from hpckit.plan.machine.flights import turns_of
from hpckit.plan.machine.machine import Machine
from hpckit.plan.machine.sharing import leave
from hpckit.plan.protocol import Floats, Ints

# The rows of the clocks: when the data is complete, and the link out, the link in and the adder are free.
COMPLETE, OUT, IN, ADDER = range(4)


class Clocks:
    """When each rank has done what, and which costs led to that time.

    state: float64[4, ranks, 1 + parts], for each row of clocks the time, s, and its parts; load: bytes that left the
    units of each level. depth: how far back the data that flights send was complete. place: of the first step.
    """

    def __init__(self, ranks: int, machine: Machine, depth: int, nbytes: float = 0.0, place: str = "messages") -> None:
        self.ranks = ranks
        self.machine = machine
        self.costs = Costs(ranks, machine, nbytes)
        self.state = np.zeros((4, ranks, 1 + len(PARTS)))
        # What a rank does before its first message counts as latency.
        self.state[..., :2] = max((it.start for it in machine.tables(ranks, place)), default=0.0)
        self.load = {level.name: np.zeros(ranks) for level in machine.levels}
        # Complete data after the last flights; with a depth of 1 the present state says it.
        self._recent: deque[Floats] = deque([self.state[COMPLETE].copy()] * depth, maxlen=depth if depth > 1 else 0)

    def ready(self, lag: int) -> Floats:
        """When the data was complete that leaves in a step: of each rank, as it was `lag` steps before."""
        if self._recent.maxlen is None or lag > max(self._recent.maxlen, 1):
            raise PlanError(f"a step waits for data {lag} steps back, and the plan says that none does")
        return self._recent[-lag] if self._recent.maxlen else self.state[COMPLETE].copy()

    def fly(self, flight: PreparedFlight, ready: Floats | None = None) -> tuple[Floats, Floats]:
        """Let the messages of one flight depart, arrive and be added; when each begins and ends, s.

        ready: of each message's data; by default what `lag` says, and the flight is a step of its own.
        """
        whole = ready is None
        if ready is None:
            ready = (self._recent[-flight.lag] if self._recent.maxlen else self.state[COMPLETE])[flight.at]
        if flight.heads is not None:
            begin, end = self._fly_memory(flight, ready)
        else:
            begin, end = self._fly(flight, ready) if flight.links is None else self._fly_together(flight, ready)
        if whole:
            self.end_step()
        return begin, end

    def end_step(self) -> None:
        """Remember what was complete after a step."""
        if self._recent.maxlen:
            self._recent.append(self.state[COMPLETE].copy())

    def _fly_memory(self, flight: PreparedFlight, ready: Floats) -> tuple[Floats, Floats]:
        """Each receiver begins once all its data is complete and it is free; the senders take no part."""
        heads, state = flight.heads, self.state
        assert heads is not None
        if not len(heads):
            return np.zeros(0), np.zeros(0)
        d = flight.receiver[heads]
        lengths = np.diff(np.concatenate([heads, [len(flight.receiver)]]))
        order = np.lexsort((ready[:, 0], np.repeat(np.arange(len(heads)), lengths)))
        begin = _latest(
            _latest(_latest(ready[order[heads + lengths - 1]], state[COMPLETE][d]), state[OUT][d]), state[IN][d]
        )
        now = begin + flight.occupy
        if flight.add is not None:
            now = now + flight.add
        for clock in (OUT, IN, ADDER, COMPLETE):
            state[clock][d] = _latest(state[clock][d], now)
        return np.repeat(begin[:, 0], lengths), np.repeat(now[:, 0], lengths)

    def _fly(self, flight: PreparedFlight, ready: Floats) -> tuple[Floats, Floats]:
        at, d, state = flight.at, flight.receiver, self.state
        begin = _latest(_latest(ready, state[OUT][at]), state[IN][d])
        now = begin + flight.occupy
        state[OUT][at] = now
        state[IN][d] = now
        if self.machine.measured:  # one core does both ends of a rank
            state[IN][at] = _latest(state[IN][at], now)
            state[OUT][d] = _latest(state[OUT][d], now)
        now = now + flight.arrive
        if flight.add is not None:
            now = _latest(now, state[ADDER][d]) + flight.add
            state[ADDER][d] = now
            if self.machine.measured:  # a core that adds does not copy
                state[OUT][d] += flight.add
                state[IN][d] += flight.add
        state[COMPLETE][d] = _latest(state[COMPLETE][d], now)
        return begin[:, 0], now[:, 0]

    def _fly_together(self, flight: PreparedFlight, ready: Floats) -> tuple[Floats, Floats]:
        """All at once, each with its share of the links."""
        assert flight.links is not None
        s, d, state, busy = flight.sender, flight.receiver, self.state, flight.occupy[:, 0]
        begin = np.maximum(np.maximum(ready[:, 0], state[OUT][s, 0]), state[IN][d, 0])
        left = leave(begin, busy, flight.links)

        def clock(of: Ints) -> Floats:
            """The clocks of some messages that have left."""
            now = _latest(_latest(ready[of], state[OUT][s[of]]), state[IN][d[of]]) + flight.occupy[of]
            now[:, 3] += left[of] - begin[of] - busy[of]
            now[:, 0] = left[of]
            return now

        if flight.add is None:
            end = left + flight.arrive[:, 0]
            order = np.argsort(left, kind="stable")
            out, into = _last(order, s, self.ranks), _last(order, d, self.ranks)
            complete = _last(np.argsort(end, kind="stable"), d, self.ranks)
            whole = clock(complete) + flight.arrive[complete]
            leaving, entering = clock(out), clock(into)
            state[OUT][s[out]], state[IN][d[into]] = leaving, entering
            state[COMPLETE][d[complete]] = _latest(state[COMPLETE][d[complete]], whole)
            return begin, end
        now = clock(np.arange(len(s)))
        order = np.argsort(left, kind="stable")  # of several assignments to a rank the last one holds
        state[OUT][s[order]] = now[order]
        state[IN][d[order]] = now[order]
        now = now + flight.arrive
        if flight.add is not None:
            order = np.argsort(now[:, 0], kind="stable")
            turn = np.empty(len(d), np.int64)
            turn[order] = turns_of(d[order])
            for number in range(int(turn.max(initial=-1)) + 1):
                at = np.flatnonzero(turn == number)
                now[at] = _latest(now[at], state[ADDER][d[at]]) + flight.add[at]
                state[ADDER][d[at]] = now[at]
        order = np.argsort(now[:, 0], kind="stable")
        last = state[COMPLETE].copy()
        last[d[order]] = now[order]
        state[COMPLETE][d] = _latest(state[COMPLETE][d], last[d])
        return begin, now[:, 0]

    def count(self, flight: PreparedFlight, times: int = 1) -> None:
        """Add what a flight, flown so many times, sends over the links."""
        for name, load in flight.load.items():
            self.load[name] += times * load

    def done(self) -> tuple[Floats, Floats]:
        """When each rank has its data and its links are free, and the parts of that: float64[ranks], [ranks, parts]."""
        last = _latest(_latest(self.state[COMPLETE], self.state[OUT]), self.state[IN])
        return last[:, 0], last[:, 1:]

    def move_on(self, step: Floats, times: int) -> None:
        """Add what one period added to the state, so many times."""
        self.state += times * step
        self._recent = deque((complete + times * step[COMPLETE] for complete in self._recent), self._recent.maxlen)

    def repeats(self, unit: int) -> bool:
        """Whether all units of so many ranks show the same clocks."""
        return bool((self.state[:, unit:] == self.state[:, :-unit]).all())

    def folded(self, unit: int) -> Clocks:
        """The clocks of the first unit alone. The loads stay those of all ranks."""
        return self._of(unit, lambda values: values[..., :unit, :].copy())

    def tiled(self, ranks: int) -> Clocks:
        """The clocks of so many ranks, unit after unit the same as here."""
        if ranks == self.ranks:
            return self
        return self._of(ranks, lambda values: np.concatenate([values] * (ranks // self.ranks), axis=-2))

    def tiled_load(self, ranks: int) -> dict[str, Floats]:
        """The loads of so many ranks, unit after unit the same as here."""
        found = {}
        for level in self.machine.levels:
            units = max(self.ranks // level.ranks, 1) if level.ranks else self.ranks
            load = np.tile(self.load[level.name][:units], ranks // self.ranks)
            found[level.name] = np.pad(load, (0, ranks - len(load)))
        return found

    def _of(self, ranks: int, change: Callable[[Floats], Floats]) -> Clocks:
        other = Clocks(ranks, self.machine, max(self._recent.maxlen or 1, 1), self.costs.nbytes)
        other.state, other.load = change(self.state), self.load
        other._recent = deque(map(change, self._recent), self._recent.maxlen)
        return other


def _last(order: Ints, rank: Ints, ranks: int) -> Ints:
    """Of each rank that has any message the last one in an order."""
    found = np.full(ranks, -1)
    found[rank[order]] = order  # of several assignments the last one holds
    return found[found >= 0]


def _latest(first: Floats, other: Floats) -> Floats:
    """The later of two clocks, element by element, with its parts: columns as in `Clocks.state`."""
    return np.where((other[:, 0] > first[:, 0])[:, None], other, first)
