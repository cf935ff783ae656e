"""Migration as a plan: an all-to-all in which every rank sends some number of particles to every other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpckit.errors import PlanError
from hpckit.plan.protocol import NOTHING, Claim, Ends, Ints, Step

PARTICLE = 88.0  # bytes of a particle that migrates: position, velocity, id and image flags


@dataclass(frozen=True, eq=False)
class MigrationPlan:
    """counts[r, q] particles go from rank r to rank q, in one message; they arrive in the order of their source ranks.

    counts: int64[ranks, ranks], or float64 if each particle represents many: such a plan can only be priced. taken:
    int64[ranks, ranks], the particles that the rank of the row receives from that of the column, as reported by the
    ranks; None: as many as are sent. itemsize: bytes of a particle. The plan's cells on each rank are first the leaving
    particles, then the arriving ones.
    """

    counts: Ints
    taken: Ints | None = None
    share: float = 1.0
    itemsize: float = PARTICLE

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.counts)

    def title(self) -> str:
        """What it is, in a few words."""
        return f"migration of {self.counts.sum() * self.share:.0f} particles on {self.ranks} ranks"

    @property
    def _most(self) -> int:
        """The most particles that leave a rank."""
        return int(self.counts.sum(axis=1).max(initial=0))

    def steps(self) -> Iterator[Step]:
        """All messages at once."""
        taken = self.counts.T if self.taken is None else self.taken
        sender, receiver = np.nonzero(self.counts)
        taker, giver = np.nonzero(taken)
        last, stop = np.cumsum(self.counts, axis=1), np.cumsum(taken, axis=1)
        first, begin = last - self.counts, self._most + stop - taken
        out, into = (
            self.share * each.astype(np.float64) for each in (self.counts[sender, receiver], taken[taker, giver])
        )
        yield Step(
            Ends(receiver, first[sender, receiver], last[sender, receiver], sender, out),
            Ends(giver, begin[taker, giver], self._most + stop[taker, giver], taker, into),
            itemsize=self.itemsize,
            name="migration",
            texts=lambda: list(map(str, self.counts[sender, receiver])),
        )

    def claim(self) -> Claim:
        """Each rank gives its particles, and holds the particles sent to it in the order of their source ranks.

        Raises `PlanError` for counts below zero.
        """
        for given in (self.counts, self.counts if self.taken is None else self.taken):
            if np.ndim(given) != 2 or np.shape(given) != (self.ranks, self.ranks) or given.dtype.kind not in "iu":
                raise PlanError(f"a migration has {self.ranks} x {self.ranks} whole numbers of particles")
            if (given < 0).any():
                raise PlanError("a rank cannot send or take fewer than no particles")
        leave, arrive = self.counts.sum(axis=1), self.counts.sum(axis=0)
        start = np.full((self.ranks, self._most + int(arrive.max(initial=0))), NOTHING)
        end = np.full_like(start, NOTHING)
        before = np.cumsum(leave) - leave
        first = np.cumsum(self.counts, axis=1) - self.counts
        for rank in range(self.ranks):
            start[rank, : leave[rank]] = before[rank] + np.arange(leave[rank])
            blocks = [before[q] + first[q, rank] + np.arange(self.counts[q, rank]) for q in range(self.ranks)]
            end[rank, self._most : self._most + arrive[rank]] = np.concatenate(blocks)
        return Claim(start, end, index_name=lambda index: f"particle {index}")


def migration_of(homes: Ints, owners: Ints, ranks: int) -> Ints:
    """Counts of a `MigrationPlan` that moves particle i from rank owners[i] to rank homes[i].

    Particles that stay are not sent.
    """
    leaves = homes != owners
    return np.bincount(owners[leaves] * ranks + homes[leaves], minlength=ranks * ranks).reshape(ranks, ranks)
