"""The clocks of all ranks while a plan is priced: when its data is complete, and its links and its adder are free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hpckit.errors import PlanError
from hpckit.plan.machine.machine import SMALL, Machine
from hpckit.plan.machine.sharing import ROUNDING, Links, leave
from hpckit.plan.protocol import NOBODY, Floats, Ints, Step

PARTS = ("latency", "transfer", "contention", "reduction")
# The rows of the clocks: when the data is complete, and the link out, the link in and the adder are free.
COMPLETE, OUT, IN, ADDER = range(4)
# The share of a measured empty step during which the links are busy.
OVERHEAD = 0.25


@dataclass(frozen=True)
class Flight:
    """Messages that fly together, one entry a message; copies within a rank have sender and receiver the same.

    nbytes: of each message. first: the first cell of each. add: the receiver adds. lag: the data was complete so many
    steps before. memory: in the shared memory of a node. entry: of the step's sends. pieces: of memory that hold each
    message of a field; None for those of collectives.
    """

    sender: Ints
    receiver: Ints
    nbytes: Floats
    first: Ints
    add: bool
    lag: int
    memory: bool
    entry: Ints
    pieces: Floats | None = None


def messages(step: Step, nbytes: float, itemsize: float) -> Flight:
    """All messages of a step, those of a rank in its order. nbytes: of the buffer, itemsize: of an item."""
    ends = step.sends
    entry = np.flatnonzero(ends.peer != NOBODY)
    sender, receiver = ends.ranks()[entry], ends.peer[entry]
    amount = (ends.last - ends.first if ends.amount is None else ends.amount)[entry]
    one = nbytes / step.parts if step.parts else step.itemsize or itemsize
    return Flight(
        sender,
        receiver,
        amount.astype(np.float64) * one,
        ends.first[entry],
        step.add,
        step.lag,
        step.place == "memory",
        entry,
        None if step.parts or ends.pieces is None else ends.pieces[entry].astype(np.float64),
    )


def flights(step: Step, nbytes: float, itemsize: float) -> list[Flight]:
    """The messages of a step one after the other: at most one of each sender, and of each receiver, at a time."""
    whole = messages(step, nbytes, itemsize)
    if whole.memory or (step.sends.rank is None and step.receives.rank is None):
        return [whole]
    sender, receiver, entry = whole.sender, whole.receiver, whole.entry
    turn = _turns(sender)
    turn = turn * len(entry) + _turns(turn * (int(receiver.max(initial=0)) + 1) + receiver)
    rounds = [np.flatnonzero(turn == number) for number in np.unique(turn)]
    if len(rounds) <= 1:
        return [whole]
    return [
        replace(
            whole,
            sender=sender[at],
            receiver=receiver[at],
            nbytes=whole.nbytes[at],
            first=whole.first[at],
            pieces=None if whole.pieces is None else whole.pieces[at],
            entry=entry[at],
        )
        for at in rounds
    ]


def _turns(key: Ints) -> Ints:
    """Which of the entries with the same key each is, counted from 0."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(key) else key
    lengths = np.diff(np.concatenate([starts, [len(key)]]))
    turns = np.empty(len(key), np.int64)
    turns[order] = np.arange(len(key)) - np.repeat(starts, lengths)
    return turns


@dataclass(frozen=True)
class PreparedFlight:
    """A flight on a machine. The columns of its costs are the whole time, then the share of each of PARTS.

    occupy: float64[n, 1 + parts], while the links are busy. arrive: until the data is there. add: until it is added
    (None where it is stored). load: for each level what leaves its units. at: the senders as an index, a slice where
    they are all ranks. heads: in shared memory, where the messages of each receiver begin, which are sorted by it; what
    is added to the clocks is then of a receiver.
    """

    sender: Ints
    receiver: Ints
    lag: int
    occupy: Floats
    arrive: Floats
    add: Floats | None
    load: dict[str, Floats]
    at: Ints | slice
    heads: Ints | None = None
    links: Links | None = None

    def repeats(self, unit: int, ranks: int) -> bool:
        """Whether every rank sends and all looks the same from each unit of so many ranks."""
        if len(self.sender) != ranks or self.heads is not None or self.links is not None:
            return False
        costs = np.concatenate([self.occupy, self.arrive, *([] if self.add is None else [self.add])], axis=1)
        return bool(
            ((self.receiver[unit:] - self.receiver[:-unit]) % ranks == unit).all()
            and (costs[unit:] == costs[:-unit]).all()
        )

    def folded(self, unit: int) -> PreparedFlight:
        """The flight within one unit, whose last ranks send to its first."""
        return replace(
            self,
            sender=self.sender[:unit],
            receiver=self.receiver[:unit] % unit,
            occupy=self.occupy[:unit],
            arrive=self.arrive[:unit],
            add=None if self.add is None else self.add[:unit],
        )


