"""What the messages of a step cost on a machine, before any of them waits for anything."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpckit.plan.machine.flights import Flight
from hpckit.plan.machine.machine import SMALL, Machine
from hpckit.plan.machine.sharing import ROUNDING, Links
from hpckit.plan.protocol import Floats, Ints

PARTS = ("latency", "transfer", "contention", "reduction")
# The share of a measured empty step during which the links are busy.
OVERHEAD = 0.25


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


class Costs:
    """The costs of flights of so many ranks on a machine; nbytes: of the whole buffer."""

    def __init__(self, ranks: int, machine: Machine, nbytes: float = 0.0) -> None:
        self.ranks, self.machine, self.nbytes = ranks, machine, nbytes

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


def _sharers(unit: Ints, counted: np.ndarray) -> Ints:
    """For each message how many of the counted ones have the same unit, at least 1."""
    return np.maximum(np.bincount(unit[counted], minlength=int(unit.max(initial=0)) + 1)[unit], 1)
