"""The fingerprints of a proof: a random 64-bit number for each contribution of a rank, and their sums.

A sum of contributions is the sum of their numbers, with how many there are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpckit.plan.protocol import EMPTY, Claim, Ints

Numbers = npt.NDArray[np.uint64]
CONTRIBUTIONS = 2**61  # numbers from here on stand for contributions, lower ones for global indices
NOBODYS = 0xA5A5_5A5A_0F0F_F0F1  # the number of cells without data
DENSE = 4  # indices up to `DENSE` times the cells are looked up in a table, others by bisection


class Fingerprints:
    """The numbers of contributions, and of global indices: the number of an index is the sum over its contributions.

    given: uint64[ranks, cells], the data of the cells before the first step.
    """

    def __init__(self, ranks: int, claim: Claim) -> None:
        self._claim = claim
        cells = claim.start.shape[1]
        self._nobody = np.uint64(0 if claim.zeros else NOBODYS)
        contributions = random_numbers(np.arange(CONTRIBUTIONS, CONTRIBUTIONS + ranks * cells)).reshape(ranks, cells)
        rows = claim.start[:1] if claim.start.strides[0] == 0 else claim.start
        many = ranks if len(rows) < ranks else 1  # contributions of an entry
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
        self._counts = np.bincount(index, minlength=largest) * many
        if self._known is None and largest:
            unknown = np.ones(largest, bool)
            unknown[index] = False
            self._totals[unknown] = random_numbers(np.flatnonzero(unknown))

    def totals(self, index: Ints) -> Numbers:
        """The number of each index, also without contributions; arbitrary for values that are not indices."""
        n = len(self._totals)
        if not n:
            return random_numbers(index)
        at = index if self._known is None else np.searchsorted(self._known, index)
        known = (at >= 0) & (at < n)
        if known.all() and self._known is None:
            return self._totals[at]
        at = np.where(known, at, 0)
        if self._known is not None:
            known &= self._known[at] == index
        return np.where(known, self._totals[at], random_numbers(index))

    def contributions(self, index: Ints) -> Ints:
        """How many contributions each index has, at least 1."""
        if not len(self._counts):
            return np.ones_like(index)
        at = index if self._known is None else np.searchsorted(self._known, index)
        return np.maximum(self._counts[np.clip(at, 0, len(self._counts) - 1)], 1)

    def wrong(self, held: Numbers, summed: npt.NDArray | None) -> npt.NDArray[np.bool_]:
        """The cells that differ from the claim; summed: how many contributions each holds."""
        end = np.broadcast_to(self._claim.end, held.shape)
        rows = end[:1] if end.strides[0] == 0 else end
        wrong = (held != self.totals(rows)) & (rows >= 0)
        if summed is not None:
            wrong |= (summed != self.contributions(rows)) & (rows >= 0)
        if (rows == EMPTY).any():
            empty = held != self._nobody
            if summed is not None:
                empty |= summed != (self._nobody != 0)
            wrong |= empty & (rows == EMPTY)
        return wrong

    def name_of(self, number: np.uint64) -> str:
        """The content of a cell, in words."""
        if number == self._nobody:
            return "what nobody gave"
        end = np.unique(self._claim.end[self._claim.end >= 0])
        found = np.flatnonzero(self.totals(end) == number)
        return self._claim.index_name(int(end[found[0]])) if found.size else "an incomplete or doubled sum"


def random_numbers(number: Ints) -> Numbers:
    """A random number for each: splitmix64, which is made for this and needs no state."""
    with np.errstate(over="ignore"):
        x = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
