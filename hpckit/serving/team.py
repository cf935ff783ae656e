"""The ranks that serve a model together, on one node: arrays that all see, and the plan of a step from rank 0."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError

if TYPE_CHECKING:
    from mpi4py import MPI

QUICK_LOOKS = 2000  # at the number of the next step, before a rank sleeps between them
NAP = 0.0005  # s between looks of a rank that has nothing to do


class Team:
    """The ranks of `comm`, or without one this process alone. Collective. Raises `InputError` for ranks of several
    nodes.
    """

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        self.rank, self.size, self._group = 0, 1, None
        self._comm = comm
        self._words = np.zeros(0, np.int64)
        self._done = 0
        if comm is not None and comm.size > 1:
            from hpckit.comm.shared.group import node_group

            self._group = node_group(comm)
            self.rank, self.size = comm.rank, comm.size
            if self._group is None:
                raise InputError(
                    f"the {comm.size} ranks of a server are not on one node",
                    do="start them on one node, as with srun -N 1; one server a node serves more",
                )

    def array(self, *shape: int) -> npt.NDArray[np.float32]:
        """A float32 array that all ranks see."""
        return self._shared(int(np.prod(shape)), np.float32).reshape(shape)

    def wait(self) -> None:
        """Wait for all ranks: what each wrote, all see."""
        if self._group is not None:
            from hpckit.comm.shared.calls import barrier

            barrier(self._group)

    def make_room(self, words: int) -> None:
        """Room for plans of up to so many words."""
        self._words = self._shared(words + 2, np.int64)

    def tell(self, plan: npt.NDArray[np.int64]) -> None:
        """Rank 0: the plan of the next step, for `hear`; an empty one ends the work."""
        if self._group is None:
            return
        self._words[2 : 2 + len(plan)] = plan
        self._words[1] = len(plan)
        self._done += 1
        self._words[0] = self._done
        self.wait()
        self.wait()  # all have their copy: after an empty plan nothing else keeps rank 0 from writing the next one

    def hear(self) -> npt.NDArray[np.int64]:
        """The other ranks: the plan that rank 0 tells. A rank that waits long sleeps between looks."""
        self._done += 1
        looks = 0
        while int(self._words[0]) < self._done:
            looks += 1
            if looks > QUICK_LOOKS:
                time.sleep(NAP)
        self.wait()
        plan = self._words[2 : 2 + int(self._words[1])].copy()
        self.wait()
        return plan

    def _shared(self, count: int, dtype: Any) -> npt.NDArray[Any]:
        if self._group is None:
            return np.zeros(count, dtype)
        from hpckit.comm.shared.symmetric import shared_once

        return shared_once(self._group.comm, count, dtype)
