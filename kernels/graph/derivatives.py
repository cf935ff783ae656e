"""The rules of differentiation: of each pointwise operation what a small change of an argument adds to its value.

One table serves both directions. Forward, `g` is the change of argument k and `pushed` what it adds to the change of
the node. Backward, `g` is the sensitivity to the node and `pushed` what it adds to the sensitivity to argument k.

`maximum`, `minimum`, `where` and `absolute` take the branch that was chosen, and nothing from the other. A product of
a zero sensitivity with an infinite slope (sqrt at 0, a division by 0 in the branch not taken) is zero: `guarded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpckit.kernels.graph.nodes import Node, constant, is_constant, make, power

ZERO, HALF = constant(0.0), constant(0.5)
# Their slopes, or the values of what is made with them, may be infinite.
SINGULAR = frozenset(("div", "sqrt", "log", "power", "exp"))
CHOOSING = frozenset(("where", "minimum", "maximum", "absolute"))


def plus(a: Node | None, b: Node | None) -> Node | None:
    """The sum of two terms, None for zero."""
    if a is None or b is None:
        return a or b
    if b.op == "neg":
        return make("sub", a, b.args[0])
    return make("sub", b, a.args[0]) if a.op == "neg" else make("add", a, b)


def minus(a: Node) -> Node:
    """The term with its sign changed."""
    return a.args[0] if a.op == "neg" else make("neg", a)


def times(g: Node, factor: Node) -> Node:
    """A product, signs outside."""
    if is_constant(factor, 1.0):
        return g
    if g.op == "neg":
        return minus(times(g.args[0], factor))
    if is_constant(g, 1.0):
        return factor
    return make("mul", g, factor)


def _chosen(taken: Node, g: Node, first: bool) -> Node:
    return make("where", taken, *((g, ZERO) if first else (ZERO, g)))


def _extreme(node: Node, g: Node, k: int) -> Node:
    small, large = node.args if node.op == "minimum" else node.args[::-1]
    return _chosen(make("less", small, large), g, k == 0)  # of two equal values the second is taken


def _absolute(node: Node, g: Node, k: int) -> Node:
    x = node.args[0]
    return make("where", make("less", ZERO, x), g, make("where", make("less", x, ZERO), minus(g), ZERO))


def _quotient(node: Node, g: Node, k: int) -> Node:
    share = make("div", g, node.args[1])
    return share if k == 0 else minus(times(share, node))


def _power(node: Node, g: Node, k: int) -> Node:
    x, exponent = node.args
    return times(g, make("mul", exponent, power(x, exponent.value - 1)))


PUSHED: dict[str, Callable[[Node, Node, int], Node]] = {
    "add": lambda node, g, k: g,
    "sub": lambda node, g, k: g if k == 0 else minus(g),
    "mul": lambda node, g, k: times(g, node.args[1 - k]),
    "div": _quotient,
    "neg": lambda node, g, k: minus(g),
    "power": _power,
    "sqrt": lambda node, g, k: make("div", times(g, HALF), node),
    "exp": lambda node, g, k: times(g, node),
    "log": lambda node, g, k: make("div", g, node.args[0]),
    "sin": lambda node, g, k: times(g, make("cos", node.args[0])),
    "cos": lambda node, g, k: minus(times(g, make("sin", node.args[0]))),
    "tanh": lambda node, g, k: times(g, make("sub", constant(1.0), make("mul", node, node))),
    "absolute": _absolute,
    "minimum": _extreme,
    "maximum": _extreme,
    "where": lambda node, g, k: _chosen(node.args[0], g, k == 1),
}
"""Of each operation: (node, g, k) -> g times the slope of the node in its argument k. Truth values have no slope."""


def pushed_forward(node: Node, changes: Mapping[Node, Node | None]) -> Node | None:
    """The change of a pointwise operation's value, of those of its arguments; None for 0."""
    change: Node | None = None
    for k, arg in enumerate(node.args if node.op in PUSHED else ()):
        moved = changes[arg]
        if moved is not None and not (node.op == "where" and k == 0):
            change = plus(change, PUSHED[node.op](node, moved, k))
    return change


def guarded(g: Node, term: Node) -> Node:
    """`term`, a product with `g`, but zero where g is."""
    sign = term.op == "neg"
    inner = term.args[0] if sign else term
    held = make("where", make("not_equal", g, ZERO), inner, ZERO)
    return minus(held) if sign else held
