"""Proofs of plans of thousands of ranks, strand by strand: see `Strands`.

Each step is checked for all ranks as in `prove`, and that each of its messages stays within its strands. The data of
the strands is then executed for a part of them at a time. Where the permutations of the claim map each step to itself,
one strand of each orbit suffices: the execution of any other is its image, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hpckit.errors import PlanError
from hpckit.plan.proof.execution import EndEntries, Execution, Proof
from hpckit.plan.proof.fingerprints import CONTRIBUTIONS, NOBODYS, random_numbers
from hpckit.plan.protocol import NOBODY, OWN, Ends, Flags, Ints, Plan, Step, Strands, Work

MOST_CELLS = 2**22  # executed at a time: 24 bytes each
MOST_MOVED = 2**22  # cells that messages move, up to which only these are executed


class _Unlike(Exception):
    """A step that the permutations of the claim do not map to itself. strands: of the entry at fault."""

    def __init__(self, strands: Ints) -> None:
        super().__init__()
        self.strands = strands


def prove_strands(plan: Plan, claim: Strands) -> Proof:
    """Prove a plan whose claim falls into strands; raise `PlanError` as `prove` does."""
    _check_claim(plan, claim)
    strands = np.arange(_count(plan, claim))
    if claim.symmetries:
        try:
            return _Sampled(plan, claim, _one_of_each_orbit(plan, claim, len(strands)), alike=True).run()
        except _Unlike as unlike:
            first = np.intersect1d(unlike.strands, unlike.strands[:1] + np.arange(64))  # a fault is probably there
            if len(first):
                _Sampled(plan, claim, first).run()
    touched = _touched(plan, claim, strands)
    if touched is not None:
        return _Sampled(plan, claim, strands, cells=touched).run()
    parts = max(1, -(-plan.ranks * claim.cells // MOST_CELLS))
    proofs = [_Sampled(plan, claim, part).run() for part in np.array_split(strands, parts)]
    return proofs[0]


def _count(plan: Plan, claim: Strands) -> int:
    own = plan.ranks if (claim.strand == OWN).any() else 0
    return max(int(claim.strand.max(initial=-1)) + 1, own)


def _check_claim(plan: Plan, claim: Strands) -> None:
    """Raise `PlanError` unless the arrays are of the right shapes and the symmetries are permutations that keep strands
    together.
    """
    good = claim.strand.shape == (claim.cells,) and claim.strand.dtype.kind == "i"
    if not good or claim.cells < 1 or claim.strand.min() < OWN:
        raise PlanError(f"{plan.title()}: the strand of each of {claim.cells} cells is a whole number, {OWN} or more")
    own = claim.strand == OWN
    for rank_to, cell_to in claim.symmetries:
        for it, n in ((rank_to, plan.ranks), (cell_to, claim.cells)):
            if it.shape != (n,) or not np.array_equal(np.sort(it), np.arange(n)):
                raise PlanError(f"{plan.title()}: a symmetry of the claim is a permutation of {n} numbers")
        image = _image(plan, claim, rank_to, cell_to)
        if (claim.strand[cell_to] != np.where(own, OWN, image[claim.strand])).any():
            raise PlanError(f"{plan.title()}: a symmetry of the claim maps a strand to several")


def _image(plan: Plan, claim: Strands, rank_to: Ints, cell_to: Ints) -> Ints:
    """The strand that each one is mapped to."""
    own = claim.strand == OWN
    image = np.arange(_count(plan, claim))
    if own.any():
        image[: plan.ranks] = rank_to
    else:
        image[claim.strand] = claim.strand[cell_to]
    return image


def _one_of_each_orbit(plan: Plan, claim: Strands, strands: int) -> Ints:
    """The lowest strand of each orbit of the symmetries."""
    lowest = np.arange(strands)
    images = [_image(plan, claim, *each) for each in claim.symmetries]
    while True:
        before = lowest.copy()
        for image in images:
            np.minimum.at(lowest, image, lowest.copy())
            lowest = np.minimum(lowest, lowest[image])
        lowest = lowest[lowest]
        if (lowest == before).all():
            return np.unique(lowest)


def _touched(plan: Plan, claim: Strands, strands: Ints) -> Ints | None:
    """The cells that messages move, and those with data or a promise, flat; None if there are too many."""
    n = plan.ranks * claim.cells
    found = []
    count = 0
    for entries in _few(plan, claim, strands):
        found.append(entries)
        count += len(entries)
    if not found:
        return None
    execution = _Sampled(plan, claim, strands[:0])
    for _, step in execution.steps():
        for ends in (step.sends, step.receives):
            entry = np.flatnonzero(ends.peer != NOBODY)
            width = (ends.last - ends.first)[entry]
            count += max(0, int(width.sum()))
            if count > MOST_MOVED or (width < 0).any() or ends.cells is not None:
                return None
            if len(entry):
                rank, first = np.repeat(ends.ranks()[entry], width), np.repeat(ends.first[entry], width)
                along = np.arange(len(rank)) - np.repeat(np.cumsum(width) - width, width)
                found.append(rank * claim.cells + (first + along) % claim.cells)
    cells = np.unique(np.concatenate(found))
    return cells[(cells >= 0) & (cells < n)]


def _few(plan: Plan, claim: Strands, strands: Ints) -> Iterator[Ints]:
    """The cells of the claim, flat, if they are few."""
    made: list[Callable] = [claim.start, claim.end]
    one = [len(each(strands[:1])[0]) for each in made]
    if max(one, default=0) * len(strands) <= MOST_MOVED:
        for each in made:
            rank, cell, _ = each(strands)
            yield rank * claim.cells + cell


class _Sampled(Execution):
    """The execution of the data of some strands, or of a list of cells.

    Cells are kept as sorted flat numbers; the arrays of `Execution` are over these. alike: check that the symmetries
    map each step to itself, raise `_Unlike` if one does not.
    """

    def __init__(
        self, plan: Plan, claim: Strands, strands: Ints, alike: bool = False, cells: Ints | None = None
    ) -> None:
        self._claim = self._strands = claim
        self._alike = alike
        start, end = claim.start(strands), claim.end(strands)
        self._chosen = np.zeros(_count(plan, claim), bool)
        self._chosen[strands] = True
        self._flats = self._cells_of(plan, strands) if cells is None else cells
        nobody = np.uint64(0 if claim.zeros else NOBODYS)
        held = np.full(len(self._flats), nobody)
        flat, index = start[0] * claim.cells + start[1], start[2]
        numbers = random_numbers(CONTRIBUTIONS + flat)
        held[np.searchsorted(self._flats, flat)] = numbers
        self._wanted = np.searchsorted(self._flats, end[0] * claim.cells + end[1]), end[2]
        known, at = np.unique(index, return_inverse=True)
        totals = np.zeros(len(known), np.uint64)
        np.add.at(totals, at, numbers)
        self._totals = known, totals, np.bincount(at, minlength=len(known))
        self.begin(plan, claim.cells, held, claim.zeros)
        self._size = claim.size
        # The columns of the strands, if these are columns without a gap.
        gapless = bool(len(strands)) and int(np.ptp(strands)) == len(strands) - 1
        columns = gapless and cells is None and np.array_equal(claim.strand, np.arange(claim.cells))
        self._range = (int(strands.min()), int(strands.max()) + 1) if columns else None
        # Cells of each kind before each cell, so that ranges of a step are looked up, not walked; twice for ranges
        # that go on at the first cell.
        own = claim.strand == OWN
        self._has_own = bool(own.any())
        self._owns = _before(own)
        self._takes = _before(~own & self._chosen[claim.strand])
        kinds = random_numbers(np.arange(claim.cells))
        self._kinds = [(rank_to, _before(kinds), _before(kinds[cell_to])) for rank_to, cell_to in claim.symmetries]

    def _cells_of(self, plan: Plan, strands: Ints) -> Ints:
        claim = self._strands
        shared = np.flatnonzero((claim.strand != OWN) & self._chosen[claim.strand])
        flats = [(np.arange(plan.ranks)[:, None] * claim.cells + shared).reshape(-1)]
        own = np.flatnonzero(claim.strand == OWN)
        if len(own):
            flats.append((strands[strands < plan.ranks][:, None] * claim.cells + own).reshape(-1))
        return np.sort(np.concatenate(flats))

    def _move(self, number: int, step: Step, sent: EndEntries, taken: EndEntries) -> None:
        """The same for the strands that are executed, after the checks of all."""
        moved = (sent.first != taken.first) & (sent.last > sent.first)
        if self._alike:
            self._check_alike(step, whole=bool(moved.any()))
        self._check_strands(number, step, sent, taken, moved)
        if self._range is not None:
            low, high = self._range
            touches = (sent.first < high) & (sent.last > low)
            if step.wraps:
                touches = touches | (sent.last > low + self._cells)
        else:
            touches = self._takes[sent.last] > self._takes[sent.first]
            if self._has_own:
                owns = self._owns[sent.last] > self._owns[sent.first]
                touches = touches | (owns & self._own_chosen(sent.rank))
        chosen = np.flatnonzero(touches)
        sent, taken = sent.of(chosen), taken.of(chosen)
        if self._range is not None:
            sent, taken = self._clipped(sent, taken, *self._range)
        super()._move(number, step, sent, taken)

    def _clipped(self, sent: EndEntries, taken: EndEntries, low: int, high: int) -> tuple[EndEntries, EndEntries]:
        """The part of messages that is in these columns, without walking through the rest; both ends have the same."""
        ends = []
        for around in (0, self._cells):
            first, last = np.maximum(sent.first, low + around), np.minimum(sent.last, high + around)
            on = np.flatnonzero(last > first)
            first, last = first[on] - around, last[on] - around
            ends.append([each.of(on)._replace(first=first, last=last) for each in (sent, taken)])
        (sent, taken), (more, into) = ends
        return (sent.joined(more), taken.joined(into)) if len(more.rank) else (sent, taken)

    def _compute(self, number: int, step: Step, work: Work) -> None:
        raise self.fault(number, step, "a plan of strands has no computations")

    def _own_chosen(self, rank: Ints) -> Flags:
        return self._chosen[np.minimum(rank, len(self._chosen) - 1)]

    def _check_strands(self, number: int, step: Step, sent: EndEntries, taken: EndEntries, moved: Flags) -> None:
        """Check that messages keep within strands: they keep their columns, or their only cell stays in its strand.

        moved: for each message, whether its columns change.
        """
        claim = self._strands
        if sent.cells is not None or taken.cells is not None:
            raise self.fault(number, step, "messages have lists of cells, and a plan of strands has ranges")
        if self._has_own:
            own = self._owns[sent.last] > self._owns[sent.first]
            moved = moved | (own & (sent.rank != taken.rank))
        at_moved = np.flatnonzero(moved)
        if not len(at_moved):
            return
        out, into = sent.of(at_moved), taken.of(at_moved)
        strands = []
        for end in (out, into):
            of = claim.strand[end.first % claim.cells]
            strands.append(np.where(of == OWN, end.rank, of))
        bad = (out.last - out.first > 1) | (strands[0] != strands[1])
        if bad.any():
            at = int(np.argmax(bad))
            raise self.fault(
                number,
                step,
                f"rank {out.rank[at]} sends {claim.cell_name(int(out.rank[at]), int(out.first[at]))} into "
                f"{claim.cell_name(int(into.rank[at]), int(into.first[at]))} of rank {into.rank[at]}: plans of so many "
                f"ranks are proved if data stays where it is in the buffer",
            )

    def _check_alike(self, step: Step, whole: bool) -> None:
        """Check that the symmetries map all messages of a step to such. whole: the receives, too, which otherwise are
        of the same cells as the sends that they meet.
        """
        if step.sends.rank is not None or step.receives.rank is not None or step.place != "messages":
            raise _Unlike(np.zeros(0, np.int64))
        for ends in (step.sends, step.receives) if whole else (step.sends,):
            nobody = ends.peer.min() < 0
            for rank_to, before, after in self._kinds:
                there, image = ends.peer.take(rank_to), rank_to.take(ends.peer, mode="clip")
                wide = after.take(ends.last) - after.take(ends.first)
                unlike = wide != (before.take(ends.last) - before.take(ends.first)).take(rank_to)
                if nobody:
                    unlike &= ends.peer >= 0
                    image[ends.peer < 0] = NOBODY
                unlike |= there != image
                if unlike.any():
                    raise _Unlike(self._strands_of(ends, int(np.argmax(unlike)), rank_to))

    def _strands_of(self, ends: Ends, entry: int, rank_to: Ints) -> Ints:
        """The strands of a rank's message and of that of its image."""
        claim, found = self._strands, []
        for rank in (entry, int(rank_to[entry])):
            strand = claim.strand[np.arange(ends.first[rank], ends.last[rank]) % claim.cells]
            found.append(np.where(strand == OWN, rank, strand))
        return np.unique(np.concatenate(found))

    def _flat(self, number: int, step: Step, end: EndEntries) -> Ints:
        """The places of the cells that are executed, of all messages of one end."""
        flat = super()._flat(number, step, end)
        if self._range is not None:
            low, high = self._range
            return flat // self._cells * (high - low) + flat % self._cells - low
        at = np.minimum(np.searchsorted(self._flats, flat), max(len(self._flats) - 1, 0))
        # Both ends have the same strands in the same order, so that the same cells stay.
        return at[self._flats[at] == flat] if len(self._flats) else flat[:0]

    def _column(self, at: Ints) -> Ints:
        return self._flats[at] % self._cells

    def _named(self, cell: int, verb: str) -> str:
        return super()._named(int(self._flats[cell]), verb)

    def _check_result(self) -> None:
        at, index = self._wanted
        known, totals, counts = self._totals
        place = np.minimum(np.searchsorted(known, index), max(len(known) - 1, 0))
        found = known[place] == index if len(known) else np.zeros(len(index), bool)
        wrong = ~found
        if len(known):
            wrong |= self._held[at] != totals[place]
            if self._summed is not None:
                wrong |= self._summed[at] != counts[place]
        if wrong.any():
            first = int(np.argmax(wrong))
            rank, cell = divmod(int(self._flats[at[first]]), self._cells)
            raise PlanError(
                f"{self._plan.title()}: rank {rank} ends with other data in {self._strands.cell_name(rank, cell)}, "
                f"which must hold {self._strands.index_name(int(index[first]))} ({int(wrong.sum())} wrong cells)"
            )


def _before(values: np.ndarray) -> np.ndarray:
    """Sums of the values before each place, twice around: [2 * n + 1]."""
    dtype = np.uint64 if values.dtype == np.uint64 else np.int64
    return np.concatenate([np.zeros(1, dtype), np.cumsum(np.concatenate([values, values]), dtype=dtype)])
