"""A window of time: many steps, a cost along the way, and its gradient in the first state and in parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from hpckit.adjoint.checks import require_finite
from hpckit.adjoint.models import TracedModel, require_model
from hpckit.adjoint.windows.pool import Pool, require_cost
from hpckit.adjoint.windows.resume import WalkPlace, Walks, name_of
from hpckit.adjoint.windows.schedule import binomial_schedule, straight_schedule
from hpckit.errors import InputError
from hpckit.grid.field import Field

__communicates__ = True  # its frames are not call sites
MEMORY = 2 << 30


class Window:
    """`steps` steps of a model from a first state, and the cost of the states at some times.

    step: its first arguments are the fields of the state, its results those of the next state; further arguments are
    parameters, the same in all steps, and last what `forcing(k)` gives for the step from time k: a tuple of fields and
    numbers, as a wind, a tide, the time itself, in which the gradient is not taken. cost: a model of the state's
    fields, and of what `data(k)` gives for time k, such a tuple; its values at the times `at` (the last by default) are
    added. memory: bytes of a rank for the states that are kept; what does not fit is computed again (`schedule`), with
    the same bits; where the step is linear and the cost at the end alone, none is kept. folder: where a gradient keeps
    checkpoints, made `every` time span ("10 min") or number of moves: a program that was killed goes on in the middle
    of its gradient, on any number of ranks, with the same bits. One window, one folder.

    The terms of the gradient are added in one order, from the last time to the first: its bits depend neither on the
    number of ranks nor on the memory.
    """

    def __init__(
        self,
        step: TracedModel,
        steps: int,
        cost: TracedModel,
        at: Collection[int] | None = None,
        data: Callable[[int], Sequence[Any]] | None = None,
        memory: float = MEMORY,
        folder: str | Path | None = None,
        every: str | int = "10 min",
        forcing: Callable[[int], Sequence[Any]] | None = None,
        **options: Any,
    ) -> None:
        require_model(step, "the step of a window")
        require_model(cost, "the cost of a window")
        if isinstance(steps, bool) or not isinstance(steps, int) or isinstance(at, int):
            raise InputError(
                f"a window of {steps!r} steps, with its cost at {at!r}", do="give an int, and a list of times"
            )
        self.step, self.steps, self.cost, self.data, self.memory = step, steps, cost, data, memory
        self.at = frozenset((steps,) if at is None else at)
        self.options, self.forcing = options, forcing
        if steps < 1 or not self.at or not all(0 <= k <= steps for k in self.at):
            raise InputError(
                f"a window of {steps} steps has its cost at times between 0 and {steps}, not at {sorted(self.at)}"
            )
        self._pools: dict[Any, Pool] = {}
        self._folder, self._every = folder, every
        self._walks: Walks | None = None

    def value(self, *args: Any) -> Any:
        """The cost of a run from a first state, with parameters; of an ensemble float64[members]. Collective."""
        pool = self._pool(args)
        pool.begin(args)
        costs = {}
        for k in range(self.steps + 1):
            if k in self.at:
                pool.settle()
                given = [*pool.states[k], *self._data(k)]
                require_cost(self.cost, given)
                costs[k] = self.cost(*given)
            if k < max(self.at):
                pool.forward(k, keep=False)
        return _added(costs)

    def final(self, *args: Any) -> tuple[Field, ...]:
        """The state after all steps. Collective."""
        pool = self._pool(args)
        pool.begin(args)
        for k in range(self.steps):
            pool.forward(k, keep=False)
        pool.settle()
        found = tuple(arg.like() for arg in args[: pool.fields])
        for field, state in zip(found, pool.states[self.steps], strict=True):
            field.interior[...] = state.interior
        return found

    def gradient(self, *args: Any) -> tuple[Any, tuple]:
        """The cost, and its gradient in each field of the first state and each parameter; of an ensemble the cost, and
        its slope in a number, are float64[members]. Collective.
        """
        pool, last = self._pool(args), max(self.at)
        pool.begin(args)
        walks = self._walks
        if walks is None and self._folder is not None:
            walks = self._walks = Walks(pool.comm, self._folder, self._every)
        name = name_of(pool.graph, pool.shape, self.steps, sorted(self.at), self.cost) if walks else ""
        place = (walks.place(pool, name) if walks else None) or WalkPlace(0, pool.kept, {})
        costs = place.costs
        straight = pool.linear and walks is None and self.at == {last}
        moves = straight_schedule(last) if straight else binomial_schedule(last, place.kept) if last else ()
        for number, move in enumerate(moves, 1):
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
                walks.come(pool, name, WalkPlace(number, place.kept, costs))
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
                pool.settle()
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
        return _given(self.data, k, "data")

    def _forced(self, k: int) -> Sequence[Any]:
        return _given(self.forcing, k, "forcing")

    def _pool(self, args: Sequence[Any]) -> Pool:
        graph = self.step.graph(*args, *self._forced(0), **self.options)
        field = next(arg for arg in args if isinstance(arg, Field))
        key = (graph.inputs, graph.outputs, id(field.mesh), field.decomposition.shape)
        if key not in self._pools:
            self._pools[key] = Pool(self.step, graph, args, self.steps, self.memory, self._forced)
        return self._pools[key]


def _given(function: Callable[[int], Sequence[Any]] | None, k: int, name: str) -> Sequence[Any]:
    found = () if function is None else function(k)
    if not isinstance(found, tuple | list):
        raise InputError(f"{name}({k}) returned a {type(found).__name__}", do="return a tuple of fields and numbers")
    return found


def _added(costs: dict[int, Any]) -> Any:
    """The costs of all times, in the order of time."""
    return sum(costs[k] for k in sorted(costs))
