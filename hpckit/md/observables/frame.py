"""The interface of a frame for observables, and its division among ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hpckit.comm.agree import sum_of_ranks
from hpckit.plan.blocks import block
from hpckit.plan.particles.cell import Cell

if TYPE_CHECKING:
    from mpi4py import MPI

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Frame(Protocol):
    """All particles at one instant in the order of their ids; `Snapshot` is one."""

    @property
    def lower(self) -> Floats:
        """Low corner of the box: float64[3]."""

    @property
    def upper(self) -> Floats:
        """High corner."""

    @property
    def cell(self) -> Cell:
        """The cell of the box, with its tilt."""

    @property
    def periodic(self) -> tuple[bool, bool, bool]:
        """Whether the box is periodic, for each dim."""

    @property
    def types(self) -> Ints:
        """int64[n], from 0."""

    @property
    def positions(self) -> Floats:
        """float64[n, 3], in the box where it is periodic."""

    @property
    def images(self) -> npt.NDArray[np.int32]:
        """int32[n, 3], how many edges a particle has gone beyond its position."""

    @property
    def velocities(self) -> Floats | None:
        """float64[n, 3], or None where unknown."""

    @property
    def masses(self) -> Floats | None:
        """float64[types], or None."""

    @property
    def time(self) -> float:
        """The time of the frame."""


def part_of(frame: Frame, chosen: npt.NDArray[np.bool_]) -> Any:
    """The frame without the particles that are not chosen."""
    velocities = None if frame.velocities is None else frame.velocities[chosen]
    return SimpleNamespace(
        lower=frame.lower,
        upper=frame.upper,
        cell=frame.cell,
        periodic=frame.periodic,
        types=frame.types[chosen],
        positions=frame.positions[chosen],
        images=frame.images[chosen],
        velocities=velocities,
        masses=frame.masses,
        time=frame.time,
    )


def own_block(frame: Frame, comm: MPI.Comm | None) -> slice:
    """The particles that this rank measures: all, or a block of them."""
    n = len(frame.positions)
    if comm is None:
        return slice(0, n)
    start, count = block(n, comm.size, comm.rank)
    return slice(start, start + count)


def summed(values: npt.NDArray[Any], comm: MPI.Comm | None) -> npt.NDArray[Any]:
    """The sum over the ranks, on each of them; integers are exact on any number of ranks."""
    if comm is None:
        return values.copy()
    return sum_of_ranks(comm, np.ascontiguousarray(values).copy())
