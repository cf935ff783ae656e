"""Graphs of pointwise operations and shifts: what a step of a model computes, as plain values.

A `Node` is an operation on other nodes. Equal nodes are one object, so a value that is used twice is computed once.
Leaves are `field` (an array of cells with its boundary conditions), `number` and `constant`. A shift reads the
neighbor at an offset; it commutes with every pointwise operation, so a graph without the three nodes below needs only
its leaves' halos, as deep as its offsets reach:

- `hold` makes an array of its argument on the owned cells; what is read beside them comes from an exchange and from
  boundary conditions of its own, as with `field`;
- `fold` makes an array on the owned cells and beyond walls, and adds what lies beyond to the cells that the boundary
  conditions had copied there: the transposed fill;
- `sum` is the number that its argument adds up to over all owned cells.

A `network` is a leaf, too: a vector of weights. `apply` takes it and features to results a cell, `push` their changes
forward and `pull` sensitivities backward (`network`); `output` k is the array of the k-th number of a cell that one of
these makes, `weights` the vector of the sensitivities to the network's weights. Features are arrays, at offsets, or
numbers.

Along each dim values stand in the centers of cells or on their low faces, and between walls there is one face more than
cells: the last of an array's `value`, of a network's and of a sum's says which (`Faces`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Offset = tuple[int, ...]
Walls = tuple[Any, ...]
"""For each dim the pair (low, high) of a fill's name, its number, or None; None for a periodic dim."""
Faces = tuple[bool, ...]
"""For each dim whether values stand on the low faces of cells, not in their centers."""
OUTSIDE = "outside"
"""The fill of what is zero beyond walls, and has values of its own on them."""

TRUTH = frozenset(("less", "less_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not"))
POINTWISE = TRUTH | {"add", "sub", "mul", "div", "neg", "power", "sqrt", "exp", "log", "sin", "cos", "tanh", "absolute"}
POINTWISE |= {"minimum", "maximum", "where"}
ONE = frozenset(("neg", "sqrt", "exp", "log", "sin", "cos", "tanh", "absolute", "logical_not"))
ARRAYS = frozenset(("field", "hold", "fold", "output"))
NETWORKS = frozenset(("apply", "push", "pull"))
NUMBERS = NETWORKS | {"sum", "weights"}  # made of fields, but no fields


@dataclass(frozen=True, eq=False)
class Node:
    """An operation `op` on nodes; `value`: of a constant, the offset of a shift, walls, the name of a leaf.

    is_field: it has a value for each cell; else it is one number. line: where it was first written, "" if derived.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    is_field: bool = True
    line: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return said(self)


_known: weakref.WeakValueDictionary[tuple, Node] = weakref.WeakValueDictionary()


def make(op: str, *args: Node, value: Any = None, is_field: bool | None = None, line: str = "") -> Node:
    """The node of an operation: that which exists already, or a new one."""
    if is_field is None:
        is_field = op in ARRAYS or (op not in NUMBERS and any(arg.is_field for arg in args))
    key = (op, tuple(map(id, args)), value.hex() if isinstance(value, float) else value, is_field)
    node = _known.get(key)
    if node is None:
        node = Node(op, args, value, is_field, line)
        _known[key] = node
    return node


def constant(value: float) -> Node:
    """A number known when the model is traced."""
    return make("constant", value=float(value), is_field=False)


def shift(node: Node, offset: Offset, line: str = "") -> Node:
    """The value at an offset, in cells a dim; of a number the number itself."""
    if not node.is_field or not any(offset):
        return node
    if node.op == "shift":
        return shift(node.args[0], tuple(a + b for a, b in zip(node.value, offset, strict=True)), line)
    return make("shift", node, value=offset, line=line)


def hold(node: Node, walls: Walls, faces: Faces, line: str = "") -> Node:
    """An array of a value, with boundary conditions of its own."""
    return make("hold", node, value=(walls, faces), is_field=True, line=line)


def walls_at(node: Node) -> Walls | None:
    """The boundary conditions of an array; None for what is no array."""
    return node.value[1] if node.op in ("field", "output") else node.value[0] if node.op in ("hold", "fold") else None


def faces_at(node: Node) -> Faces:
    """Where the values of an array stand, of a network's results, or of what is added up."""
    return node.value if node.op == "sum" else node.value[-1]


def sets_wall(fill: Any) -> bool:
    """Whether a fill writes the values on a wall itself, where an array has some there."""
    return fill == "antisymmetric" or (fill is not None and not isinstance(fill, str))


def power(x: Node, exponent: float, line: str = "") -> Node:
    """X to a constant power: products for 2, 3 and 4, a division for -1, a root for 0.5, else the library's pow."""
    if exponent == 1:
        return x
    if exponent == 0:
        return constant(1.0)
    if exponent in (2, 4):
        half = power(x, exponent // 2, line)
        return make("mul", half, half, line=line)
    if exponent == 3:
        return make("mul", power(x, 2, line), x, line=line)
    if exponent == -1:
        return make("div", constant(1.0), x, line=line)
    if exponent == 0.5:
        return make("sqrt", x, line=line)
    return make("power", x, constant(exponent), line=line)


def arguments(op: str) -> int:
    """How many values a pointwise operation takes."""
    return 3 if op == "where" else 1 if op in ONE else 2


def is_truth(node: Node) -> bool:
    """Whether a value is true or false, not a number."""
    if node.op == "where":
        return all(map(is_truth, node.args[1:]))
    return is_truth(node.args[0]) if node.op == "shift" else node.op in TRUTH


def ordered(targets: Iterable[Node]) -> list[Node]:
    """All nodes that the targets need, arguments first, in an order that depends on the graph alone."""
    done: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(list(targets))]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done[node] = None
        else:
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args) if arg not in done]
    return list(done)


def operations(targets: Iterable[Node]) -> int:
    """How many pointwise operations a graph has."""
    return sum(node.op in POINTWISE for node in ordered(targets))


def lines(targets: Iterable[Node]) -> Iterator[str]:
    """A graph as text: a line a node, arguments before what uses them."""
    names: dict[Node, str] = {}
    for node in ordered(targets):
        if node.op in ("constant", "field", "number", "network"):
            names[node] = said(node)
        else:
            names[node] = f"%{sum(name.startswith('%') for name in names.values())}"
            yield f"{names[node]} = {said(node, names)}"
    yield "return " + ", ".join(names[node] for node in targets)


SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
}


def said(node: Node, names: dict[Node, str] | None = None) -> str:
    """A node in a few words, its arguments by their names."""
    if node.op == "constant":
        return repr(node.value)
    if node.op in ("field", "number", "network"):
        return node.value[0] if isinstance(node.value, tuple) else str(node.value)
    args = [(names or {}).get(arg, "…") for arg in node.args]
    if node.op in SIGNS:
        return f" {SIGNS[node.op]} ".join(args)
    if node.op == "shift":
        return f"{args[0]}[{', '.join(f'{o:+d}' if o else '0' for o in node.value)}]"
    if node.op == "output":
        return f"{args[0]}.{node.value[0]}"
    extra = ""
    if node.op in ("hold", "fold"):
        extra = f", walls={node.value[0]}" if any(node.value[0]) else ""
        extra += f", depth={node.value[1]}" if node.op == "fold" else ""
        extra += f", faces={node.value[-1]}" if any(node.value[-1]) else ""
    return f"{node.op}({', '.join(args)}{extra})"


def is_constant(node: Node, value: float) -> bool:
    """Whether a node is the constant, its sign included."""
    return node.op == "constant" and node.value == value and math.copysign(1, node.value) == math.copysign(1, value)
