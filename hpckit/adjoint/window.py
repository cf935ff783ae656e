"""A window of time: many steps, a cost along the way, and its gradient in the first state and in parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from hpckit.adjoint.execute import Bound
from hpckit.adjoint.finite import require_finite
from hpckit.adjoint.models import Model, vjp_graph
from hpckit.adjoint.program import Graph
from hpckit.adjoint.resume import Place, Walks, name_of
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
    for the states that are kept; what does not fit is computed again (`schedule`), with the same bits. folder: where a
    gradient keeps checkpoints, made `every` time span ("10 min") or number of moves: a program that was killed goes on
    in the middle of its gradient, on any number of ranks, with the same bits. One window, one folder.

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
        folder: str | Path | None = None,
        every: str | int = "10 min",
        **options: Any,
    ) -> None:
        self.step, self.steps, self.cost, self.data, self.memory = step, steps, cost, data, memory
        self.at = frozenset((steps,) if at is None else at)
        self.options = options
        if steps < 1 or not self.at or not all(0 <= k <= steps for k in self.at):
            raise InputError(
                f"a window of {steps} steps has its cost at times between 0 and {steps}, not at {sorted(self.at)}"
            )
        self._pools: dict[Any, Pool] = {}
        self._folder, self._every = folder, every
        self._walks: Walks | None = None

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
        walks = self._walks
        if walks is None and self._folder is not None:
            walks = self._walks = Walks(pool.comm, self._folder, self._every)
        name = name_of(pool.graph, self.steps, sorted(self.at), self.cost.name) if walks else ""
        place = (walks.place(pool, name) if walks else None) or Place(0, pool.kept, {})
        costs = place.costs
        for number, move in enumerate(binomial_schedule(last, place.kept) if last else (), 1):
            if number <= place.moves:
                continue
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
            if walks:
                walks.come(pool, name, Place(number, place.kept, costs))
        if not last:
            costs[0] = pool.add_cost(0, self.cost, self._data(0))
        return _added(costs), pool.result()

    def require_finite(self, *args: Any) -> None:
        """Raise `BlowUpError` if a value of the run, of its costs, or of its gradient is not finite: the operation, its
        line, the step and the cell, the first of them in time. Collective; keeps all states.
        """
        pool, last = self._pool(args), max(self.at)
        pool.begin(args)
        for k in range(last + 1):
            if k in self.at:
                at = f"cost at step {k}"
                given = [*pool.states[k], *self._data(k)]
                graph = self.cost.graph(*given)
                require_finite(self.cost.bound(graph, given), dict(zip(graph.inputs, given, strict=True)), when=at)
            if k < last:
                pool.forward(k, keep=True, looking=f"step {k + 1}")
        for k in reversed(range(last + 1)):
            if k < last:
                pool.back(k, looking=f"adjoint of step {k + 1}")
            if k in self.at:
                pool.add_cost(k, self.cost, self._data(k), looking=f"gradient of the cost at step {k}")

    def _data(self, k: int) -> Sequence[Any]:
        return tuple(self.data(k)) if self.data is not None else ()

    def _pool(self, args: Sequence[Any]) -> Pool:
        graph = self.step.graph(*args, **self.options)
        field = next(arg for arg in args if isinstance(arg, Field))
        key = (graph.inputs, graph.outputs, id(field.mesh), field.decomposition.shape)
        if key not in self._pools:
            self._pools[key] = Pool(self.step, graph, args, self.steps, self.memory)
        return self._pools[key]


class Pool:
    """The memory of a window: states (those `held` stay), sensitivities to the state at hand (`now`), parameters and
    their slopes, and the programs that run on them.
    """

    def __init__(self, step: Model, graph: Graph, args: Sequence[Any], steps: int, memory: float) -> None:
        self.graph, self.fields = graph, len(graph.outputs)
        self.comm = next(arg for arg in args if isinstance(arg, Field)).mesh.comm
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
        self.held: set[int] = set()
        self._filled: set[int] = set()
        sent = set(programs[0].stages[0].exchanged)
        self._sent = [node for node in graph.inputs[: self.fields] if node in sent]
        zero = (0,) * len(graph.axes)
        wide = [
            tuple(map(max, programs[1].halo[seed], programs[1].halo.get(result, zero)))
            for seed, result in zip(self.seeds, back.outputs, strict=False)
        ]
        self.now = [self._there.zeros(halo=halo) for halo in wide]
        self._next = [self._there.zeros(halo=halo) for halo in wide]
        self.parameters: list[Any] = []
        self.slopes: list[Any] = []
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
        self.held = {0}
        if not self.parameters:
            self.parameters = [
                self._there.zeros(halo=halo) if isinstance(arg, Field) else 0.0
                for arg, halo in zip(args[self.fields :], self._halos[self.fields :], strict=True)
            ]
            self.slopes = [arg.like() if isinstance(arg, Field) else 0.0 for arg in args[self.fields :]]
            self._results = [self._there.zeros() if isinstance(arg, Field) else None for arg in args[self.fields :]]
        for k, arg in enumerate(args[self.fields :]):
            if isinstance(arg, Field):
                self.parameters[k].interior[...] = arg.interior
                self.slopes[k].interior[...] = 0.0
            else:
                self.parameters[k], self.slopes[k] = float(arg), 0.0
        for field in self.now:
            field.interior[...] = 0.0

    def hold(self, states: Collection[int], held: Collection[int]) -> None:
        """Have room for these states; their values are the caller's to set."""
        for k in list(self.states):
            self.drop(k)
        self.states = {k: self._buffer() for k in states}
        self.held = set(held)

    def forward(self, k: int, keep: bool, stay: bool = False, looking: str = "") -> None:
        """Compute state k + 1 from state k, which is left unless it is kept or stays. looking: for what is not finite,
        where it is said to be.
        """
        new = self._buffer()
        if looking:
            require_finite(self._there, self._inputs(k), when=looking)
        self._there.run(self._inputs(k), new)
        self._filled.add(k)
        self.states[k + 1] = new
        if keep:
            self.held.add(k + 1)
        if not stay:
            self.leave(k)

    def back(self, k: int, looking: str = "") -> None:
        """From the sensitivities to state k + 1 those to state k, and what the step adds to those to parameters."""
        inputs = {**self._inputs(k), **dict(zip(self.seeds, self.now, strict=True))}
        filled = self._sent if k in self._filled else ()
        if looking:
            require_finite(self._back, inputs, filled, looking)
        found = self._back.run(inputs, [*self._next, *self._results], filled)
        for place, slope in enumerate(found[self.fields :]):
            if isinstance(slope, Field):
                self.slopes[place].interior[...] += slope.interior
            else:
                self.slopes[place] += slope
        self.now, self._next = self._next, self.now

    def add_cost(self, k: int, cost: Model, data: Sequence[Any], looking: str = "") -> float:
        """The cost of state k; its slopes are added to the sensitivities."""
        args = [*self.states[k], *data]
        graph = cost.graph(*args)
        if len(graph.outputs) != 1 or graph.outputs[0].is_field:
            raise InputError(f"{cost.name} is not a cost: a cost returns one number", do="return a sum of its fields")
        derived = vjp_graph(graph, with_results=True, wanted=self.fields)
        bound = cost.bound(derived, args)
        if not self._costs:
            self._costs = [self._there.zeros() for _ in range(self.fields)]
        inputs = dict(zip(derived.inputs, [*args, 1.0], strict=True))
        if looking:
            require_finite(bound, inputs, when=looking)
        found = bound.run(inputs, [None, *self._costs])
        for own, slope in zip(self.now, found[1:], strict=True):
            own.interior[...] += slope.interior
        return found[0]

    def leave(self, k: int) -> None:
        """Drop state k unless it is kept."""
        if k not in self.held:
            self.drop(k)

    def drop(self, k: int) -> None:
        """Give the memory of state k back."""
        self.held.discard(k)
        self._filled.discard(k)
        self._free.append(self.states.pop(k))

    def result(self) -> tuple:
        """The sensitivities to the first state and to the parameters, as fields of the caller's."""
        found: list[Any] = []
        for own, like in zip(self.now, self._like, strict=True):
            field = like.like()
            field.interior[...] = own.interior
            found.append(field)
        for slope in self.slopes:
            if isinstance(slope, Field):
                copy = slope.like()
                copy.interior[...] = slope.interior
                slope = copy
            found.append(slope)
        return tuple(found)

    def _inputs(self, k: int) -> dict[Node, Any]:
        return dict(zip(self.graph.inputs, [*self.states[k], *self.parameters], strict=True))

    def _buffer(self) -> State:
        if self._free:
            return self._free.pop()
        return [self._there.zeros(halo=halo) for halo in self._halos[: self.fields]]


def _added(costs: dict[int, float]) -> float:
    """The costs of all times, in the order of time."""
    return sum(costs[k] for k in sorted(costs))
