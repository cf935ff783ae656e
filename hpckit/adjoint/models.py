"""Models: steps and costs written as Python functions of fields, which know their derivatives.

    @hp.adjoint.model(walls={"y": hp.bc.zero_gradient})
    def step(T, conductivity, dt=0.1):
        flux = lambda a, b: conductivity * (a - b)
        …
        return T + dt * change

    T = step(T, conductivity)                               # one compiled kernel, one exchange
    _, pull = hp.adjoint.vjp(step, T, conductivity)         # pull(sensitivity) -> sensitivities of T and conductivity
    value, (g, _) = hp.adjoint.gradient(cost)(T, data)      # of a cost, a number

Arguments by position are traced: Fields, numbers that may differ from call to call, and `Network`s. Keywords are plain
Python values known when the step is traced: a choice of a scheme, a constant.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from hpckit.adjoint.execute import MEMBER, BoundProgram, require_same_grid
from hpckit.adjoint.networks import Applied, Network, Stages
from hpckit.adjoint.program import Graph, SweepProgram
from hpckit.adjoint.trace import Axes, Traced
from hpckit.adjoint.transforms import Grid, linear, sensitivities, tangents
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import Node, constant, make
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.machine.machine import Machine, machine_of

__communicates__ = True  # its frames are not call sites
MACHINE = "infiniband"  # whose prices say how many steps become one pass, if no other is given


class TracedModel:
    """A function of fields that is traced, compiled and differentiated; made by `model`.

    Calling it is collective.
    """

    def __init__(
        self,
        function: Callable,
        walls: Mapping[str, Any] | None = None,
        exact: bool = False,
        times: int = 1,
        machine: Machine | None = None,
    ) -> None:
        self.function, self.exact, self.times, self._machine = function, exact, times, machine
        self.name = getattr(function, "__name__", "model") + (f", {times} times" if times > 1 else "")
        self._walls = dict(walls or {})
        self._graphs: dict[Any, tuple[Graph, bool]] = {}
        self._reasons: dict[tuple, str] = {}  # by the graph's results: why so many steps are one pass
        self._programs: dict[Any, SweepProgram] = {}
        self._bound: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()
        parameters = inspect.signature(function).parameters.values()
        self.parameters = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]

    def __call__(self, *args: Any, out: Field | Sequence[Field] | None = None, **options: Any) -> Any:
        """A Field for each result with cells, written to those given as `out`, and a float for each sum: a tuple of
        them if the function returns a tuple.
        """
        graph, several = self._traced(args, options)
        given: Any = [out] if isinstance(out, Field) else out
        outs = list(given or [None] * len(graph.outputs))
        if len(outs) != len(graph.outputs):
            raise InputError(f"{self.name} has {len(graph.outputs)} results, and `out` {len(outs)} fields")
        bound = self.bound(graph, args)
        results = bound.run(dict(zip(graph.inputs, map(plain, args), strict=True)), outs)
        return tuple(results) if several else results[0]

    def repeated(self, times: int, machine: Machine | str | None = None) -> TracedModel:
        """Several steps as one model: its first arguments are the state, its results the next state.

        Where all axes are periodic, some steps or all of them may become one pass over memory after one exchange of a
        deeper halo: what is between two steps stays in a few slabs in the cache. How many is what `price` finds
        quickest for the grid, its ranks and a machine (a name, the file of a calibrated one, or the `Machine`);
        `describe` says the prices. Between walls each step is a pass, since walls are filled between them. The bits
        are those of single steps.
        """
        if isinstance(times, bool) or not isinstance(times, int) or times < 1:
            raise InputError(f"{self.name} is repeated 1 time or more, not {times!r}")
        on = machine if isinstance(machine, Machine) else machine_of(machine or MACHINE)
        return TracedModel(self.function, self._walls, self.exact, times * self.times, on)

    def graph(self, *args: Any, **options: Any) -> Graph:
        """The graph for arguments like these, a plain value; `str(graph)` has a line a node."""
        return self._traced(args, options)[0]

    def describe(self, *args: Any, **options: Any) -> str:
        """The graph, its exchanges, what a cell costs, and what is done for the cache on this rank."""
        program = self.program(self._traced(args, options)[0])
        field = next(arg for arg in args if isinstance(arg, Field))
        owned = field.decomposition.owned(field.mesh.rank)[: len(program.graph.axes)]
        reason = self._reasons.get(program.graph.outputs)
        return "\n".join([*program.describe(() if field.device.is_gpu else owned), *([reason] if reason else [])])

    def program(self, graph: Graph) -> SweepProgram:
        """The stages of a graph of this model, or of one derived from it."""
        key = (graph.name, graph.inputs, graph.outputs, graph.grid)
        if key not in self._programs:
            self._programs[key] = SweepProgram(graph, self.exact)
        return self._programs[key]

    def bound(self, graph: Graph, args: Sequence[Any], bindings: int = 8) -> BoundProgram:
        """The program of a graph on the mesh of the arguments. Collective when it is new."""
        field = next((arg for arg in args if isinstance(arg, Field)), None)
        if field is None:
            raise InputError(f"{self.name} was given no field", do="give at least one Field: it says where to compute")
        known = self._bound.setdefault(field.mesh, {})
        key = (graph.inputs, graph.outputs, field.decomposition.shape, field.device.name)
        if key not in known:
            known[key] = BoundProgram(
                self.program(graph), field.mesh, field.decomposition.shape, field.device, bindings
            )
        return known[key]

    def _traced(self, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Graph, bool]:
        if len(args) != len(self.parameters) and not self._takes(args):
            raise InputError(
                f"{self.name} takes {', '.join(self.parameters)} by position, and was given {len(args)} arguments"
            )
        fields = [arg for arg in args if isinstance(arg, Field)]
        if not fields:
            raise InputError(f"{self.name} was given no field", do="give at least one Field: it says where to compute")
        for name, arg in zip(self.parameters, args, strict=False):
            if not isinstance(arg, Field | Network) and (not isinstance(arg, Real) or isinstance(arg, bool)):
                raise InputError(
                    f"{name} of {self.name} is a {type(arg).__name__}, neither a Field nor a number nor a Network",
                    do="make arrays Fields; give choices and other constants as keywords, behind a * in the definition",
                )
        field = require_same_grid(fields, self.name)
        topology = field.mesh.topology
        kinds = tuple(arg.stages if isinstance(arg, Network) else isinstance(arg, Field) for arg in args)
        key: tuple = (topology.names, topology.periodic, kinds, tuple(sorted((k, repr(v)) for k, v in options.items())))
        if self.times > 1:
            key = (*key, topology.sizes, field.decomposition.shape)
        if key not in self._graphs:
            names = tuple(name for name in topology.names if name != MEMBER)
            axes = Axes(names, tuple(not topology.is_periodic(name) for name in names))
            self._graphs[key] = self._trace(axes, kinds, options, field.decomposition)
        return self._graphs[key]

    def _takes(self, args: Sequence[Any]) -> bool:
        try:
            inspect.signature(self.function).bind(*args)
        except TypeError:
            return False
        return True

    def _trace(
        self, axes: Axes, kinds: Sequence[bool | Stages], options: Mapping[str, Any], decomposition: Decomposition
    ) -> tuple[Graph, bool]:
        names = [*self.parameters, *(f"argument {k}" for k in range(len(self.parameters), len(kinds)))]
        inputs, given = [], []
        for name, kind in zip(names, kinds, strict=False):
            if isinstance(kind, tuple):
                inputs.append(make("network", value=name, is_field=False))
                given.append(Applied(inputs[-1], axes, kind))
                continue
            own = self._walls.get(name, {} if self._walls.keys() & set(self.parameters) else self._walls)
            value = (name, axes.walls(own, name)) if kind else name
            inputs.append(make("field" if kind else "number", value=value, is_field=kind))
            given.append(Traced(inputs[-1], axes))
        outputs, several = self._results(given, options)
        grid = Grid(axes.walled)
        if self.times == 1:
            return Graph(self.name, tuple(inputs), outputs, axes.names, grid), several
        state = inputs[: len(outputs)]
        fields = [leaf for leaf in state if leaf.op == "field"]
        if len(fields) < len(outputs) or not all(node.is_field for node in outputs):
            raise InputError(
                f"{self.name}: its {len(outputs)} results are not the next state of its first arguments",
                do="a step that is repeated takes the fields of the state first and returns as many",
            )

        def together(count: int) -> Graph:
            """All steps, `count` of them in a pass."""
            now = outputs
            for k in range(1, self.times):
                if k % count == 0:
                    pairs = zip(now, state, strict=True)
                    now = tuple(make("hold", node, value=leaf.value[1], is_field=True) for node, leaf in pairs)
                now, _ = self._results([*(Traced(node, axes) for node in now), *given[len(now) :]], options)
            return Graph(self.name, tuple(inputs), now, axes.names, grid)

        if any(axes.walled) or self._machine is None:
            return together(1), several
        return self._quickest(together, decomposition, self._machine), several

    def _quickest(self, together: Callable[[int], Graph], decomposition: Decomposition, machine: Machine) -> Graph:
        """Of the graphs with 1, 2, … steps in a pass the quickest; what is no quicker than the one before ends it."""
        best, least, chosen, said = together(1), math.inf, 1, []
        for count in (k for k in range(1, self.times + 1) if self.times % k == 0):
            graph = together(count)
            program = self.program(graph)
            if not program.fits(decomposition):
                said.append(f"{count} a pass: its halo is wider than the thinnest block")
                break
            it = program.price(decomposition, machine)
            said.append(f"{count} a pass: {it}")
            if it.seconds >= least:
                break
            best, least, chosen = graph, it.seconds, count
        self._reasons[best.outputs] = f"{chosen} steps a pass, by prices on {machine.name}: {'; '.join(said)}"
        return best

    def _results(self, given: Sequence[Any], options: Mapping[str, Any]) -> tuple[tuple[Node, ...], bool]:
        """What the function returns for stand-ins, and whether it is a tuple."""
        result = self.function(*given, **options)
        several = isinstance(result, tuple | list)
        outputs = []
        for each in result if several else [result]:
            if not isinstance(each, Real | Traced):
                raise InputError(
                    f"{self.name} returned a {type(each).__name__}",
                    do="return what was computed from its fields, or a tuple",
                )
            outputs.append(each.node if isinstance(each, Traced) else constant(float(each)))
        return tuple(outputs), several


def model(function: Callable | None = None, *, walls: Mapping[str, Any] | None = None, exact: bool = False) -> Any:
    """A step or a cost as a `TracedModel`; a decorator, with or without options.

    walls: boundary conditions of axes that are not periodic, as in `HaloExchange`: a mapping from an axis to a fill or
    a pair (low, high), for all fields, or a mapping from an argument's name to such a mapping. exact: compute in the
    order and with the rounding of NumPy; by default a product and a sum may become one rounding.
    """
    if function is None:
        return lambda given: TracedModel(given, walls, exact)
    return TracedModel(function, walls, exact)


def jvp(step: TracedModel, args: Sequence[Any], changes: Sequence[Any], **options: Any) -> tuple[Any, Any]:
    """The results of a model, and how they change with its arguments: the tangent-linear model. Collective.

    changes: of each argument a Field, a number, or None for no change.
    """
    if not isinstance(args, tuple | list):
        raise InputError(f"jvp takes the arguments of {step.name} as a tuple, not as {type(args).__name__}")
    graph, several = step._traced(args, options)
    _require_alike(step.name, "changes", changes, [node.is_field for node in graph.inputs], "arguments")
    derived = jvp_graph(graph, [change is not None for change in changes])
    given = [change for change in changes if change is not None]
    bound = step.bound(derived, args)
    found = bound.run(_inputs(derived, [*args, *given]), [None] * len(derived.outputs))
    half = len(graph.outputs)
    return (tuple(found[:half]), tuple(found[half:])) if several else (found[0], found[half])


def vjp(step: TracedModel, *args: Any, **options: Any) -> tuple[Any, Callable[..., tuple]]:
    """The results of a model, and the function that takes sensitivities back from its results to its arguments.

    The function takes a Field or a number for each result and returns one for each argument: sum over results and cells
    of sensitivity times slope. All calls are collective.
    """
    graph, several = step._traced(args, options)
    found = step.bound(graph, args).run(_inputs(graph, args), [None] * len(graph.outputs))

    def pull(*seeds: Any) -> tuple:
        derived = vjp_graph(graph)
        _require_alike(step.name, "sensitivities", seeds, [node.is_field for node in graph.outputs], "results")
        return tuple(step.bound(derived, args).run(_inputs(derived, [*args, *seeds]), [None] * len(derived.outputs)))

    return (tuple(found) if several else found[0]), pull


def gradient(cost: Any, **options: Any) -> Callable[..., tuple[float, tuple]]:
    """The function that returns a cost's value and its gradient in each argument. Collective.

    cost: a model with one result, a sum; or an object with a method `gradient`, as a `Window`.
    """
    if not isinstance(cost, TracedModel):
        return cost.gradient

    def value_and_gradient(*args: Any) -> tuple[float, tuple]:
        graph, _ = cost._traced(args, options)
        if len(graph.outputs) != 1 or graph.outputs[0].is_field:
            raise InputError(
                f"{cost.name} has no gradient: it does not return one number",
                do="return a sum, as (u * u).sum(), or use vjp",
            )
        derived = vjp_graph(graph, with_results=True)
        found = cost.bound(derived, args).run(_inputs(derived, [*args, 1.0]), [None] * len(derived.outputs))
        return found[0], tuple(found[1:])

    return value_and_gradient


def jvp_graph(graph: Graph, moving: Sequence[bool]) -> Graph:
    """The graph of results and their changes; its arguments are the model's, then the changes of those that move."""
    changes = {
        node: make(
            node.op,
            value=(f"change of {node.value[0]}", linear(node.value[1]))
            if node.op == "field"
            else f"change of {node.value}",
            is_field=node.is_field,
        )
        for node, moves in zip(graph.inputs, moving, strict=True)
        if moves
    }
    results = tangents(graph.outputs, changes)
    return replace(
        graph,
        name=f"{graph.name}, tangent",
        inputs=(*graph.inputs, *changes.values()),
        outputs=(*graph.outputs, *results),
    )


