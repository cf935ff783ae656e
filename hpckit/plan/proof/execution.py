"""The symbolic execution of a plan: what the cells of all ranks hold after each step, as fingerprints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.errors import HpckitError, PlanError
from hpckit.plan.proof.fingerprints import Fingerprints, Numbers
from hpckit.plan.proof.form import MALFORMED, check_claim, malformed, malformed_work
from hpckit.plan.protocol import EMPTY, IN_ORDER, NOBODY, NOTHING, Claim, Ends, Ints, Plan, Step, Strands, Work

LONG_AGO = -(2**30)  # the number of a step before all others
EXTENTS = ("entry", "rank", "peer", "first", "last")


@dataclass(frozen=True)
class Proof:
    """The size of a proof: the numbers of steps, of messages between ranks, of copies within a rank, and of ranks."""

    ranks: int
    steps: int
    messages: int
    copies: int


class EndEntries(NamedTuple):
    """The entries of one end that have a message."""

    entry: Ints
    rank: Ints
    peer: Ints
    first: Ints
    last: Ints
    amount: npt.NDArray | None
    cells: Ints | None

    def of(self, entries: npt.NDArray) -> EndEntries:
        """Some entries, in any order."""
        amount = None if self.amount is None else self.amount[entries]
        entry, rank, peer, first, last = (each[entries] for each in self[:5])
        return EndEntries(entry, rank, peer, first, last, amount, self.cells)

    def joined(self, other: EndEntries) -> EndEntries:
        """The entries of both."""
        return self._replace(**{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in EXTENTS})


class Execution:
    """The data of all ranks while a plan is executed. held: uint64[ranks * cells], flat like all cell arrays here."""

    _fixed: npt.NDArray[np.bool_] | None = None
    _node: Ints | None = None
    _size: Ints | None = None
    # How many contributions a cell holds, once any are added: a number added to itself 64 times becomes 0.
    _summed: npt.NDArray[np.float64] | None = None

    def __init__(self, plan: Plan, claim: Claim) -> None:
        check_claim(plan, claim)
        self._whole = claim
        self._claim: Claim | Strands = claim
        self._numbers = Fingerprints(plan.ranks, claim)
        self.begin(plan, claim.start.shape[1], self._numbers.given.copy().reshape(-1), claim.zeros)
        self._fixed = None if claim.fixed is None else np.ascontiguousarray(claim.fixed).reshape(-1)
        self._node = claim.node
        size = None if claim.size is None else np.broadcast_to(claim.size, (plan.ranks, self._cells))
        self._size = None if size is None else size.reshape(-1) if size.strides[0] else size[0]

    def begin(self, plan: Plan, cells: int, held: Numbers, zeros: bool) -> None:
        """Set up the arrays over cells, with what these hold."""
        self._plan, self._cells, self._held, self._zeros = plan, cells, held, zeros
        self._complete = np.full(held.size, LONG_AGO, np.int32)  # the step that completed a cell
        self._left = np.full(held.size, LONG_AGO, np.int32)  # the last step that sent it
        self._tagged: list[tuple[int, int, Ints]] = []  # number, tag and pairs of the steps under way

    def run(self) -> Proof:
        """Take all steps, then check the final data of each rank."""
        number, messages, copies = -1, 0, 0
        for number, step in self.steps():
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

    def steps(self) -> Iterator[tuple[int, Step]]:
        """The steps by their numbers; what cannot be made, or is malformed, is a `PlanError`."""
        number = -1
        made = iter(_made(self._plan))
        while True:
            number += 1
            try:
                step = next(made)
            except StopIteration:
                return
            except HpckitError:
                raise
            except MALFORMED as error:
                raise PlanError(f"{self._plan.title()}: step {number} cannot be made: {error}") from error
            wrong = malformed(step)
            if wrong:
                raise PlanError(f"{self._plan.title()}: step {number}: {wrong}")
            yield number, step

    def fault(self, number: int, step: Step, what: str) -> PlanError:
        """The error that says what is wrong with a step."""
        name = f" ({step.name})" if step.name else ""
        return PlanError(f"{self._plan.title()}: step {number}{name}: {what}")

    def _end(self, number: int, step: Step, ends: Ends) -> EndEntries:
        """The messages of one end, well-formed and in range."""
        verb, ranks = "sends to" if ends is step.sends else "receives from", self._plan.ranks
        given = [ends.peer, ends.first, ends.last] + ([] if ends.rank is None else [ends.rank])
        length = ranks if ends.rank is None else len(ends.peer)
        if any(len(each) != length for each in given) or (ends.amount is not None and len(ends.amount) != length):
            lengths = ", ".join(str(len(each)) for each in given)
            whose = "one entry a rank" if ends.rank is None else "as many entries each"
            raise self.fault(number, step, f"the arrays of an end have {lengths} entries, and need {whose}: {length}")
        peer, first, last, *more = (each.astype(np.int64, copy=False) for each in given)
        rank, amount, entry = more[0] if more else np.arange(ranks), ends.amount, np.arange(length)
        if length and peer.min() == NOBODY:
            entry = np.flatnonzero(peer != NOBODY)
            rank, peer, first, last = (each[entry] for each in (rank, peer, first, last))
            amount = None if amount is None else amount[entry]
        end = EndEntries(entry, rank, peer, first, last, amount, ends.cells)
        if not len(entry):
            return end
        if min(peer.min(), rank.min()) < 0 or max(peer.max(), rank.max()) >= ranks:
            at = int(np.argmax((peer >= ranks) | (peer < 0) | (rank >= ranks) | (rank < 0)))
            raise self.fault(number, step, f"rank {rank[at]} {verb} rank {peer[at]}, there are {ranks} ranks")
        cells = self._cells if ends.cells is None else len(ends.cells)
        goes_on = step.wraps and ends.cells is None
        if goes_on:
            bad = (first < 0) | (last < first) | (last > first + cells) | ((first >= cells) & (last > first))
        elif first.min() < 0 or last.max() > cells or (last < first).any():
            bad = (first < 0) | (last < first) | (last > cells)
        else:
            bad = np.zeros(1, bool)
        if bad.any():
            at = int(np.argmax(bad))
            where = f"the cells 0 to {cells}" if ends.cells is None else f"a list of {cells} cells"
            raise self.fault(
                number,
                step,
                f"rank {rank[at]} {verb.split()[0]} the cells {first[at]} to {last[at]}, and has {where}",
            )
        if amount is not None and (~np.isfinite(amount) | (amount < 0)).any():
            raise self.fault(number, step, "the amount of a message is a number, 0 or more")
        return end

    def _matched(self, number: int, step: Step, sent: EndEntries, taken: EndEntries) -> tuple[EndEntries, EndEntries]:
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
            first, last = (each.astype(np.int64, copy=False)[sent.peer] for each in (other.first, other.last))
            met = EndEntries(sent.peer, sent.peer, sent.rank, first, last, amount, other.cells)
        else:
            out = np.argsort(sent.rank * ranks + sent.peer, kind="stable")
            into = np.argsort(taken.peer * ranks + taken.rank, kind="stable")
            sent, met = sent.of(out), taken.of(into)
            pairs, others = sent.rank * ranks + sent.peer, met.peer * ranks + met.rank
            if len(pairs) != len(others) or (pairs != others).any():
                n = min(len(pairs), len(others))
                differ = np.flatnonzero(pairs[:n] != others[:n])
                at = int(differ[0]) if differ.size else n
                if at == len(others) or (at < len(pairs) and pairs[at] < others[at]):
                    raise self._unmet(number, step, sent, at, "sends to", NOBODY)
                raise self._unmet(number, step, met, at, "receives from", NOBODY)
        sends, takes = sent.last - sent.first, met.last - met.first
        if sent.amount is not None or met.amount is not None:
            items = [width if end.amount is None else end.amount for end, width in ((sent, sends), (met, takes))]
            self._check_equal(number, step, sent, met, "items", *items)
        self._check_equal(number, step, sent, met, "cells", sends, takes)
        return sent, met

    def _unmet(self, number: int, step: Step, end: EndEntries, at: int, what: str, other: int) -> PlanError:
        whose = f"rank {other}" if other >= 0 else "nobody"
        return self.fault(
            number, step, f"rank {end.rank[at]} {what} rank {end.peer[at]}, whose side of it is with {whose}"
        )

    def _check_equal(
        self, number: int, step: Step, sent: EndEntries, met: EndEntries, unit: str, sends: Ints, takes: Ints
    ) -> None:
        unequal = sends != takes
        if unequal.any():
            at = int(np.argmax(unequal))
            raise self.fault(
                number,
                step,
                f"rank {sent.rank[at]} sends {sends[at]} {unit} from cell {sent.first[at]} on, "
                f"rank {met.rank[at]} takes {takes[at]}",
            )

    def _check_place(self, number: int, step: Step, sent: EndEntries) -> None:
        if step.place == "messages":
            return
        node = self._node
        apart = sent.rank != sent.peer if node is None else node[sent.rank] != node[sent.peer]
        if apart.any():
            at = int(np.argmax(apart))
            raise self.fault(
                number,
                step,
                f"rank {sent.rank[at]} sends to rank {sent.peer[at]} in shared memory, and they share none",
            )

    def _check_tags(self, number: int, step: Step, sent: EndEntries) -> None:
        """Check that messages under way together between the same ranks have different tags, if they have any."""
        if step.tag == IN_ORDER:
            return
        pairs = sent.rank * self._plan.ranks + sent.peer
        self._tagged = [it for it in self._tagged if it[0] > number - step.lag]
        for _, tag, others in self._tagged:
            both = np.intersect1d(pairs, others) if tag == step.tag else np.zeros(0, np.int64)
            if both.size:
                sender, receiver = divmod(int(both[0]), self._plan.ranks)
                raise self.fault(
                    number,
                    step,
                    f"rank {sender} sends two messages to rank {receiver} at once, and they share the tag {tag}",
                )
        self._tagged.append((number, step.tag, pairs))

    def _compute(self, number: int, step: Step, work: Work) -> None:
        """Check the inputs of computations, and store their results before messages leave."""
        wrong = malformed_work(work, self._plan.ranks, self._cells)
        if wrong:
            raise self.fault(number, step, wrong)
        base = work.rank[:, None] * self._cells
        asked = work.needs != NOTHING
        at = np.where(asked, base + work.reads, 0)
        missing = asked & (self._held[at] != self._numbers.totals(work.needs))
        missing |= asked & (self._complete[at] > number - step.lag)
        if missing.any():
            m, k = map(int, np.argwhere(missing)[0])
            name = work.names[m] if len(work.names) else f"entry {m}"
            raise self.fault(
                number,
                step,
                f"rank {work.rank[m]} computes {name} before {self._claim.index_name(int(work.needs[m, k]))} is there",
            )
        made = work.makes != NOTHING
        cells = (base + work.writes)[made]
        self._check_fixed(number, step, cells, "computes")
        self._check_apart(number, step, cells, several=True)
        self._held[cells] = self._numbers.totals(work.makes[made])
        if self._summed is not None:
            self._summed[cells] = self._numbers.contributions(work.makes[made])
        self._complete[cells] = number - step.lag

    def _move(self, number: int, step: Step, sent: EndEntries, taken: EndEntries) -> None:
        """Let the messages of a step depart and arrive."""
        if not len(sent.rank):
            return
        out, into = self._flat(number, step, sent), self._flat(number, step, taken)
        late = self._complete[out] > number - step.lag
        if late.any():
            at = int(np.argmax(late))
            raise self.fault(
                number,
                step,
                f"{self._named(out[at], 'sends')}, which step {self._complete[out[at]]} completed; "
                f"the plan allows what is {step.lag} steps old",
            )
        self._check_fixed(number, step, into, "receives into")
        if step.place == "memory" and step.work is not None:
            self._check_unread(number, step, step.work, into)
        self._check_sizes(number, step, sent, taken, out, into)
        if step.add and self._summed is None:
            self._summed = (self._held != 0 if self._zeros else np.ones(self._held.size)).astype(np.float64)
        values, summed = self._held[out], None if self._summed is None else self._summed[out]
        self._left[out] = number
        if step.clears:
            self._held[out] = 0
            if self._summed is not None:
                self._summed[out] = 0
        several = step.receives.rank is not None or taken.cells is not None  # of a rank, into one cell
        if not step.add or step.place == "memory":
            self._check_apart(number, step, into, several and not step.add)
        if not step.add:
            self._held[into] = values
        elif several:
            np.add.at(self._held, into, values)
        else:
            self._held[into] += values
        if self._summed is not None and summed is not None:
            if not step.add:
                self._summed[into] = summed
            elif several:
                np.add.at(self._summed, into, summed)
            else:
                self._summed[into] += summed
        self._complete[into] = number

    def _check_fixed(self, number: int, step: Step, into: Ints, verb: str) -> None:
        if self._fixed is not None and self._fixed[into].any():
            at = int(np.argmax(self._fixed[into]))
            raise self.fault(number, step, f"{self._named(into[at], verb)}, which is fixed")

    def _check_unread(self, number: int, step: Step, work: Work, into: Ints) -> None:
        """Check that no rank writes into shared memory what another computes from in the same step."""
        asked = work.needs != NOTHING
        read = np.isin(into, (work.rank[:, None] * self._cells + work.reads)[asked])
        if read.any():
            at = int(np.argmax(read))
            raise self.fault(number, step, f"{self._named(into[at], 'stores into')} while it computes from it")

    def _check_sizes(self, number: int, step: Step, sent: EndEntries, taken: EndEntries, out: Ints, into: Ints) -> None:
        """Check that cells of several sizes come into cells of their size."""
        size = self._size
        if size is None or (size.size == self._cells and (sent.first == taken.first).all()):
            return
        before, after = (size[self._column(each) if size.size == self._cells else each] for each in (out, into))
        unequal = (before != after) & (before >= 0) & (after >= 0)
        if unequal.any():
            at = int(np.argmax(unequal))
            raise self.fault(
                number,
                step,
                f"{self._named(out[at], 'sends')}, and {self._named(into[at], 'stores it in')}, of another size",
            )

    def _column(self, at: Ints) -> Ints:
        """Which of its rank's cells each is."""
        return at % self._cells

    def _check_apart(self, number: int, step: Step, into: Ints, several: bool) -> None:
        """Check that nothing is written into cells that a message under way reads or writes. several: two messages of
        the step may write one cell.
        """
        verbs = [("sends", self._left[into] > number - step.lag)]
        if step.lag > 1 and not step.add:
            verbs.append(("receives", self._complete[into] > number - step.lag))
        if several:
            before = self._complete[into]
            self._complete[into] = np.arange(len(into), dtype=np.int32)
            verbs.append(("receives twice", self._complete[into] != np.arange(len(into))))
            self._complete[into] = before
        for verb, both in verbs:
            if both.any():
                at = int(np.argmax(both))
                raise self.fault(number, step, f"{self._named(into[at], 'stores into')} while it {verb} it")

    def _flat(self, number: int, step: Step, end: EndEntries) -> Ints:
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
        if end.cells is not None:
            at = end.cells[at]
            if ((at < 0) | (at >= self._cells)).any():
                raise self.fault(number, step, f"a message has cells outside the {self._cells} of its rank")
        elif step.wraps:
            at = at % self._cells
        return (rank * self._cells + at).reshape(-1)

    def _named(self, cell: int, verb: str) -> str:
        rank, own = divmod(int(cell), self._cells)
        return f"rank {rank} {verb} {self._claim.cell_name(rank, own)}"

    def _check_result(self) -> None:
        claim, held = self._whole, self._held.reshape(self._plan.ranks, self._cells)
        summed = None if self._summed is None else self._summed.reshape(held.shape)
        wrong = self._numbers.wrong(held, summed)
        if wrong.any():
            at = np.argwhere(wrong)
            rank, cell = map(int, at[0])
            wanted = int(np.broadcast_to(claim.end, held.shape)[rank, cell])
            must = "must hold nobody's data" if wanted == EMPTY else f"must hold {claim.index_name(wanted)}"
            raise PlanError(
                f"{self._plan.title()}: rank {rank} ends with {self._numbers.name_of(held[rank, cell])} in a wrong "
                f"place: {claim.cell_name(rank, cell)} {must} "
                f"({len(at)} wrong cells on {len(set(at[:, 0].tolist()))} ranks)"
            )
        if claim.also is not None:
            claim.also(held)


def _made(plan: Plan) -> Iterator[Step]:
    yield from plan.steps()
