"""The ranks that serve a model together, on one node: arrays that some or all see, and the plan of a step from rank 0.

Ranks stand on two axes: those of a replica (`tp`) split the columns of every weight, and the replicas (`dp`) each take
texts of their own. The ranks with the same columns are *twins*: weights, keys and values exist once for all of them.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError

if TYPE_CHECKING:
    from mpi4py import MPI

QUICK_LOOKS = 2000  # at the number of the next step, before a rank sleeps between them
NAP = 0.0005  # s between looks of a rank that has nothing to do
LINE = 64  # bytes at whose multiples arrays of twins begin
CHUNK = 1 << 26  # bytes of the memory of twins that are mapped at once: a map for each weight would be too many


class Team:
    """The ranks of `comm`, or without one this process alone, as so many replicas. Collective.

    replica, replicas: which one this rank belongs to, and how many there are. column, columns: the same for the
    columns of weights. Raises `InputError` for ranks of several nodes, or that are not so many equal replicas.
    """

    def __init__(self, comm: MPI.Comm | None = None, replicas: int = 1) -> None:
        self.rank, self.size = (0, 1) if comm is None else (comm.rank, comm.size)
        require_replicas(self.size, replicas)
        self.replicas, self.columns = replicas, self.size // replicas
        self.replica, self.column = divmod(self.rank, self.columns)
        self._all = self._own = None
        self._twins: MPI.Comm | None = None
        self._memory, self._used = np.zeros(0, np.uint8), 0
        self._words = np.zeros(0, np.int64)
        self._done = 0
        if comm is not None and comm.size > 1:
            from hpckit.comm.mesh import Mesh
            from hpckit.comm.shared.group import node_group

            self._all = self._own = node_group(comm)
            if self._all is None:
                raise InputError(
                    f"the {comm.size} ranks of a server are not on one node",
                    do="start them on one node, as with srun -N 1; one server a node serves more",
                )
            if replicas > 1:
                self._mesh = Mesh(comm, dp=replicas, tp=self.columns)
                self._own = node_group(self._mesh["tp"]) if self.columns > 1 else None
                self._twins = self._mesh["dp"]

    def array(self, *shape: int) -> npt.NDArray[np.float32]:
        """A float32 array that all ranks of this replica see."""
        return self._shared(self._own, math.prod(shape), np.float32).reshape(shape)

    def array_of_all(self, *shape: int) -> npt.NDArray[np.float32]:
        """A float32 array that all ranks see."""
        return self._shared(self._all, math.prod(shape), np.float32).reshape(shape)

    def array_of_twins(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of zeros that all twins see."""
        kind, count = np.dtype(dtype), math.prod(shape)
        if self._twins is None:
            return np.zeros(shape, kind)
        from hpckit.comm.shared.symmetric import shared_once

        if self._used + count * kind.itemsize > len(self._memory):
            self._memory, self._used = shared_once(self._twins, max(CHUNK, count * kind.itemsize), np.uint8), 0
        begin, end = self._used, self._used + count * kind.itemsize
        self._used = -(-end // LINE) * LINE
        return self._memory[begin:end].view(kind).reshape(shape)

    def wait(self) -> None:
        """Wait for the ranks of this replica: what each wrote, all see."""
        if self._own is not None:
            from hpckit.comm.shared.calls import barrier

            barrier(self._own)

    def meet(self) -> None:
        """Wait for all ranks."""
        if self._all is not None:
            from hpckit.comm.shared.calls import barrier

            barrier(self._all)

    def make_room(self, words: int) -> None:
        """Room for plans of up to so many words."""
        self._words = self._shared(self._all, words + 2, np.int64)

    def tell(self, plan: npt.NDArray[np.int64]) -> None:
        """Rank 0: the plan of the next step, for `hear`; an empty one ends the work."""
        if self._all is None:
            return
        self._words[2 : 2 + len(plan)] = plan
        self._words[1] = len(plan)
        self._done += 1
        self._words[0] = self._done
        self.meet()
        self.meet()  # all have their copy: after an empty plan nothing else keeps rank 0 from writing the next one

    def hear(self) -> npt.NDArray[np.int64]:
        """The other ranks: the plan that rank 0 tells. A rank that waits long sleeps between looks."""
        self._done += 1
        looks = 0
        while int(self._words[0]) < self._done:
            looks += 1
            if looks > QUICK_LOOKS:
                time.sleep(NAP)
        self.meet()
        plan = self._words[2 : 2 + int(self._words[1])].copy()
        self.meet()
        return plan

    def _shared(self, group: Any, count: int, dtype: Any) -> npt.NDArray[Any]:
        if group is None:
            return np.zeros(count, dtype)
        from hpckit.comm.shared.symmetric import shared_once

        return shared_once(group.comm, count, dtype)


def require_replicas(ranks: int, replicas: int) -> None:
    """Raise `InputError` unless so many ranks are so many equal replicas."""
    if replicas < 1 or ranks % replicas:
        fitting = " or ".join(str(n) for n in range(1, ranks + 1) if ranks % n == 0)
        raise InputError(
            f"{ranks} rank(s) are not {replicas} equal replicas",
            do=f"give {fitting} replicas, or a number of ranks (-n) that is a multiple of {max(1, replicas)}",
        )
