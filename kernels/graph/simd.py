"""Sweeps, Numba: the kernel of a sweep is generated, compiled once for its text, and kept on disk.

Three loops run over slabs, rows and cells; rows are unit-stride and vectorize: indices are unsigned, arrays do not
overlap, and a choice (`where`, `maximum`) is a selection between two values that both exist. The arithmetic is STRICT;
products and sums become one rounding only where the text says so, hence the same bits in every cell, wherever a loop
starts. Values that the sweep keeps are computed slab by slab ahead of the targets, into rings that stay in the cache.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.compile.vectors import fused, select
from hpckit.kernels.graph.nodes import Node, Offset
from hpckit.kernels.graph.region import Block, Box, loops
from hpckit.kernels.graph.sweep import GraphSweep, Stored
from hpckit.kernels.graph.text import CellText

NAMES = {
    "fused": fused,
    "select": select,
    "uint64": np.uint64,
    "ZERO": np.uint64(0),
    "nan": math.nan,
    "inf": math.inf,
    **{name: getattr(math, name) for name in ("sqrt", "exp", "log", "sin", "cos", "tanh", "fabs")},
}
PADDING = 8  # values between the rings' rows


def bind(sweep: GraphSweep, outs: Sequence[Block], ins: Sequence[Block], box: Box) -> Callable[[Sequence[float]], None]:
    """See `reference.bind`; arrays are C-contiguous, float64, and do not overlap."""
    blocks = (*outs, *ins)
    key = ("placed", tuple((block.array.shape, block.origin) for block in blocks), box)
    if key not in sweep.kernels:  # the same for many steps
        sweep.kernels[key] = _placed(sweep, blocks, box)
    kernel, geometry, sizes = sweep.kernels[key]
    if kernel is None:
        return lambda numbers: None
    rings = [np.empty(size) for size in sizes]
    arrays = [block.array.reshape(-1) for block in blocks]

    def run(numbers: Sequence[float]) -> None:
        kernel(*arrays, *rings, *numbers, geometry)

    return run


def _placed(sweep: GraphSweep, blocks: Sequence[Block], box: Box) -> tuple[Any, np.ndarray, list[int]]:
    """The kernel for arrays of these shapes (None for no cells), its geometry, and the sizes of its rings."""
    shapes = [block.strides() for block in blocks]
    classes = list(dict.fromkeys(shapes))
    kinds = tuple(classes.index(shape) for shape in shapes)
    bounds, members = loops(box), blocks[0].members
    geometry = [*(value for shape in classes for value in shape), *(n for pair in bounds for n in pair), members]
    kernel = None if any(a >= b for a, b in bounds) else _kernel(sweep, kinds)
    sizes = [_ring_size(each, sweep.dims, bounds, members) for each in sweep.stored]
    return kernel, np.array(geometry), sizes


def _kernel(sweep: GraphSweep, kinds: tuple[int, ...]) -> Any:
    found = sweep.kernels.get(("simd", kinds))
    if found is None:
        found = sweep.kernels["simd", kinds] = compiled_kernel(kernel_text(sweep, kinds))
    return found


@functools.cache
def compiled_kernel(text: str) -> Any:
    """The compiled function of a kernel's text."""
    return jit(function_of(text, NAMES, sys.modules[__name__]), math=STRICT, noalias=True, key=(text,))


def function_of(text: str, names: Mapping[str, Any], home: ModuleType) -> Any:
    """The Python function of a kernel's text, by a name of its own in a module: Numba keeps it on disk by both."""
    name = f"fused_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    space: dict[str, Any] = {**names, "__name__": home.__name__}
    exec(compile(text.replace("def fused_kernel", f"def {name}"), str(home.__file__), "exec"), space)
    function = space[name]
    function.__module__ = home.__name__
    setattr(home, name, function)
    return function


