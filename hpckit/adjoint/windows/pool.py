"""The memory of a window, and the programs that run on it: states, sensitivities, parameters and their slopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from hpckit.adjoint.checks import require_finite
from hpckit.adjoint.derived import vjp_graph
from hpckit.adjoint.models import TracedModel, plain
from hpckit.adjoint.program.execute import BoundProgram, Turn, require_places, require_same_grid
from hpckit.adjoint.program.stages import Graph
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import Node, faces_at

__communicates__ = True  # its frames are not call sites
State = list[Field]


class Pool:
    """The memory of a window: states (those `held` stay), sensitivities to the state at hand (`now`), parameters and
    their slopes, and the programs that run on them.

    Steps forward and back wait until something reads what they make (`settle`): those that follow each other are then
    one call, if nothing but compiled work is between them.
    """

    def __init__(
        self,
        step: TracedModel,
        graph: Graph,
        args: Sequence[Any],
        steps: int,
        memory: float,
        forcing: Callable[[int], Sequence[Any]],
    ) -> None:
        self.graph, self.fields, self._forcing = graph, len(graph.outputs), forcing
        self.comm = next(arg for arg in args if isinstance(arg, Field)).mesh.comm
        state = args[: self.fields]
        if len(state) < self.fields or not all(isinstance(arg, Field) for arg in state):
            raise InputError(
                f"{step.name} has {self.fields} results: its first {self.fields} arguments are the fields of the state"
            )
        step.require_state(graph.inputs[: self.fields], graph.faces)
        back = vjp_graph(graph)
        # Parameters on which nothing depends smoothly, as masks, cost nothing on the way back.
        self._sloped = [
            k - self.fields
            for k, node in enumerate(back.outputs[: len(args)])
            if k >= self.fields and not _is_zero(node)
        ]
        kept = [*back.outputs[: self.fields], *(back.outputs[self.fields + k] for k in self._sloped)]
        places = [*range(self.fields), *(self.fields + k for k in self._sloped)]
        back = replace(back, outputs=tuple(kept), faces=tuple(back.faces[k] for k in places))
        self.seeds = back.inputs[len(graph.inputs) :]
        self.shape, topology = state[0].decomposition.shape, state[0].mesh.topology
        plain = type(state[0].decomposition)(self.shape, topology, 0)
        largest = 8 * math.prod(int(n.max()) + 16 for n in plain.all_owned()) * self.fields  # bytes, alike on all ranks
        self.kept = int(max(0, min(steps - 1, memory // largest - 4)))
        bindings = min(self.kept, 1000) + 8
        self._name = step.name
        self._there: BoundProgram = step.bound(graph, args, bindings)
        self._back: BoundProgram = step.bound(back, args, bindings)
        programs = self._there.program, self._back.program
        self.linear = not set(graph.inputs[: self.fields]) & set(programs[1].arrays)  # the way back reads no state
        zero = (0,) * len(graph.axes)
        halos = [tuple(map(max, *(program.halo.get(node, zero) for program in programs))) for node in graph.inputs]
        for k, result in enumerate(graph.outputs):  # so that each is computed where it stays
            halos[k] = tuple(map(max, halos[k], programs[0].halo.get(result, zero)))
        self._halos, self._free = halos, []  # type: tuple[list, list[State]]
        self._like = tuple(state)
        self.states: dict[int, State] = {}
        self.held: set[int] = set()
        self._filled: set[int] = set()
        sent = set(programs[0].stages[0].exchanged)
        self._sent = [node for node in graph.inputs[: self.fields] if node in sent]
        # Parameters do not change: their halos are filled in the first step that reads them, there or back.
        given = set(graph.inputs[self.fields : len(args)])
        self._fixed = [
            [node for stage in program.stages for node in stage.exchanged if node in given] for program in programs
        ]
        self._whole: set[Node] = set()
        wide = [
            tuple(map(max, programs[1].halo[seed], programs[1].halo.get(result, zero)))
            for seed, result in zip(self.seeds, back.outputs, strict=False)
        ]
        self.now = [self._there.zeros(None, halo, place) for halo, place in zip(wide, graph.faces, strict=True)]
        self._next = [self._there.zeros(None, halo, place) for halo, place in zip(wide, graph.faces, strict=True)]
        self.parameters: list[Any] = []
        self.slopes: list[Any] = []
        self._results: list[Field | None] = []
        self._forced: dict[Node, Field] = {}
        self._costs: list[Field] = []
        self._waiting: list[tuple[BoundProgram, tuple, Turn]] = []  # program, inputs whose halos are filled, fields

    def begin(self, args: Sequence[Any]) -> None:
        """Take a first state and parameters; no sensitivities yet."""
        self._waiting.clear()
        self._whole.clear()
        for k in list(self.states):
            self.drop(k)
        first = self._buffer()
        for node, own, arg in zip(self.graph.inputs, first, args, strict=False):
            own.interior[...] = arg.interior
            self._there.set_walls(node, own)  # a walk that goes on compares it with what was kept
        self.states[0] = first
        self.held = {0}
        if not self.parameters:
            self.parameters = [
                self._there.zeros(node, halo) if isinstance(arg, Field) else 0.0
                for arg, halo, node in zip(
                    args[self.fields :], self._halos[self.fields :], self.graph.inputs[self.fields :], strict=False
                )
            ]
            self.slopes = [arg.like() if isinstance(arg, Field) else 0.0 for arg in args[self.fields :]]
            there = self._back.program.graph
            self._results = [
                self._back.zeros(node, (), faces) if isinstance(args[self.fields + k], Field) else None
                for k, node, faces in zip(
                    self._sloped, there.outputs[self.fields :], there.faces[self.fields :], strict=True
                )
            ]
        for k, arg in enumerate(args[self.fields :]):
            if isinstance(arg, Field):
                self.parameters[k].interior[...] = arg.interior
                self._there.set_walls(self.graph.inputs[self.fields + k], self.parameters[k])
                if k in self._sloped:
                    self.slopes[k].interior[...] = 0.0
            else:
                self.parameters[k], self.slopes[k] = plain(arg), 0.0
        for field in self.now:
            field.interior[...] = 0.0

    def hold(self, states: Collection[int], held: Collection[int]) -> None:
        """Have room for these states; their values are the caller's to set."""
        self.settle()
        for k in list(self.states):
            self.drop(k)
        self.states = {k: self._buffer() for k in states}
        self.held = set(held)

    def forward(self, k: int, keep: bool, stay: bool = False, looking: str = "") -> None:
        """Compute state k + 1 from state k, which is left unless it is kept or stays. looking: for what is not finite,
        where it is said to be.
        """
        new, filled = self._buffer(), self._filled_of(0)
        if looking:
            self.settle()
            require_finite(self._there, self._inputs(k), filled, looking)
        self._waiting.append((self._there, filled, (self._inputs(k), new, [])))
        self._filled.add(k)
        self.states[k + 1] = new
        if keep:
            self.held.add(k + 1)
        if not stay:
            self.leave(k)

    def back(self, k: int, looking: str = "") -> None:
        """From the sensitivities to state k + 1 those to state k, and what the step adds to those to parameters."""
        state = k if k in self.states or not self.linear else 0  # any will do where none is read
        inputs = {**self._inputs(k, state), **dict(zip(self.seeds, self.now, strict=True))}
        filled = self._filled_of(1)
        if k in self._filled and not self.linear:
            filled = *self._sent, *filled
        if looking:
            self.settle()
            require_finite(self._back, inputs, filled, looking)
        slopes = [self.slopes[place] for place in self._sloped]
        added = [slope if isinstance(slope, Field) else None for slope in slopes]
        outs = [*self._next, *self._results]
        turn = inputs, outs, [*[None] * self.fields, *added]
        if None not in added:
            self._waiting.append((self._back, filled, turn))
        else:  # numbers are added up over all ranks at each step
            self.settle()
            found = self._back.run(inputs, outs, filled, added=turn[2])
            for place, slope in zip(self._sloped, found[self.fields :], strict=True):
                if not isinstance(slope, Field):
                    self.slopes[place] = self.slopes[place] + slope
        self.now, self._next = self._next, self.now

    def settle(self) -> None:
        """Do what waits."""
        for (bound, filled), turns in groupby(self._waiting, key=itemgetter(0, 1)):
            bound.run_all([turn for *_, turn in turns], filled)
        self._waiting.clear()

    def add_cost(self, k: int, cost: TracedModel, data: Sequence[Any], looking: str = "") -> Any:
        """The cost of state k; its slopes are added to the sensitivities."""
        self.settle()
        args = [*self.states[k], *data]
        derived = vjp_graph(require_cost(cost, args), with_results=True, wanted=self.fields)
        bound = cost.bound(derived, args)
        if not self._costs:
            self._costs = [self._there.zeros(None, (), faces) for faces in self.graph.faces]
        inputs = dict(zip(derived.inputs, [*args, 1.0], strict=True))
        if looking:
            require_finite(bound, inputs, when=looking)
        found = bound.run(inputs, [None, *self._costs])
        for own, slope in zip(self.now, found[1:], strict=True):
            own.interior[...] += slope.interior
        return found[0]

    def leave(self, k: int) -> None:
        """Drop state k unless it is kept."""
        if k in self.states and k not in self.held:
            self.drop(k)

    def drop(self, k: int) -> None:
        """Give the memory of state k back."""
        self.held.discard(k)
        self._filled.discard(k)
        self._free.append(self.states.pop(k))

    def result(self) -> tuple:
        """The sensitivities to the first state and to the parameters, as fields of the caller's."""
        self.settle()
        found: list[Any] = []
        for own, like in zip(self.now, self._like, strict=True):
            field = like.like()
            field.interior[...] = own.interior
            found.append(field)
        for k, slope in enumerate(self.slopes):
            if isinstance(slope, Field):
                copy = slope.like()
                if k in self._sloped:
                    copy.interior[...] = slope.interior
                slope = copy
            found.append(slope if isinstance(slope, Field) else self._there.number(slope))
        return tuple(found)

    def _inputs(self, k: int, state: int | None = None) -> dict[Node, Any]:
        """What step k takes; state: which state it is given, k by default."""
        given = self.states[k if state is None else state]
        inputs = dict(zip(self.graph.inputs, [*given, *self.parameters], strict=False))
        known = len(inputs)
        if known == len(self.graph.inputs):  # no forcing
            return inputs
        wanted, forced = self.graph.inputs[known:], self._forcing(k)
        if [node.is_field for node in wanted] != [isinstance(each, Field) for each in forced]:
            raise InputError(
                f"the forcing of {self._name} at step {k} is not of as many fields and numbers as at step 0",
                do="return a tuple of the same kinds for each step",
            )
        for node, halo, each in zip(wanted, self._halos[known:], forced, strict=True):
            if isinstance(each, Field):
                require_same_grid([self._like[0], each], self._name)
                require_places([each], [faces_at(node)], f"the forcing of {self._name}: field")
                if node not in self._forced:
                    self._forced[node] = self._there.zeros(node, halo)
                self.settle()  # what waits reads what the field is now
                self._forced[node].interior[...] = each.interior
                each = self._forced[node]
            inputs[node] = each if isinstance(each, Field) else plain(each)
        return inputs

    def _filled_of(self, way: int) -> tuple[Node, ...]:
        """The parameters whose halos need no exchange in a step that way (0 there, 1 back), the next to be taken."""
        filled = tuple([node for node in self._fixed[way] if node in self._whole])
        self._whole.update(self._fixed[way])
        return filled

    def _buffer(self) -> State:
        if self._free:
            return self._free.pop()
        return [
            self._there.zeros(node, halo)
            for node, halo in zip(self.graph.inputs[: self.fields], self._halos, strict=False)
        ]


def require_cost(cost: TracedModel, args: Sequence[Any]) -> Graph:
    """The graph of a cost; `InputError` unless it returns one number."""
    graph = cost.graph(*args)
    if len(graph.outputs) != 1 or graph.outputs[0].is_field:
        raise InputError(f"{cost.name} is not a cost: a cost returns one number", do="return a sum of its fields")
    return graph


def _is_zero(node: Node) -> bool:
    """Whether a sensitivity is 0 in all cells."""
    inner = node.args[0] if node.op == "hold" else node
    return inner.op == "constant" and inner.value == 0.0
