"""What a plan is: a value over all ranks that can be proved, priced, drawn and run.

`prove`, `price` and `draw` use what stands here and nothing else, so a class with the four members of `Plan` is a plan.
Data is counted in cells: places in a rank's memory that move as a whole (a slot of a buffer, a layer of a halo, a
ghost). What a cell holds is named by a global index (a block of a buffer, a point of a grid, the id of a particle).

A worked example. Three ranks own two cells each of a ring of six and keep one cell of each neighbor, in local cells
0 (of the left neighbor), 1, 2 (owned), 3 (of the right neighbor)::

    class Ring:
        ranks = 3

        def title(self):
            return "halo of a ring"

        def steps(self):
            rank = np.arange(3)
            for shift, edge, halo in ((-1, 1, 3), (1, 2, 0)):  # leaving left, leaving right
                yield Step(
                    Ends((rank + shift) % 3, first=rank * 0 + edge, last=rank * 0 + edge + 1),
                    Ends((rank - shift) % 3, first=rank * 0 + halo, last=rank * 0 + halo + 1),
                )

        def claim(self):
            cell = np.arange(6).reshape(3, 2)
            nothing = np.full((3, 1), NOTHING)
            start = np.hstack([nothing, cell, nothing])
            end = np.hstack([(cell[:, :1] - 1) % 6, cell, (cell[:, 1:] + 1) % 6])
            return Claim(start, end, fixed=start != NOTHING)

    prove(Ring())                   # each halo cell holds its point, no owned cell is overwritten
    price(Ring(), machine_of("infiniband"), itemsize=8).seconds
    prove(transposed(Ring()))       # halos go back and are added to the cells that they copy
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

NOBODY = -1  # a peer
NOTHING = -1  # a global index: nothing is given, anything may be left
EMPTY = -2  # a global index of the end: what nobody gave
IN_ORDER = -1  # a tag


@dataclass(frozen=True, slots=True)
class Ends:
    """One end of the messages of a step: entry m is what `rank[m]` sends to, or receives from, `peer[m]`.

    peer: int64[m], NOBODY for an entry without a message. first, last: int64[m], the cells of the message, last
    excluded. rank: int64[m]; None where entry r is that of rank r, as in a partial permutation. amount: int64[m] or
    float64[m], items that a message carries; None: as many as cells. cells: a list into which `first` and `last` point
    where the cells of a message do not lie side by side; None where they are the cells themselves. Several messages
    between two ranks in a step match in their order.
    """

    peer: Ints
    first: Ints
    last: Ints
    rank: Ints | None = None
    amount: npt.NDArray[Any] | None = None
    cells: Ints | None = None

    def of(self, rank: int) -> Ints:
        """The entries of one rank that have a message."""
        if self.rank is None:
            return np.array([rank] if self.peer[rank] != NOBODY else [], np.int64)
        return np.flatnonzero((self.rank == rank) & (self.peer != NOBODY))

    def ranks(self) -> Ints:
        """The rank of each entry."""
        return np.arange(len(self.peer)) if self.rank is None else self.rank


@dataclass(frozen=True, slots=True)
class Work:
    """What ranks compute in a step, before its messages leave: entry m is computed by `rank[m]` in `seconds[m]`.

    It needs the global indices needs[m] in the cells reads[m] and leaves makes[m] in the cells writes[m]: int64[m, k]
    each, NOTHING where an entry has fewer. names: of the entries, for messages and drawings.
    """

    rank: Ints
    seconds: Floats
    reads: Ints
    needs: Ints
    writes: Ints
    makes: Ints
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Messages of all ranks that may be under way together. A message from a rank to itself is a copy.

    add: what arrives is added to the cells that take it, else it is stored. clears: what leaves is taken out of the
    sender's cells, which then hold zeros. wraps: a range that passes the last cell
    goes on at cell 0. lag: what leaves was complete so many steps before, so the steps of the last `lag` numbers may be
    under way together; 1 is one after the other. tag: tells messages between two ranks in steps that are under way
    together apart; IN_ORDER where the order of the steps does. place: "messages", or "memory": the ranks copy or add in
    the shared memory of their node.

    itemsize: bytes of an item; 0: as `price` is given. parts: where given, an item is one of so many parts of the
    buffer whose bytes `price` is given. work: what is computed first. name: of the step in messages. texts: what
    drawings say of the entries of `sends`, without the receiver: `2x16` cells; by default the range of cells.
    """

    sends: Ends
    receives: Ends
    add: bool = False
    clears: bool = False
    wraps: bool = False
    lag: int = 1
    tag: int = IN_ORDER
    place: Literal["messages", "memory"] = "messages"
    itemsize: float = 0.0
    parts: int = 0
    work: Work | None = None
    name: str = ""
    texts: Callable[[], Sequence[str]] | None = None

    def backward(self) -> Step:
        """The same messages in the other direction; stores become additions that clear the sender, additions stores."""
        adds = not self.add
        return replace(self, sends=self.receives, receives=self.sends, add=adds, clears=adds, texts=None)