def kernel_text(sweep: GraphSweep, kinds: Sequence[int]) -> str:
    """The kernel of a sweep as Python. kinds: for each array, targets first, which of the layouts it has."""
    arrays = [f"a{k}" for k in range(len(kinds))]
    count = max(kinds) + 1
    place = {node: len(sweep.targets) + k for k, node in enumerate(sweep.leaves)}
    ring = {each.node: (k, each) for k, each in enumerate(sweep.stored)}
    number = {node: f"s{k}" for k, node in enumerate(sweep.numbers)}
    head = [
        f"def fused_kernel({', '.join([*arrays, *(f'r{k}' for k in range(len(ring))), *number.values(), 'geometry'])}):"
    ]
    names = [name for c in range(count) for name in (f"o{c}", f"i{c}_", f"j{c}_", f"k{c}_")]
    names += ["i0", "i1", "j0", "j1", "k0", "k1", "members"]
    head += [f"    {name} = geometry[{k}]" for k, name in enumerate(names)]
    for k, each in enumerate(sweep.stored):
        _, (jl, jh), (kl, kh) = three(each.reach)
        head += [
            f"    row{k} = (k1 - k0 + {kh - kl}) * members + {PADDING}",
            f"    slab{k} = row{k} * (j1 - j0 + {jh - jl})",
        ]
    warm = max([each.lead - each.reach[0][0] for each in sweep.stored], default=0) if sweep.dims > 1 else 0
    body = [f"    for i in range(i0 - {warm}, i1):"]
    for made in (*sweep.stored, None):
        body += _loop(sweep, made, kinds, place, ring, number)
    return "\n".join([*head, *body, ""])


def _loop(
    sweep: GraphSweep,
    made: Stored | None,
    kinds: Sequence[int],
    place: dict[Node, int],
    ring: dict,
    number: dict[Node, str],
) -> list[str]:
    """The loop over the rows of a slab that makes a kept value, or (None) the targets."""
    bases: dict[str, str] = {}  # expression of a row's start -> its name
    zero = ((0, 0),) * 3
    (il, ih), (jl, jh), (kl, kh) = three(made.reach) if made else zero
    lead = made.lead if made else 0

    def base(text: str) -> str:
        return bases.setdefault(text, f"q{len(bases)}")

    def load(node: Node, offset: Offset) -> str:
        di, dj, dk = three(offset)
        if node in ring:
            k, other = ring[node]
            _, (ojl, _), (okl, _) = three(other.reach)
            slab = f"((i + {lead + di + 64 * other.depth}) % {other.depth})" if sweep.dims > 1 else "0"
            return f"r{k}[{base(f'{slab} * slab{k} + (j - j0 + {dj - ojl}) * row{k} + {kl + dk - okl} * members')} + k]"
        a = place[node]
        return f"a{a}[{base(row_start(kinds[a], lead + di, dj, kl + dk))} + k]"

    cell = CellText(sweep, (made.node,) if made else sweep.targets, load, number.__getitem__)
    stores = []
    for a, result in enumerate(cell.results):
        if made:
            k, _ = ring[made.node]
            slab = f"((i + {lead + 64 * made.depth}) % {made.depth})" if sweep.dims > 1 else "0"
            stores.append(f"r{k}[{base(f'{slab} * slab{k} + (j - j0 + {-jl}) * row{k}')} + k] = {result}")
        else:
            stores.append(f"a{a}[{base(row_start(kinds[a], 0, 0, 0))} + k] = {result}")
    inside = [f"for j in range(j0 + {jl}, j1 + {jh}):"]
    inside += [f"    {name} = uint64({text})" for text, name in bases.items()]
    inside += [f"    for k in range(ZERO, uint64((k1 - k0 + {kh - kl}) * members)):"]
    inside += [f"        {line}" for line in (*cell.lines, *stores)]
    if sweep.dims > 1:
        within = f"i0 + {il} <= i + {lead} and i + {lead} < i1 + {ih}"
        inside = [f"if {within}:", *(f"    {line}" for line in inside)]
    return [f"        {line}" for line in inside]


def row_start(kind: int, di: int, dj: int, dk: int) -> str:
    """The expression of where the row of a neighbor starts, in an array of some layout."""
    return f"o{kind} + (i + {di}) * i{kind}_ + (j + {dj}) * j{kind}_ + (k0 + {dk}) * k{kind}_"


def three(values: Sequence[Any]) -> Sequence[Any]:
    """The extents of each dim, for three loops."""
    zero: Any = (0, 0) if isinstance(values[0], tuple) else 0
    return {1: (zero, zero, values[-1]), 2: (values[0], zero, values[-1]), 3: values}[len(values)]


def _ring_size(each: Stored, dims: int, bounds: tuple, members: int) -> int:
    _, (jl, jh), (kl, kh) = three(each.reach)
    row = (bounds[2][1] - bounds[2][0] + kh - kl) * members + PADDING
    return each.depth * row * (bounds[1][1] - bounds[1][0] + jh - jl)
