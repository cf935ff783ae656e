"""What collectives keep for the ranks of a mesh axis: a communicator of their own, its order, buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives.nccl import Nccl, nccl_of
from hpckit.collectives.node import Calls, entered
from hpckit.collectives.request import MessageRun, Steps
from hpckit.collectives.table import shared_table
from hpckit.comm.call_order import CallOrder, Lane, Lanes
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.observer import observer_of
from hpckit.comm.progress import progress
from hpckit.comm.shared.group import NodeGroup, node_group
from hpckit.errors import InputError, SetupError
from hpckit.kernels.device_array import is_device_array

__communicates__ = True  # its frames are not call sites

# Tags start over after so many collectives: no two that are under way at once come near.
MOST_TAGS = 1 << 14
# So many ranges of tags at most, by what is called: ranks that differ never take each other's messages for those of
# their own call, but wait, and are heard by `CallOrder`. The ranges before these are for what is compared elsewhere.
MOST_KINDS, FIRST_KIND = 4096, 2
# Buffers of a size that are kept for the next collective.
KEPT = 16


class Memory:
    """Scratch memory on the host, kept from collective to collective."""

    def __init__(self) -> None:
        self._free: dict[int, list[Any]] = {}

    def borrow(self, nbytes: int) -> Any:
        """At least so many bytes: uint8, flat."""
        size = 1 << max(nbytes - 1, 1023).bit_length()
        free = self._free.get(size)
        return free.pop() if free else self._new(size)

    def give_back(self, memory: Any) -> None:
        """Let the next collective use it."""
        free = self._free.setdefault(memory.nbytes, [])
        if len(free) < KEPT:
            free.append(memory)

    def settle(self) -> None:
        """Wait until what was written is there for MPI to send."""

    def _new(self, nbytes: int) -> Any:
        return np.empty(nbytes, np.uint8)


class DeviceMemory(Memory):
    """The same on the GPU that is current."""

    def settle(self) -> None:
        """Wait for the current stream."""
        import cupy

        cupy.cuda.get_current_stream().synchronize()

    def _new(self, nbytes: int) -> Any:
        import cupy

        return cupy.empty(nbytes, np.uint8)


class Axis:
    """The ranks that take part. Its messages go by a duplicate communicator, never to be taken for the caller's.

    Every collective has a tag of its own, counted in the order of the calls, so that several may be under way.
    """

    def __init__(self, given: MPI.Intracomm) -> None:
        self.given: Any = given
        self.observer, self.progress = observer_of(given), progress()
        self.group = _group(given)
        self.order = CallOrder(given, lambda: entered(self.group, self.progress), self._renew)
        self.calls = Calls(self.group, self.observer, self.progress, self.order)
        self.comm: MPI.Intracomm = given.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self._kinds = max(0, min(MOST_KINDS, int(self.comm.Get_attr(MPI.TAG_UB) or 0) // MOST_TAGS - FIRST_KIND))
        self.name = given.Get_name() or "a communicator"
        self.node_size = _node_size(self.comm)
        self.table = shared_table(self.comm)
        self.compared: set[Any] = set()  # algorithms of the caller's own, known to be the same on all ranks
        self._lanes = Lanes()
        self._nccl: list[Nccl | None] = []
        self.nodes: list[Any] = []  # at most one: see `hpckit.collectives.nodes.over_nodes`
        self.frees: list[Callable[[], None]] = []  # what was made for the axis, and goes with it
        self._host, self._device = Memory(), DeviceMemory()

    def run(
        self,
        what: tuple[Any, ...],
        key: Hashable,
        steps: Callable[[int], Steps],
        result: Callable[[], Any],
        by_library: Callable[[Lane], Steps] | None = None,
    ) -> MessageRun:
        """Run a collective by messages. what: as an observer is told of it; key: plain values that must be the same on
        all ranks; steps: of a run with a tag, which comes from the number of the call and from its key; by_library:
        those of a run by the MPI library, on a communicator of the call's own.
        """
        rest = result, what, self.order, key, self.observer.compares
        if by_library is not None:
            lane = self._lanes.of(key, self.comm)
            return MessageRun(self.progress, by_library(lane), *rest, lane)
        tag = (self.order.number + 1) % MOST_TAGS
        if self._kinds:
            tag += MOST_TAGS * (FIRST_KIND + self.order.digest(key) % self._kinds)
        return MessageRun(self.progress, steps(tag), *rest)

    def tag(self) -> int:
        """The tag of the next collective, for one that is compared elsewhere."""
        self.order.number += 1
        return self.order.number % MOST_TAGS

    def memory_for(self, array: Any) -> Memory:
        """Scratch memory where the array is."""
        return self._device if is_device_array(array) else self._host

    @property
    def layout(self) -> str:
        """Whether the ranks share a node, as the table of measured times has it."""
        return "node" if self.node_size == self.size else "nodes"

    def nccl(self, array: Any) -> Nccl | None:
        """NCCL for an array of CuPy; None for others, and where ranks share a GPU. Collective the first time."""
        if type(array).__module__ != "cupy":
            return None
        if not self._nccl:
            self._nccl = [nccl_of(self.comm, array)]
        return self._nccl[0]

    def _renew(self, fresh: MPI.Intracomm) -> None:
        """Use another communicator. The old one is never freed: what is still on its way there would come to the next
        one of its number.
        """
        self.progress.keep([self.comm, *self._lanes.drop()])
        self.comm = fresh

    def free(self) -> None:
        """Free the communicator, and what was made for the axis."""
        if hasattr(self.given, "axis"):
            self.given.axis = None
        for free in self.frees:
            free()
        if self.comm != MPI.COMM_NULL and not MPI.Is_finalized():
            for comm in (self.comm, *self._lanes.drop()):
                comm.Free()
        self.order.free()


def _group(comm: MPI.Intracomm) -> NodeGroup | None:
    """The shared memory of the ranks, None where they have none. Collective."""
    if comm.size == 1:
        return None
    try:
        return node_group(comm)
    except SetupError:
        return None


def _node_size(comm: MPI.Intracomm) -> int:
    """How many ranks share a node: where nodes hold unequal numbers, the least of them. Collective."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    size = np.array(node.size)
    node.Free()
    comm.Allreduce(MPI.IN_PLACE, size, MPI.MIN)
    return int(size)


