"""The ways to split a grid over ranks, and the cost of the halo exchange of each for a rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpckit.plan.blocks import block_starts
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.factor import fitting_factorizations
from hpckit.plan.inputs.numbers import counts
from hpckit.plan.topology import Topology

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """A grid of cells split over ranks; its numbers are computed without a loop over the ranks.

    A dim has only a few kinds of blocks (by their cells and neighbors), and the messages of a rank follow from the
    kinds of its blocks in each dim. The results agree with `halo_plan(split.decomposition)` to the cell.
    """

    decomposition: Decomposition

    @property
    def topology(self) -> Topology:
        """The ranks on their axes."""
        return self.decomposition.topology

    @cached_property
    def block(self) -> tuple[int, ...]:
        """The largest block of cells."""
        return tuple(-(-n // parts) for n, parts in zip(self.decomposition.shape, self.topology.sizes, strict=True))

    @cached_property
    def imbalance(self) -> float:
        """Cells of the largest block over the mean, minus 1."""
        return math.prod(self.block) * self.topology.size / math.prod(self.decomposition.shape) - 1.0

    @cached_property
    def redundant(self) -> float:
        """Cells of halos, all ranks together, that are copies of cells that are owned; as a share of the grid's cells.

        Halo beyond walls copies nothing.
        """
        dec = self.decomposition
        dims = zip(dec.shape, self.topology.sizes, dec.halo, dec.periodic, strict=True)
        held = math.prod(n + 2 * width * (parts if closed else parts - 1) for n, parts, width, closed in dims)
        return held / math.prod(dec.shape) - 1.0

    @cached_property
    def messages(self) -> int:
        """The most that one rank sends to others in an exchange."""
        return sum(int(neighbors.max()) for _, neighbors in self._kinds)

    @cached_property
    def sent_cells(self) -> int:
        """The most cells that one rank sends to others in an exchange, those of corners that travel on included."""
        return int(self._sent.max())

    @cached_property
    def surface(self) -> float:
        """Cells that a rank sends over cells that it owns, largest."""
        owned = np.ones(1)
        for cells, _ in self._kinds:
            owned = np.multiply.outer(owned, cells)
        return float((self._sent / owned[0]).max())

    @cached_property
    def _kinds(self) -> list[tuple[Ints, Ints]]:
        """Of each dim the kinds of blocks: their cells, and to how many neighbors a block of the kind sends."""
        dec, kinds = self.decomposition, []
        for n, parts, width, closed in zip(dec.shape, self.topology.sizes, dec.halo, dec.periodic, strict=True):
            # The ends and what stands beside them and beside the step from larger to smaller blocks: all there is.
            starts, rest = block_starts(n, parts), n % parts
            places = np.unique([p for p in (0, 1, rest - 1, rest, rest + 1, parts - 2, parts - 1) if 0 <= p < parts])
            neighbors = np.full(len(places), 2) if closed else 0 + (places > 0) + (places < parts - 1)
            kinds.append((np.diff(starts)[places], neighbors * (parts > 1 and width > 0)))
        return kinds

    @cached_property
    def _sent(self) -> Ints:
        """Cells that a rank sends, for each combination of kinds: int64[kinds of dim 0, …]."""
        sent: Ints = np.zeros((1,) * len(self._kinds), np.int64)
        for dim, width in enumerate(self.decomposition.halo):
            slabs = np.ones(1, np.int64)
            for other, (cells, neighbors) in enumerate(self._kinds):
                extent = neighbors * width if other == dim else cells + 2 * self.decomposition.halo[other]
                slabs = np.multiply.outer(slabs, extent)
            sent = sent + slabs[0]
        return sent


def possible_splits(
    ranks: int,
    shape: Sequence[int],
    axes: Mapping[str, int],
    periodic: Sequence[str] = (),
    halo: int | Sequence[int] = 1,
) -> list[Split]:
    """All splits that a `Mesh` of so many ranks can have, least sent cells of a rank first, then fewest messages.

    Arguments as of `Topology.over`, whose choice is one of them. Empty where the ranks do not fit; raises
    `DecompositionError` for a grid thinner than its halo.
    """
    widths = counts(halo, "the width of a halo", len(axes))
    least = [max(1, width) for width in widths]
    found = [
        Split(Decomposition(shape, Topology(tuple(axes), sizes, tuple(periodic)), widths))
        for sizes in fitting_factorizations(ranks, shape, tuple(axes.values()), least)
    ]
    return sorted(found, key=lambda split: (split.sent_cells, split.messages, split.topology.sizes[::-1]))
