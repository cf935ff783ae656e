"""A window of time: many steps, a cost along the way, and its gradient in the first state and in parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hpckit.adjoint.execute import Bound
from hpckit.adjoint.models import Model, vjp_graph
from hpckit.adjoint.program import Graph
from hpckit.adjoint.schedule import binomial_schedule
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import Node

__communicates__ = True  # its frames are not call sites
MEMORY = 2 << 30
State = list[Field]


class Window:
    """`steps` steps of a model from a first state, and the cost of the states at some times.

    step: its first arguments are the fields of the state, its results those of the next state; further arguments are
    parameters, the same in all steps. cost: a model of the state's fields, and of what `data(k)` gives for time k: a
    tuple of fields and numbers; its values at the times `at` (the last by default) are added. memory: bytes of a rank
    for the states that are kept; what does not fit is computed again (`schedule`), with the same bits.

    The terms of the gradient are added in one order, from the last time to the first: its bits depend neither on the
    number of ranks nor on the memory.
    """

    def __init__(
        self,
        step: Model,
        steps: int,
        cost: Model,
        at: Collection[int] | None = None,
        data: Callable[[int], Sequence[Any]] | None = None,
        memory: float = MEMORY,
        **options: Any,
    ) -> None:
        self.step, self.steps, self.cost, self.data, self.memory = step, steps, cost, data, memory
        self.at = frozenset((steps,) if at is None else at)
        self.options = options
        if steps < 1 or not self.at or not all(0 <= k <= steps for k in self.at):
            raise InputError(
                f"a window of {steps} steps has its cost at times between 0 and {steps}, not at {sorted(self.at)}"
            )
        self._pools: dict[Any, _Pool] = {}

    def value(self, *args: Any) -> float:
        """The cost of a run from a first state, with parameters. Collective."""
        pool = self._pool(args)
        pool.begin(args)
        costs = {}
        for k in range(self.steps + 1):
            if k in self.at:
                costs[k] = float(self.cost(*pool.states[k], *self._data(k)))
            if k < max(self.at):
                pool.forward(k, keep=False)
        return _added(costs)

    def final(self, *args: Any) -> tuple[Field, ...]:
        """The state after all steps. Collective."""
        pool = self._pool(args)
        pool.begin(args)
        for k in range(self.steps):
            pool.forward(k, keep=False)
        found = tuple(arg.like() for arg in args[: pool.fields])
        for field, state in zip(found, pool.states[self.steps], strict=True):
            field.interior[...] = state.interior
        return found

    def gradient(self, *args: Any) -> tuple[float, tuple]:
        """The cost, and its gradient in each field of the first state and each parameter. Collective."""
        pool, last = self._pool(args), max(self.at)
        pool.begin(args)
        costs: dict[int, float] = {}
        for move in binomial_schedule(last, pool.kept) if last else ():
            if move.kind == "forward":
                pool.forward(move.at, move.keep)
            elif move.kind == "drop":
                pool.drop(move.at)
            else:
                if move.at + 1 == last:
                    pool.forward(move.at, keep=False, stay=True)
                    costs[last] = pool.add_cost(last, self.cost, self._data(last))
                    pool.drop(last)
                pool.back(move.at)
                if move.at in self.at:
                    costs[move.at] = pool.add_cost(move.at, self.cost, self._data(move.at))
                pool.leave(move.at)
        if not last:
            costs[0] = pool.add_cost(0, self.cost, self._data(0))
        return _added(costs), pool.result()

    def _data(self, k: int) -> Sequence[Any]:
        return tuple(self.data(k)) if self.data is not None else ()

    def _pool(self, args: Sequence[Any]) -> _Pool:
        graph = self.step.graph(*args, **self.options)
        field = next(arg for arg in args if isinstance(arg, Field))
        key = (graph.inputs, graph.outputs, id(field.mesh), field.decomposition.shape)
        if key not in self._pools:
            self._pools[key] = _Pool(self.step, graph, args, self.steps, self.memory)
        return self._pools[key]


class _Pool:
    """The memory of a window: states, sensitivities, parameters, and the programs that run on them."""

    def __init__(self, step: Model, graph: Graph, args: Sequence[Any], steps: int, memory: float) -> None:
        self.graph, self.fields = graph, len(graph.outputs)
        state = args[: self.fields]
        if len(state) < self.fields or not all(isinstance(arg, Field) for arg in state):
            raise InputError(
                f"{step.name} has {self.fields} results: its first {self.fields} arguments are the fields of the state"
            )
        back = vjp_graph(graph)
        programs = step.program(graph), step.program(back)
        halos = [
            tuple(map(max, *(program.halo.get(node, (0,) * len(graph.axes)) for program in programs)))
            for node in graph.inputs
        ]
        self.seeds = back.inputs[len(graph.inputs) :]
        shape, topology = state[0].decomposition.shape, state[0].mesh.topology
        plain = type(state[0].decomposition)(shape, topology, 0)
        largest = 8 * math.prod(int(n.max()) + 16 for n in plain.all_owned()) * self.fields  # bytes, alike on all ranks
        self.kept = int(max(0, min(steps - 1, memory // largest - 4)))
        bindings = min(self.kept, 1000) + 8
        self._there: Bound = step.bound(graph, args, bindings)
        self._back: Bound = step.bound(back, args, bindings)
        self._halos, self._free = halos, []  # type: tuple[list, list[State]]
        self._like = tuple(state)
        self.states: dict[int, State] = {}
        self._held: set[int] = set()
        self._filled: set[int] = set()
        sent = set(programs[0].stages[0].exchanged)
        self._sent = [node for node in graph.inputs[: self.fields] if node in sent]
        zero = (0,) * len(graph.axes)
        wide = [
            tuple(map(max, programs[1].halo[seed], programs[1].halo.get(result, zero)))
            for seed, result in zip(self.seeds, back.outputs, strict=False)
        ]
        self._now = [self._there.zeros(halo=halo) for halo in wide]
        self._next = [self._there.zeros(halo=halo) for halo in wide]
        self._parameters: list[Any] = []
        self._slopes: list[Any] = []
        self._results: list[Field | None] = []
        self._costs: list[Field] = []

    def begin(self, args: Sequence[Any]) -> None:
        """Take a first state and parameters; no sensitivities yet."""
        for k in list(self.states):
            self.drop(k)
        first = self._buffer()
        for own, arg in zip(first, args[: self.fields], strict=True):
            own.interior[...] = arg.interior
        self.states[0] = first
        self._held = {0}
        if not self._parameters:
            self._parameters = [
                self._there.zeros(halo=halo) if isinstance(arg, Field) else 0.0
                for arg, halo in zip(args[self.fields :], self._halos[self.fields :], strict=True)
            ]
            self._slopes = [arg.like() if isinstance(arg, Field) else 0.0 for arg in args[self.fields :]]
            self._results = [self._there.zeros() if isinstance(arg, Field) else None for arg in args[self.fields :]]
        for k, arg in enumerate(args[self.fields :]):
            if isinstance(arg, Field):
                self._parameters[k].interior[...] = arg.interior
                self._slopes[k].interior[...] = 0.0
            else:
                self._parameters[k], self._slopes[k] = float(arg), 0.0
        for field in self._now:
            field.interior[...] = 0.0

    def forward(self, k: int, keep: bool, stay: bool = False) -> None:
        """Compute state k + 1 from state k, which is left unless it is kept or stays."""
        new = self._buffer()
        self._there.run(self._inputs(k), new)
        self._filled.add(k)
        self.states[k + 1] = new
        if keep:
            self._held.add(k + 1)
        if not stay:
            self.leave(k)

    def back(self, k: int) -> None:
        """From the sensitivities to state k + 1 those to state k, and what the step adds to those to parameters."""
        inputs = {**self._inputs(k), **dict(zip(self.seeds, self._now, strict=True))}
        filled = self._sent if k in self._filled else ()
        found = self._back.run(inputs, [*self._next, *self._results], filled)
        for place, slope in enumerate(found[self.fields :]):
            if isinstance(slope, Field):
                self._slopes[place].interior[...] += slope.interior
            else:
                self._slopes[place] += slope
        self._now, self._next = self._next, self._now

    def add_cost(self, k: int, cost: Model, data: Sequence[Any]) -> float:
        """The cost of state k; its slopes are added to the sensitivities."""
        args = [*self.states[k], *data]
        graph = cost.graph(*args)
        if len(graph.outputs) != 1 or graph.outputs[0].is_field:
            raise InputError(f"{cost.name} is not a cost: a cost returns one number", do="return a sum of its fields")
        derived = vjp_graph(graph, with_results=True, wanted=self.fields)
        bound = cost.bound(derived, args)
        if not self._costs:
            self._costs = [self._there.zeros() for _ in range(self.fields)]
        found = bound.run(dict(zip(derived.inputs, [*args, 1.0], strict=True)), [None, *self._costs])
        for own, slope in zip(self._now, found[1:], strict=True):
            own.interior[...] += slope.interior
        return found[0]

    def leave(self, k: int) -> None:
        """Drop state k unless it is kept."""
        if k not in self._held:
            self.drop(k)

    def drop(self, k: int) -> None:
        """Give the memory of state k back."""
        self._held.discard(k)
        self._filled.discard(k)
        self._free.append(self.states.pop(k))

    def result(self) -> tuple:
        """The sensitivities to the first state and to the parameters, as fields of the caller's."""
        found: list[Any] = []
        for own, like in zip(self._now, self._like, strict=True):
            field = like.like()
            field.interior[...] = own.interior
            found.append(field)
        for slope in self._slopes:
            if isinstance(slope, Field):
                copy = slope.like()
                copy.interior[...] = slope.interior
                slope = copy
            found.append(slope)
        return tuple(found)

    def _inputs(self, k: int) -> dict[Node, Any]:
        return dict(zip(self.graph.inputs, [*self.states[k], *self._parameters], strict=True))

    def _buffer(self) -> State:
        if self._free:
            return self._free.pop()
        return [self._there.zeros(halo=halo) for halo in self._halos[: self.fields]]


def _added(costs: dict[int, float]) -> float:
    """The costs of all times, in the order of time."""
    return sum(costs[k] for k in sorted(costs))
