"""Tracing: a step is run once with stand-ins for its fields, which note what is done with them.

A stand-in takes + - * / **, comparisons, the functions of this module (and NumPy's of the same names), shifts, sums and
holds. What has no place in a graph (a branch on a cell's value, a loop over cells, a change in place) is refused, with
the line and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.adjoint.points import PLACES, points
from hpckit.errors import InputError, did_you_mean
from hpckit.grid.boundary_conditions import Fill
from hpckit.kernels.graph import nodes as graph
from hpckit.kernels.graph.nodes import Faces, Node, Walls, constant, hold, make
from hpckit.kernels.graph.standin import StandIn, function, line

ROOM = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Axes:
    """The names of a grid's dims, and which have walls."""

    names: tuple[str, ...]
    walled: tuple[bool, ...]

    def walls(self, given: Any, whose: str) -> Walls:
        """A mapping from an axis to a fill or a pair of fills, as plain values; None for no walls."""
        found: list[Any] = [(None, None) if walled else None for walled in self.walled]
        for name, fills in (given or {}).items():
            if name not in self.names:
                raise InputError(
                    f"the walls of {whose} name {name!r}, which is not an axis",
                    do=f"name an axis ({', '.join(self.names)}), or arguments alone",
                )
            dim = self.names.index(name)
            pair = tuple(fills) if isinstance(fills, tuple | list) else (fills, fills)
            if len(pair) != 2:
                raise InputError(f"the walls of {whose} along {name} are a fill or a pair (low, high), not {fills!r}")
            if self.walled[dim]:
                found[dim] = tuple(_plain_fill(fill, whose) for fill in pair)
        return tuple(found)


def _plain_fill(given: Any, whose: str) -> Any:
    """A fill as its name, or the number that it writes."""
    if given is None or (isinstance(given, Real) and not isinstance(given, bool)):
        return given if given is None else float(given)
    if isinstance(given, Fill):
        given = float(given.value) if isinstance(given.value, Real) else given.name
        if isinstance(given, float):
            return given
    if given in ("zero_gradient", "mirror", "antisymmetric"):
        return given
    raise InputError(
        f"{given!r} at a wall of {whose} has no transposed fill",
        do="take hp.bc.zero_gradient, mirror, antisymmetric, fixed(value), or a number",
    )


