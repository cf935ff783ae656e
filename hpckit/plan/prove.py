"""Proofs of plans: all ranks are executed symbolically, without MPI.

Each contribution of a rank is a random 64-bit number, and a sum of contributions is the sum of their numbers: a lost,
doubled or misplaced contribution, or data of no rank, is detected with probability 1 - 2^-64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.errors import PlanError
from hpckit.plan.protocol import EMPTY, NOBODY, NOTHING, Claim, Ends, Ints, Plan, Step, Work, require_plan

Numbers = npt.NDArray[np.uint64]
LONG_AGO = -(2**30)  # the number of a step before all others
CONTRIBUTIONS = 2**61  # numbers from here on stand for contributions, lower ones for global indices
NOBODYS = 0xA5A5_5A5A_0F0F_F0F1  # the number of cells without data
DENSE = 4  # indices up to `DENSE` times the cells are looked up in a table, others by bisection


@dataclass(frozen=True)
class Proof:
    """The size of a proof: the numbers of steps, of messages between ranks, of copies within a rank, and of ranks."""

    ranks: int
    steps: int
    messages: int
    copies: int


def prove(plan: Plan) -> Proof:
    """Execute a plan on all ranks symbolically; raise `PlanError` unless it does exactly what it claims.

    Checked for all ranks: each send meets one receive of the same extent, within the existing cells, so steps cannot
    deadlock (their receives can be posted before their sends); data that is sent or used was complete `lag` steps
    before; messages under way together do not store into each other's cells, and no two between the same ranks share a
    tag; fixed cells are never written; steps in shared memory stay within a node; each cell of the claim ends with
    each contribution to its index once. The error names the rank and the step.
    """
    require_plan(plan)
    claim = plan.claim()
    if isinstance(claim, Claim):
        return _Execution(plan, claim).run()
    try:
        for factor in claim.plans:
            prove(factor)
    except PlanError:
        return prove(claim.whole())  # it names the fault by its rank
    return _counted(plan)


def _counted(plan: Plan) -> Proof:
    steps = messages = copies = 0
    for step in plan.steps():
        rank, peer = step.sends.ranks(), step.sends.peer
        own = int((rank == peer).sum())
        copies += own
        messages += int((peer != NOBODY).sum()) - own
        steps += 1
    return Proof(plan.ranks, steps, messages, copies)


class _End(NamedTuple):
    """The entries of one end that have a message."""

    entry: Ints
    rank: Ints
    peer: Ints
    first: Ints
    last: Ints
    amount: npt.NDArray | None

    def sorted(self, order: Ints) -> _End:
        """The entries in another order."""
        amount = None if self.amount is None else self.amount[order]
        entry, rank, peer, first, last = (each[order] for each in self[:5])
        return _End(entry, rank, peer, first, last, amount)


class _Execution:
    """The data of all ranks while a plan is executed. held: uint64[ranks * cells], flat like all cell arrays here."""

    def __init__(self, plan: Plan, claim: Claim) -> None:
        self._plan, self._claim = plan, claim
        self._cells = claim.start.shape[1]
        self._indices = _Indices(claim)
        self._held = self._indices.given.copy().reshape(-1)
        size = self._held.size
        self._complete = np.full(size, LONG_AGO, np.int32)  # the step that completed a cell
        self._left = np.full(size, LONG_AGO, np.int32)  # the last step that sent it
        self._fixed = None if claim.fixed is None else np.ascontiguousarray(claim.fixed).reshape(-1)
        self._tagged: list[tuple[int, int, Ints]] = []  # number, tag and pairs of the steps under way

    def run(self) -> Proof:
        """Take all steps, then check the final data of each rank."""
        number, messages, copies = -1, 0, 0
        for number, step in enumerate(self._plan.steps()):
            sent, taken = self._end(number, step, step.sends), self._end(number, step, step.receives)
            sent, taken = self._matched(number, step, sent, taken)
            self._check_place(number, step, sent)
            self._check_tags(number, step, sent)
            if step.work is not None:
                self._compute(number, step, step.work)
            self._move(number, step, sent, taken)
            own = int((sent.rank == sent.peer).sum())
            copies += own
            messages += len(sent.rank) - own
        self._check_result()
        return Proof(self._plan.ranks, number + 1, messages, copies)

    def _fault(self, number: int, step: Step, what: str) -> PlanError:
        name = f" ({step.name})" if step.name else ""
        return PlanError(f"{self._plan.title()}: step {number}{name}: {what}")

    def _end(self, number: int, step: Step, ends: Ends) -> _End:
        """The messages of one end, in range."""
        verb, ranks = "sends to" if ends is step.sends else "receives from", self._plan.ranks
        rank = np.arange(len(ends.peer)) if ends.rank is None else ends.rank
        entry = np.flatnonzero(ends.peer != NOBODY)
        amount = None if ends.amount is None else ends.amount[entry]
        end = _End(entry, rank[entry], ends.peer[entry], ends.first[entry], ends.last[entry], amount)
        if not len(entry):
            return end
        beyond = (end.peer >= ranks) | (end.peer < 0) | (end.rank >= ranks) | (end.rank < 0)
        if beyond.any():
            at = int(np.argmax(beyond))
            raise self._fault(number, step, f"rank {end.rank[at]} {verb} rank {end.peer[at]}, there are {ranks} ranks")
        cells = self._cells if ends.cells is None else None
        if cells is None:
            return end
        most = 2 * cells - 1 if step.wraps else cells
        bad = (end.first < 0) | (end.last < end.first) | (end.last > most) | (end.last - end.first > cells)
        if bad.any():
            at = int(np.argmax(bad))
            raise self._fault(
                number,
                step,
                f"rank {end.rank[at]} {verb.split()[0]} the cells {end.first[at]} to {end.last[at]}, "
                f"and has the cells 0 to {cells}",
            )
        return end

    def _matched(self, number: int, step: Step, sent: _End, taken: _End) -> tuple[_End, _End]:
        """Both ends, ordered so that entry m of one meets entry m of the other."""
        ranks = self._plan.ranks
        if step.sends.rank is None and step.receives.rank is None:
            send_to, recv_from = step.sends.peer, step.receives.peer
            for what, end, back in (("sends to", sent, recv_from), ("receives from", taken, send_to)):
                unmet = np.flatnonzero(back[end.peer] != end.rank)
                if unmet.size:
                    at = int(unmet[0])
                    raise self._unmet(number, step, end, at, what, int(back[end.peer[at]]))
            other = step.receives
            amount = None if other.amount is None else other.amount[sent.peer]
            met = _End(sent.peer, sent.peer, sent.rank, other.first[sent.peer], other.last[sent.peer], amount)
        else:
            out = np.argsort(sent.rank * ranks + sent.peer, kind="stable")
            into = np.argsort(taken.peer * ranks + taken.rank, kind="stable")
            sent, met = sent.sorted(out), taken.sorted(into)
            pairs, others = sent.rank * ranks + sent.peer, met.peer * ranks + met.rank
            if len(pairs) != len(others) or (pairs != others).any():
                n = min(len(pairs), len(others))
                differ = np.flatnonzero(pairs[:n] != others[:n])
                at = int(differ[0]) if differ.size else n
                if at == len(others) or (at < len(pairs) and pairs[at] < others[at]):
                    raise self._unmet(number, step, sent, at, "sends to", NOBODY)
                raise self._unmet(number, step, met, at, "receives from", NOBODY)
        if sent.amount is not None and met.amount is not None:
            self._check_equal(number, step, sent, met, "items", sent.amount, met.amount)
        self._check_equal(number, step, sent, met, "cells", sent.last - sent.first, met.last - met.first)
        return sent, met

    def _unmet(self, number: int, step: Step, end: _End, at: int, what: str, other: int) -> PlanError:
        whose = f"rank {other}" if other >= 0 else "nobody"
        return self._fault(
            number, step, f"rank {end.rank[at]} {what} rank {end.peer[at]}, whose side of it is with {whose}"
        )

    def _check_equal(self, number: int, step: Step, sent: _End, met: _End, unit: str, sends: Ints, takes: Ints) -> None:
        unequal = sends != takes
        if unequal.any():
            at = int(np.argmax(unequal))
            raise self._fault(
                number,
                step,
                f"rank {sent.rank[at]} sends {sends[at]} {unit} from cell {sent.first[at]} on, "
                f"rank {met.rank[at]} takes {takes[at]}",
            )

    def _check_place(self, number: int, step: Step, sent: _End) -> None:
        if step.place == "messages":
            return
        node = self._claim.node
        apart = sent.rank != sent.peer if node is None else node[sent.rank] != node[sent.peer]
        if apart.any():
            at = int(np.argmax(apart))
            raise self._fault(
                number,
                step,
                f"rank {sent.rank[at]} sends to rank {sent.peer[at]} in shared memory, and they share none",
            )

    def _check_tags(self, number: int, step: Step, sent: _End) -> None:
        """Check that messages under way together between the same ranks have different tags, if they have any."""
        if step.tag < 0:
            return
        pairs = sent.rank * self._plan.ranks + sent.peer
        self._tagged = [it for it in self._tagged if it[0] > number - step.lag]
        for _, tag, others in self._tagged:
            both = np.intersect1d(pairs, others) if tag == step.tag else np.zeros(0, np.int64)
            if both.size:
                sender, receiver = divmod(int(both[0]), self._plan.ranks)
                raise self._fault(
                    number,
                    step,
                    f"rank {sender} sends two messages to rank {receiver} at once, and they share the tag {tag}",
                )
        self._tagged.append((number, step.tag, pairs))

    def _compute(self, number: int, step: Step, work: Work) -> None:
        """Check the inputs of computations, and store their results before messages leave."""
        base = work.rank[:, None] * self._cells
        for cells, needs in ((base + work.reads, work.needs),):
            asked = needs != NOTHING
            at = np.where(asked, cells, 0)
            missing = asked & (self._held[at] != self._indices.totals(needs))
            missing |= asked & (self._complete[at] > number - step.lag)
            if missing.any():
                m, k = map(int, np.argwhere(missing)[0])
                name = work.names[m] if len(work.names) else f"entry {m}"
                raise self._fault(
                    number,
                    step,
                    f"rank {work.rank[m]} computes {name} before {self._claim.index_name(int(needs[m, k]))} is there",
                )
        made = work.makes != NOTHING
        cells = (base + work.writes)[made]
        self._held[cells] = self._indices.totals(work.makes[made])
        self._complete[cells] = number - step.lag

    def _move(self, number: int, step: Step, sent: _End, taken: _End) -> None:
        """Let the messages of a step depart and arrive."""
        if not len(sent.rank):
            return
        out = self._flat(number, step, step.sends, sent)
        into = self._flat(number, step, step.receives, taken)
        late = self._complete[out] > number - step.lag
        if late.any():
            at = int(np.argmax(late))
            raise self._fault(
                number,
                step,
                f"{self._named(out[at], 'sends')}, which step {self._complete[out[at]]} completed; "
                f"the plan allows what is {step.lag} steps old",
            )
        if self._fixed is not None and self._fixed[into].any():
            at = int(np.argmax(self._fixed[into]))
            raise self._fault(number, step, f"{self._named(into[at], 'receives into')}, which is fixed")
        values = self._held[out]
        self._left[out] = number
        if step.clears:
            self._held[out] = 0
        alone = step.receives.rank is None  # one message a receiver
        if step.add:
            if alone:
                self._held[into] += values
            else:
                np.add.at(self._held, into, values)
        else:
            self._check_apart(number, step, into, alone)
            self._held[into] = values
        self._complete[into] = number

    def _check_apart(self, number: int, step: Step, into: Ints, alone: bool) -> None:
        """Check that no message stores into cells that another message under way reads or writes."""
        verbs = [("sends", self._left[into] > number - step.lag)]
        if step.lag > 1:
            verbs.append(("receives", self._complete[into] > number - step.lag))
        if not alone:
            self._complete[into] = np.arange(len(into), dtype=np.int32)
            verbs.append(("receives twice", self._complete[into] != np.arange(len(into))))
        for verb, both in verbs:
            if both.any():
                at = int(np.argmax(both))
                raise self._fault(number, step, f"{self._named(into[at], 'stores into')} while it {verb} it")

    def _flat(self, number: int, step: Step, ends: Ends, end: _End) -> Ints:
        """The cells of all messages of one end, one after the other."""
        width = end.last - end.first
        wide = int(width[0])
        if (width == wide).all():
            at = (end.first[:, None] + np.arange(wide)) if wide != 1 else end.first[:, None]
            rank = end.rank[:, None]
        else:
            start = np.cumsum(width) - width
            along = np.arange(int(width.sum())) - np.repeat(start, width)
            at, rank = np.repeat(end.first, width) + along, np.repeat(end.rank, width)
        if ends.cells is not None:
            beyond = (end.first < 0) | (end.last > len(ends.cells))
            if not beyond.any():
                at = ends.cells[at]
                beyond = (at < 0) | (at >= self._cells)
            if beyond.any():
                raise self._fault(number, step, f"a message has cells outside the {self._cells} of its rank")
        elif step.wraps:
            at = at % self._cells
        return (rank * self._cells + at).reshape(-1)

    def _named(self, cell: int, verb: str) -> str:
        rank, own = divmod(int(cell), self._cells)
        return f"rank {rank} {verb} {self._claim.cell_name(rank, own)}"

    def _check_result(self) -> None:
        claim, held = self._claim, self._held.reshape(self._plan.ranks, self._cells)
        wrong = self._indices.wrong(held)
        if wrong.any():
            at = np.argwhere(wrong)
            rank, cell = map(int, at[0])
            wanted = int(np.broadcast_to(claim.end, held.shape)[rank, cell])
            must = "must hold nobody's data" if wanted == EMPTY else f"must hold {claim.index_name(wanted)}"
            raise PlanError(
                f"{self._plan.title()}: rank {rank} ends with {self._indices.name_of(held[rank, cell])} in a wrong "
                f"place: {claim.cell_name(rank, cell)} {must} "
                f"({len(at)} wrong cells on {len(set(at[:, 0].tolist()))} ranks)"
            )
        if claim.also is not None:
            claim.also(held)


class _Indices:
    """The numbers of contributions, and of global indices: the number of an index is the sum over its contributions.

    given: uint64[ranks, cells], the data of the cells before the first step.
    """

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        ranks, cells = claim.start.shape
        self._nobody = np.uint64(0 if claim.zeros else NOBODYS)
        contributions = _random(np.arange(CONTRIBUTIONS, CONTRIBUTIONS + ranks * cells)).reshape(ranks, cells)
        rows = claim.start[:1] if claim.start.strides[0] == 0 else claim.start
        gives = rows >= 0
        self.given = np.where(gives, contributions, self._nobody)
        index = rows[gives]
        numbers = contributions.sum(0, dtype=np.uint64)[gives[0]] if len(rows) < ranks else contributions[gives]
        self._known: Ints | None = None
        largest = int(index.max(initial=-1)) + 1
        if largest > DENSE * claim.start.size:
            self._known, index = np.unique(index, return_inverse=True)
            largest = len(self._known)
        self._totals = np.zeros(largest, np.uint64)
        np.add.at(self._totals, index, numbers)
        if self._known is None and largest:
            unknown = np.ones(largest, bool)
            unknown[index] = False
            self._totals[unknown] = _random(np.flatnonzero(unknown))

    def totals(self, index: Ints) -> Numbers:
        """The number of each index, also without contributions; arbitrary for values that are not indices."""
        n = len(self._totals)
        if not n:
            return _random(index)
        at = index if self._known is None else np.searchsorted(self._known, index)
        known = (at >= 0) & (at < n)
        if known.all() and self._known is None:
            return self._totals[at]
        at = np.where(known, at, 0)
        if self._known is not None:
            known &= self._known[at] == index
        return np.where(known, self._totals[at], _random(index))

    def wrong(self, held: Numbers) -> npt.NDArray[np.bool_]:
        """The cells that differ from the claim."""
        end = self._claim.end
        rows = end[:1] if end.strides[0] == 0 else end
        wrong = (held != self.totals(rows)) & (rows >= 0)
        if (rows == EMPTY).any():
            wrong |= (held != self._nobody) & (rows == EMPTY)
        return wrong

    def name_of(self, number: np.uint64) -> str:
        """The content of a cell, in words."""
        if number == self._nobody:
            return "what nobody gave"
        end = np.unique(self._claim.end[self._claim.end >= 0])
        found = np.flatnonzero(self.totals(end) == number)
        return self._claim.index_name(int(end[found[0]])) if found.size else "an incomplete or doubled sum"


def _random(number: Ints) -> Numbers:
    """A random number for each: splitmix64, which is made for this and needs no state."""
    with np.errstate(over="ignore"):
        x = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
