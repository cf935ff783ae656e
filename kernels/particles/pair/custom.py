"""Pair potentials from a Python function of the squared distance: its energy alone, or its force too.

`energy(r2, parameters)` is written with + - * / **, `math.sqrt`, `math.exp`, `math.log`, `max`, `min` and numbers. It
is traced (`graph.scalars`), the force follows from the rules of `graph.derivatives`, and both become source that is
compiled into the same loops as the built-in potentials, for vectors and for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.kernels.compile.functions import chosen
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.graph.nodes import Node, make, ordered
from hpckit.kernels.graph.scalars import Scalar, from_source, slope, source, traced
from hpckit.kernels.particles.loops import REORDERED
from hpckit.kernels.particles.pair.potential import OWN, Potential

NODES = 400  # of the quadrature of tails
NO_VECTORS = ("sin", "cos", "tanh")
R2 = make("number", value="r2", is_field=False)


def make_potential(
    name: str, energy: Callable, parameters: int, force: Callable | None = None, switched: bool = False
) -> Potential:
    """A potential with `parameters` numbers of its own for each pair of types.

    energy(r2, parameters) -> E; force(r2, parameters) -> -dE/dr / r where it is given, else derived. switched:
    E is taken to 0 smoothly from an inner distance on, whose square is one more parameter, the last:
    E (rc2 - r2)^2 (rc2 + 2 r2 - 3 ri2) / (rc2 - ri2)^3 (Brooks et al. 1983, J. Comput. Chem. 4). Raises `TypeError`,
    with the line, for functions that cannot be traced.
    """
    last = OWN + parameters
    count = last + (1 if switched else 0)
    leaves = [make("number", value=f"p[{k}]", is_field=False) for k in range(count)]
    r2, p = Scalar(R2), tuple(map(Scalar, leaves))

    value = traced(faded(energy), r2, p[OWN:last], p[0], p[last]) if switched else traced(energy, r2, p[OWN:])
    pull = slope(value, R2, -2.0) if force is None or switched else traced(force, r2, p[OWN:])
    if pull is None or R2 not in ordered([value]):
        raise TypeError("what it returns does not depend on r2")
    _require_vectors([value, pull])
    names = {R2: "r2", **{leaf: str(leaf.value) for leaf in leaves}}
    sources = source("force", "r2, p", [pull], names), source("energy_and_force", "r2, p", [value, pull], names)
    pieces = (inlined(from_source(text, chosen=chosen), math=REORDERED) for text in sources)
    clamp = any(node.op in ("exp", "power") for node in ordered([value, pull]))
    return Potential(("custom", name, *sources, count), count, *pieces, clamp=clamp, sources=sources)


def faded(energy: Callable) -> Callable:
    """The energy taken to 0 smoothly between two squared distances: (r2, parameters, outer, inner) -> E."""

    def switched(r2: Any, p: Any, outer: Any, inner: Any) -> Any:
        x = max(r2, inner)
        width = outer - inner
        rest = outer - x
        fade = rest * rest * (outer + 2.0 * x - 3.0 * inner) / (width * width * width)
        return energy(r2, p) * fade

    return switched


def _require_vectors(outputs: list[Node]) -> None:
    """Raise `TypeError` for an operation that vectors do not have."""
    for node in ordered(outputs):
        if node.op in NO_VECTORS:
            raise TypeError(f"{node.op} cannot be taken of r2 ({node.line.split(':')[0]})")


def tails(energy: Callable, own: np.ndarray, cutoff: float) -> tuple[float, float]:
    """4 pi times the integrals of E r^2 and (r . F) r^2 from the cutoff on, by quadrature in cutoff / r."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    t = 0.5 * (nodes + 1)
    r = cutoff / t
    values = np.array([energy(float(x * x), tuple(own)) for x in r])
    volume = 0.5 * weights * cutoff / t**2 * 4 * np.pi * r**2
    # By parts: the integral of -dE/dr r^3 is E(rc) rc^3 + 3 times that of E r^2.
    energy_tail = float((values * volume).sum())
    at_cutoff = float(energy(cutoff * cutoff, tuple(own)))
    return energy_tail, 4 * np.pi * at_cutoff * cutoff**3 + 3 * energy_tail
