"""Sweeps, NumPy: each operation a pass over the whole box, in the order of the graph. The oracle of the other forms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from hpckit.kernels.graph.nodes import ARRAYS, Node, Offset
from hpckit.kernels.graph.region import Block, Box
from hpckit.kernels.graph.sweep import GraphSweep

FUNCTIONS: dict[str, Callable] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "power": np.power,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "absolute": np.absolute,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": np.where,
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_not": np.logical_not,
}


def bind(
    sweep: GraphSweep, outs: Sequence[Block], ins: Sequence[Block], box: Box, own: Collection[Node] = ()
) -> Callable[[Sequence[Any]], None]:
    """The function (numbers) that writes the targets' values in the cells of the box to `outs`.

    ins: the arrays of `sweep.leaves`. numbers: the values of `sweep.numbers`. own: those of them that each member of an
    ensemble has of its own, float64[members].
    """

    def run(numbers: Sequence[Any]) -> None:
        with np.errstate(all="ignore"):
            values = [_value(sweep, ins, box, numbers, node) for node in sweep.targets]
        for out, value in zip(outs, values, strict=True):
            out.part(box)[...] = value

    return run


def _value(sweep: GraphSweep, ins: Sequence[Block], box: Box, numbers: Sequence[Any], target: Node) -> Any:
    known: dict[tuple[Node, Offset], Any] = {}
    arrays = dict(zip(sweep.leaves, ins, strict=True))
    given = dict(zip(sweep.numbers, numbers, strict=True))

    def value(node: Node, offset: Offset) -> Any:
        if node.op == "shift":
            return value(node.args[0], tuple(a + b for a, b in zip(offset, node.value, strict=True)))
        if (node, offset) not in known:
            if node.op in ARRAYS:
                found = arrays[node].part(box, offset)
            elif not node.is_field:
                found = np.float64(node.value if node.op == "constant" else given[node])
            else:
                found = FUNCTIONS[node.op](*(value(arg, offset) for arg in node.args))
            known[node, offset] = found
        return known[node, offset]

    return value(target, (0,) * sweep.dims)


def number(node: Node, args: Sequence[Any]) -> Any:
    """The value of a pointwise operation on numbers, or on those of the members of an ensemble, float64[members]: each
    has the bits of one alone.
    """
    members = next((len(arg) for arg in args if np.ndim(arg)), None)
    if members is not None:
        return np.array([number(node, [arg[m] if np.ndim(arg) else arg for arg in args]) for m in range(members)])
    with np.errstate(all="ignore"):
        return FUNCTIONS[node.op](*map(np.float64, args))
