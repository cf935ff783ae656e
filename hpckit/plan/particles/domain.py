"""A box cut into domains, one per rank, and the regions whose particles are ghosts on other ranks: no MPI."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpckit.errors import DecompositionError
from hpckit.plan.particles.cell import SPANS, TILTS, Cell
from hpckit.plan.topology import Topology

DIMS = 3


@dataclass(frozen=True)
class GhostRegion:
    """Particles that the ranks at one place of a dim must have as ghosts: those in low <= x < high of the sender.

    to: the coordinate of these ranks along the dim. image: the image flag, by how many lengths of the box the particles
    are moved for them.
    """

    to: int
    image: int
    low: float
    high: float


@dataclass(frozen=True)
class GhostSegment:
    """Ghosts of one peer that are moved by the same number of box lengths in each dim, their image flags."""

    peer: int
    image: tuple[int, int, int]


@dataclass(frozen=True)
class DomainDecomposition:
    """The box lower <= x < upper over the three axes of `topology`, cut at `cuts[d]` (ends included) along dim d.

    Cuts need not be even. Along a dim that is not periodic the outer domains reach to infinity: every particle has an
    owner wherever it goes. tilt: xy, xz, yz of the cell; all cuts, bounds and ghost regions are in straight coordinates
    (`Cell`), which are places where there is no tilt. Raises `DecompositionError` for a box or cuts that do not grow,
    and for an edge that leans where the box is open.
    """

    topology: Topology
    cuts: tuple[tuple[float, ...], ...]
    tilt: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        if len(self.topology.sizes) != DIMS or len(self.cuts) != DIMS:
            raise DecompositionError(f"particles need three axes, not {', '.join(self.topology.names)}")
        for name, size, cuts in zip(self.topology.names, self.topology.sizes, self.cuts, strict=True):
            if len(cuts) != size + 1:
                raise DecompositionError(
                    f"{size} ranks along {name} have {size + 1} cuts, ends included, not {len(cuts)}"
                )
            if not all(math.isfinite(cut) for cut in cuts) or any(a >= b for a, b in itertools.pairwise(cuts)):
                raise DecompositionError(f"the cuts along {name} must be finite and grow: {', '.join(map(str, cuts))}")
        for name, tilt, (_, edge) in zip(TILTS, self.tilt, SPANS, strict=True):
            if tilt and not self.periodic[edge]:
                raise DecompositionError(
                    f"the box has a tilt {name} = {tilt:g}, but is open along {'xyz'[edge]}",
                    do=f"make {'xyz'[edge]} periodic, or give a box without this tilt",
                )

    @classmethod
    def even(
        cls,
        topology: Topology,
        lower: npt.ArrayLike,
        upper: npt.ArrayLike,
        tilt: npt.ArrayLike = (0.0, 0.0, 0.0),
    ) -> Self:
        """A box cut into domains of equal size."""
        ends = zip(np.asarray(lower, float), np.asarray(upper, float), topology.sizes, strict=True)
        cuts = tuple(tuple(float(x) for x in np.linspace(a, b, n + 1)) for a, b, n in ends)
        xy, xz, yz = (float(each) for each in np.asarray(tilt, float))
        return cls(topology, cuts, (xy, xz, yz))

    def stretched(self, factors: npt.ArrayLike) -> Self:
        """The box with its edges longer by factors about its middle, and the cuts with them."""
        each = zip(self.cuts, np.asarray(factors).tolist(), self.cell.rests(factors).tolist(), strict=True)
        cuts = (tuple(point + factor * (cut - point) for cut in along) for along, factor, point in each)
        return replace(self, cuts=tuple(cuts))

    def reshaped(self, cell: Cell) -> Self:
        """Another cell, and the cuts at the same shares of it."""
        cuts = []
        for old, low, high in zip(self.cuts, cell.lower, cell.upper, strict=True):
            shares = [(x - old[0]) / (old[-1] - old[0]) for x in old[1:-1]]
            cuts.append((low, *(low + share * (high - low) for share in shares), high))
        return replace(self, cuts=tuple(cuts), tilt=cell.tilt)

    def direction(self, sender: npt.ArrayLike, receiver: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The way from rank to rank around the mesh, as one number. Sent in this order, messages of all ranks that go
        the same way meet no other at their receivers; by the numbers of ranks all would go to the same few at once.
        """
        sizes = self.topology.sizes
        ends = np.broadcast_arrays(sender, receiver)
        here, there = (np.array(np.unravel_index(rank, sizes)) for rank in ends)
        way = (there - here).T % np.array(sizes)
        return np.ravel_multi_index(tuple(way.T), sizes)

    @cached_property
    def cell(self) -> Cell:
        """The cell of the box."""
        return Cell.of(self.lower, self.upper, self.tilt)

    @property
    def lower(self) -> npt.NDArray[np.float64]:
        """The lower corner of the box."""
        return np.array([cuts[0] for cuts in self.cuts])

    @property
    def upper(self) -> npt.NDArray[np.float64]:
        """The upper corner of the box, in straight coordinates."""
        return np.array([cuts[-1] for cuts in self.cuts])

    @property
    def lengths(self) -> npt.NDArray[np.float64]:
        """The edges of the box, without tilt."""
        return self.upper - self.lower

    @property
    def periodic(self) -> npt.NDArray[np.bool_]:
        """Whether each dim is periodic."""
        return np.array([name in self.topology.periodic for name in self.topology.names])

    def bounds(self, rank: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The corners of a rank's domain within the box."""
        coords = self.topology.coords(rank)
        low = np.array([cuts[c] for cuts, c in zip(self.cuts, coords, strict=True)])
        return low, np.array([cuts[c + 1] for cuts, c in zip(self.cuts, coords, strict=True)])

    def owned(self, rank: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The corners of a rank's domain, infinite at the sides of a box that is not periodic; do not change them."""
        if rank not in self._owned:
            low, high = self.bounds(rank)
            for d in np.flatnonzero(~self.periodic):
                coord = self.topology.coords(rank)[d]
                low[d] = -math.inf if coord == 0 else low[d]
                high[d] = math.inf if coord == self.topology.sizes[d] - 1 else high[d]
            self._owned[rank] = low, high
        return self._owned[rank]

    @cached_property
    def _owned(self) -> dict[int, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """What `owned` has found: migrations ask again and again."""
        return {}

    def owners(self, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """The rank that owns each position [n, 3] (wrapped into the box where it is periodic)."""
        ranks = np.zeros(len(positions), np.int64)
        if any(self.tilt):
            positions = self.cell.straight(positions)
        for d, size in enumerate(self.topology.sizes):
            if size > 1:
                ranks = ranks * size + np.searchsorted(self.cuts[d][1:-1], positions[:, d], side="right")
        return ranks

    @cached_property
    def inner_cuts(self) -> list[npt.NDArray[np.float64]]:
        """The cuts within the box, of each dim."""
        return [np.array(cuts[1:-1]) for cuts in self.cuts]

    def ghost_regions(self, coord: int, dim: int, reach: float) -> list[GhostRegion]:
        """The ghost regions of the domains at `coord` along one dim; the first entry: all particles, unmoved."""
        cuts, length = self.cuts[dim], self.lengths[dim]
        inner = (coord > 0, coord < len(cuts) - 2)
        low, high = cuts[coord], cuts[coord + 1]
        most = math.ceil(reach / length) if self.periodic[dim] else 0
        found = [GhostRegion(coord, 0, -math.inf, math.inf)]
        for image in range(-most, most + 1):
            for to in range(len(cuts) - 1):
                if (to, image) == (coord, 0):
                    continue
                wanted_low, wanted_high = cuts[to] - reach - image * length, cuts[to + 1] + reach - image * length
                if self.periodic[dim]:
                    touches = wanted_low < high and wanted_high > low
                else:
                    # particles beyond the end of the box belong to the outer domains, which then reach further
                    wanted_low = -math.inf if to == 0 else wanted_low
                    wanted_high = math.inf if to == len(cuts) - 2 else wanted_high
                    touches = (wanted_low < high or not inner[1]) and (wanted_high > low or not inner[0])
                if touches:
                    found.append(GhostRegion(to, image, wanted_low, wanted_high))
        return found

    def ghosts(self, rank: int, reach: float) -> tuple[list[list[GhostRegion]], list[GhostSegment]]:
        """The ghosts that rank sends, of particles within a distance `reach` of domains: for each dim its
        `ghost_regions`, and a segment for each of their combinations.

        Segments are ordered as the product of the three lists; the first is the rank's own particles, unmoved. Peers
        are mutual: each receiver is also a sender.
        """
        spans, coords = self.cell.reaches(reach).tolist(), self.topology.coords(rank)
        options = [self.ghost_regions(coord, d, spans[d]) for d, coord in enumerate(coords)]
        segments = [
            GhostSegment(self.topology.rank(tuple(one.to for one in each)), tuple(one.image for one in each))  # type: ignore[arg-type]
            for each in itertools.product(*options)
        ]
        return options, segments


def limits_of(
    options: list[list[GhostRegion]], lower: npt.NDArray[np.float64], upper: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[Any], ...]:
    """The limits of the ghost regions of each dim as arrays [3, most], their number per dim, and the corners of a box
    in which no particle is a ghost of another rank.
    """
    most = max(map(len, options))
    low, high = np.zeros((3, most)), np.zeros((3, most))
    number = np.array([len(each) for each in options])
    inner_low, inner_high = np.full(3, -np.inf), np.full(3, np.inf)
    for d, each in enumerate(options):
        for i, one in enumerate(each):
            low[d, i], high[d, i] = one.low, one.high
        for one in each[1:]:
            if one.low <= lower[d]:
                inner_low[d] = max(inner_low[d], one.high)
            if one.high >= upper[d]:
                inner_high[d] = min(inner_high[d], one.low)
    return low, high, number, inner_low, inner_high
