"""The text of what a cell computes: one assignment an operation, for kernels on either processor.

Where a sweep is `fused`, a product that is used once, in a sum, becomes one operation with it, `fused(x, y, z)`. Which
of two products, is decided here: left to the compiler, it may be one in the body of a loop and the other at its end,
and a cell's bits would depend on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hpckit.kernels.graph.nodes import ARRAYS, SIGNS, Node, Offset, is_truth
from hpckit.kernels.graph.sweep import GraphSweep, computed, expanded

BINARY = SIGNS | {"logical_and": "&", "logical_or": "|"}
CALLS = {"sqrt": "sqrt", "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tanh": "tanh", "absolute": "fabs"}
Load = Callable[[Node, Offset], str]


class CellText:
    """The assignments for some nodes of a sweep, and the names of their results.

    load: the expression of an array's or a kept value at an offset. number: the name of a number. constant: how a
    constant stands in the text.
    """

    def __init__(
        self,
        sweep: GraphSweep,
        made: Sequence[Node],
        load: Load,
        number: Callable[[Node], str],
        constant: Callable[[float], str] | None = None,
    ) -> None:
        self.lines: list[str] = []
        self._names: dict[tuple[Node, Offset], str] = {}
        self._number, self._constant = number, constant or literal
        kept = sweep.kept
        pairs = expanded(made, kept, sweep.dims)
        self._uses: dict[tuple[Node, Offset], int] = {}
        for node, offset in pairs:
            if node.op not in ARRAYS and (node not in kept or computed(node, offset, made)):
                for arg in node.args:
                    at = _place(arg, offset)
                    self._uses[at] = self._uses.get(at, 0) + 1
        for node in made:
            at = _place(node, (0,) * sweep.dims)
            self._uses[at] = self._uses.get(at, 0) + 1
        self._users = _users(pairs)
        for node, offset in pairs:
            if node.op in ARRAYS or (node in kept and not computed(node, offset, made)):
                self._assign((node, offset), load(node, offset))
            elif not (sweep.fused and self._joins(node, offset, pairs)):
                self._assign((node, offset), self._expression(node, offset, sweep.fused))
        self.results = [self._name(*_place(node, (0,) * sweep.dims)) for node in made]

    def _assign(self, at: tuple[Node, Offset], text: str) -> None:
        self._names[at] = f"t{len(self._names)}"
        self.lines.append(f"{self._names[at]} = {text}")

    def _name(self, node: Node, offset: Offset) -> str:
        if node.op == "constant":
            return self._constant(node.value)
        if node.is_field:
            return self._names[node, offset]
        name = self._number(node)  # a float64, also where it is true or false
        return f"({name} != {self._constant(0.0)})" if is_truth(node) else name

    def _joins(self, node: Node, offset: Offset, pairs: dict) -> bool:
        """Whether a product is left to the sum that uses it."""
        if node.op != "mul" or self._uses.get((node, offset)) != 1:
            return False
        user = self._users.get((node, offset))
        if user is None or user[0].op not in ("add", "sub"):
            return False
        first = _place(user[0].args[0], user[1])
        # Of two products the first is fused.
        return (node, offset) == first or not self._joins(*first, pairs)

    def _expression(self, node: Node, offset: Offset, fused: bool) -> str:
        at = [_place(arg, offset) for arg in node.args]
        if fused and node.op in ("add", "sub"):
            for k, place in enumerate(at):
                if place[0].is_field and place not in self._names:
                    x, y = (self._name(*_place(arg, place[1])) for arg in place[0].args)
                    other = self._name(*at[1 - k])
                    if node.op == "sub" and k == 0:
                        return f"fused({x}, {y}, -{other})"
                    return f"fused({'-' * (node.op == 'sub')}{x}, {y}, {other})"
        return expression(node.op, [self._name(*each) for each in at])


def expression(op: str, names: Sequence[str]) -> str:
    """An operation on values with these names."""
    if op in BINARY:
        return f"{names[0]} {BINARY[op]} {names[1]}"
    if op in CALLS:
        return f"{CALLS[op]}({names[0]})"
    x, y = names[0], names[-1]
    more = {
        "neg": f"-{x}",
        "power": f"{x} ** {y}",
        "logical_not": f"not {x}",
        "minimum": f"select(({x} < {y}) | ({x} != {x}), {x}, {y})",
        "maximum": f"select(({y} < {x}) | ({x} != {x}), {x}, {y})",
    }
    return more[op] if op in more else f"select({', '.join(names)})"


def literal(value: float) -> str:
    """A constant as it stands in a kernel; negative ones in brackets."""
    if math.isfinite(value):
        return f"({value!r})" if value < 0 else repr(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "(-inf)"


def _users(pairs: dict[tuple[Node, Offset], None]) -> dict[tuple[Node, Offset], tuple[Node, Offset]]:
    """Of each value the last that uses it."""
    return {_place(arg, offset): (node, offset) for node, offset in pairs for arg in node.args}


def _place(node: Node, offset: Offset) -> tuple[Node, Offset]:
    """The node behind shifts, and its offset."""
    while node.op == "shift":
        offset = tuple(a + b for a, b in zip(offset, node.value, strict=True))
        node = node.args[0]
    return node, offset
