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

from hpckit.kernels.graph import nodes as graph
from hpckit.kernels.graph.derivatives import CHOOSING, PUSHED, SINGULAR, guarded, plus, pushed_forward
from hpckit.kernels.graph.nodes import ARRAYS, NETWORKS, POINTWISE, TRUTH, Node, Offset, Walls, constant, make, ordered

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
            change = held and make(node.op, held, value=linear(node.value) if node.op == "hold" else node.value)
        elif node.op == "sum":
            added = found[node.args[0]]
            change = added and make("sum", added)
        elif node.op == "apply":
            moved = [found.get(arg) for arg in node.args]
            if any(moved):
                change = make("push", *node.args, *(each or constant(0.0) for each in moved), value=node.value)
        elif node.op == "output":
            moved = found[node.args[0]]
            change = moved and make("output", moved, value=(node.value[0], linear(node.value[1])))
        else:
            change = pushed_forward(node, found)
        found[node] = change
    return [found[node] or constant(0.0) for node in outputs]


def sensitivities(
    outputs: Sequence[Node], seeds: Sequence[Node], wanted: Sequence[Node], grid: Grid
) -> list[Node | None]:
    """For each wanted leaf the sum over outputs and cells of seed times slope (reverse mode); None for 0.

    seeds: a field for an output with cells, a number for one number. Fields among them are zero beyond walls.
    """
    nodes = ordered(outputs)
    width = halo_widths(outputs, grid)
    singular, masked, shifted = _singular(nodes), _masked(nodes), _shifted(nodes)
    beyond = any(_reaches(each, grid) for each in width.values())
    given: dict[Node, Node | None] = {}
    for node, seed in zip(outputs, seeds, strict=True):
        given[node] = plus(given.get(node), seed)
    needed = _leading_to(nodes, wanted)
    inside = make("hold", constant(1.0), value=grid.walls(0.0), is_field=True)
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
            read = _within(node.args[0])
            cells = node.args[0] in shifted or any(_reaches(width.get(each), grid) for each in read)
            cells &= any(grid.walled)
            _give(given, node.args[0], make("mul", g, inside) if cells else g)
        elif node.op == "hold":
            _give(given, node.args[0], _taken_back(g, node.value, width.get(node), grid))
        elif node.op == "output" and node.args[0].op == "apply":
            k, walls = node.value
            pulled.setdefault(node.args[0], {})[k] = _taken_back(g, walls, width.get(node), grid)
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
                if term.is_field and not arg.is_field:
                    term = make("sum", _beyond(term, width.get(node), grid))
                _give(given, arg, term)
    found = []
    for leaf in wanted:
        g = given.get(leaf)
        if g is not None and leaf.op in ARRAYS:
            g = _taken_back(g, leaf.value[1], width.get(leaf), grid, last=True)
        found.append(g)
    return found


def halo_widths(outputs: Sequence[Node], grid: Grid) -> dict[Node, Offset]:
    """How far beyond the owned cells each node is needed in each dim, through shifts up to the next array."""
    found: dict[Node, Offset] = {}
    zero = (0,) * grid.dims
    ends = ("hold", "fold", "sum", "output", *NETWORKS)
    tops = [*outputs, *(arg for node in ordered(outputs) if node.op in ends for arg in node.args)]
    pending = {node: zero for node in tops}
    for node in reversed(ordered(outputs)):
        width = pending.get(node, zero)
        found[node] = width
        if node.op in ends:
            continue
        if node.op == "shift":
            width = tuple(w + abs(o) for w, o in zip(width, node.value, strict=True))
        for arg in node.args:
            pending[arg] = tuple(map(max, pending.get(arg, zero), width))
    return found


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
        found = make("output", back, value=(k - 1, grid.walls(0.0)))
        yield arg, found if arg.is_field else make("sum", found)


def _taken_back(g: Node, walls: Walls, width: Offset | None, grid: Grid, last: bool = False) -> Node:
    """The sensitivity on the owned cells, with what a fill had copied beyond walls; read beside cells of other ranks it
    is exchanged, and zero beyond walls.
    """
    reached = [walled and bool(width and width[dim]) for dim, walled in enumerate(grid.walled)]
    if any(reached):
        depth = tuple(w if r else 0 for w, r in zip(width or (), reached, strict=True))
        return make("fold", g, value=(walls, depth), is_field=True)
    zero_beyond = g.op == "output" and g.args[0].op == "pull"
    return g if last or not g.is_field or zero_beyond else make("hold", g, value=grid.walls(0.0))


def _beyond(term: Node, width: Offset | None, grid: Grid) -> Node:
    """A term of a number's sensitivity, with what cells beyond walls add to it."""
    if not _reaches(width, grid):
        return term
    depth = tuple(w if walled else 0 for w, walled in zip(width or (), grid.walled, strict=True))
    return make("fold", term, value=(grid.walls(ADDED_UP), depth), is_field=True)


def _reaches(width: Offset | None, grid: Grid) -> bool:
    """Whether cells beyond walls are among those of this width beside the owned ones."""
    return any(walled and width and width[dim] for dim, walled in enumerate(grid.walled))


def _within(node: Node) -> list[Node]:
    """The values that a value is made of, down to arrays."""
    found: dict[Node, None] = {}
    stack = [node]
    while stack:
        each = stack.pop()
        if each not in found:
            found[each] = None
            stack += () if each.op in ARRAYS else each.args
    return list(found)


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


def _shifted(nodes: Sequence[Node]) -> set[Node]:
    """The values that are made of neighbors' values, not counting what arrays were made of."""
    found: set[Node] = set()
    for node in nodes:
        if node.op == "shift" or (node.op in POINTWISE and any(arg in found for arg in node.args)):
            found.add(node)
    return found


__all__ = ["ADDED_UP", "Grid", "halo_widths", "linear", "sensitivities", "tangents"]