class Traced(StandIn):
    """The stand-in of a field or a number; `node` is what it stands for. faces: where it stands, if that was said."""

    __slots__ = ("axes", "faces")

    def __init__(self, node: Node, axes: Axes, faces: Faces | None = None) -> None:
        super().__init__(node)
        self.axes, self.faces = axes, faces

    def stands(self, what: str, axes: Sequence[bool] = ()) -> Faces:
        """Where its values stand, along the axes asked for (all by default); refused where that does not follow."""
        if self.faces is not None:
            return self.faces
        faces, unclear = points(self.node, len(self.axes.names), axes)
        if unclear:
            axis = self.axes.names[unclear[0]]
            raise InputError(
                f"{what} is made of values on faces and in centers along {axis}, and its own place does not follow",
                where=self.node.line or _line(),
                do=f"say it: value.at({axis}='face') or value.at({axis}='center'), or value.at(u) for the place of u",
            )
        return faces

    # ---- what becomes a node

    def _apply(self, op: str, *args: Any) -> Traced:
        return _apply(op, *args)

    def __pow__(self, exponent: Any) -> Traced:
        if not isinstance(exponent, Real):
            raise refusal("a power whose exponent is not a constant", "write exp(exponent * log(value))")
        return Traced(graph.power(self.node, float(exponent), _line()), self.axes)

    def __rpow__(self, base: Any) -> Traced:
        raise refusal("a power whose exponent is not a constant", f"write exp(value * log({base!r}))")

    def shift(self, *places: Any, **steps: int) -> Traced:
        """The value of a neighbor, some cells further along axes: T.shift(x=+1)."""
        if places:
            raise refusal("a shift along no axis", f"name it: .shift({self.axes.names[0]}=+1)")
        unknown = [name for name in steps if name not in self.axes.names]
        if unknown:
            hint = did_you_mean(unknown[0], self.axes.names, f"the axes are {', '.join(self.axes.names)}")
            raise refusal(f"a shift along {unknown[0]!r}, which is not an axis of the grid", hint)
        return self[tuple(steps.get(name, 0) for name in self.axes.names)]

    def __getitem__(self, offset: Any) -> Traced:
        offset = offset if isinstance(offset, tuple) else (offset,)
        if not all(isinstance(step, int | np.integer) for step in offset) or len(offset) != len(self.axes.names):
            one = ", ".join("+1" if dim == 0 else "0" for dim in range(len(self.axes.names)))
            raise refusal(
                "an index that is not an offset in each dim",
                f"T[{one}] is the neighbor along {self.axes.names[0]}; a step says what one cell does",
            )
        return Traced(graph.shift(self.node, tuple(map(int, offset)), _line()), self.axes)

    def sum(self, *dims: Any, **options: Any) -> Traced:
        """The sum over all owned cells of all ranks, with the same bits for any number of ranks: a number."""
        if dims or options:
            raise refusal("a sum over some dims, or with options", "sum() takes nothing, and adds up all cells")
        if not self.node.is_field:
            raise refusal("the sum of a single number", "take the sum of a field")
        faces = self.stands("a sum", self.axes.walled)
        return Traced(make("sum", self.node, value=faces, line=_line()), self.axes)

    def at(self, like: Any = None, **places: str) -> Traced:
        """The same values, said to stand where another value stands, or in the places of axes, as x="face" or "center".

        Needed only where it does not follow from what a value reads (`hpckit.adjoint.points`), for what a step returns,
        holds or adds up.
        """
        if like is not None and not isinstance(like, Traced):
            raise refusal(f"the place of a {type(like).__name__}", "give a traced value: value.at(u)")
        faces = list(
            points(self.node, len(self.axes.names))[0] if like is None else like.stands("what .at() was given")
        )
        for name, place in places.items():
            if name not in self.axes.names or place not in PLACES:
                raise refusal(
                    f"a value at {name}={place!r}", f"name an axis: .at({self.axes.names[0]}='face' or 'center')"
                )
            faces[self.axes.names.index(name)] = PLACES[place]
        return Traced(self.node, self.axes, tuple(faces))

    def hold(self, walls: Mapping[str, Any] | None = None) -> Traced:
        """The same values as a field of their own: computed once, exchanged, and with these boundary conditions.

        For a stage of a scheme in time, and for what has boundary conditions that do not follow from its arguments'.
        """
        faces = self.stands("a hold")
        return Traced(hold(self.node, self.axes.walls(walls, "a hold"), faces, _line()), self.axes)

    # ---- NumPy's functions

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **options: Any) -> Traced:
        name = function.__name__
        op = UFUNCS.get(name)
        if method != "__call__":
            raise refusal(f"numpy.{name}.{method} of a field", "write its terms, or take .sum() over all cells")
        if options and op is not None:
            given = ", ".join(f"{option}=" for option in options)
            raise refusal(f"numpy.{name} with {given}", f"a step makes new values: T = numpy.{name}(…) without it")
        if op is None:
            raise refusal(
                f"numpy.{name} with a field", INSTEAD.get(name, f"a step may use {', '.join(sorted(UFUNCS))}")
            )
        return op(*args)

    def __array_function__(self, function: Any, kinds: Any, args: Any, options: Any) -> Traced:
        if function is np.where and len(args) == 3:
            return where(*args)
        if function is np.sum and len(args) == 1 and not options:
            return args[0].sum()
        name = function.__name__
        raise refusal(
            f"numpy.{name} with a field", INSTEAD.get(name, "write it with pointwise functions, shifts and sums")
        )

    # ---- what cannot become one

    def __bool__(self) -> bool:
        raise refusal(
            "a branch on a value that each cell has of its own"
            if self.node.is_field
            else "a branch on a number that may differ from call to call",
            "write where(condition, a, b) from hp.adjoint, & for and, minimum for min; what is known before the run is "
            "a keyword, behind a * in the definition",
        )

    def __float__(self) -> float:
        raise refusal(
            "a plain number made of a traced value",
            "use the functions of hp.adjoint, or NumPy's, in place of math's; give what counts or selects as a keyword",
        )

    __int__ = __index__ = __float__

    def __iter__(self) -> Any:
        raise refusal(
            "a loop over cells", "a step says what one cell does: use T[+1, 0] for neighbors and sum() for sums"
        )

    __len__ = __iter__

    def __setitem__(self, place: Any, value: Any) -> None:
        raise refusal("a change in place", "make a new value: where(condition, new, old)")

    def _no_operator(self, other: Any) -> Any:
        raise refusal("an operation other than + - * / ** and comparisons", "write it with pointwise functions")

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __matmul__ = __rmatmul__ = _no_operator
    __divmod__ = __rdivmod__ = __lshift__ = __rshift__ = __xor__ = __rxor__ = _no_operator

    def __round__(self, digits: Any = None) -> Traced:
        return self._no_operator(digits)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refusal(
            f"`.{name}` of a field",
            INSTEAD.get(name, "it has shift, sum, hold and at; give the step other facts as keywords"),
        )

    def __format__(self, how: str) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"<traced {self.node!r}>"


