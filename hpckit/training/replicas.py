"""Replicas of parameters on a mesh axis: their memory, and checks that they agree."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_gather, all_reduce, all_to_all, broadcast
from hpckit.collectives.axis import axis_of
from hpckit.comm.agree import first_other
from hpckit.comm.device import HOST, Device
from hpckit.comm.shared.symmetric import empty_shared
from hpckit.errors import MismatchError
from hpckit.kernels.device_array import to_host
from hpckit.kernels.nn.memory import empty
from hpckit.kernels.nn.narrow.dispatch import summed
from hpckit.plan.pipeline.parts import PartialSum, tree_sum

if TYPE_CHECKING:
    from hpckit.nn.parameters import Parameter


class Replicas:
    """The ranks that hold the same parameters, `mesh["dp"]` or any communicator.

    deterministic: gradients are added in the order of the ranks, so that every run has the same bits; otherwise in
    the fastest way, which within a node is the same. device: where parameters and gradients live.
    """

    def __init__(self, mesh_axis: Any, deterministic: bool = True, device: Device = HOST) -> None:
        axis = axis_of(mesh_axis)
        self.comm, self.rank, self.size = axis.given, axis.rank, axis.size
        self.deterministic, self.device = deterministic, device
        self.share_node = axis.layout == "node"

    def allocate(self, count: int, dtype: Any) -> Any:
        """Collective: a zeroed vector, on the host in memory shared by the replicas, so that sums copy nothing."""
        if self.device.is_gpu:
            return self.device.zeros((count,), dtype)
        return np.zeros(count, dtype) if self.size == 1 else empty_shared(self.comm, count, dtype).array

    def total(self, number: float) -> float:
        """The sum of a number over the replicas, on all of them."""
        if self.size == 1:
            return number
        value = np.array([number], np.float64)
        all_reduce(value, self.comm, "sum", deterministic=True).wait()
        return float(value[0])

    def scatter_tree(self, vector: Any, nodes: Sequence[PartialSum], counts: np.ndarray, kind: str = "") -> Any:
        """The part of this replica in the sum of all replicas' vectors, added as the tree of which they are nodes.

        counts: elements of each replica's part. kind: of vectors of bits.
        """
        return start_scatter_tree(vector, self.comm, self.rank, nodes, counts, kind)()

    def sum_tree(self, vector: Any, nodes: Sequence[PartialSum], counts: np.ndarray, kind: str = "") -> None:
        """Make all replicas' vectors their sum, added as the tree."""
        all_gather(self.scatter_tree(vector, nodes, counts, kind), self.comm, vector, counts=counts).wait()

    def broadcast(self, values: Any, root: int = 0) -> None:
        """Broadcast the values of `root`, and check the result by `require_equal`."""
        if self.size > 1:
            broadcast(values, self.comm, root).wait()
        self.require_equal(values)

    def require_equal(self, values: Any, what: str = "the parameters") -> None:
        """Raise `MismatchError` on all replicas unless `values` are the same bytes on all. Collective."""
        other = first_other(self.comm, np.ascontiguousarray(to_host(values)).data)
        if other is not None:
            raise MismatchError(
                f"{what} of replica {other} differ from those of replica 0",
                where=f"axis of {self.size} ranks, bytes by SHA-256",
                likely="only some replicas made an update, or made it with other gradients",
                do="broadcast them from one replica, or start again from a checkpoint",
            )


def start_scatter_tree(
    vector: Any,
    comm: Any,
    rank: int,
    nodes: Sequence[PartialSum],
    counts: np.ndarray,
    kind: str = "",
) -> Callable[[], Any]:
    """Start to sum all ranks' vectors as the tree of which they are nodes; a call of what it returns waits for this
    rank's part, and gives it.

    counts: elements of each rank's part. kind: of vectors of bits, whose sums are rounded at each node.
    """
    own, size = int(counts[rank]), len(counts)
    came = empty((own * size,), vector)
    request = all_to_all(vector, comm, came, counts=np.tile(counts, (size, 1)))
    add = functools.partial(summed, kind=kind) if kind else operator.iadd

    def finish() -> Any:
        request.wait()
        return tree_sum(nodes, [came[own * r : own * (r + 1)] for r in range(size)], add)

    return finish


def add_second(shared: Iterable[Parameter]) -> None:
    """Add the second layer's gradients to those of parameters that two layers share."""
    for parameter in shared:
        if parameter.grad is not None:  # of a shard it is summed already
            parameter.grad += parameter.second_grad
            parameter.second_grad[...] = 0