class Clocks:
    """When each rank has done what, and which costs led to that time.

    state: float64[4, ranks, 1 + parts], for each row of clocks the time, s, and its parts; load: bytes that left the
    units of each level. depth: how far back the data that flights send was complete. place: of the first step.
    """

    def __init__(self, ranks: int, machine: Machine, depth: int, nbytes: float = 0.0, place: str = "messages") -> None:
        self.ranks = ranks
        self.machine = machine
        self.nbytes = nbytes
        self.state = np.zeros((4, ranks, 1 + len(PARTS)))
        # What a rank does before its first message counts as latency.
        self.state[..., :2] = max((it.start for it in machine.tables(ranks, place)), default=0.0)
        self.load = {level.name: np.zeros(ranks) for level in machine.levels}
        # Complete data after the last flights; with a depth of 1 the present state says it.
        self._recent: deque[Floats] = deque([self.state[COMPLETE].copy()] * depth, maxlen=depth if depth > 1 else 0)

    def prepare(self, flight: Flight) -> PreparedFlight:
        """What the messages of a flight cost on this machine, without waiting for anything."""
        if flight.memory:
            return self._prepare_memory(flight)
        if self.machine.measured:
            return self._prepare_measured(flight)
        s, d, levels, overhead = flight.sender, flight.receiver, self.machine.levels, self.machine.overhead
        away = s != d
        level = self.machine.level_of(s, d)
        speed = np.array([x.bandwidth for x in levels])[level]
        alone = flight.nbytes / speed
        if not away.all():
            alone = np.where(away, alone, self._copying(flight))
        several = len(s) and max(np.bincount(s).max(), np.bincount(d).max()) > 1
        sending = np.where(away, overhead, 0.0)
        links = None
        if several:
            whole = sending + alone  # the adapters are busy with both
            links = self._links(s, d, level, speed * np.divide(alone, whole, out=np.ones(len(s)), where=whole > 0))
        shared = alone if several else np.maximum(alone, flight.nbytes * self._seconds_per_byte(s, d, level))
        latency = np.where(away, np.array([x.latency for x in levels])[level] + overhead, 0.0)
        nothing = np.zeros(len(s))
        add = flight.nbytes / self.machine.reduction
        return PreparedFlight(
            sender=s,
            receiver=d,
            lag=flight.lag,
            occupy=np.stack([sending + shared, sending, alone, shared - alone, nothing], axis=1),
            arrive=np.stack([latency, latency, nothing, nothing, nothing], axis=1),
            add=np.stack([add, nothing, nothing, nothing, add], axis=1) if flight.add else None,
            load=self._load(s, d, level, flight.nbytes),
            at=s if several else self._at(s),
            links=links,
        )

    def _prepare_measured(self, flight: Flight) -> PreparedFlight:
        """The same from the measured times of steps of as many messages, on a node whose cores copy and add."""
        s, d = flight.sender, flight.receiver
        away = s != d
        messages = max(int(away.sum()), 1)
        latency, stored, added = self.machine.step(self.ranks, messages, self.nbytes, flight.nbytes)
        nothing = np.zeros(len(s))
        alone = flight.nbytes * (np.minimum(stored, added) if flight.add else stored)
        if flight.pieces is not None and self.machine.tables(self.ranks, "pieces"):  # packed, and unpacked
            strided = np.where(flight.pieces > 1, self.machine.gathering(self.ranks, flight.nbytes, flight.pieces), 0.0)
            alone = alone + 2 * strided
        slabs = None if flight.add or flight.pieces is None else self.machine.moving(self.ranks, "slabs", flight.nbytes)
        if slabs is not None:  # their times have the latency in them
            whole = (flight.pieces == 1) & (flight.nbytes > SMALL)
            alone, waits = np.where(whole, slabs, alone), np.where(away & ~whole, latency, 0.0)
        else:
            waits = np.where(away, latency, 0.0)
        if not away.all() and self.machine.tables(self.ranks, "copy"):
            alone = np.where(away, alone, self._copying(flight))
        overhead, rest = OVERHEAD * waits, (1.0 - OVERHEAD) * waits
        add = flight.nbytes * np.maximum(added - stored, 0.0)
        level = self.machine.level_of(s, d)
        return PreparedFlight(
            sender=s,
            receiver=d,
            lag=flight.lag,
            occupy=np.stack([overhead + alone, overhead, alone, nothing, nothing], axis=1),
            arrive=np.stack([rest, rest, nothing, nothing, nothing], axis=1),
            add=np.stack([add, nothing, nothing, nothing, add], axis=1) if flight.add else None,
            load=self._load(s, d, level, flight.nbytes),
            at=self._at(s),
        )

    def _at(self, senders: Ints) -> Ints | slice:
        """Senders as an index: a slice where they are all ranks in their order."""
        return slice(None) if len(senders) == self.ranks and (np.diff(senders) == 1).all() else senders

    def _copying(self, flight: Flight) -> Floats:
        """Seconds of each message if it is a copy within a rank."""
        if flight.pieces is None:
            return self.machine.copying(self.ranks, flight.nbytes)
        return self.machine.gathering(self.ranks, flight.nbytes, flight.pieces)

    def _prepare_memory(self, flight: Flight) -> PreparedFlight:
        """The same in shared memory, where each receiver reads the data of its senders, one after the other."""
        order = np.argsort(flight.receiver, kind="stable")
        s, d, nbytes = flight.sender[order], flight.receiver[order], flight.nbytes[order]
        heads = np.flatnonzero(np.concatenate([[True], d[1:] != d[:-1]])) if len(d) else d
        taker, level = d[heads], self.machine.level_of(s, d)
        moved, outer = np.add.reduceat(nbytes, heads), np.maximum.reduceat(level, heads)
        away = np.maximum.reduceat(s != d, heads)
        nothing = np.zeros(len(taker))
        if self.machine.in_memory:
            latency, stored, added = self.machine.step(self.ranks, len(taker), self.nbytes, moved, "memory")
            wait, alone = np.where(away, latency, 0.0), moved * stored
            strided = self.machine.tables(self.ranks, "pieces")
            if flight.pieces is not None and strided:  # a slab is copied into the shared memory, and out of it
                pieces, parts = np.add.reduceat(flight.pieces[order], heads), np.diff(np.append(heads, len(d)))
                wait = np.where(away, strided[-1].latency, 0.0)
                both = 2 * self.machine.gathering(self.ranks, moved, pieces)
                mail = self.machine.moving(self.ranks, "mail", moved)
                alone = 2 * alone if mail is None else mail
                alone = np.where((pieces > parts) | (mail is None), np.maximum(alone, both), alone)
            shared, add = alone, moved * np.maximum(added - stored, 0.0)
            if flight.add:
                alone = shared = moved * np.minimum(stored, added)
        else:
            levels = self.machine.levels
            wait = np.where(away, np.array([it.latency for it in levels])[outer] + self.machine.overhead, 0.0)
            alone = moved / np.array([it.bandwidth for it in levels])[outer]
            alone = np.where(away, alone, self.machine.copying(self.ranks, moved))
            shared, add = alone, moved / self.machine.reduction
            for number, unit in enumerate(levels):
                if unit.shared:
                    inside = outer <= number
                    sharers = _sharers(self._unit(taker, number), inside)
                    shared = np.where(inside, np.maximum(shared, moved * sharers / unit.shared), shared)
        return PreparedFlight(
            sender=s,
            receiver=d,
            lag=flight.lag,
            occupy=np.stack([wait + shared, wait, alone, shared - alone, nothing], axis=1),
            arrive=np.zeros((len(taker), 1 + len(PARTS))),
            add=np.stack([add, nothing, nothing, nothing, add], axis=1) if flight.add else None,
            load={},
            at=s,
            heads=heads,
        )

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
            turn[order] = _turns(d[order])
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
        other = Clocks(ranks, self.machine, max(self._recent.maxlen or 1, 1), self.nbytes)
        other.state, other.load = change(self.state), self.load
        other._recent = deque(map(change, self._recent), self._recent.maxlen)
        return other

    def _seconds_per_byte(self, s: Ints, d: Ints, level: Ints) -> Floats:
        """The slowest shared link on the way of each message."""
        slowest = np.zeros(len(s))
        for number, unit in enumerate(self.machine.levels):
            if unit.shared:
                inside = (level == number) & (s != d)
                sharers = _sharers(self._unit(s, number), inside)
                slowest = np.where(inside, np.maximum(slowest, sharers / unit.shared), slowest)
            if unit.uplink:
                leaves = level > number
                for end in (s, d):
                    sharers = _sharers(self._unit(end, number), leaves)
                    slowest = np.where(leaves, np.maximum(slowest, sharers / unit.uplink), slowest)
        return slowest

    def _links(self, s: Ints, d: Ints, level: Ints, speed: Floats) -> Links:
        """What each message takes: its sender's adapter and its receiver's, uplinks and buses on its way.

        speed: bytes/s, of each message alone.
        """
        one = np.ones(len(s))
        found, load = [s, self.ranks + d], [one, one]
        for number, unit in enumerate(self.machine.levels):
            ways = [(unit.shared, s, (level == number) & (s != d))] if unit.shared else []
            ways += [(unit.uplink, end, level > number) for end in (s, d)] if unit.uplink else []
            for most, end, used in ways:
                of, part = self._unit(end, number), np.where(used, speed / most, 0.0)
                adapters = np.zeros(self.ranks)
                np.maximum.at(adapters, end, part)
                holds = np.bincount(self._unit(np.arange(self.ranks), number), adapters) <= 1 + ROUNDING
                if not holds[of].all():  # else the adapters take no more than it has
                    found.append(len(found) * self.ranks + of)
                    load.append(np.where(holds[of], 0.0, part))
        return Links(np.stack(found, axis=1), np.stack(load, axis=1))

    def _unit(self, rank: Ints, number: int) -> Ints:
        size = self.machine.levels[number].ranks
        return rank // size if size else np.zeros_like(rank)

    def _load(self, s: Ints, d: Ints, level: Ints, nbytes: Floats) -> dict[str, Floats]:
        """The bytes that leave each unit of a level (for the outermost: that each rank sends across it)."""
        load: dict[str, Floats] = {}
        for number, unit in enumerate(self.machine.levels):
            over = (level > number if unit.ranks else level == number) & (s != d)
            at = self._unit(s, number) if unit.ranks else s
            load[unit.name] = np.bincount(at[over], nbytes[over], self.ranks).astype(np.float64)
        return load


def _last(order: Ints, rank: Ints, ranks: int) -> Ints:
    """Of each rank that has any message the last one in an order."""
    found = np.full(ranks, -1)
    found[rank[order]] = order  # of several assignments the last one holds
    return found[found >= 0]


def _latest(first: Floats, other: Floats) -> Floats:
    """The later of two clocks, element by element, with its parts: columns as in `Clocks.state`."""
    return np.where((other[:, 0] > first[:, 0])[:, None], other, first)


def _sharers(unit: Ints, counted: np.ndarray) -> Ints:
    """For each message how many of the counted ones have the same unit, at least 1."""
    return np.maximum(np.bincount(unit[counted], minlength=int(unit.max(initial=0)) + 1)[unit], 1)
