"""Sweeps: some nodes of a graph, computed for all cells of a box in one pass over memory.

Shifts are pushed down to the arrays, so a target becomes one expression of values at offsets. A value that is needed at
several offsets is either computed anew at each (`recompute`), or computed once and kept in a few slabs (`Stored`): a
ring buffer of as many slabs of the first dim as its offsets reach, as hand-written stencils have line buffers. The
choice is by counting what a cell costs (`WEIGHT`), one value after the other, the largest saving first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpckit.kernels.graph.nodes import ARRAYS, POINTWISE, Node, Offset

LOAD, STORE, LOOP = 1.0, 1.5, 2.0
"""What a load, a store and a loop of its own cost, in additions of vectors: loads of neighbors come from the cache."""
WEIGHT = {"div": 8.0, "sqrt": 10.0, "exp": 40.0, "log": 40.0, "sin": 40.0, "cos": 40.0, "tanh": 60.0, "power": 80.0}
Reach = tuple[tuple[int, int], ...]
"""For each dim the lowest and the highest offset."""


@dataclass(frozen=True)
class Stored:
    """A value that is kept in slabs. reach: the cells beside the box at which it is needed. lead: slabs that it is
    computed ahead of the targets. depth: slabs that are kept.
    """

    node: Node
    reach: Reach
    lead: int
    depth: int


@dataclass(frozen=True)
class Count:
    """What a cell costs: pointwise operations, loads and stores of arrays and slabs, and their bytes if each array
    moves once between the memory and the cache.
    """

    operations: int
    loads: int
    stores: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.operations} operations, {self.loads} loads, {self.stores} stores, {self.nbytes} bytes a cell"


class GraphSweep:
    """The targets of a pass, what they read, and which values are kept in slabs.

    dims: of the grid. fused: whether a product may be added without being rounded first; False is the order and the
    rounding of NumPy. targets: nodes, each written to an array of its own.
    """

    def __init__(self, targets: Sequence[Node], dims: int, fused: bool = True) -> None:
        self.targets, self.dims, self.fused = tuple(targets), dims, fused
        self.kernels: dict[Any, Any] = {}  # what the forms have made of it
        nodes = _within(self.targets)
        self.leaves = tuple(node for node in nodes if node.op in ARRAYS)
        fields = [node for node in nodes if node.is_field]
        read = {arg for node in fields for arg in node.args if not arg.is_field} | {
            node for node in self.targets if not node.is_field
        }
        self.numbers = tuple(node for node in nodes if node in read and node.op != "constant")
        self._order = {node: number for number, node in enumerate(nodes)}
        self.kept = self._choice()
        self.stored = self._stored()

    @cached_property
    def reach(self) -> dict[Node, Reach]:
        """The offsets at which each leaf is read, beside the box of the targets."""
        zero = ((0, 0),) * self.dims
        found: dict[Node, Reach] = {}
        for node, offset in _reads(self.targets, (), (0,) * self.dims):
            low_high = found.get(node, zero)
            found[node] = tuple((min(a, o), max(b, o)) for (a, b), o in zip(low_high, offset, strict=True))
        return found

    def count(self, kept: Iterable[Node] | None = None) -> Count:
        """What a cell costs, with these values kept (the chosen ones by default)."""
        kept = self.kept if kept is None else tuple(kept)
        operations = loads = stores = 0
        for made in [*((node,) for node in kept), self.targets]:
            pairs = expanded(made, kept, self.dims)
            operations += _operations(pairs, made, kept)
            loads += sum(node.op in ARRAYS or (node in kept and not computed(node, o, made)) for node, o in pairs)
            stores += len(made)
        return Count(operations, loads, stores, 8 * (len(self.leaves) + 2 * len(self.targets)))

    def operations(self, shape: Sequence[int]) -> int:
        """The operations of a pass over a box of this shape: what is kept in slabs is computed beside it, too."""
        total = math.prod(shape) * _operations(expanded(self.targets, self.kept, self.dims), self.targets, self.kept)
        for each in self.stored:
            cells = math.prod(n + high - low for n, (low, high) in zip(shape, each.reach, strict=True))
            made = (each.node,)
            total += cells * _operations(expanded(made, self.kept, self.dims), made, self.kept)
        return total

    @property
    def unfused_bytes(self) -> int:
        """The bytes a cell moves where every operation is a pass of its own, as NumPy has it."""
        nodes = _within(self.targets)
        fields = [node for node in nodes if node.is_field and node.op in POINTWISE]
        return 8 * sum(2 + sum(arg.is_field for arg in node.args) for node in fields)

    def _cost(self, kept: Sequence[Node]) -> float:
        total = 0.0
        for made in [*((node,) for node in kept), self.targets]:
            for node, offset in expanded(made, kept, self.dims):
                if node.op in ARRAYS or (node in kept and not computed(node, offset, made)):
                    total += LOAD
                elif node.op in POINTWISE:
                    total += WEIGHT.get(node.op, 1.0)
            total += STORE * len(made)
        return total + LOOP * len(kept)

    def _choice(self) -> tuple[Node, ...]:
        """The values to keep, in the order of the graph."""
        offsets: dict[Node, set[Offset]] = {}
        for node, offset in expanded(self.targets, (), self.dims):
            offsets.setdefault(node, set()).add(offset)
        shifted = {node.args[0] for node in self._order if node.op == "shift"}
        candidates = [node for node in shifted if node.op in POINTWISE and len(offsets.get(node, ())) > 1]
        candidates.sort(key=self._order.__getitem__)
        kept: list[Node] = []
        cost = self._cost(kept)
        while candidates:
            trials = [(self._cost([*kept, node]), self._order[node], node) for node in candidates]
            best, _, node = min(trials)
            if best >= cost:
                break
            cost = best
            kept.append(node)
            # What did not help by itself seldom does beside another: keep those that came near.
            candidates = [other for each, _, other in trials if other is not node and each < best * 1.5]
        return tuple(sorted(kept, key=self._order.__getitem__))

    def _stored(self) -> tuple[Stored, ...]:
        """From the last to the first: where and how far ahead each kept value is needed."""
        zero = ((0, 0),) * self.dims
        reach: dict[Node, Reach] = {}
        leads: dict[Node, int] = {}
        lowest: dict[Node, int] = {}  # of the slabs that are read, beside the current one
        consumers = [(self.targets, zero, 0)] + [((node,), None, None) for node in reversed(self.kept)]
        found = []
        for made, wide, ahead in consumers:
            if wide is None:
                node = made[0]
                wide, ahead = reach[node], leads[node]
                found.append(Stored(node, wide, ahead, ahead - lowest[node] + 1))
            assert ahead is not None
            for node, offset in expanded(made, self.kept, self.dims):
                if node not in self.kept or computed(node, offset, made):
                    continue
                here = tuple((a + o, b + o) for (a, b), o in zip(wide, offset, strict=True))
                before = reach.get(node, here)
                reach[node] = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(before, here, strict=True))
                # In 1-D there are no slabs to run through: a slab is the whole row.
                first = offset[0] if self.dims > 1 else 0
                leads[node] = max(leads.get(node, 0), ahead + first)
                lowest[node] = min(lowest.get(node, 0), ahead + first)
        return tuple(reversed(found))


def _operations(pairs: Iterable[tuple[Node, Offset]], made: Sequence[Node], kept: Sequence[Node]) -> int:
    """How many of the values at offsets are computed by the loop of `made`."""
    return sum(node.op in POINTWISE and (node not in kept or computed(node, o, made)) for node, o in pairs)


def _within(targets: Sequence[Node]) -> list[Node]:
    """The nodes of a pass: down to arrays and numbers, whatever those were made of."""
    found: list[Node] = []
    done: set[Node] = set()
    stack = [(node, False) for node in reversed(targets)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        leaf = node.op in ARRAYS or not node.is_field
        if ready or leaf:
            done.add(node)
            found.append(node)
        else:
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args) if arg not in done]
    return found


def expanded(targets: Sequence[Node], kept: Sequence[Node], dims: int) -> dict[tuple[Node, Offset], None]:
    """The values at offsets that are computed or loaded for a cell, arguments first; values kept end the search, but
    for those that are targets, too, in their own cell.
    """
    zero = (0,) * dims
    done: dict[tuple[Node, Offset], None] = {}
    stack = [((node, zero), False) for node in reversed(targets)]
    while stack:
        pair, ready = stack.pop()
        node, offset = pair
        if node.op == "shift":
            stack.append(((node.args[0], tuple(a + b for a, b in zip(offset, node.value, strict=True))), False))
            continue
        if pair in done or not node.is_field:
            continue
        if ready or node.op in ARRAYS or (node in kept and not computed(node, offset, targets)):
            done[pair] = None
        else:
            stack.append((pair, True))
            stack += [((arg, offset), False) for arg in reversed(node.args)]
    return done


def computed(node: Node, offset: Offset, made: Sequence[Node]) -> bool:
    """Whether a value at an offset is one of those that a loop makes."""
    return node in made and not any(offset)


def _reads(targets: Sequence[Node], kept: Sequence[Node], zero: Offset) -> Iterable[tuple[Node, Offset]]:
    return (pair for pair in expanded(targets, kept, len(zero)) if pair[0].op in ARRAYS)


def without_slabs(sweep: GraphSweep) -> GraphSweep:
    """The same pass with every value computed anew at each offset: for forms that keep none."""
    plain = GraphSweep.__new__(GraphSweep)
    plain.__dict__.update(sweep.__dict__)
    plain.kept, plain.stored = (), ()
    return plain


__all__ = ["Count", "GraphSweep", "Stored", "computed", "expanded", "without_slabs"]
