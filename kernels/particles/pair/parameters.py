"""How energies and forces of pairs depend on the parameters of a potential: the normal equations of a fit.

`energy(r2, parameters)` is traced as for a run (`custom`); its force and the slopes of both in each parameter follow
from the rules of `graph.derivatives` and are compiled into one loop over pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.graph.nodes import Node, constant, make, ordered
from hpckit.kernels.graph.scalars import Scalar, from_source, slope, source, traced
from hpckit.kernels.particles.pair.custom import R2, faded

Floats = npt.NDArray[np.float64]


@inlined(math=STRICT)
def _chosen(mask: bool, yes: float, no: float, like: float) -> float:
    return yes if mask else no


def normal_equations(energy: Callable, count: int, outer2: float, inner2: float | None = None) -> Callable:
    """The kernel of one frame's share in the normal equations of a least-squares fit of `count` parameters.

    kernel(p, i, j, apart, forces, energy, force_weight, energy_weight, A, g) -> (squares of the forces' errors,
    the energy's error): p [count + 1], of which the last is an energy of each particle; forces [N, 3] and energy are
    the wanted ones, the weights multiply the residuals; J'J is added to A [count + 1, count + 1] and J'r to
    g [count + 1]. outer2, inner2: squares of the cutoff and, if the energy fades, of where that begins. Raises
    `TypeError`, with the line, for an energy that cannot be traced or does not depend on r2.
    """
    leaves = [make("number", value=f"p[{k}]", is_field=False) for k in range(count)]
    own = tuple(map(Scalar, leaves))
    value = traced(energy, Scalar(R2), own)
    if R2 not in ordered([value]):
        raise TypeError("what it returns does not depend on r2")
    if inner2 is not None:
        value = traced(faded(energy), Scalar(R2), own, outer2, inner2)
    zero = constant(0.0)

    def by(output: Node, leaf: Node) -> Node:
        return slope(output, leaf) or zero

    pull = slope(value, R2, -2.0) or zero
    outputs = [value, pull, *(by(value, leaf) for leaf in leaves), *(by(pull, leaf) for leaf in leaves)]
    text = source("values", "r2, p", outputs, {R2: "r2", **{leaf: str(leaf.value) for leaf in leaves}})
    values = inlined(from_source(text, chosen=_chosen), math=STRICT)

    def kernel(
        p: Any,
        i: Any,
        j: Any,
        apart: Any,
        forces: Any,
        energy: Any,
        force_weight: Any,
        energy_weight: Any,
        A: Any,
        g: Any,
    ) -> Any:
        size, atoms = count + 1, len(forces)
        total, row = 0.0, np.zeros(size)
        made, turned = np.zeros((atoms, 3)), np.zeros((atoms, 3, count))
        for n in range(len(i)):
            r2 = apart[n, 0] ** 2 + apart[n, 1] ** 2 + apart[n, 2] ** 2
            found = values(r2, p)
            total += found[0]
            for k in range(count):
                row[k] += found[2 + k]
            for axis in range(3):
                push = found[1] * apart[n, axis]
                made[i[n], axis] += push
                made[j[n], axis] -= push
                for k in range(count):
                    push = found[2 + count + k] * apart[n, axis]
                    turned[i[n], axis, k] += push
                    turned[j[n], axis, k] -= push
        squares = 0.0
        for a in range(atoms):
            for axis in range(3):
                error = made[a, axis] - forces[a, axis]
                squares += error * error
                for k in range(count):
                    weighted = force_weight * force_weight * turned[a, axis, k]
                    g[k] += weighted * error
                    for m in range(count):
                        A[k, m] += weighted * turned[a, axis, m]
        error = total + p[count] * atoms - energy
        row[count] = atoms
        for k in range(size):
            weighted = energy_weight * energy_weight * row[k]
            g[k] += weighted * error
            for m in range(size):
                A[k, m] += weighted * row[m]
        return squares, error

    return jit(kernel, math=STRICT, key=("fit", text, count))