def vjp_graph(graph: Graph, with_results: bool = False, wanted: int | None = None) -> Graph:
    """The graph of the sensitivities to all arguments, or the first `wanted`, after the results if those are asked for;
    its arguments are the model's, then the sensitivities to the results.
    """
    seeds = [
        make("field", value=(f"sensitivity {k}", graph.grid.walls(0.0)))
        if node.is_field
        else make("number", value=f"sensitivity {k}", is_field=False)
        for k, node in enumerate(graph.outputs)
    ]
    asked = graph.inputs[:wanted]
    found = sensitivities(graph.outputs, seeds, asked, graph.grid)
    results: list[Node] = []
    for leaf, node in zip(asked, found, strict=True):
        if node is None:
            node = constant(0.0) if leaf.op != "network" else make("mul", constant(0.0), leaf)
        results.append(
            make("hold", node, value=graph.grid.walls(0.0), is_field=True) if leaf.is_field > node.is_field else node
        )
    return replace(
        graph,
        name=f"{graph.name}, adjoint",
        inputs=(*graph.inputs, *seeds),
        outputs=(*(graph.outputs if with_results else ()), *results),
        backward=True,
    )


def plain(value: Any) -> Any:
    """An argument as a program takes it: a Field, a number, or the vector of a network's weights."""
    if isinstance(value, Network):
        return value.values
    return value if isinstance(value, Field | np.ndarray) else float(value)


def _require_alike(name: str, what: str, given: Sequence[Any], fields: Sequence[bool], whose: str) -> None:
    """`InputError` unless there is a Field for each field, and something else or None for each of the others."""
    if not isinstance(given, tuple | list) or len(given) != len(fields):
        count = len(given) if isinstance(given, tuple | list) else type(given).__name__
        raise InputError(f"{name} has {len(fields)} {whose}, and got {count} {what}", do="give a tuple, one for each")
    for number, (each, is_field) in enumerate(zip(given, fields, strict=True)):
        if each is not None and isinstance(each, Field) != is_field:
            wanted = "a Field" if is_field else "no Field"
            raise InputError(f"of the {what} of {name} number {number} is {type(each).__name__}, it should be {wanted}")


def _inputs(graph: Graph, values: Sequence[Any]) -> dict[Node, Any]:
    return dict(zip(graph.inputs, map(plain, values), strict=True))
