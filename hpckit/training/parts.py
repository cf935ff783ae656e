"""Gradients of the fixed parts of a batch, added as a tree: the same bits for any replicas, stages and shards.

Each microbatch is a part (`hpckit.plan.pipeline.parts`). Its gradients go to memory of their own, and what waits for
its neighbor is kept: at most one buffer for each level of the tree. The root of a replica comes to stand where the
gradients would be without parts; the replicas then add their nodes in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hpckit.kernels.nn.narrow.dispatch import round_to
from hpckit.plan.pipeline.parts import PartialSum, joined

if TYPE_CHECKING:
    from hpckit.nn.parameters import Parameter
    from hpckit.training.sharded.shards import Shards

Bind = Callable[[Any], object]


class PartSum:
    """The tree of one vector over the parts of a replica. bind: makes layers add to a buffer from now on.

    closed: called when a part is complete, before it is added. kind: of 16 bits, to which each node is rounded.
    grouped: so many of the parts, a power of two, come as one, whose layers have added them up.
    """

    def __init__(
        self,
        node: PartialSum,
        zeros: Callable[[int], Any],
        closed: Callable[[], object],
        kind: str = "",
        grouped: int = 1,
    ) -> None:
        self._level = min(grouped, node.parts).bit_length() - 1
        self._count = node.parts >> self._level
        self.node, self._zeros, self._closed, self._kind = node, zeros, closed, kind
        self._free: list[Any] = []
        self._nodes: list[tuple[PartialSum, Any]] = []
        self._current: Any = None
        self._bind: Bind = int
        self._done = 0

    @property
    def begun(self) -> bool:
        """Whether a part was begun since the last root."""
        return self._current is not None

    def begin(self, vector: Any, bind: Bind) -> None:
        """Begin with the first part; its gradients go to `vector`, which is zero, and so does the root."""
        self._current, self._bind, self._done = vector, bind, 0

    def reach(self, number: int) -> None:
        """The parts, or groups of them, before this one are complete, counted from 0 in the replica."""
        while self._done < number:
            self._closed()
            if self._kind:
                round_to(self._current, self._kind)
            leaf = PartialSum(self._level, (self.node.first >> self._level) + self._done)
            self._done += 1
            joined(self._nodes, leaf, self._current, self._add)
            if self._done < self._count:
                self._current = self._free.pop() if self._free else self._zeros(len(self._current))
                self._current[...] = 0
                self._bind(self._current)

    def close(self) -> None:
        """All parts are complete: the root is in the vector that the first part began with."""
        self.reach(self._count)
        ((_, root),) = self._nodes
        self._bind(root)
        self._nodes.clear()
        self._current = None

    def _add(self, left: Any, right: Any) -> Any:
        added(left, right, self._kind)
        self._free.append(right)
        return left


def added(left: Any, right: Any, kind: str = "") -> Any:
    """Add right to left, rounded to a kind of 16 bits."""
    left += right
    if kind:
        round_to(left, kind)
    return left


class Parts:
    """The gradients of a rank's units, and second gradients of shared weights, over the parts of a batch.

    nodes: of all replicas. complete: called with the parameters of a unit when a part of it is complete. grouped:
    how many parts a microbatch has.
    """

    def __init__(
        self,
        nodes: Sequence[PartialSum],
        shards: Shards,
        shared: Sequence[Parameter],
        complete: Callable[[Any], object],
        grouped: int = 1,
    ) -> None:
        self.node, self._shards, self._shared = nodes[shards.replicas.rank], shards, list(shared)
        device, dtype = shards.replicas.device, shards.parameters.dtype

        def zeros(count: int) -> Any:
            return device.zeros((count,), dtype)

        def closing(own: Sequence[Parameter]) -> Callable[[], object]:
            return lambda: complete(own)

        self._sums = [
            PartSum(self.node, zeros, closing(unit.parameters), shards.kind, grouped) for unit in shards.units
        ]
        self._seconds = [PartSum(self.node, zeros, int, grouped=grouped) for _ in self._shared]
        self._closed: set[int] = set()

    def begin(self) -> None:
        """Begin a step."""
        self._closed.clear()

    def reach(self, unit: int, number: int, second: bool) -> None:
        """Begin microbatch `number` of a unit. second: its layers add to second gradients, too."""
        for it in self._trees(unit, second):
            it.reach(number)

    def close(self, unit: int, second: bool) -> None:
        """All parts of a unit are complete; a second call does nothing."""
        if unit not in self._closed:
            self._closed.add(unit)
            for it in self._trees(unit, second):
                it.close()

    def _trees(self, unit: int, second: bool) -> list[PartSum]:
        """The tree of a unit, and those of the second gradients, begun."""
        it, shards, own = self._sums[unit], self._shards, self._shards.units[unit]
        if not it.begun:
            shards.open(unit)
            it.begin(
                shards.vector(unit), lambda memory: shards.parameters.bind_grads(memory, own.parameters, own.start)
            )
        found = [it]
        for parameter, tree in zip(self._shared, self._seconds, strict=True) if second else ():
            if not tree.begun:
                tree.begin(parameter.second_grad.reshape(-1), _binds_second(parameter))
            found.append(tree)
        return found


def _binds_second(parameter: Parameter) -> Bind:
    def bind(memory: Any) -> None:
        parameter.second_grad = memory.reshape(parameter.shape)

    return bind
