"""The plan protocol: a value over all ranks that can be proved, priced, drawn and run.

`prove`, `price` and `draw` use only this protocol, so any class with the four members of `Plan` is a plan. Data is
counted in cells: places in a rank's memory that move as a whole (a slot of a buffer, a layer of a halo, a ghost). A
global index names the content of a cell (a block of a buffer, a point of a grid, the id of a particle).

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
NOTHING = -1  # a global index: no data at the start, any content at the end
EMPTY = -2  # a global index of the end: no rank's data
IN_ORDER = -1  # a tag
OWN = -1  # a strand: that of the rank's number


@dataclass(frozen=True, slots=True)
class Ends:
    """One end of the messages of a step: entry m is the message that `rank[m]` sends to, or receives from, `peer[m]`.

    peer: int64[m], NOBODY for an entry without a message. first, last: int64[m], the cells of the message, last
    excluded. rank: int64[m]; None if entry r is that of rank r, as in a partial permutation. amount: int64[m] or
    float64[m], items in each message; None: one per cell. cells: a list indexed by `first` and `last`, for messages
    whose cells are not contiguous; None if `first` and `last` are cells. pieces: int64[m], the contiguous pieces of
    memory that hold each message, which its price depends on; None: one. Several messages between two ranks in a step
    match in their order.
    """

    peer: Ints
    first: Ints
    last: Ints
    rank: Ints | None = None
    amount: npt.NDArray[Any] | None = None
    cells: Ints | None = None
    pieces: Ints | None = None

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
    """The computations of a step, before its messages leave: `rank[m]` computes entry m in `seconds[m]`.

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

    add: the receiver adds the data to its cells, instead of storing it. clears: the sender's cells hold zeros after the
    send. wraps: a range that passes the last cell continues at cell 0. lag: the data sent was complete `lag` steps
    before, so `lag` successive steps may be under way together; 1 is one after the other. tag: distinguishes messages
    between two ranks in steps that are under way together; IN_ORDER if the order of the steps does. place: "messages",
    or "memory": the ranks copy or add in the shared memory of their node.

    itemsize: bytes of an item; 0: the argument of `price`. parts: if given, an item is 1 / `parts` of the buffer, whose
    bytes are an argument of `price`. work: computed first. name: of the step in messages. texts: labels of the entries
    of `sends` in drawings, without the receiver: `2x16` cells; by default the range of cells.
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
    """The data of each cell at the start, and the data it must hold at the end. Rows are ranks, columns are cells.

    start: int64[ranks, cells], the global index of the data in a cell; NOTHING for a cell without data. Ranks with the
    same index each contribute to it. end: the global index whose contributions, each once, a cell must hold at the end:
    a copy if there is one contribution, a sum if there are several; NOTHING for any content, EMPTY if no data may
    arrive. A single row is broadcast.

    zeros: cells without data hold zeros, to which steps may add; else steps must not use them. fixed: bool[ranks,
    cells], cells that must not be written. node: int64[ranks], the node of each rank; steps in "memory" stay within
    one. size: int64[cells] or int64[ranks, cells], where cells differ in size: data moves only between cells with the
    same number; negative: of any size. also: a further check, called with the fingerprints uint64[ranks, cells] of the
    end; it raises `PlanError`.
    cell_name, index_name: names of a rank's cell and of a global index.
    """

    start: Ints
    end: Ints
    zeros: bool = False
    fixed: Flags | None = None
    node: Ints | None = None
    size: Ints | None = None
    also: Callable[[npt.NDArray[np.uint64]], None] | None = None
    cell_name: Callable[[int, int], str] = lambda rank, cell: f"cell {cell}"
    index_name: Callable[[int], str] = lambda index: f"the index {index}"


Entries = tuple[Ints, Ints, Ints]  # rank, cell and global index of some cells