def refusal(what: str, do: str) -> InputError:
    """The error for what cannot be traced, with the user's line."""
    return InputError(f"{what} cannot be traced", where=_line(), do=do)


def _apply(op: str, *args: Any) -> Traced:
    traced = next(arg for arg in args if isinstance(arg, Traced))
    nodes = [as_node(arg) for arg in args]
    if len(nodes) != graph.arguments(op):
        raise refusal(f"{op} of {len(nodes)} values", f"it takes {graph.arguments(op)}")
    if op in ("add", "sub", "neg", "absolute") and all(map(graph.is_truth, nodes)):
        raise refusal("arithmetic with truth values alone", "write where(condition, 1.0, 0.0) for one that counts")
    return Traced(make(op, *nodes, line=_line()), traced.axes)


def as_node(value: Any) -> Node:
    """The node of a traced value or of a plain number."""
    if isinstance(value, Traced):
        return value.node
    if isinstance(value, bool | np.bool_):
        return make("equal", constant(0.0), constant(0.0 if value else 1.0))
    if isinstance(value, Real):
        return constant(float(value))
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return constant(float(value))
    kind = type(value).__name__
    raise refusal(f"a value of type {kind} beside a field", "give it to the step as an argument: a Field, or a number")


def _line() -> str:
    """The innermost line of the user's that is being run."""
    return line(ROOM)


where = function("where", np.where)
sqrt, exp, log = (function(name, getattr(np, name)) for name in ("sqrt", "exp", "log"))
sin, cos, tanh = (function(name, getattr(np, name)) for name in ("sin", "cos", "tanh"))
minimum, maximum = function("minimum", np.minimum), function("maximum", np.maximum)

INSTEAD = {
    "roll": "T.shift(x=-1) is what roll(T, 1) along x has in a cell, and at a wall what the boundary condition says",
    "gradient": "0.5 * (T.shift(x=+1) - T.shift(x=-1)) is the central difference along x",
    "diff": "T.shift(x=+1) - T is the difference to the next cell along x",
    "clip": "write minimum(maximum(T, low), high)",
    "sum": "write T.sum(): it adds up all cells",
    "mean": "write T.sum() / cells, with the number of cells as a keyword",
    "sign": "write where(T > 0, 1.0, where(T < 0, -1.0, 0.0))",
    "hypot": "write sqrt(a * a + b * b)",
    "tan": "write sin(T) / cos(T)",
    "sinh": "write 0.5 * (exp(T) - exp(-T))",
    "cosh": "write 0.5 * (exp(T) + exp(-T))",
    "log10": "write log(T) / 2.302585092994046",
    "log2": "write log(T) / 0.6931471805599453",
    "log1p": "write log(1 + T)",
    "expm1": "write exp(T) - 1",
    "exp2": "write exp(T * 0.6931471805599453)",
    "reciprocal": "write 1 / T",
    "fabs": "write abs(T)",
    "zeros_like": "write the number 0.0: each cell takes it",
    "ones_like": "write the number 1.0: each cell takes it",
    "full_like": "write the number: each cell takes it",
    "copy": "a step makes new values: T itself does, and nothing writes to it",
    **dict.fromkeys(("max", "amax", "min", "amin"), "compute it before, by field.max() or field.min(), as an argument"),
}
"""What to write for NumPy's functions, and methods of arrays, that have no place in a step."""

UFUNCS: dict[str, Callable[..., Any]] = {
    **{
        name: lambda *args, op=op: _apply(op, *args)
        for name, op in (
            ("add", "add"),
            ("subtract", "sub"),
            ("multiply", "mul"),
            ("divide", "div"),
            ("negative", "neg"),
            ("absolute", "absolute"),
            ("minimum", "minimum"),
            ("maximum", "maximum"),
            ("sqrt", "sqrt"),
            ("exp", "exp"),
            ("log", "log"),
            ("sin", "sin"),
            ("cos", "cos"),
            ("tanh", "tanh"),
            ("less", "less"),
            ("less_equal", "less_equal"),
            ("equal", "equal"),
            ("not_equal", "not_equal"),
            ("logical_and", "logical_and"),
            ("logical_or", "logical_or"),
            ("logical_not", "logical_not"),
            ("bitwise_and", "logical_and"),
            ("bitwise_or", "logical_or"),
            ("invert", "logical_not"),
        )
    },
    "greater": lambda a, b: _apply("less", b, a),
    "greater_equal": lambda a, b: _apply("less_equal", b, a),
    "square": lambda a: a * a,
    "power": lambda a, b: a**b,
    "positive": lambda a: a,
}
