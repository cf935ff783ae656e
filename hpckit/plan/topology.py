"""Ranks laid out on named axes, without MPI."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.plan.grid.factor import best_factorization


@dataclass(frozen=True)
class Topology:
    """`sizes[a]` ranks along the axis `names[a]`; the axes in `periodic` are periodic.

    Ranks are numbered row-major, as in MPI_Cart_create: the last axis varies fastest. Raises `InputError` for duplicate
    or missing names, sizes below 1, and periodic names that are not axes.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    periodic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        given = (self.periodic,) if isinstance(self.periodic, str) else tuple(self.periodic)
        if not self.names or len(self.names) != len(self.sizes) or len(set(self.names)) != len(self.names):
            raise InputError(
                f"a topology needs a size for each of its differently named axes, not {self.names} and {self.sizes}"
            )
        if min(self.sizes) < 1:
            raise InputError(f"an axis holds at least 1 rank, not {dict(zip(self.names, self.sizes, strict=True))}")
        for name in given:
            self.axis(name)
        object.__setattr__(self, "periodic", tuple(name for name in self.names if name in given))

    @classmethod
    def over(
        cls,
        ranks: int,
        shape: Sequence[int],
        axes: Mapping[str, int],
        periodic: Sequence[str] = (),
        halo: int | Sequence[int] = 1,
    ) -> Topology:
        """The topology that a `Mesh` chooses for a grid of this shape; axes: ranks along each dim, 0 where hpckit
        chooses.

        Raises `DecompositionError` if the ranks do not fit.
        """
        least = [halo] * len(axes) if isinstance(halo, int) else halo
        sizes = best_factorization(ranks, shape, tuple(axes.values()), [name in periodic for name in axes], least)
        return cls(tuple(axes), sizes, tuple(periodic))

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return math.prod(self.sizes)

    def axis(self, name: str) -> int:
        """The number of the axis called `name`; raises `InputError` when there is none."""
        if name not in self.names:
            raise InputError(f"no axis is called {name!r}; the axes are {', '.join(self.names)}")
        return self.names.index(name)

    def is_periodic(self, name: str) -> bool:
        """Whether the axis is periodic."""
        self.axis(name)
        return name in self.periodic

    def coords(self, rank: int) -> tuple[int, ...]:
        """The coordinates of a rank, one per axis."""
        if not 0 <= rank < self.size:
            raise InputError(f"rank {rank} is not one of the {self.size} ranks 0 to {self.size - 1}")
        return tuple(int(c) for c in np.unravel_index(rank, self.sizes))

    def rank(self, coords: tuple[int, ...]) -> int:
        """The rank at `coords`; periodic axes accept any integer, others raise `InputError` outside their range."""
        if len(coords) != len(self.sizes):
            raise InputError(f"a place has {len(self.sizes)} coordinates ({', '.join(self.names)}), not {len(coords)}")
        wrapped = [
            c % size if name in self.periodic else c
            for c, size, name in zip(coords, self.sizes, self.names, strict=True)
        ]
        if not all(0 <= c < size for c, size in zip(wrapped, self.sizes, strict=True)):
            raise InputError(f"no rank stands at {tuple(coords)} on axes of {self.sizes}")
        return int(np.ravel_multi_index(wrapped, self.sizes))

    def shift(self, rank: int, name: str, n: int) -> int | None:
        """The rank `n` places further along an axis, None beyond an end that is not periodic."""
        axis = self.axis(name)
        coords = list(self.coords(rank))
        coords[axis] += n
        if name not in self.periodic and not 0 <= coords[axis] < self.sizes[axis]:
            return None
        return self.rank(tuple(coords))

    def all_coords(self) -> npt.NDArray[np.int64]:
        """The coordinates of all ranks: int64[axes, size]."""
        return _coords(self.sizes).copy()

    def all_shifted(self, name: str, n: int) -> npt.NDArray[np.int64]:
        """`shift` for every rank at once: int64[size], -1 for no rank."""
        axis = self.axis(name)
        coords = self.all_coords()
        moved = coords[axis] + n
        coords[axis] = moved % self.sizes[axis]
        ranks = np.ravel_multi_index(tuple(coords), self.sizes).astype(np.int64)
        if name in self.periodic:
            return ranks
        return np.where((moved >= 0) & (moved < self.sizes[axis]), ranks, -1)


@functools.lru_cache(maxsize=4)  # a plan asks for them many times
def _coords(sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.array(np.unravel_index(np.arange(math.prod(sizes)), sizes), np.int64).reshape(len(sizes), -1)
