"""What observables need of a frame, and how ranks share it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from hpckit.plan.blocks import block

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Frame(Protocol):
    """All particles at one instant in the order of their ids; `Snapshot` is one."""

    lower: Floats
    upper: Floats
    periodic: tuple[bool, bool, bool]
    types: Ints
    positions: Floats
    images: npt.NDArray[np.int32]
    velocities: Floats | None
    masses: Floats | None
    time: float


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
    total = np.ascontiguousarray(values).copy()
    comm.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
    return total
