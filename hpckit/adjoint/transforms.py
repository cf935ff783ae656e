"""Graphs of derivatives, made from the graph of a model: forward (tangents) and backward (sensitivities).

The backward graph is in **gather form**: where the model reads u at an offset, the sensitivity to u reads what came of
it at the mirrored offset. So it is a stencil again, without scattered additions, and its terms have one order, that of
the graph: a gradient has the same bits on any number of ranks. (Hückelheim et al. 2019, arXiv 1907.02818, transform
loops that way.)

What an array copied at walls when its halo was filled, its sensitivity gives back: `fold`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number

from hpckit.adjoint.points import arrays_read, values_within
from hpckit.kernels.graph import nodes as graph
from hpckit.kernels.graph.derivatives import CHOOSING, PUSHED, SINGULAR, guarded, plus, pushed_forward
from hpckit.kernels.graph.nodes import (
    ARRAYS,
    NETWORKS,
    OUTSIDE,
    POINTWISE,
    TRUTH,
    Faces,
    Node,
    Offset,
    Walls,
    constant,
    faces_at,
    hold,
    make,
    ordered,
    sets_wall,
    walls_at,
)

Needed = tuple[tuple[int, int], ...]
"""For each dim how far below the first cell, and beyond the last, a value is needed; negative: not as far as there."""
ADDED_UP = "added up"
"""The walls of a fold that gives all values beyond a wall to the cell at it."""


@dataclass(frozen=True)
class Grid:
    """What a graph knows of its grid: how many dims, and which have walls."""

    walled: tuple[bool, ...]

    @property
    def dims(self) -> int:
        """How many."""
        return len(self.walled)

    def walls(self, fill: object) -> Walls:
        """Walls with the same fill on all sides."""
        return tuple((fill, fill) if walled else None for walled in self.walled)

    @property
    def centers(self) -> Faces:
        """The place of values in the centers of cells."""
        return (False,) * self.dims

    def closing(self, faces: Faces) -> Offset:
        """How many values more than cells there are in each dim: 1 on faces between walls."""
        return tuple(int(face and walled) for face, walled in zip(faces, self.walled, strict=True))

    def beyond(self, needed: Needed, faces: Faces) -> Offset:
        """How far beyond walls an array is needed in each dim."""
        return tuple(
            max(0, low, high - extra) if walled else 0
            for (low, high), extra, walled in zip(needed, self.closing(faces), self.walled, strict=True)
        )


def linear(walls: Walls) -> Walls:
    """The fills of a change of the values: a wall at a fixed number has none."""
    return tuple(pair and tuple(0.0 if isinstance(fill, Number) else fill for fill in pair) for pair in walls)


def tangents(outputs: Sequence[Node], changes: Mapping[Node, Node]) -> list[Node]:
    """For each output its change, where the leaves change by the nodes given (forward mode)."""
    found: dict[Node, Node | None] = dict(changes)
    for node in ordered(outputs):
        if node in found:
            continue
        change: Node | None = None
        if node.op == "shift":
            moved = found[node.args[0]]
            change = moved and graph.shift(moved, node.value)
        elif node.op in ("hold", "fold"):
            held = found[node.args[0]]
            value = (linear(node.value[0]), node.value[1]) if node.op == "hold" else node.value
            change = held and make(node.op, held, value=value)
        elif node.op == "sum":
            added = found[node.args[0]]
            change = added and make("sum", added, value=node.value)
        elif node.op == "apply":
            moved = [found.get(arg) for arg in node.args]
            if any(moved):
                change = make("push", *node.args, *(each or constant(0.0) for each in moved), value=node.value)
        elif node.op == "output":
            moved = found[node.args[0]]
            change = moved and make("output", moved, value=(node.value[0], linear(node.value[1]), node.value[2]))
        else:
            change = pushed_forward(node, found)
        found[node] = change
    return [found[node] or constant(0.0) for node in outputs]


def sensitivities(
    outputs: Sequence[Node], seeds: Sequence[Node], wanted: Sequence[Node], grid: Grid, faces: Sequence[Faces]
) -> list[Node | None]:
    """For each wanted leaf the sum over outputs and cells of seed times slope (reverse mode); None for 0.

    seeds: a field for an output with cells, a number for one number. Fields among them are zero beyond walls. faces:
    where each output stands.
    """
    nodes = ordered(outputs)
    width = needed_cells(outputs, grid, faces)
    singular, masked = _singular(nodes), _masked(nodes)
    arrays = [node for node in nodes if node.op in ARRAYS]
    beyond = any(any(grid.beyond(width[node], faces_at(node))) for node in arrays)
    beyond |= len({grid.closing(place) for place in (*faces, *map(faces_at, arrays))}) > 1
    given: dict[Node, Node | None] = {}
    for node, seed in zip(outputs, seeds, strict=True):
        given[node] = plus(given.get(node), seed)
    needed = _leading_to(nodes, wanted)
    pulled: dict[Node, dict[int, Node]] = {}
    for node in reversed(nodes):
        if node in pulled:
            for arg, term in _pulled(node, pulled[node], needed, grid):
                _give(given, arg, term)
            continue
        g = given.get(node)
        if g is None or node in wanted or node not in needed:
            continue
        if node.op == "shift":
            _give(given, node.args[0], graph.shift(g, tuple(-o for o in node.value)))
        elif node.op == "sum":
            _give(given, node.args[0], _within(g, node, width, grid))
        elif node.op == "hold":
            back = _taken_back(g, node, width, grid)
            _give(given, node.args[0], back if back.is_field else _within(back, node, width, grid))
        elif node.op == "output" and node.args[0].op == "apply":
            pulled.setdefault(node.args[0], {})[node.value[0]] = _taken_back(g, node, width, grid)
        elif node.op in ("fold", "output"):
            raise NotImplementedError("the gradient of a gradient")
        elif node.op in POINTWISE - TRUTH:
            for k, arg in enumerate(node.args):
                if arg not in needed or (node.op == "where" and k == 0):
                    continue
                term = PUSHED[node.op](node, g, k)
                # Cells beyond walls are computed although nothing may depend on them.
                unused = node in masked or beyond
                if unused and node.op not in CHOOSING and singular.intersection((node, *node.args)) and term is not g:
                    term = guarded(g, term)
                if node.is_field and not arg.is_field:  # also of one number for all cells
                    term = _added_up(term, width.get(node), grid)
                _give(given, arg, term)
    found = []
    for leaf in wanted:
        g = given.get(leaf)
        if g is not None and leaf.op in ARRAYS:
            g = _taken_back(g, leaf, width, grid, last=True)
        found.append(g)
    return found


def needed_cells(outputs: Sequence[Node], grid: Grid, faces: Sequence[Faces]) -> dict[Node, Needed]:
    """Where each node is needed in each dim, through shifts up to the next array; faces: where the outputs stand."""
    found: dict[Node, Needed] = {}
    ends = ("hold", "fold", "sum", "output", *NETWORKS)
    pending: dict[Node, Needed] = {}

    def ask(node: Node, needed: Needed) -> None:
        before = pending.get(node, needed)
        pending[node] = tuple((max(a, c), max(b, d)) for (a, b), (c, d) in zip(before, needed, strict=True))

    def owned(faces: Faces) -> Needed:
        return tuple((0, extra) for extra in grid.closing(faces))

    for node, place in zip(outputs, faces, strict=True):
        ask(node, owned(place))
    for node in reversed(ordered(outputs)):
        found[node] = needed = pending.get(node, owned(grid.centers))
        if node.op in ends:
            needed = owned(faces_at(node))
        elif node.op == "shift":
            needed = tuple((low - o, high + o) for (low, high), o in zip(needed, node.value, strict=True))
        for arg in node.args:
            ask(arg, needed)
    return found


def _within(g: Node, node: Node, width: Mapping[Node, Needed], grid: Grid) -> Node:
    """The sensitivity to what a sum adds up, or a hold holds, where it is one number for all its points: zero where
    that is needed, or has values, beyond them.
    """
    made, faces = node.args[0], faces_at(node)
    more = any(any(grid.beyond(width[each], faces)) for each in values_within(made))
    more |= any(grid.closing(faces_at(leaf)) != grid.closing(faces) for leaf in arrays_read(made))
    return make("mul", g, hold(constant(1.0), grid.walls(OUTSIDE), faces)) if more else g


def _give(given: dict[Node, Node | None], node: Node, term: Node) -> None:
    given[node] = plus(given.get(node), term)


def _pulled(node: Node, seeds: Mapping[int, Node], needed: set[Node], grid: Grid) -> Iterator[tuple[Node, Node]]:
    """The sensitivities to what a network is applied to, and to its weights, of those to its results."""
    zero = constant(0.0)
    back = make("pull", *node.args, *(seeds.get(k, zero) for k in range(node.value[1])), value=node.value)
    for k, arg in enumerate(node.args):
        if arg not in needed:
            continue
        if k == 0:
            yield arg, make("weights", back)
            continue
        found = make("output", back, value=(k - 1, grid.walls(OUTSIDE), faces_at(node)))
        yield arg, found if arg.is_field else make("sum", found, value=faces_at(node))


def _taken_back(g: Node, array: Node, width: Mapping[Node, Needed], grid: Grid, last: bool = False) -> Node:
    """The sensitivity to the owned values of an array, with what a fill had copied beyond walls; read beside cells of
    other ranks it is exchanged, and zero beyond walls.
    """
    walls, faces = walls_at(array), faces_at(array)
    closing = grid.closing(faces)
    beyond = grid.beyond(width.get(array, ((0, 0),) * grid.dims), faces)
    written = [any(map(sets_wall, pair or ())) for pair in walls or ()]
    if any(beyond) or any(extra and sets for extra, sets in zip(closing, written, strict=True)):
        fixed = [all(isinstance(fill, Number) for fill in pair or (OUTSIDE,)) for pair in walls or ()]
        depth = tuple(0 if known else wide for wide, known in zip(beyond, fixed, strict=True))
        return make("fold", g, value=(walls, depth, beyond, faces), is_field=True)
    zero_beyond = g.op == "output" and g.args[0].op == "pull"
    return g if last or not g.is_field or zero_beyond else hold(g, grid.walls(OUTSIDE), faces)


def _added_up(term: Node, needed: Needed | None, grid: Grid) -> Node:
    """A term of a number's sensitivity, added up over all values, with what those beyond walls add to it."""
    needed = needed or ((0, 0),) * grid.dims
    faces = tuple(walled and high > 0 for (_, high), walled in zip(needed, grid.walled, strict=True))
    depth = grid.beyond(needed, faces)
    if any(depth):
        term = make("fold", term, value=(grid.walls(ADDED_UP), depth, depth, faces), is_field=True)
    return make("sum", term, value=faces)


def _singular(nodes: Sequence[Node]) -> set[Node]:
    """The values that may be infinite, or have infinite slopes, in cells where they are not used."""
    found: set[Node] = set()
    for node in nodes:
        if node.op in SINGULAR or any(arg in found for arg in node.args):
            found.add(node)
    return found


def _masked(nodes: Sequence[Node]) -> set[Node]:
    """The values that a choice may drop."""
    found: set[Node] = set()
    for node in reversed(nodes):
        if node.op in CHOOSING or node in found:
            found.update(node.args)
    return found


def _leading_to(nodes: Sequence[Node], wanted: Sequence[Node]) -> set[Node]:
    """The nodes that depend on a wanted leaf."""
    found = set(wanted)
    for node in nodes:
        if any(arg in found for arg in node.args):
            found.add(node)
    return found


__all__ = ["ADDED_UP", "Grid", "linear", "needed_cells", "sensitivities", "tangents"]
