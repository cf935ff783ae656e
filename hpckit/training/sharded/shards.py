"""A rank's shards: memory of parameters and gradients, and their sums over the replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import Request, all_gather, all_reduce, reduce_scatter
from hpckit.comm.shared import calls
from hpckit.comm.shared.group import node_group
from hpckit.comm.shared.symmetric import shared_once
from hpckit.errors import InputError
from hpckit.kernels.nn.narrow.dispatch import KINDS, packed, unpack, widened
from hpckit.nn.parameters import Owned, Parameter, Parameters, arithmetic_of, in_order
from hpckit.plan.blocks import block_starts
from hpckit.plan.pipeline.parts import PartialSum, root
from hpckit.training.sharded.gathered import GatheredUnits, held_values
from hpckit.training.sharded.units import Unit, shard_bounds

if TYPE_CHECKING:
    from hpckit.training.replicas import Replicas

STAGES = {
    0: "nothing: every replica holds all",
    1: "the optimizer's state",
    2: "and the gradients",
    3: "and the parameters",
}


class Shards:
    """A vector of parameters on the replicas of an axis, whole or in shards. Collective, as are its methods.

    stage: 0 to 3, see `STAGES`; where there is one replica, nothing is cut. units: the first and the last element of
    each. dtype: of `Parameters`. lives: for each unit the index of its buffer of gradients, alike on all replicas
    (stages 2 and 3). partners: for a unit another one, whose parameters its layers use too. group: the replicas that
    hold a copy in shards, all if none are given; twins: those of other groups that hold the same shards. kind:
    "bfloat16" or "float16", in which gradients go between replicas, or "" for their own.
    """

    def __init__(
        self,
        replicas: Replicas,
        stage: int,
        parameters: Iterable[Parameter],
        dtype: Any,
        units: Callable[[Parameters], Sequence[tuple[int, int]]],
        lives: Sequence[int] = (),
        partners: Mapping[int, int] | None = None,
        group: Replicas | None = None,
        twins: Replicas | None = None,
        *,
        kind: str = "",
    ) -> None:
        if stage not in STAGES:
            raise InputError(
                f"the stage of sharding is {stage!r}",
                do=f"take {'; '.join(f'{number} ({what})' for number, what in STAGES.items())}",
            )
        if kind and (kind not in KINDS or arithmetic_of(dtype)[0] != np.float32):
            raise InputError(
                f"gradients go between replicas in {kind}, and are computed in {arithmetic_of(dtype)[0]}",
                do=f"take {' or '.join(KINDS)}, where precision is not float64, or leave it out",
            )
        self.kind = kind
        self.stage = stage if (group or replicas).size > 1 else 0
        if not self.stage:
            group = twins = None
        self.replicas, self.group, self.twins = replicas, group or replicas, twins
        self.by_pointer = self.stage > 0 and self.group.share_node and not replicas.device.is_gpu
        self.gathers = self.stage == 3 and not self.by_pointer  # values of units come by messages, ahead of their use
        zeros = replicas.device.zeros

        def values(count: int, dtype: np.dtype) -> Any:
            if self.by_pointer:
                return shared_once(self.group.comm, count, dtype)
            if self.gathers:
                return zeros((0,), dtype)
            return replicas.allocate(count, dtype)

        def grads(count: int, dtype: np.dtype) -> Any:
            return replicas.allocate(count, dtype) if self.stage < 2 else zeros((0,), dtype)

        def masters(count: int, dtype: np.dtype) -> Any:
            return zeros((0 if self.stage else count,), dtype)

        self.parameters = own = Parameters(
            parameters,
            dtype,
            lambda count, dtype: zeros((count,), dtype),
            values=values,
            grads=grads,
            masters=masters,
        )
        self.units = []
        for start, end in units(own):
            inside = tuple(p for p in own.list if start <= own.offsets[p.name] < end)
            self.units.append(Unit(start, end, shard_bounds(own, start, end, self.group.size), inside))
        self._lives = list(lives)
        if self.stage:
            self._own_units()
            own.updated = self._updated
        self._buffers = self._make_buffers()
        self._gathered = (
            GatheredUnits(own, self.units, self.group.comm, dict(partners or {}), zeros) if self.gathers else None
        )
        self._sums: list[tuple[Request, Callable[[Any], object]]] = []  # with what keeps the result
        self.nodes: Sequence[PartialSum] = ()  # of the replicas, where the parts of a batch are added as a tree
        self._open: set[int] = set()  # units whose gradients are bound

    @property
    def is_copied(self) -> bool:
        """Whether every replica holds all values, in memory of its own."""
        return not (self.by_pointer or self.gathers)

    def _own_units(self) -> None:
        """Bind the owned parts: views of the whole vectors, or memory of their own."""
        own, rank, found = self.parameters, self.group.rank, []
        zeros, size = self.replicas.device.zeros, 0
        ranges = [(int(unit.bounds[rank]), int(unit.bounds[rank + 1])) for unit in self.units]
        total = sum(end - start for start, end in ranges)
        values = zeros((total,), own.values.dtype) if self.gathers else None
        grads = zeros((total,), own.dtype) if self.stage > 1 else None
        masters = zeros((total,), own.dtype) if own.storage else None
        for start, end in ranges:
            at = slice(size, size + end - start)
            held = own.values[start:end] if values is None else values[at]
            found.append(
                Owned(
                    start,
                    end,
                    held if masters is None else masters[at],
                    own.grads[start:end] if grads is None else grads[at],
                    None if masters is None else held,
                )
            )
            size = at.stop
        own.owned = tuple(found)

    def _make_buffers(self) -> list[Any]:
        """Buffers for gradients of whole units, each as large as the largest unit that lives in it."""
        if self.stage < 2:
            return []
        sizes = [0] * (max(self._lives, default=-1) + 1)
        for unit, place in zip(self.units, self._lives, strict=True):
            sizes[place] = max(sizes[place], unit.end - unit.start)
        return [self.replicas.allocate(size, self.parameters.dtype) for size in sizes]

    def broadcast(self, root: int = 0) -> None:
        """Broadcast the values of replica `root`, and check that all have them. Raises `MismatchError`.

        Values of which there is one copy, in shards or in the memory of a node, are only waited for.
        """
        if self.is_copied and not (self.stage and self.parameters.storage):
            self.replicas.broadcast(self._whole, root)
            self.parameters.round_owned()
        else:
            self.parameters.updated()
            self.check()

    def check(self) -> None:
        """Raise `MismatchError` unless all replicas hold the same values, to the bit."""
        if self.is_copied:
            self.replicas.require_equal(self._whole)
        elif self.twins is not None:
            for part in self.parameters.owned:
                self.twins.require_equal(part.values)

    @property
    def _whole(self) -> Any:
        """All values that every replica holds: the master values, where they are not in shards."""
        return self.parameters.values if self.stage else self.parameters.owned[0].values

    def memory(self) -> dict[str, int]:
        """Bytes of parameters, gradients and master values on this rank.

        What a node holds once counts by equal parts.
        """
        own, sizes = self.parameters, {"parameters": 0, "gradients": 0, "masters": 0}
        sizes["parameters"] = own.values.nbytes // (self.group.size if self.by_pointer else 1)
        sizes["gradients"] = own.grads.nbytes + sum(each.nbytes for each in self._buffers)
        if self._gathered:
            sizes["parameters"] += self._gathered.nbytes + sum(held_values(part).nbytes for part in own.owned)
        if own.storage:
            sizes["masters"] = sum(part.values.nbytes for part in own.owned)
        if self.stage > 1:
            sizes["gradients"] += sum(part.grads.nbytes for part in own.owned)
        return sizes

    def saves(self, parameter: Parameter) -> bool:
        """Whether this rank has numbers of a parameter that none before it has."""
        return not (self.replicas.rank // self.group.size if self.stage else self.replicas.rank)

    # Gradients.

    def squared_norm(self, squares: np.ndarray) -> float:
        """The sum of what `Squares` found on the replicas, chunk by chunk in the order of the model."""
        if self.stage:
            all_reduce(squares, self.group.comm, "sum", deterministic=True).wait()
        return in_order(squares)

    def open(self, unit: int) -> None:
        """Give a unit zeroed memory for its gradients, before its first backward pass of a step."""
        if self.stage < 2 or unit in self._open:
            return
        it, memory = self.units[unit], self._buffer(unit)
        memory[...] = 0
        self.parameters.bind_grads(memory, it.parameters, it.start)
        self._open.add(unit)

    def vector(self, unit: int) -> Any:
        """The gradients of a unit that is open."""
        it = self.units[unit]
        return self._buffer(unit) if self.stage > 1 else self.parameters.grads[it.start : it.end]

    def _buffer(self, unit: int) -> Any:
        it = self.units[unit]
        return self._buffers[self._lives[unit]][: it.end - it.start]

    def start_sum(self, unit: int) -> None:
        """Start to sum the gradients of a unit over the replicas; with shards each of them gets its own."""
        it, replicas = self.units[unit], self.replicas
        if replicas.size == 1 or it.start == it.end:
            return
        if self.nodes and replicas.size > 2:  # of two the order of the ranks is that of the tree
            self._sum_tree(unit)
            return
        self.open(unit)
        if not self.stage:
            self._sum_whole(self.vector(unit), replicas)
            return
        shard, message, group = self.parameters.owned[unit].grads, self._message(self.vector(unit)), self.group
        out = shard if self.stage > 1 and not self.kind else None  # else in the message itself
        request = reduce_scatter(message, group.comm, "sum", out, counts=it.counts, **self._how(group))

        def keep(found: Any) -> None:
            if self.kind:
                shard[...] = widened(found.view(np.uint16), self.kind)

        self._sums.append((request, keep))
        if self.stage > 1:
            self.finish_sums()
        self._sum_twins(unit)
        if self.stage > 1:
            self._release(unit)

    def _sum_whole(self, vector: Any, replicas: Replicas) -> None:
        """Start to sum a vector over replicas, all of which get it."""

        def keep(found: Any) -> None:
            if self.kind:
                unpack(vector, self.kind)

        request = all_reduce(self._message(vector), replicas.comm, "sum", **self._how(replicas))
        self._sums.append((request, keep))

    def _message(self, vector: Any) -> Any:
        """What goes to other replicas of a vector of gradients, which serves as its memory."""
        if not self.kind:
            return vector
        bits = packed(vector, self.kind)
        return bits.view(np.float16) if self.kind == "float16" else bits

    def _how(self, replicas: Replicas) -> dict[str, Any]:
        """How messages are added up."""
        how: dict[str, Any] = {"deterministic": replicas.deterministic or bool(self.nodes)}
        return how | ({"kind": self.kind} if self.kind == "bfloat16" else {})

    def _sum_twins(self, unit: int) -> None:
        """Start to sum a shard over the groups, once it is summed within each."""
        twins, shard = self.twins, self.parameters.owned[unit].grads
        if twins is None:
            return
        self.finish_sums()
        if self.nodes and twins.size > 2:
            size = self.group.size
            roots = [root(self.nodes[at : at + size]) for at in range(0, len(self.nodes), size)]
            counts = np.diff(block_starts(len(shard), twins.size))
            self._sum_nodes(shard, twins, [node for node in roots if node], counts)
        elif len(shard):
            self._sum_whole(shard, twins)

    def _sum_nodes(self, vector: Any, replicas: Replicas, nodes: Sequence[PartialSum], counts: np.ndarray) -> None:
        """Make all replicas' vectors the sum of these nodes."""
        if not self.kind:
            replicas.sum_tree(vector, nodes, counts)
            return
        replicas.sum_tree(packed(vector, self.kind), nodes, counts, self.kind)
        unpack(vector, self.kind)

    def _release(self, unit: int) -> None:
        self._open.discard(unit)  # its buffer serves other units from now on
        self.parameters.bind_grads(self.parameters.grads, self.units[unit].parameters)

    def _sum_tree(self, unit: int) -> None:
        """Sum a unit over the replicas in the order of the tree, and wait."""
        self.open(unit)
        it, whole = self.units[unit], self.vector(unit)
        if not self.stage:
            self._sum_nodes(whole, self.replicas, self.nodes, it.counts)
            return
        first = self.replicas.rank // self.group.size * self.group.size
        nodes = self.nodes[first : first + self.group.size]
        message = packed(whole, self.kind) if self.kind else whole
        found = self.group.scatter_tree(message, nodes, it.counts, self.kind)
        self.parameters.owned[unit].grads[...] = widened(found, self.kind) if self.kind else found
        self._sum_twins(unit)
        if self.stage > 1:
            self._release(unit)

    def add_second(self, unit: int, shared: Iterable[Parameter]) -> None:
        """Sum the second gradients of a unit's weights over the replicas, then add them to the sums of the first."""
        inside, replicas = self.units[unit].parameters, self.replicas
        for parameter in [p for p in shared if p in inside]:
            self.finish_sums()
            second = parameter.second_grad.reshape(-1)
            if replicas.size > 2:
                replicas.sum_tree(second, self.nodes, np.diff(block_starts(parameter.size, replicas.size)))
            elif replicas.size > 1:
                all_reduce(second, replicas.comm, "sum", deterministic=True).wait()
            first = self.parameters.offsets[parameter.name]
            for part, low, high in self.parameters.parts_of(parameter):
                part.grads[first + low - part.start : first + high - part.start] += second[low:high]
            second[...] = 0

    def move(self) -> None:
        """Advance the sums under way."""
        if self._sums:
            self._sums[-1][0].test()

    def finish_sums(self) -> None:
        """Wait until all sums are complete."""
        for request, keep in self._sums:
            keep(request.wait())
        self._sums.clear()

    # Values.

    def need(self, unit: int, following: int = -1) -> None:
        """Have the values of a unit here, and begin to gather those of the unit that is used after it."""
        if self._gathered:
            self._gathered.need(unit, following)

    def release(self) -> None:
        """Free the gathered values of all units."""
        if self._gathered:
            self._gathered.release()

    def _updated(self) -> None:
        """After a change of the owned values: all replicas have the new ones, or gather them when they need them."""
        self.parameters.round_owned()
        if self.by_pointer:
            group = node_group(self.group.comm)
            assert group is not None
            calls.barrier(group)
        elif self.gathers:
            self.release()
        else:
            for it, owned in zip(self.units, self.parameters.owned, strict=True):
                if it.end > it.start:
                    whole = self.parameters.values[it.start : it.end]
                    all_gather(held_values(owned), self.group.comm, whole, counts=it.counts).wait()
