"""Tests of derivatives (the dot-product test and the Taylor test), and where a nan or inf came from: the operation, its
line, the cell and the step, the same on any number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.adjoint.derived import jvp_graph, vjp
from hpckit.adjoint.models import TracedModel, plain, require_model
from hpckit.adjoint.networks import Network
from hpckit.adjoint.program.execute import BoundProgram
from hpckit.comm.agree import least_of_ranks
from hpckit.errors import BlowUpError
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import ARRAYS, Node, faces_at, ordered, said
from hpckit.kernels.graph.reference import number
from hpckit.kernels.graph.sweep import GraphSweep

__communicates__ = True  # its frames are not call sites
Values = Mapping[Node, Any]
Cell = tuple[int, ...]


@dataclass(frozen=True)
class AdjointCheck:
    """product: |<J x, y> - <x, J' y>| over |<J x, y>| for random x and y: rounding, about 1e-15.

    order: how the error of the linear forecast of <f(a + h x), y> falls with h: 2 (nan where it is only rounding).
    """

    product: float
    order: float

    @property
    def passed(self) -> bool:
        """Whether the product is below 1e-13 and the order 2, to 5 %."""
        return self.product < 1e-13 and (math.isnan(self.order) or abs(self.order - 2) < 0.1)


def check(step: TracedModel, *args: Any, seed: int = 0, size: float = 1e-4, **options: Any) -> AdjointCheck:
    """Both tests of a model at its arguments, in random directions that do not depend on the number of ranks.

    size: of the larger of the two changes of the Taylor test, relative to the size of each argument (to 1 where it is
    0). Networks within are taken in double precision. Collective. Raises `BlowUpError` if a value or a change of it is
    nan or inf: the operation, its line and cell.
    """
    require_model(step, "what is checked")
    args = tuple(arg.at(arg.values, np.float64) if isinstance(arg, Network) else arg for arg in args)
    rng = np.random.default_rng(seed)
    changes = [_random(arg, rng, _size(arg)) for arg in args]
    graph = jvp_graph(step.graph(*args, **options), (True,) * len(args))
    values = [plain(value) for value in (*args, *changes)]
    found = require_finite(step.bound(graph, args), dict(zip(graph.inputs, values, strict=True)))
    results, moved = found[: len(found) // 2], found[len(found) // 2 :]
    seeds = [_random(each, rng, 1.0) for each in results]
    _, pull = vjp(step, *args, **options)
    ahead = _dot(moved, seeds)
    back = _dot(pull(*seeds), changes)
    base = _dot(results, seeds)
    errors = []
    for h in (size, size / 10):
        there = [_moved(arg, change, h) for arg, change in zip(args, changes, strict=True)]
        far = step(*there, **options)
        errors.append(abs(_dot(far if isinstance(far, tuple) else (far,), seeds) - base - h * ahead))
    linear = errors[1] < 1e-12 * max(abs(base), abs(ahead))
    order = math.nan if linear else math.log10(errors[0] / errors[1])
    return AdjointCheck(abs(ahead - back) / max(abs(ahead), np.finfo(float).tiny), order)


def _size(arg: Any) -> float:
    size = arg.norm(math.inf) if isinstance(arg, Field) else float(np.abs(plain(arg)).max())
    return size or 1.0


def _random(like: Any, rng: np.random.Generator, size: float) -> Any:
    """Normal numbers, the same in every global cell for any number of ranks."""
    if isinstance(like, Network):
        return size * rng.standard_normal(like.values.shape)
    if not isinstance(like, Field):
        return size * rng.standard_normal(np.shape(like) or None)  # of an ensemble one for each member
    whole = rng.standard_normal(like.decomposition.global_shape)
    found = like.like()
    dec, rank = like.decomposition, like.mesh.rank
    part = tuple(slice(a, a + n) for a, n in zip(dec.start(rank), dec.owned(rank), strict=True))
    found.set_from_host(size * whole[part])
    return found


def _moved(arg: Any, change: Any, h: float) -> Any:
    if isinstance(arg, Network):
        return arg.at(arg.values + h * change)
    if not isinstance(arg, Field):
        return arg + h * change
    found = arg.like()
    found.interior[...] = arg.interior + h * change.interior
    return found


def _dot(a: Sequence[Any], b: Sequence[Any]) -> float:
    pairs = zip(a, b, strict=True)
    return math.fsum(
        x.dot(y, repro=True).real if isinstance(x, Field) else float(np.sum(np.multiply(x, y))) for x, y in pairs
    )


def require_finite(bound: BoundProgram, inputs: Values, filled: Sequence[Node] = (), when: str = "") -> list[Any]:
    """Run a program and return its results; raise `BlowUpError` if a value that it used is not finite. Collective.

    The error names the operation whose arguments are finite and whose value is not, with these, its line and its cell:
    the first cell of the first field that is not finite. What a choice (`where`) has dropped does not count. when: said
    in front of the cell, as "step 12".
    """
    program, values = bound.program, dict[Node, Any](inputs)
    found = bound.run(inputs, [None] * len(program.graph.outputs), filled, values)
    results = dict(zip(program.graph.outputs, found, strict=True))
    # Arguments come first: what was made before a value is finite, on all ranks and in all halos.
    made = {node: values[node] for node in ordered(program.graph.outputs) if node.op in (*ARRAYS, "sum")}
    for node, value in {**made, **results}.items():
        if isinstance(value, Field):
            _require_field(bound, values, node, value, when)
        elif not np.all(np.isfinite(value)):
            if node.op == "sum":
                added = bound.zeros(faces=faces_at(node))
                sweep = GraphSweep([node.args[0]], bound.grid.dims)
                bound.sweep_by_reference(sweep, added, values)
                _require_field(bound, values, node.args[0], added, when)
            member = () if np.ndim(value) == 0 else (int(np.argmin(np.isfinite(value))),)  # or a weight
            raise _error(_Search(bound, values).origin(node, member), "", when)
    return found


def _require_field(bound: BoundProgram, values: Values, node: Node, field: Field, when: str) -> None:
    where = field.decomposition
    bad = np.argwhere(~np.isfinite(field.to_host()))
    order, told = math.inf, None
    if len(bad):
        cell = tuple(int(a + b) for a, b in zip(bad[0], where.start(field.mesh.rank), strict=True))
        order = float(np.ravel_multi_index(cell, where.global_shape))
        told = [cell, _Search(bound, values).origin(node, tuple(map(int, bad[0])))]
    _, told = least_of_ranks(field.mesh.comm, order, told)
    if told is not None:
        raise _error(told[1], f"cell {tuple(told[0])}", when)


def _error(origin: tuple[str, str], cell: str, when: str) -> BlowUpError:
    what, line = origin
    return BlowUpError(f"{what} is not finite", where=", ".join(part for part in (when, cell, line) if part))


def _line(node: Node) -> str:
    """Where an operation was written; of one in a derivative, the nearest of the values that it is made of."""
    behind = [node]
    while behind:
        for each in behind:
            if each.line:
                return each.line
        behind = list(dict.fromkeys(arg for each in behind for arg in each.args))
    return ""


class _Search:
    """From a value that is not finite to the first operation behind it whose arguments are."""

    def __init__(self, bound: BoundProgram, values: Values) -> None:
        self._bound, self._values = bound, values
        self._known: dict[tuple[Node, Cell], float] = {}

    def origin(self, node: Node, cell: Cell) -> tuple[str, str]:
        """The operation in words, and its line."""
        if node.op in ("hold", "fold"):
            node = node.args[0]
        while True:
            if node.op == "shift":
                cell = self._moved(node, cell)
                node = node.args[0]
                continue
            if node.op == "sum" or node.op in ARRAYS or not node.args:
                return said(node), node.line
            if node.op == "where":
                chosen = node.args[1] if self._value(node.args[0], cell) else node.args[2]
                used = [node.args[0], chosen]
            else:
                used = list(node.args)
            bad = next((arg for arg in used if not math.isfinite(self._value(arg, cell))), None)
            if bad is None:
                names = {arg: f"{self._value(arg, cell):.6g}" for arg in node.args}
                return said(node, names), _line(node)
            node = bad

    def _value(self, node: Node, cell: Cell) -> float:
        key = node, cell
        if key not in self._known:
            self._known[key] = self._computed(node, cell)
        return self._known[key]

    def _computed(self, node: Node, cell: Cell) -> float:
        if node.op == "constant":
            return float(node.value)
        if node.op in ARRAYS:
            field = self._values[node]
            halo = field.decomposition.halo
            return float(field.device.to_host(field.data[tuple(c + h for c, h in zip(cell, halo, strict=True))]))
        if node.op == "shift":
            return self._value(node.args[0], self._moved(node, cell))
        if node in self._values:
            value = self._values[node]
            return float(value if np.ndim(value) == 0 else value[cell[-1]])
        return float(number(node, [self._value(arg, cell) for arg in node.args]))

    def _moved(self, node: Node, cell: Cell) -> Cell:
        more = (*node.value, *(0,) * (len(cell) - len(node.value)))
        return tuple(c + o for c, o in zip(cell, more, strict=True))
