"""Sweeps on a GPU: a thread a cell, from the same text of what a cell computes; every value computed anew at its
offsets.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, simulating, threads
from hpckit.kernels.device_array import from_host
from hpckit.kernels.graph.nodes import Node, Offset
from hpckit.kernels.graph.region import Block, Box, loops
from hpckit.kernels.graph.simd import function_of, row_start, three
from hpckit.kernels.graph.sweep import GraphSweep, without_slabs
from hpckit.kernels.graph.text import CellText

THREADS = threads(128)
NAMES = {
    "cuda": cuda,
    "nan": math.nan,
    "inf": math.inf,
    # Python's functions, in which the simulator runs, raise errors where a GPU gives nan.
    **{
        name: getattr(np if simulating() else math, name)
        for name in ("sqrt", "exp", "log", "sin", "cos", "tanh", "fabs")
    },
}


def bind(
    sweep: GraphSweep, outs: Sequence[Block], ins: Sequence[Block], box: Box, own: Collection[Node] = ()
) -> Callable[[Sequence[Any]], None]:
    """See `reference.bind`; arrays are C-contiguous and on the device. Products and sums are joined by the compiler."""
    places = [block.strides() for block in (*outs, *ins)]
    classes = list(dict.fromkeys(places))
    kinds = tuple(classes.index(place) for place in places)
    bounds = loops(box)
    if any(a >= b for a, b in bounds):
        return lambda numbers: None
    made = _kernel(sweep, kinds, frozenset(own))
    members = outs[0].members
    geometry = tuple([n for place in classes for n in place] + [n for pair in bounds for n in pair] + [members])
    arrays = [block.array.reshape(-1) for block in (*outs, *ins)]
    (i0, i1), (j0, j1), (k0, k1) = bounds
    across = (blocks((k1 - k0) * members, THREADS), j1 - j0, i1 - i0)

    def run(numbers: Sequence[Any]) -> None:
        values = [from_host(each, arrays[0]) if np.ndim(each) else float(each) for each in numbers]
        made[across, THREADS](*arrays, *values, geometry)

    return run


def _kernel(sweep: GraphSweep, kinds: tuple[int, ...], own: frozenset[Node]) -> Any:
    found = sweep.kernels.get(("cuda", kinds, own))
    if found is None:
        found = sweep.kernels["cuda", kinds, own] = compiled_kernel(_kernel_text(sweep, kinds, own))
    return found


@functools.cache
def compiled_kernel(text: str) -> Any:
    """The CUDA kernel of a text."""
    return kernel(function_of(text, NAMES, sys.modules[__name__]))


def _kernel_text(sweep: GraphSweep, kinds: Sequence[int], own: Collection[Node] = ()) -> str:
    """The kernel of a sweep as Python for Numba-CUDA; kinds and own as in `simd`."""
    plain = without_slabs(sweep)
    place = {node: len(plain.targets) + k for k, node in enumerate(plain.leaves)}
    number = {node: f"s{k}" for k, node in enumerate(plain.numbers)}
    arrays = [f"a{k}" for k in range(len(kinds))]
    names = [name for c in range(max(kinds) + 1) for name in (f"o{c}", f"i{c}_", f"j{c}_", f"k{c}_")]
    names += ["i0", "i1", "j0", "j1", "k0", "k1", "members"]

    def load(node: Node, offset: Offset) -> str:
        a = place[node]
        return f"a{a}[{row_start(kinds[a], *three(offset))} + k]"

    def value(node: Node) -> str:
        return f"{number[node]}[k % members]" if node in own else number[node]

    cell = CellText(plain, plain.targets, load, value)
    stores = [f"a{a}[{row_start(kinds[a], 0, 0, 0)} + k] = {result}" for a, result in enumerate(cell.results)]
    return "\n".join(
        [
            f"def fused_kernel({', '.join([*arrays, *number.values(), 'geometry'])}):",
            *(f"    {name} = geometry[{k}]" for k, name in enumerate(names)),
            "    k = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x",
            "    j = j0 + cuda.blockIdx.y",
            "    i = i0 + cuda.blockIdx.z",
            "    if k < (k1 - k0) * members:",
            *(f"        {line}" for line in map(_plainly, (*cell.lines, *stores))),
            "",
        ]
    )


def _plainly(line: str) -> str:
    """A line without the two intrinsics of the host: a choice between two values that exist, a product and a sum."""
    name, _, text = line.partition(" = ")
    for intrinsic, made in (("select(", "({1} if {0} else {2})"), ("fused(", "({0} * {1} + {2})")):
        if text.startswith(intrinsic):
            return f"{name} = {made.format(*text[len(intrinsic) : -1].split(', '))}"
    return line