def axis_of(given: Any) -> Axis:
    """What is kept for the ranks of `mesh["x"]`, of any other communicator, or of all of a mesh.

    Collective when it first meets a communicator. It is freed with it. Raises `InputError` for anything else.
    """
    comm: Any = given.comm if isinstance(given, Mesh) else given
    known = getattr(comm, "axis", None)
    if type(known) is Axis:
        return known
    try:
        axis: Any = comm.Get_attr(_attribute())
    except (AttributeError, MPI.Exception):
        axis = None
    if axis is None:
        axis = _new_axis(comm)
    elif type(comm) is not MPI.Intracomm:
        comm.axis = axis
    return axis


def _new_axis(comm: Any) -> Axis:
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        shown = "COMM_NULL" if isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL else repr(comm)
        raise InputError(
            f"a collective runs on the ranks of a mesh, a mesh axis or a communicator, not on {shown}",
            do='give mesh["x"] for an axis named x, the mesh for all its ranks, or a communicator',
        )
    observer = observer_of(comm)
    with nullcontext() if observer.inside else observer.operation(comm, "the first collective"):
        axis = Axis(comm)
    comm.Set_attr(_attribute(), axis)
    return axis


@functools.cache
def _attribute() -> int:
    """The attribute of a communicator that holds its axis; MPI calls back when the communicator is freed."""
    return MPI.Comm.Create_keyval(delete_fn=lambda comm, key, axis: axis.free())
