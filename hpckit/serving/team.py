"""The ranks that serve a model together: arrays that the ranks of a node see, the plan of a step from rank 0, and the
rows that go from node to node.

Ranks stand on three axes (`plan.Places`): stages (`pp`) hold consecutive layers, one stage a node; the ranks of a
replica (`tp`) split the columns of every weight; the replicas (`dp`) each take texts of their own. Ranks of a stage
with the same columns are *twins*: weights, keys and values exist once for all of them.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError, RankLostError
from hpckit.kernels import aligned
from hpckit.serving.plan.places import Places

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpckit.training.messages import Messages

QUICK_LOOKS = 2000  # at the number of the next step, before a rank sleeps between them
NAP = 0.0005  # s between looks of a rank that has nothing to do
LINE = 64  # bytes at whose multiples arrays of twins begin
CHUNK = 1 << 26  # bytes that are mapped at once: a map for each weight would be too many


class Team:
    """The ranks of `comm`, or without one this process alone, as so many replicas. Collective.

    stages: groups of ranks, each on one node, with consecutive layers each; 0 for one stage a node. stage, replica and
    column: those of this rank; columns: ranks that split a weight. Raises `InputError` for ranks that are not so many
    equal stages and replicas, and for a stage whose ranks are on several nodes.
    """

    def __init__(self, comm: MPI.Comm | None = None, replicas: int = 1, stages: int = 0) -> None:
        self.rank, self.size = (0, 1) if comm is None else (comm.rank, comm.size)
        it = self.places = Places(self.size, stages or (1 if comm is None else _nodes(comm)), replicas)
        self.stages, self.replicas, self.columns = it.stages, it.replicas, it.columns
        self.stage, self.replica, self.column = it.place(self.rank)
        self._all = self._own = None
        self._twins: MPI.Comm | None = None
        self._memory, self._used = np.zeros(0, np.uint8), 0
        self._words = np.zeros(0, np.int64)
        self._done = 0
        self._messages: Messages | None = None
        every = comm
        if comm is not None and self.stages > 1:
            from hpckit.comm.mesh import Mesh
            from hpckit.training.messages import Messages

            self._whole = Mesh(comm, pp=self.stages, ranks=it.of_stage)
            self._messages = Messages(self._whole.comm)
            self._leads = self.rank in it.leaders
            self._after, self._before = (
                it.rank((self.stage + way) % self.stages, self.replica, self.column) for way in (1, -1)
            )
            comm = self._whole["ranks"]
        if comm is not None and every is not None and comm.size > 1:
            self._all = self._own = _group_on_one_node(comm, every)
            if replicas > 1:
                from hpckit.comm.mesh import Mesh
                from hpckit.comm.shared.group import node_group

                self._mesh = Mesh(comm, dp=replicas, tp=self.columns)
                self._own = node_group(self._mesh["tp"]) if self.columns > 1 else None
                self._twins = self._mesh["dp"]

    @property
    def is_last(self) -> bool:
        """Whether this rank's stage has the last layers, and the logits."""
        return self.stage == self.stages - 1

    def array(self, *shape: int) -> npt.NDArray[np.float32]:
        """A float32 array that all ranks of this replica see."""
        return self._shared(self._own, math.prod(shape), np.float32).reshape(shape)

    def array_of_all(self, *shape: int) -> npt.NDArray[np.float32]:
        """A float32 array that all ranks of this stage see."""
        return self._shared(self._all, math.prod(shape), np.float32).reshape(shape)

    def array_of_twins(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of zeros that all twins see, in large pieces of memory: so those of a rank alone lie on large pages,
        small ones too.
        """
        kind, count = np.dtype(dtype), math.prod(shape)
        if self._used + count * kind.itemsize > len(self._memory):
            self._memory, self._used = self._mapped(max(CHUNK, count * kind.itemsize)), 0
        begin, end = self._used, self._used + count * kind.itemsize
        self._used = -(-end // LINE) * LINE
        return self._memory[begin:end].view(kind).reshape(shape)

    def _mapped(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """New memory of all twins."""
        if self._twins is None:
            return aligned.pages(nbytes)
        from hpckit.comm.shared.symmetric import shared_once

        return shared_once(self._twins, nbytes, np.uint8)

    def wait(self) -> None:
        """Wait for the ranks of this replica: what each wrote, all see."""
        if self._own is not None:
            from hpckit.comm.shared.calls import barrier

            barrier(self._own)

    def barrier(self) -> tuple[int, int]:
        """`wait` for kernels: the addresses of one that waits, and of its argument; zeros for a rank alone."""
        if self._own is None:
            return 0, 0
        from hpckit.comm.shared.calls import barrier_addresses

        return barrier_addresses(self._own)

    def came(self, status: int) -> None:
        """Raise the error that such a wait ended with, if any."""
        if self._own is not None and status:
            self.check()
            from hpckit.comm.shared.calls import barrier_call

            barrier_call(self._own).call.came(status)

    def check(self) -> None:
        """Raise `RankLostError` if the process of a rank of this stage has ended."""
        if self._all is not None and (lost := self._all.gone()) >= 0:
            raise RankLostError(
                f"rank {self.rank - self._all.rank + lost} is gone: its process ended",
                likely="it was killed, for lack of memory or by hand, or it crashed",
            )

    def meet(self) -> None:
        """Wait for all ranks of this stage."""
        if self._all is not None:
            from hpckit.comm.shared.calls import barrier

            barrier(self._all)

    def make_room(self, words: int, rows: int = 0, width: int = 0) -> None:
        """Room for plans of up to so many words, and for so many rows from the stage before."""
        self._words = self._shared(self._all, words + 2, np.int64)
        if self._messages is not None:
            self._plan = np.zeros(words + 1, np.int64)
            self._rows = self.array(rows, width)

    def send(self, plan: npt.NDArray[np.int64]) -> None:
        """Rank 0: the plan of a step goes to the other stages, which may begin with it; it is told to all later."""
        if self._messages is not None:
            words = np.concatenate([[len(plan)], plan])
            for leader in self.places.leaders:
                self._messages.send(leader, words)

    def tell(self, plan: npt.NDArray[np.int64]) -> None:
        """The first rank of a stage: the plan of its next step, for the `hear` of the others; an empty one ends the
        work.
        """
        if self._all is None:
            return
        self._words[2 : 2 + len(plan)] = plan
        self._words[1] = len(plan)
        self._done += 1
        self._words[0] = self._done
        self.meet()
        self.meet()  # all have their copy: after an empty plan nothing else keeps us from writing the next one

    def hear(self) -> npt.NDArray[np.int64]:
        """The ranks above 0: the plan that rank 0 sends or tells. A rank that waits long sleeps between looks."""
        if self._messages is not None and self._leads:
            plan = self._received(self._messages)
            self.tell(plan)
            return plan
        self._done += 1
        looks = 0
        while int(self._words[0]) < self._done:
            looks = _looked(looks)
        self.meet()
        plan = self._words[2 : 2 + int(self._words[1])].copy()
        self.meet()
        return plan

    def carried(self, count: int) -> npt.NDArray[np.float32]:
        """So many rows from this replica on the stage before, [count, width]."""
        assert self._messages is not None
        if not self.column:
            posted = self._messages.post_into(self._before, self._rows[:count])
            self._messages.wait(posted, "rows of the stage before")
        self.wait()
        return self._rows[:count].copy()

    def carry(self, rows: npt.NDArray[np.float32]) -> None:
        """Send rows, which must not change afterwards, to this replica on the stage after."""
        assert self._messages is not None
        if not self.column:
            self._messages.send(self._after, rows)

    def finish(self) -> None:
        """After the last plan: wait until all that this rank has sent is received."""
        if self._messages is not None:
            self._messages.finish()

    def _received(self, messages: Messages) -> npt.NDArray[np.int64]:
        """The next plan from rank 0."""
        posted, looks = messages.post_into(0, self._plan), 0
        while not messages.has(posted):
            looks = _looked(looks)
        messages.wait(posted, "the plan of a step")
        return self._plan[1 : 1 + int(self._plan[0])].copy()

    def _shared(self, group: Any, count: int, dtype: Any) -> npt.NDArray[Any]:
        if group is None:
            return np.zeros(count, dtype)
        from hpckit.comm.shared.symmetric import shared_once

        return shared_once(group.comm, count, dtype)


def _looked(looks: int) -> int:
    """The number of looks after one in vain: a rank that has looked often sleeps."""
    if looks > QUICK_LOOKS:
        time.sleep(NAP)
    return looks + 1


def _nodes(comm: MPI.Comm) -> int:
    """On how many nodes the ranks are. Collective."""
    from hpckit.comm.agree import all_of_ranks, min_of_ranks
    from hpckit.comm.shared.group import node_comm

    first = min_of_ranks(node_comm(comm), np.array([comm.rank]))
    return len(np.unique(all_of_ranks(comm, first)))


def _group_on_one_node(comm: MPI.Comm, every: MPI.Comm) -> Any:
    """The group of the ranks of a stage, of `every` rank. All raise `InputError` if those of some stage are on several
    nodes. Collective over all.
    """
    from hpckit.comm.agree import min_of_ranks
    from hpckit.comm.shared.group import node_group

    group = node_group(comm)
    if not min_of_ranks(every, np.array([group is not None], np.int64))[0]:
        raise InputError(
            f"a stage of {comm.size} ranks is not on one node",
            do="start equally many ranks on each node, in blocks (srun --distribution=block), or give more stages",
        )
    return group
