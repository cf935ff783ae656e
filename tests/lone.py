"""A mesh without MPI for tests in one process."""

from __future__ import annotations

import numpy as np

from hpckit.plan.topology import Topology


class LoneComm:
    """What `FieldWriter` asks of a communicator, for one rank."""

    rank = 0
    size = 1

    def Allgather(self, mine: np.ndarray, every: np.ndarray) -> None:
        every.reshape(-1)[...] = mine.reshape(-1)

    def Bcast(self, buffer: np.ndarray, root: int = 0) -> None:
        pass


class LoneMesh:
    """A mesh of one rank."""

    def __init__(self, *names: str, periodic: tuple[str, ...] = ()) -> None:
        self.topology = Topology(names, (1,) * len(names), periodic)
        self.comm = LoneComm()
        self.rank, self.size = 0, 1
