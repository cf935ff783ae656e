"""All-reduce over several nodes: shared memory inside each, messages between the ranks that stand alike in theirs.

The ranks of a node reduce their buffers in shared memory, a block each; a block is reduced over the nodes by its
owners, all blocks at once, so that every rank uses the network; and each node gathers its blocks in shared memory.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives.axis import Axis, axis_of
from hpckit.collectives.buffers import Slots, segmented_slots
from hpckit.collectives.choice import segments_of
from hpckit.collectives.rank_program import RankPhase, phases_over_nodes
from hpckit.collectives.reduction import Reduction
from hpckit.collectives.request import Steps
from hpckit.collectives.runner import Runner
from hpckit.comm.agree import min_of_ranks
from hpckit.comm.progress import give_way
from hpckit.comm.shared.calls import GroupCall, prepare, takes
from hpckit.comm.shared.group import NodeGroup, node_comm, node_group
from hpckit.errors import SetupError
from hpckit.kernels.device_array import is_device_array
from hpckit.plan.blocks import block_starts

__communicates__ = True  # its frames are not call sites

RING_FROM = 2**20  # bytes of a block that goes over the nodes by the ring: what is smaller takes fewer messages
TRIES = 4  # attempts, of some microseconds each, before MPI is looked after


class Nodes:
    """What the nodes of an axis share: `group` inside this one, `across` over the ranks of the same place in theirs."""

    def __init__(self, group: NodeGroup, across: Axis) -> None:
        self.group, self.across = group, across
        self.queue: deque[object] = deque()  # all-reduces that were started and are not done, in their order

    def free(self) -> None:
        """Free the communicator across the nodes."""
        if self.across.given != MPI.COMM_NULL and not MPI.Is_finalized():
            self.across.given.Free()

    def takes(self, values: Any, reduction: Reduction) -> bool:
        """Whether numbers can be reduced in shared memory; the same on all ranks."""
        if is_device_array(values):
            return False
        return takes(self.group, "reduce_scatter", "staged", reduction.working, values.nbytes, op=reduction.op)


def nodes_of(axis: Axis) -> Nodes | None:
    """Collective: the nodes of an axis; None where they hold unequal numbers of ranks, or one, or share no memory."""
    node = node_comm(axis.comm)
    sizes = min_of_ranks(axis.comm, np.array([node.size, -node.size], np.int64))
    if sizes[0] != -sizes[1] or sizes[0] in (1, axis.size):
        return None
    try:
        group = node_group(node)
    except SetupError:  # on all ranks of the node alike
        group = None
    everywhere = min_of_ranks(axis.comm, np.array(group is not None, np.int64))
    if group is None or not everywhere:
        return None
    across = MPI.Intracomm(axis.comm.Split(node.rank, axis.rank))
    return Nodes(group, axis_of(across))


class Attempted:
    """A call in shared memory where steps of a work have MPI's requests: it is made once all ranks are there."""

    def __init__(self, call: GroupCall, buffer: np.ndarray, out: np.ndarray) -> None:
        self._call, self._buffers, self._done = call, (buffer, out), False

    def Test(self) -> bool:
        """Make it, if all are there; whether it is made."""
        self._done = self._done or self._call.came(self._call.run(*self._buffers))
        return self._done

    def Wait(self) -> None:
        """Make it; meanwhile look after MPI's messages."""
        tries = 0
        while not self.Test():
            tries += 1
            if tries > TRIES:
                MPI.COMM_WORLD.Iprobe()
                give_way(tries)


class Turn:
    """The same for the turn of a work: calls of a group come in one order on all ranks."""

    def __init__(self, queue: deque[object]) -> None:
        self._queue = queue
        queue.append(self)

    def Test(self) -> bool:
        """Whether all that were started before are done."""
        return self._queue[0] is self

    def Wait(self) -> None:
        """Nothing to wait for: what comes before is under way too."""

    def leave(self) -> None:
        """It is done, or has failed."""
        self._queue.remove(self)


def over_nodes(axis: Axis, values: Any, reduction: Reduction) -> Nodes | None:
    """The nodes of an axis; None where they differ in size, share no memory or do not take the values. Collective the
    first time.
    """
    if not axis.nodes:
        axis.nodes.append(nodes_of(axis))
        axis.frees += [nodes.free for nodes in axis.nodes if nodes is not None]
    nodes = axis.nodes[0]
    return nodes if nodes is not None and nodes.takes(values, reduction) else None


def all_reduce(nodes: Nodes, values: Any, reduction: Reduction, weights: np.ndarray, told: MPI.Request) -> Steps:
    """All-reduce of flat values in place. weights: of all ranks, once the request `told` is over."""
    group, across = nodes.group, nodes.across
    tag, turn = across.tag(), Turn(nodes.queue)
    return _steps(group, across, tag, turn, values, reduction, weights, told)


def _steps(
    group: NodeGroup,
    across: Axis,
    tag: int,
    turn: Any,
    values: Any,
    reduction: Reduction,
    weights: np.ndarray,
    told: MPI.Request,
) -> Steps:
    try:
        yield turn
        yield told
        working = reduction.own(values, keep=False)
        sizes = np.diff(block_starts(working.size, group.size))
        phases, slots = _plan(group, across, working, sizes)
        op = "sum" if reduction.op in ("mean", "average") else reduction.op
        for phase in phases:
            if phase.program is not None:
                yield from Runner(across, tag, phase.program, slots, reduction.combine).steps()
                continue
            block = slots.view(*phase.block)
            if phase.add:
                run: Any = Attempted(
                    prepare(group, "reduce_scatter", working, out=block, op=op, algorithm="staged"), working, block
                )
            else:
                run = Attempted(prepare(group, "all_gather", block, out=working, algorithm="staged"), block, working)
            yield run
    finally:
        turn.leave()
    reduction.finish(working, weights)
    reduction.narrow(working, values)


def _plan(group: NodeGroup, across: Axis, values: np.ndarray, sizes: np.ndarray) -> tuple[tuple[RankPhase, ...], Slots]:
    """What this rank does in the plan "nodes", and its slots; sizes: elements of the block of each rank of a node."""
    nbytes = int(sizes[0]) * values.itemsize
    name = "ring" if nbytes >= RING_FROM else "halving_doubling"
    segments = segments_of("all_reduce", name, across.size, nbytes) if name == "ring" else 1
    # The plan numbers ranks node by node.
    rank = across.rank * group.size + group.rank
    phases = phases_over_nodes(across.size * group.size, group.size, name, segments, rank)
    slots = next(phase.program.slots for phase in phases if phase.program is not None)
    return phases, segmented_slots(values, sizes, slots)
