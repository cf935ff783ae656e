"""Models: steps and costs written as Python functions of fields, which know their derivatives.

    @hp.model(walls={"y": hp.bc.zero_gradient})
    def step(T, conductivity, dt=0.1):
        flux = lambda a, b: conductivity * (a - b)
        …
        return T + dt * change

    T = step(T, conductivity)                               # one compiled kernel, one exchange
    _, pull = hp.vjp(step, T, conductivity)         # pull(sensitivity) -> sensitivities of T and conductivity
    value, (g, _) = hp.gradient(cost)(T, data)      # of a cost, a number

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

from hpckit.adjoint.networks import Applied, Network
from hpckit.adjoint.program.again import Again
from hpckit.adjoint.program.execute import BoundProgram, faces_of, require_places, require_same_grid
from hpckit.adjoint.program.place import MEMBER
from hpckit.adjoint.program.stages import Graph, SweepProgram, placed
from hpckit.adjoint.trace import ROOM, Axes, Traced, as_node, refusal
from hpckit.adjoint.transforms import Grid
from hpckit.errors import InputError, did_you_mean
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import Faces, Node, Walls, constant, faces_at, hold, make, walls_at
from hpckit.kernels.graph.standin import line_of
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.machine.machine import Machine, machine_of

__communicates__ = True  # its frames are not call sites
STAND_INS, SEVERAL, ARRAYS = (Traced, Applied), (list, tuple), (Field, np.ndarray)  # a union is made anew in each step
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
        self._again = Again()
        self._bound: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()
        parameters = inspect.signature(function).parameters.values()
        self.parameters = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
        strange = [name for name in self._walls if name not in self.parameters and not name.startswith("argument ")]
        if strange and len(strange) < len(self._walls):  # else they are axes, for all arguments
            known = f"the arguments are {', '.join(self.parameters)}; an axis stands below each of them"
            raise InputError(
                f"the walls of {self.name} name {strange[0]!r}, which is none of its arguments",
                do=did_you_mean(strange[0], self.parameters, known),
            )

    def __call__(self, *args: Any, out: Field | Sequence[Field] | None = None, **options: Any) -> Any:
        """A Field for each result with cells, written to those given as `out`, and for each sum a float (of an ensemble
        float64[members]); a tuple of them if the function returns a tuple. Within another model, what it is traced to
        there: its fields have its own boundary conditions, where it has any.
        """
        outs: list[Any] = list(out) if isinstance(out, SEVERAL) else [out] if out is not None else []
        if not options and len(args) == len(self.parameters):
            found = self._again.run(args, outs)
            if found is not None:
                return found
        if any([isinstance(arg, STAND_INS) for arg in args]):
            return self._within(args, options, out)
        graph, several = self._traced(args, options)
        outs = outs or [None] * len(graph.outputs)
        if len(outs) != len(graph.outputs):
            raise InputError(f"{self.name} has {len(graph.outputs)} results, and `out` {len(outs)} fields")
        fields = [arg for arg in (*args, *outs) if isinstance(arg, Field)]
        for node, each in zip(graph.outputs, outs, strict=True):
            if each is not None and not (isinstance(each, Field) and node.is_field):
                raise InputError(
                    f"`out` of {self.name} holds a {type(each).__name__}", do="give a Field for each field"
                )
        if out is not None:
            require_same_grid(fields, self.name)
            require_places(outs, graph.faces, f"the result of {self.name}")
            different = len(set(map(id, fields)))
            if different < len(fields) and different < len(fields) - _twice(args):
                raise InputError(
                    f"{self.name} is to write a result to one of its arguments, or two to one field",
                    do="give fields of their own as `out`, and swap them with the state after the step",
                )
        bound = self.bound(graph, args)
        inputs = dict(zip(graph.inputs, map(plain, args), strict=True))
        results = bound.run(inputs, outs)
        if not options and len(fields) == len(args) + len(outs):
            self._again.remember(args, outs, bound.script(inputs, outs), several)
        return tuple(results) if several else results[0]

    def repeated(self, times: int, machine: Machine | str | None = None) -> TracedModel:
        """Several steps as one model: its first arguments are the state, its results the next state.

        Where all axes are periodic, some steps or all of them may become one pass over memory after one exchange of a
        deeper halo: what is between two steps stays in a few slabs in the cache. How many is what `price` finds
        quickest for the grid, its ranks and a machine (a name, the file of a calibrated one, or the `Machine`);
        `describe` says the prices. Between walls two steps may be one pass, if all values stand in centers and some
        slabs between the steps, or strips of them, with their walls, fit the cache. The bits are those of single steps.
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

    def program(self, graph: Graph, near: tuple[int, ...] = ()) -> SweepProgram:
        """The stages of a graph of this model, or of one derived from it. near: see `SweepProgram`."""
        key = (graph.name, graph.inputs, graph.outputs, graph.grid, graph.joins, near)
        if key not in self._programs:
            self._programs[key] = SweepProgram(graph, self.exact, graph.joins, near)
        return self._programs[key]

    def bound(self, graph: Graph, args: Sequence[Any], bindings: int = 8) -> BoundProgram:
        """The program of a graph on the mesh of the arguments. Collective when it is new."""
        field = next((arg for arg in args if isinstance(arg, Field)), None)
        if field is None:
            raise InputError(f"{self.name} was given no field", do="give at least one Field: it says where to compute")
        if field.device.is_gpu:  # a pass a stage
            graph = replace(graph, joins=False)
        known = self._bound.setdefault(field.mesh, {})
        key = (graph.inputs, graph.outputs, graph.joins, field.decomposition.shape, field.device.name)
        if key not in known:
            program = self.program(graph)
            near = program.near_walls(field.decomposition)
            program = self.program(graph, near) if any(near) else program
            known[key] = BoundProgram(program, field.mesh, field.decomposition.shape, field.device, bindings)
        return known[key]

    def _traced(self, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Graph, bool]:
        if len(args) != len(self.parameters):
            self._require_arguments(args)
        if any([isinstance(arg, STAND_INS) for arg in args]):
            raise refusal(f"a derivative of {self.name} within a step", "take the derivative of the whole step")
        fields = [arg for arg in args if isinstance(arg, Field)]
        if not fields:
            raise InputError(f"{self.name} was given no field", do="give at least one Field: it says where to compute")
        in_ensemble = MEMBER in fields[0].mesh.topology.names
        for name, arg in zip(self.parameters, args, strict=False):
            if isinstance(arg, Field):  # most are
                continue
            own = in_ensemble and isinstance(arg, np.ndarray)
            if not own and not isinstance(arg, Network) and (not isinstance(arg, Real) or isinstance(arg, bool)):
                raise InputError(
                    f"{name} of {self.name} is a {type(arg).__name__}, neither a Field nor a number nor a Network",
                    do="make arrays Fields; give choices and other constants as keywords, behind a * in the definition",
                )
        field = require_same_grid(fields, self.name)
        topology = field.mesh.topology
        dims = len(topology.names) - in_ensemble
        kinds = tuple([_kind(arg, dims) for arg in args])
        key: tuple = (topology.names, topology.periodic, kinds, tuple((k, _told(options[k])) for k in sorted(options)))
        if self.times > 1:
            key = (*key, topology.sizes, field.decomposition.shape, field.decomposition.halo)
        if key not in self._graphs:
            names = tuple(name for name in topology.names if name != MEMBER)
            axes = Axes(names, tuple(not topology.is_periodic(name) for name in names))
            self._graphs[key] = self._trace(axes, kinds, options, field.decomposition)
        return self._graphs[key]

    def _require_arguments(self, args: Sequence[Any]) -> None:
        try:
            inspect.signature(self.function).bind(*args)
        except TypeError:
            if len(args) != len(self.parameters):  # else a keyword is missing, which its call tells
                raise InputError(
                    f"{self.name} takes {', '.join(self.parameters)} by position, and was given {len(args)} arguments"
                ) from None

    def _within(self, args: Sequence[Any], options: Mapping[str, Any], out: Any) -> Any:
        """The results where another model is traced."""
        self._require_arguments(args)
        if out is not None:
            raise refusal("a result that is written to a field", "leave `out` away within a step")
        axes = next(arg.axes for arg in args if isinstance(arg, STAND_INS))
        grid = Grid(axes.walled)
        names = [*self.parameters, *(f"argument {k}" for k in range(len(self.parameters), len(args)))]
        walls = [axes.walls(self._own_walls(name), name) for name in names[: len(args)]]

        def held(given: Any, own: Walls) -> Any:
            if isinstance(given, Applied | Real):
                return given
            node = as_node(given)
            filled = any(fill is not None for pair in own for fill in pair or ())
            if not node.is_field or not filled or own == walls_at(node):
                return given
            return Traced(hold(node, own, given.stands(f"what {self.name} is given")), axes)

        now = list(map(held, args, walls))
        outputs, faces, several = self._results(now, options, grid)
        for _ in range(1, self.times):
            now[: len(outputs)] = map(held, map(Traced, outputs, [axes] * len(outputs), faces), walls)
            outputs, faces, _ = self._results(now, options, grid)
        found = tuple(map(Traced, outputs, [axes] * len(outputs), faces))
        return found if several else found[0]

    def _own_walls(self, name: str) -> Mapping[str, Any]:
        """The boundary conditions of an argument."""
        return self._walls.get(name, {} if self._walls.keys() & set(self.parameters) else self._walls)

    def _trace(
        self, axes: Axes, kinds: Sequence[tuple[str, Any]], options: Mapping[str, Any], decomposition: Decomposition
    ) -> tuple[Graph, bool]:
        names = [*self.parameters, *(f"argument {k}" for k in range(len(self.parameters), len(kinds)))]
        inputs, given = [], []
        for name, (kind, about) in zip(names, kinds, strict=False):
            if kind == "network":
                inputs.append(make(kind, value=name, is_field=False))
                given.append(Applied(inputs[-1], axes, about))
                continue
            value = (name, axes.walls(self._own_walls(name), name), about) if kind == "field" else name
            inputs.append(make(kind, value=value, is_field=kind == "field"))
            given.append(Traced(inputs[-1], axes))
        grid = Grid(axes.walled)
        outputs, faces, several = self._results(given, options, grid)
        if self.times == 1:
            return Graph(self.name, tuple(inputs), outputs, axes.names, grid, faces), several
        state = inputs[: len(outputs)]
        fields = [leaf for leaf in state if leaf.op == "field"]
        if len(fields) < len(outputs) or not all(node.is_field for node in outputs):
            raise InputError(
                f"{self.name}: its {len(outputs)} results are not the next state of its first arguments",
                do="a step that is repeated takes the fields of the state first and returns as many",
            )
        self.require_state(state, faces)

        def together(count: int) -> Graph:
            """All steps, `count` of them in a pass."""
            now = outputs
            for k in range(1, self.times):
                if k % count == 0:
                    pairs = zip(now, state, strict=True)
                    now = tuple(hold(node, *leaf.value[1:]) for node, leaf in pairs)
                again = map(Traced, now, [axes] * len(now), faces)
                now, _, _ = self._results([*again, *given[len(now) :]], options, grid)
            return Graph(self.name, tuple(inputs), now, axes.names, grid, faces)

        if self._machine is None:
            return together(1), several
        if any(axes.walled):
            return self._joined(together(1), decomposition, self._machine), several
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

    def _joined(self, graph: Graph, decomposition: Decomposition, machine: Machine) -> Graph:
        """The graph of all steps, two in one pass where that is quicker and blocks hold its halo."""
        apart, joined = SweepProgram(graph, self.exact), SweepProgram(graph, self.exact, joins=True)
        if not joined.joined or not joined.fits(decomposition):
            return graph
        wide = joined.widest(graph.inputs)
        if any(a < b for a, b in zip(decomposition.halo, wide, strict=False)):
            self._reasons[graph.outputs] = f"1 step a pass: for 2 its fields need a halo of {wide}"
        else:
            prices = [each.price(decomposition, machine) for each in (apart, joined)]
            graph = replace(graph, joins=prices[1].seconds < prices[0].seconds)
            said = f"1 a pass: {prices[0]}; 2 a pass: {prices[1]}"
            self._reasons[graph.outputs] = f"{1 + graph.joins} steps a pass, by prices on {machine.name}: {said}"
        return graph

    def require_state(self, state: Sequence[Node], faces: Sequence[Faces]) -> None:
        """`InputError` unless the results stand where the fields of the state do."""
        for leaf, place in zip(state, faces, strict=True):
            if leaf.op == "field" and faces_at(leaf) != place:
                raise InputError(
                    f"{self.name} takes {leaf.value[0]} at one place, and returns it at another",
                    do=f"where the result stands is read off its formula: say it, by .at({leaf.value[0]})",
                )

    def _results(
        self, given: Sequence[Any], options: Mapping[str, Any], grid: Grid
    ) -> tuple[tuple[Node, ...], tuple[Faces, ...], bool]:
        """What the function returns for stand-ins, where that stands, and whether it is a tuple."""
        try:
            result = self.function(*given, **options)
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{self.name} stopped while it was traced: {error}",
                where=line_of(error, ROOM),
                do="a step may use + - * / **, comparisons, shifts, sums, and the functions of hp.adjoint",
            ) from error
        several = isinstance(result, tuple | list)
        outputs, faces = [], []
        for each in result if several else [result]:
            if not isinstance(each, Real | Traced):
                raise InputError(
                    f"{self.name} returned a {type(each).__name__}",
                    do="return what was computed from its fields, or a tuple",
                )
            node = each.node if isinstance(each, Traced) else constant(float(each))
            outputs.append(node)
            field = each if isinstance(each, Traced) and node.is_field else None
            faces.append(field.stands(f"a result of {self.name}") if field is not None else grid.centers)
        return placed(outputs, faces, grid), tuple(faces), several


