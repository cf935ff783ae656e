"""The cells of a grid that each rank owns, and their place in its local array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpckit.errors import DecompositionError, InputError
from hpckit.plan.blocks import block, block_starts, owner
from hpckit.plan.grid.factor import fitting_counts
from hpckit.plan.inputs.numbers import counts
from hpckit.plan.topology import Topology

Slices = tuple[slice, ...]
LARGEST = 2**62  # points that 64-bit indices reach


@dataclass(frozen=True, init=False)
class Decomposition:
    """A grid of `shape` cells cut into one block per rank; dim d is split along the axis `topology.names[d]`.

    `halo`: width of the halo, one number or one per dim. `location`: of the values, "center" or "face", one word or one
    per dim. A dim of n cells has n + 1 faces, or n if the axis is periodic; face i is the low side of cell i, and the
    rank that owns a cell owns its low face (the last rank also the closing one).

    Blocks differ by at most one cell for any shape and number of ranks. Raises `DecompositionError`, which lists the
    numbers of ranks that work, if a block would be empty or thinner than its halo.

    deep: halos may be wider than blocks; an exchange then passes on what came from a neighbor, in rounds. Walls that
    mirror fill as many layers as the grid has points.
    """

    shape: tuple[int, ...]
    topology: Topology
    halo: tuple[int, ...]
    location: tuple[str, ...]
    deep: bool

    def __init__(
        self,
        shape: int | Sequence[int],
        topology: Topology,
        halo: int | Sequence[int] = 1,
        location: str | Sequence[str] = "center",
        deep: bool = False,
    ) -> None:
        if not isinstance(topology, Topology):
            message = f"a grid is cut over a topology, not over {topology!r}"
            raise InputError(message, do="give mesh.topology, or a Topology")
        cells = counts(shape, "the shape of a grid")
        dims = len(cells)
        if dims != len(topology.names):
            raise InputError(
                f"a grid of {dims} dims {cells} needs as many axes, not {', '.join(topology.names)}",
                do="give a dim that stays whole an axis of size 1",
            )
        if math.prod(cells) > LARGEST:
            raise InputError(f"a grid of {cells} cells has more than the {LARGEST:.0e} that can be numbered")
        widths = counts(halo, "the width of a halo", dims)
        places = (location,) * dims if isinstance(location, str) else tuple(location)
        if min(widths) < 0:
            raise InputError(f"the width of a halo is 0 or more, not {min(widths)}")
        if len(places) != dims or not set(places) <= {"center", "face"}:
            raise InputError(f'a location is "center" or "face" for all dims or for each of {dims}, not {location}')
        given = {"shape": cells, "topology": topology, "halo": widths, "location": places, "deep": deep}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        self._refuse_thin_blocks()

    @property
    def ndim(self) -> int:
        """The number of dims of the grid."""
        return len(self.shape)

    @cached_property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each dim is periodic."""
        return tuple(name in self.topology.periodic for name in self.topology.names)

    @cached_property
    def closing(self) -> tuple[int, ...]:
        """1 in each dim that has one more point than cells (faces between walls), else 0."""
        return tuple(
            int(where == "face" and not closed) for where, closed in zip(self.location, self.periodic, strict=True)
        )

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Points of this location in the whole grid."""
        return tuple(n + extra for n, extra in zip(self.shape, self.closing, strict=True))

    def at(self, location: str | Sequence[str]) -> Decomposition:
        """The same cells with values at another location."""
        return Decomposition(self.shape, self.topology, self.halo, location, self.deep)

    def start(self, rank: int) -> tuple[int, ...]:
        """The first owned global index in each dim."""
        return tuple(s for s, _ in self._blocks(rank))

    def owned(self, rank: int) -> tuple[int, ...]:
        """The shape of the owned block."""
        return tuple(n for _, n in self._blocks(rank))

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of the local array: the owned block and a halo on both sides of each dim."""
        return tuple(n + 2 * width for n, width in zip(self.owned(rank), self.halo, strict=True))

    @property
    def interior(self) -> Slices:
        """The owned block within the local array, the same expression on every rank."""
        return tuple(slice(width, -width) if width else slice(None) for width in self.halo)

    def global_slices(self, rank: int) -> Slices:
        """The owned block within the global array."""
        return tuple(slice(start, start + n) for start, n in self._blocks(rank))

    def core(self, rank: int) -> Slices:
        """The owned cells of the local array that a stencil as wide as the halo updates without any halo value."""
        return tuple(slice(2 * width, max(2 * width, n)) for n, width in zip(self.owned(rank), self.halo, strict=True))

    def rim(self, rank: int) -> tuple[Slices, ...]:
        """The owned cells that are not in the core, as disjoint boxes of the local array (empty ones left out)."""
        owned, core = self.owned(rank), self.core(rank)
        whole = tuple(slice(width, width + n) for n, width in zip(owned, self.halo, strict=True))
        if any(part.stop <= part.start for part in core):
            return (whole,)
        boxes = []
        for d in range(self.ndim):
            for low, high in ((whole[d].start, core[d].start), (core[d].stop, whole[d].stop)):
                if low < high:
                    boxes.append((*core[:d], slice(low, high), *whole[d + 1 :]))
        return tuple(boxes)

    def to_local(self, rank: int, index: Sequence[int]) -> tuple[int, ...]:
        """The place in the local array of a global point that the rank owns or holds in its halo."""
        local = tuple(i - s + w for i, s, w in zip(index, self.start(rank), self.halo, strict=True))
        if not all(0 <= i < n for i, n in zip(local, self.local_shape(rank), strict=True)):
            raise InputError(f"rank {rank} does not hold the point {tuple(index)}")
        return local

    def to_global(self, rank: int, index: Sequence[int]) -> tuple[int, ...]:
        """The global point at a place of the local array; in a periodic dim the halo wraps around."""
        points = [i - w + s for i, w, s in zip(index, self.halo, self.start(rank), strict=True)]
        return tuple(
            i % n if closed else i for i, n, closed in zip(points, self.global_shape, self.periodic, strict=True)
        )

    def owner(self, index: Sequence[int]) -> int:
        """The rank that owns a global point."""
        if not all(0 <= i < n for i, n in zip(index, self.global_shape, strict=True)):
            raise InputError(f"the point {tuple(index)} is outside the grid of {self.global_shape} points")
        place = [
            owner(n, parts, min(i, n - 1)) for i, n, parts in zip(index, self.shape, self.topology.sizes, strict=True)
        ]
        return self.topology.rank(tuple(place))

    def all_starts(self) -> npt.NDArray[np.int64]:
        """`start` of every rank: int64[ndim, ranks]."""
        coords = self.topology.all_coords()
        return np.stack([self._starts(d)[coords[d]] for d in range(self.ndim)])

    def all_owned(self) -> npt.NDArray[np.int64]:
        """`owned` of every rank: int64[ndim, ranks]."""
        coords = self.topology.all_coords()
        return np.stack([np.diff(self._starts(d))[coords[d]] for d in range(self.ndim)])

    def thinnest(self) -> tuple[int, ...]:
        """The fewest points that a rank owns in each dim."""
        return tuple(self.all_owned().min(axis=1).tolist())

    def _starts(self, dim: int) -> npt.NDArray[np.int64]:
        starts = block_starts(self.shape[dim], self.topology.sizes[dim])
        starts[-1] += self.closing[dim]
        return starts

    def _blocks(self, rank: int) -> list[tuple[int, int]]:
        """Start and size of the rank's block in each dim."""
        blocks = []
        for d, place in enumerate(self.topology.coords(rank)):
            start, size = block(self.shape[d], self.topology.sizes[d], place)
            last = place == self.topology.sizes[d] - 1
            blocks.append((start, size + (self.closing[d] if last else 0)))
        return blocks

    def _refuse_thin_blocks(self) -> None:
        """Refuse blocks thinner than their halo: they would need values from beyond their neighbor."""
        problems = []
        for name, n, parts, width in zip(self.topology.names, self.shape, self.topology.sizes, self.halo, strict=True):
            if n < 1:
                raise DecompositionError(f"a grid needs at least 1 cell in each dim, not {self.shape}")
            needed = 1 if self.deep else max(1, width)
            if n // parts < needed:
                most = n // needed
                legal = f"at most {most} rank{'s' * (most > 1)}" if most else f"a grid of at least {needed} cells"
                problems.append(
                    f"axis {name}: {n} cells over {parts} ranks leave blocks of {n // parts}, "
                    f"the halo needs {needed}: {legal} there"
                )
        if problems:
            raise DecompositionError(
                "; ".join(problems),
                likely="too many ranks along one axis for this grid and halo",
                do=f"ranks that fit this grid: {self._legal_counts()}",
            )

    def _legal_counts(self) -> str:
        """The numbers of ranks that fit, nearest to the given one; axes with one rank keep it."""
        sizes = self.topology.sizes
        most = [max(1, n // max(1, width)) for n, width in zip(self.shape, self.halo, strict=True)]
        return fitting_counts(self.topology.size, [m if size > 1 else 1 for m, size in zip(most, sizes, strict=True)])
