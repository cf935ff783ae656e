"""Parameters whose replicas differ: those of experts, and those that every rank has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_reduce
from hpckit.nn.parameters import Parameter, Parameters, in_order
from hpckit.plan.pipeline.parts import PartialSum, joined
from hpckit.training.parts import Parts, PartSum, added

if TYPE_CHECKING:
    from hpckit.training.replicas import Replicas
    from hpckit.training.sharded.shards import Shards


class JoinedParameters(Parameters):
    """Two sets of parameters as one: the elements of the second count on behind those of the first."""

    def __init__(self, first: Parameters, second: Parameters) -> None:
        self._both, self._squares = (first, second), None
        self.list = first.list + second.list
        self.offsets = first.offsets | {name: first.size + at for name, at in second.offsets.items()}
        self.size, self.dtype, self.storage = first.size + second.size, first.dtype, first.storage
        self.values, self.grads = first.values, first.grads  # each set has its own; here for what asks for their dtype
        moved = [part._replace(start=first.size + part.start, end=first.size + part.end) for part in second.owned]
        self.owned = (*first.owned, *moved)
        self.updated = lambda: [each.updated() for each in self._both]

    def zero_grads(self) -> None:
        """Set all gradients to 0, before the first microbatch."""
        for each in self._both:
            each.zero_grads()


class JoinedShards:
    """`Shards` of what all replicas have, and those of the experts, whose replicas are others; of the same units.

    every: all ranks of a stage, which hold parts of either.
    """

    def __init__(self, common: Shards, experts: Shards, every: Replicas) -> None:
        self.common, self.experts = common, experts
        self.replicas, self.units, self._every = common.replicas, common.units, every
        self.stage, self.gathers = max(common.stage, experts.stage), common.gathers or experts.gathers
        self.parameters = JoinedParameters(common.parameters, experts.parameters)
        self._own = [p.name for p in experts.parameters.list]

    @property
    def nodes(self) -> Sequence[PartialSum]:
        """See `Shards`."""
        return self.common.nodes

    def broadcast(self, root: int = 0) -> None:
        """Broadcast the values of the first replicas, and check that all have them. Raises `MismatchError`."""
        self.common.broadcast(root)
        self.experts.broadcast(0)

    def check(self) -> None:
        """Raise `MismatchError` unless replicas hold the same values, to the bit."""
        self.common.check()
        self.experts.check()

    def memory(self) -> dict[str, int]:
        """Bytes of parameters, gradients and master values on this rank."""
        other = self.experts.memory()
        return {name: size + other[name] for name, size in self.common.memory().items()}

    def saves(self, parameter: Parameter) -> bool:
        """Whether this rank holds elements of a parameter that no rank before it holds."""
        return (self.experts if parameter.experts else self.common).saves(parameter)

    def squared_norm(self, squares: np.ndarray) -> float:
        """The sum of what `Squares` found, each parameter's on one of its replicas."""
        all_reduce(squares, self._every.comm, "sum", deterministic=True).wait()
        return in_order(squares)

    def open(self, unit: int) -> None:
        """Give a unit zeroed memory for its gradients, before its first backward pass of a step."""
        self.common.open(unit)
        self.experts.open(unit)

    def start_sum(self, unit: int) -> None:
        """Sum the gradients of a unit over its replicas.

        One sum after the other: two under way in the memory of a node, over ranks that overlap, may each wait for a
        rank that is in the other one.
        """
        for each in (self.common, self.experts):
            each.start_sum(unit)
            each.finish_sums()

    def add_second(self, unit: int, shared: Iterable[Parameter]) -> None:
        """See `Shards`: shared weights are not experts."""
        self.common.add_second(unit, shared)

    def move(self) -> None:
        """Advance the sums that are under way."""
        self.common.move()
        self.experts.move()

    def finish_sums(self) -> None:
        """Wait until all sums are complete."""
        self.common.finish_sums()
        self.experts.finish_sums()

    def need(self, unit: int, following: int = -1) -> None:
        """Have the values of a unit here."""
        self.common.need(unit, following)
        self.experts.need(unit, following)

    def release(self) -> None:
        """Free the gathered values of all units."""
        self.common.release()
        self.experts.release()


class JoinedParts:
    """`Parts` of the common parameters, and the trees of the experts' gradients.

    A rank of experts computes with tokens of all ranks of its line, and adds the gradients of each rank's tokens as
    that rank's tree says; then it adds these sums as the tree of the batch says. sources: the node of each of them.
    """

    def __init__(self, common: Parts, experts: Shards, sources: Sequence[PartialSum]) -> None:
        self._common, self._shards, self._sources = common, experts, list(sources)
        self.node = common.node
        device, dtype = experts.replicas.device, experts.parameters.dtype

        def zeros(count: int) -> Any:
            return device.zeros((count,), dtype)

        self._zeros = zeros
        self._trees = [[PartSum(node, zeros, int, experts.kind) for node in sources] for _ in experts.units]
        self._spare: dict[tuple[int, int], Any] = {}
        self._closed: set[int] = set()

    def begin(self) -> None:
        """Begin a step."""
        self._common.begin()
        self._closed.clear()

    def reach(self, unit: int, number: int, second: bool) -> None:
        """Begin part `number` of each source: one that has fewer sends no more tokens."""
        self._common.reach(unit, min(number, self.node.parts - 1), second)
        self._begin(unit)
        for tree in self._trees[unit]:
            tree.reach(min(number, tree.node.parts - 1))

    def close(self, unit: int, second: bool) -> None:
        """All parts of a unit are complete; a second call does nothing."""
        self._common.close(unit, second)
        if unit in self._closed:
            return
        self._closed.add(unit)
        self._begin(unit)
        done: list[tuple[PartialSum, Any]] = []
        add = functools.partial(added, kind=self._shards.kind)
        for source, (node, tree) in enumerate(zip(self._sources, self._trees[unit], strict=True)):
            tree.close()
            joined(done, node, self._vector(unit, source), add)
        for parameter in self._shards.units[unit].parameters:
            parameter.sources = None

    def _begin(self, unit: int) -> None:
        for source, tree in enumerate(self._trees[unit]):
            if not tree.begun:
                if not source:
                    self._shards.open(unit)
                vector = self._vector(unit, source)
                vector[...] = 0
                bind = self._binds(unit, source)
                bind(vector)
                tree.begin(vector, bind)

    def _vector(self, unit: int, source: int) -> Any:
        """The vector of a source's sum; that of the first source is the memory of the unit's gradients."""
        if not source:
            return self._shards.vector(unit)
        if (unit, source) not in self._spare:
            it = self._shards.units[unit]
            self._spare[unit, source] = self._zeros(it.end - it.start)
        return self._spare[unit, source]

    def _binds(self, unit: int, source: int) -> Callable[[Any], object]:
        """What makes layers add the gradients of a source to a vector."""
        it, offsets = self._shards.units[unit], self._shards.parameters.offsets

        def bind(vector: Any) -> None:
            for p in it.parameters:
                if p.sources is None:
                    p.sources = [None] * len(self._sources)
                at = offsets[p.name] - it.start
                p.sources[source] = vector[at : at + p.size].reshape(p.shape)

        return bind
