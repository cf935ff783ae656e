"""Where a value stands: along each axis in the centers of cells or on their faces, as follows from what it reads.

Index i is the center of cell i, or its low face. Along an axis where all arrays that a value reads are alike, it stands
where they stand. Where both kinds meet, each array that it reads has a middle: that of the offsets at which it is read,
as `h + h[0, -1]` is on the low face of a cell if h is in centers, and `u[0, +1] - u` in its center if u is on faces. If
all middles agree, that is the place; else the value is refused, until `.at` says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpckit.kernels.graph.nodes import ARRAYS, Faces, Node, Offset, faces_at
from hpckit.kernels.graph.sweep import expanded

PLACES = {"center": False, "face": True}


def values_within(node: Node) -> list[Node]:
    """The fields that a value is made of, itself included, down to arrays."""
    found: dict[Node, None] = {}
    stack = [node]
    while stack:
        each = stack.pop()
        if each.is_field and each not in found:
            found[each] = None
            stack.extend(() if each.op in ARRAYS else each.args)
    return list(found)


def arrays_read(node: Node) -> list[Node]:
    """The arrays that a value is made of, not counting what they were made of."""
    return [each for each in values_within(node) if each.op in ARRAYS]


def points(node: Node, dims: int, asked: Sequence[bool] = ()) -> tuple[Faces, list[int]]:
    """Where a value stands, and the dims among those asked for (all by default) where it does not follow."""
    leaves = arrays_read(node) if node.is_field else []
    faces, unclear = [False] * dims, []
    for dim in range(dims):
        kinds = {faces_at(leaf)[dim] for leaf in leaves}
        if len(kinds) < 2:
            faces[dim] = kinds == {True}
        elif not asked or asked[dim]:
            place = _middle(node, dim, dims)
            if place is None:
                unclear.append(dim)
            faces[dim] = place is not None and place % 2 == 0
    return tuple(faces), unclear


def _middle(node: Node, dim: int, dims: int) -> int | None:
    """Twice the distance of a value from the low face of a cell, in cells; None if the arrays that it reads differ."""
    reads: dict[Node, list[int]] = {}
    for leaf, offset in expanded([node], (), dims):
        if leaf.op in ARRAYS:
            reads.setdefault(leaf, []).append(offset[dim])
    terms: dict[Node, list[int]] = {}  # of a sum those that are an array alone, T in T - c * (T - T[-1])
    for leaf, offset in _terms(node, (0,) * dims):
        terms.setdefault(leaf, []).append(offset[dim])
    found = {
        min(steps) + max(steps) + (not faces_at(leaf)[dim]) for part in (reads, terms) for leaf, steps in part.items()
    }
    return found.pop() if len(found) == 1 else None


def _terms(node: Node, offset: Offset) -> Iterator[tuple[Node, Offset]]:
    """The terms of a sum that are an array, or a number times an array, at an offset."""
    stack = [(node, offset)]
    while stack:
        each, at = stack.pop()
        if each.op in ARRAYS:
            yield each, at
        elif each.op == "shift":
            stack.append((each.args[0], tuple(a + b for a, b in zip(at, each.value, strict=True))))
        elif each.op in ("add", "sub", "neg"):
            stack += [(arg, at) for arg in each.args]
        elif each.op in ("mul", "div"):
            fields = [arg for arg in each.args if arg.is_field]
            stack += [(arg, at) for arg in fields] if len(fields) == 1 else []