def model(function: Callable | None = None, *, walls: Mapping[str, Any] | None = None, exact: bool = False) -> Any:
    """A step or a cost as a `TracedModel`; a decorator, with or without options.

    walls: boundary conditions of axes that are not periodic, as in `HaloExchange`: a mapping from an axis to a fill or
    a pair (low, high), for all fields, or a mapping from an argument's name to such a mapping. exact: compute in the
    order and with the rounding of NumPy; by default a product and a sum may become one rounding.
    """
    if walls is not None and not isinstance(walls, Mapping):
        raise InputError(f"walls are {walls!r}", do="give a mapping from an axis to a fill: walls={'y': hp.bc.mirror}")
    if function is None:
        return lambda given: model(given, walls=walls, exact=exact)
    if not callable(function):
        raise InputError(f"a model is made of a function, not of a {type(function).__name__}")
    return TracedModel(function, walls, exact)


def require_model(given: Any, what: str) -> TracedModel:
    """`InputError` for what is no model."""
    if not isinstance(given, TracedModel):
        raise InputError(f"{what} is a {type(given).__name__}, not a model", do="write @hp.model above its definition")
    return given


def plain(value: Any) -> Any:
    """An argument as a program takes it: a Field, a number, float64[members] of an ensemble, or the vector of a
    network's weights.
    """
    if isinstance(value, ARRAYS):
        return value
    return value.values if isinstance(value, Network) else float(value)


def _kind(arg: Any, dims: int) -> tuple[str, Any]:
    """What an argument is to a trace."""
    if isinstance(arg, Field):
        return "field", faces_of(arg, dims)
    return ("network", arg.stages) if isinstance(arg, Network) else ("number", None)


def _told(value: Any) -> Any:
    """A keyword's value as a key: equal only for values that a step cannot tell from each other."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_told, value))
    if isinstance(value, dict):
        return tuple((key, _told(each)) for key, each in value.items())
    same = value if getattr(type(value), "__hash__", None) else None
    return type(value), repr(value), same  # 0.0 and -0.0 are equal; functions may have one name


def _twice(args: Sequence[Any]) -> int:
    """How many fields among some arguments are there already."""
    fields = [id(arg) for arg in args if isinstance(arg, Field)]
    return len(fields) - len(set(fields))