@dataclass(frozen=True, eq=False)
class Claim:
    """Who starts with what, and who must hold what at the end. Rows are ranks, columns are cells.

    start: int64[ranks, cells], the global index of what a rank gives in a cell; NOTHING where it gives nothing. Ranks
    that give the same index each contribute to it. end: the global index whose contributions, each once, a cell must
    hold in the end: one of them is a copy, several are a sum; NOTHING where anything may be left, EMPTY where no data
    may arrive. Rows may be one row that is broadcast.

    zeros: cells that give nothing hold zeros, to which one may add; else what they hold must not be used. fixed:
    bool[ranks, cells], cells into which nothing may be written. node: int64[ranks], of each rank; steps in
    "memory" stay within one. also: called with the fingerprints uint64[ranks, cells] of the end, for what indices
    cannot say; it raises `PlanError`. cell_name, index_name: words for a rank's cell and for a global index.
    """

    start: Ints
    end: Ints
    zeros: bool = False
    fixed: Flags | None = None
    node: Ints | None = None
    also: Callable[[npt.NDArray[np.uint64]], None] | None = None
    cell_name: Callable[[int, int], str] = lambda rank, cell: f"cell {cell}"
    index_name: Callable[[int], str] = lambda index: f"the index {index}"


@dataclass(frozen=True, eq=False)
class Factors:
    """The claim of a plan that acts alike along all lines of ranks: plans of a line each, whose proofs prove it.

    They are made from the steps of the plan, so that a step that is not alike shows. whole: makes the plan of the same
    steps whose claim is a `Claim`, to find the rank at fault; the steps of this one then need not say its cells.
    """

    plans: tuple[Plan, ...]
    whole: Callable[[], Plan]


@runtime_checkable
class Plan(Protocol):
    """Who sends what to whom, and in which order, for all ranks."""

    @property
    def ranks(self) -> int:
        """How many ranks."""

    def title(self) -> str:
        """What it is, in a few words."""

    def steps(self) -> Iterable[Step]:
        """The steps in their order, made anew each time and never all stored: a generator, or `Steps`."""

    def claim(self) -> Claim | Factors:
        """What the plan promises. Raises `PlanError` where the plan cannot promise anything."""


def require_plan(given: Any) -> None:
    """Raise `InputError` for what is not a plan."""
    if not isinstance(given, Plan):
        raise InputError(
            f"a {type(given).__name__} is not a plan", do="give what has ranks, title(), steps() and claim()"
        )


@dataclass(frozen=True)
class Steps(Sequence[Step]):
    """Steps that are made by their number: any of them is there without those before.

    runs: stretches (first, end) of steps that are alike but for their cells, for `price`, which need not walk through
    them. lag: the largest of the steps.
    """

    length: int
    make: Callable[[int], Step]
    runs: tuple[tuple[int, int], ...] = ()
    lag: int = 1

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Step:  # type: ignore[override]
        return self.make(number)

    def __iter__(self) -> Iterator[Step]:
        return map(self.make, range(self.length))


@dataclass(frozen=True)
class Transposed:
    """A plan run backward, see `transposed`."""

    plan: Plan

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.plan.ranks

    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.plan.title()}, transposed"

    def steps(self) -> Iterable[Step]:
        """The steps from the last to the first, messages the other way round, additions for stores."""
        made = self.plan.steps()
        forward: Sequence[Step] = made if isinstance(made, Steps) else list(made)
        lags = np.fromiter((step.lag for step in forward), np.int64)
        n = len(lags)
        # Step i waits here for the first of those that waited for it.
        waited_for = np.maximum.accumulate(np.arange(n) - lags)
        after = np.searchsorted(waited_for, np.arange(n))

        def step(number: int) -> Step:
            i = n - 1 - number
            return replace(forward[i].backward(), lag=int(after[i]) - i)

        runs = made.runs if isinstance(made, Steps) else ()
        backward = tuple((n - end, n - first) for first, end in reversed(runs))
        return Steps(n, step, backward, int((after - np.arange(n)).max(initial=1)))

    def claim(self) -> Claim | Factors:
        """Whoever held a copy gives its contribution, and whoever gave one holds their sum."""
        claim = self.plan.claim()
        if isinstance(claim, Claim):
            return replace(claim, start=claim.end, end=claim.start, fixed=None, zeros=True)
        whole = claim.whole
        return Factors(tuple(map(transposed, claim.plans)), lambda: transposed(whole()))


def transposed(plan: Plan) -> Plan:
    """The same messages backward; stores become additions and additions stores.

    Of a halo exchange the accumulation of halos, of an all-gather the reduce-scatter, of a broadcast the reduce, of a
    change of layout its gradient. Of plans without computations.
    """
    return Transposed(plan)