@dataclass(frozen=True, eq=False)
class Strands:
    """The claim of a plan with more cells than fit into memory: they form strands, and data stays within its strand.

    `prove` checks that no message leads from one strand to another, and then executes the strands in parts.

    cells: of each rank. strand: int64[cells], the strand of a cell on all ranks; OWN: of strand r on rank r. start,
    end: of some strands the cells with data at the start, and those with promised data at the end; all other cells hold
    nothing at the start and any content at the end. zeros, size, cell_name: as in `Claim`; size is int64[cells].

    symmetries: pairs of permutations, of the ranks and of the cells, that map this claim to itself. If they also map
    each step to itself, which `prove` checks for the messages of all ranks, then what one strand holds at the end tells
    what its images hold, and one strand of each orbit is executed.
    """

    cells: int
    strand: Ints
    start: Callable[[Ints], Entries]
    end: Callable[[Ints], Entries]
    symmetries: tuple[tuple[Ints, Ints], ...] = ()
    zeros: bool = False
    size: Ints | None = None
    cell_name: Callable[[int, int], str] = lambda rank, cell: f"cell {cell}"
    index_name: Callable[[int], str] = lambda index: f"the index {index}"


@dataclass(frozen=True, eq=False)
class Factors:
    """The claim of a plan that acts alike on all lines of ranks: one plan per line, whose proofs prove the whole.

    They are made from the steps of the plan, so that a step that differs shows. whole: makes the plan of the same steps
    whose claim is a `Claim`, to find the rank at fault; the steps of this plan then need not give their cells.
    """

    plans: tuple[Plan, ...]
    whole: Callable[[], Plan]


@runtime_checkable
class Plan(Protocol):
    """The messages of all ranks, and their order."""

    @property
    def ranks(self) -> int:
        """How many ranks."""

    def title(self) -> str:
        """What it is, in a few words."""

    def steps(self) -> Iterable[Step]:
        """The steps in their order, made anew each time and never all stored: a generator, or `Steps`."""

    def claim(self) -> Claim | Factors | Strands:
        """What the plan promises. Raises `PlanError` if the plan itself is invalid."""


def require_plan(given: Any) -> None:
    """Raise `InputError` for what is not a plan."""
    if not isinstance(given, Plan):
        raise InputError(
            f"a {type(given).__name__} is not a plan", do="give what has ranks, title(), steps() and claim()"
        )


@dataclass(frozen=True)
class Steps(Sequence[Step]):
    """Steps made on demand by their number, without the steps before them.

    runs: stretches (first, end) of steps that differ only in their cells, so that `price` need not walk through them.
    lag: the largest of the steps.
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
class AlikeUnits(Iterable[Step]):
    """Steps that begin alike on units of so many ranks, whose messages stay within their unit; then those of all ranks.

    first: makes the first steps of some units, given their ranks, a multiple of `unit`; a rank r of one does what rank
    r + unit does. rest: makes the steps after them. So `price` need not walk through all units. A step has no larger
    `lag` than the first one.
    """

    ranks: int
    unit: int
    first: Callable[[int], Iterable[Step]]
    rest: Callable[[], Iterable[Step]]

    def __iter__(self) -> Iterator[Step]:
        yield from self.first(self.ranks)
        yield from self.rest()


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

    def claim(self) -> Claim | Factors | Strands:
        """Each holder of a copy gives its contribution, and each former giver holds the sum."""
        claim = self.plan.claim()
        if isinstance(claim, Claim):
            return replace(claim, start=claim.end, end=claim.start, fixed=None, zeros=True)
        if isinstance(claim, Strands):
            return replace(claim, start=claim.end, end=claim.start, zeros=True)
        whole = claim.whole
        return Factors(tuple(map(transposed, claim.plans)), lambda: transposed(whole()))


def transposed(plan: Plan) -> Plan:
    """The same messages backward; stores become additions and additions stores.

    A halo exchange becomes the accumulation of halos, an all-gather a reduce-scatter, a broadcast a reduce, a change of
    layout its gradient. For plans without computations, and in which no rank adds to cells that it sends in the same
    step: backward it would overwrite them while they leave. So recursive doubling has no transposed plan, and `prove`
    refuses it; take another all-reduce.
    """
    return Transposed(plan)
