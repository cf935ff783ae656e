"""Sweeps, Numba: the kernel of a sweep is generated, compiled once for its text, and kept on disk.

Three loops run over slabs, rows and cells; rows are unit-stride and vectorize: indices are unsigned, arrays do not
overlap, and a choice (`where`, `maximum`) is a selection between two values that both exist. The arithmetic is STRICT;
products and sums become one rounding only where the text says so, hence the same bits in every cell, wherever a loop
starts. Values that the sweep keeps are computed slab by slab ahead of the targets, into rings that stay in the cache.

Three things depend on the size of the arrays (`options`), and change no bits. Where the slabs that a cell's neighbors
lie in do not fit the cache, the rows of a 3-D grid are taken in strips: 1.12x for heat with planes of 13 MB. Where a
pass moves more than the cache holds, the first result goes past it, in explicit vectors, so that its lines are not read
before they are written, and lines of the slab ahead are asked for early: 1.1x; both together 1.37x; 1.2x more where
they are asked for 384 values ahead and not 64 (Burgers' equation on Zen 5). Elsewhere two rows are computed in one loop
if they read the same neighbors, which then come from the cache once: 1.25x for the rows of an ensemble, which do not
fit the nearest cache; 1.01x to 1.03x for short ones. Many operations would need more registers than there are (0.88x
for the adjoint of Burgers' equation), and remain one row at a time.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile.intrinsics import fused, prefetch, select, store
from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.compile.lanes import lanes
from hpckit.kernels.compile.streams import LINE, STREAMED, settle, stream
from hpckit.kernels.compile.vectors import available
from hpckit.kernels.graph.nodes import ARRAYS, POINTWISE, Node, Offset
from hpckit.kernels.graph.region import Block, Box, loops
from hpckit.kernels.graph.sweep import GraphSweep, Stored, expanded
from hpckit.kernels.graph.text import CellText, literal

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
STREAMS = "settle()"  # in the text of a kernel whose results go past the cache
WHOLE, STRIP = 12 << 20, 2 << 20  # bytes of slabs up to which they are taken whole, else those of a strip
AHEAD = 384  # values that a line is asked for before its use, where results are streamed
LONG = 160  # values of a row from which on it may be streamed
PAIRED, PAIRED_ROWS = 40, 8  # operations up to which, and odd rows from which on, two rows are one loop
VECTORS = frozenset(("add", "sub", "mul", "div", "neg", "where", "less", "less_equal", "logical_and"))


class SweepOptions(NamedTuple):
    """rows: of a slab that are taken at once. streams: whether the first result goes past the cache. pairs: whether two
    rows are computed in one loop. slabs, moved: the bytes of all slabs that a cell's neighbors lie in, and those that a
    pass moves.
    """

    rows: int
    streams: bool
    pairs: bool
    slabs: int
    moved: int


def options(sweep: GraphSweep, shape: Sequence[int], members: int = 1) -> SweepOptions:
    """What suits the cache, for a pass over a box of this shape."""
    ni, nj, nk = (b - a for a, b in loops(((0,) * len(shape), tuple(shape))))
    row = 8 * nk * members
    spans = [three(sweep.reach[leaf])[0] for leaf in sweep.leaves]
    planes = sum(high - low + 1 for low, high in spans) + sum(each.depth for each in sweep.stored)
    needed = any(low < high for low, high in spans) or bool(sweep.stored)
    slabs = planes * row * nj
    cut = needed and sweep.dims == 3 and slabs > WHOLE
    rows = min(nj, max(8, STRIP // (planes * row))) if cut else nj
    moved = sweep.count().nbytes * ni * nj * nk * members
    streams = moved >= STREAMED and nk * members >= LONG and available()[0] != "scalar" and _in_vectors(sweep)
    pairs = not streams and _in_pairs(sweep, ni if sweep.dims == 2 else nj)
    return SweepOptions(rows, streams, pairs, slabs, moved)


def _in_pairs(sweep: GraphSweep, rows: int) -> bool:
    """Whether two rows in one loop are quicker: they share enough of what they read, and all fits the registers."""
    if sweep.dims == 1 or sweep.stored or (rows % 2 and rows < PAIRED_ROWS):
        return False
    pairs = expanded(sweep.targets, (), sweep.dims)
    read = {pair for pair in pairs if pair[0].op in ARRAYS}
    both = sum((node, _next_row(offset)) in read for node, offset in read)
    return 5 * both >= len(read) and len(pairs) - len(read) <= PAIRED


def _next_row(offset: Offset) -> Offset:
    """The offset of the same neighbor, for a cell of the next row."""
    return (*offset[:-2], offset[-2] + 1, offset[-1])


def _in_vectors(sweep: GraphSweep) -> bool:
    """Whether the operations of the targets are those that explicit vectors have."""
    found = {node for node, _ in expanded(sweep.targets, sweep.kept, sweep.dims) if node.op in POINTWISE}
    found -= set(sweep.kept) - set(sweep.targets)  # which are loaded
    return all(node.op in VECTORS and (node.op != "where" or node.args[0].is_field) for node in found)


def bind(
    sweep: GraphSweep, outs: Sequence[Block], ins: Sequence[Block], box: Box, own: Collection[Node] = ()
) -> Callable[[Sequence[Any]], None]:
    """See `reference.bind`; arrays are C-contiguous, float64, and do not overlap."""
    blocks = (*outs, *ins)
    own = frozenset(own)
    key = ("placed", tuple((block.array.shape, block.origin) for block in blocks), box, own)
    if key not in sweep.kernels:  # the same for many steps
        sweep.kernels[key] = placed(sweep, blocks, box, own)
    kernel, strips, sizes = sweep.kernels[key]
    rings = [np.empty(size) for size in sizes]
    arrays = [block.array.reshape(-1) for block in blocks]
    rows = own_rows(sweep, box, blocks[0].members, own)

    def run(numbers: Sequence[Any]) -> None:
        shared = []
        for node, value in zip(sweep.numbers, numbers, strict=True):
            if node in rows:
                rows[node][...] = value
            else:
                shared.append(value)
        for geometry in strips:
            kernel(*arrays, *rings, *(row.reshape(-1) for row in rows.values()), *shared, geometry)

    return run


def own_rows(sweep: GraphSweep, box: Box, members: int, own: Collection[Node]) -> dict[Node, np.ndarray]:
    """A row, float64[cells, members], for each number that members have of their own: a kernel reads it as it reads the
    rows of arrays.
    """
    first, end = loops(box)[2]
    wide = max((high - low for *_, (low, high) in (each.reach for each in sweep.stored)), default=0)
    return {node: np.empty((end - first + wide, members)) for node in sweep.numbers if node in own}


def placed(
    sweep: GraphSweep, blocks: Sequence[Block], box: Box, own: Collection[Node] = (), past: bool | None = None
) -> tuple[Any, list[np.ndarray], list[int]]:
    """The kernel for arrays of these shapes, its geometry for each strip, and the sizes of its rings and buffers. past:
    whether the first result goes past the cache, where that is not to follow from the box.
    """
    shapes = [block.strides() for block in blocks]
    classes = list(dict.fromkeys(shapes))
    kinds = tuple(classes.index(shape) for shape in shapes)
    bounds, members = loops(box), blocks[0].members
    if any(a >= b for a, b in bounds):
        return None, [], []
    (i0, i1), (j0, j1), (k0, k1) = bounds
    rows, streams, pairs, *_ = options(sweep, [b - a for a, b in zip(*box, strict=True)], members)
    if past is not None:
        streams, pairs = past, pairs and not past
    starts = [value for shape in classes for value in shape]
    strips = [np.array([*starts, i0, i1, j, min(j + rows, j1), k0, k1, members]) for j in range(j0, j1, rows)]
    within = ((i0, i1), (j0, j0 + rows), (k0, k1))
    sizes = [_ring_size(each, sweep.dims, within, members) for each in sweep.stored]
    return _kernel(sweep, kinds, streams, pairs, frozenset(own)), strips, sizes


def _kernel(sweep: GraphSweep, kinds: tuple[int, ...], streams: bool, pairs: bool, own: frozenset[Node]) -> Any:
    key = "simd", kinds, streams, pairs, own
    found = sweep.kernels.get(key)
    if found is None:
        found = sweep.kernels[key] = compiled_kernel(_kernel_text(sweep, kinds, streams, pairs, own))
    return found


@functools.cache
def _streaming() -> dict[str, Any]:
    """What the text of a kernel that streams calls, for vectors of LANES values, half a line of the cache.

    Of vectors of a whole line each neighbor beside a cell lies in two lines, of half a line every second: on Zen 5 heat
    in 3-D is 1.5x to 1.9x as fast, a gradient of Burgers' equation 1.2x.

    head(out, at, count): how many values of a row come before the first line of `out`. The lines that rows share with
    what is beside them are stored as usual: of those of which a part is streamed the processor waits for the rest.
    """
    kind = lanes("e", LINE // 2 // 8)
    line, eight, zero = np.uint64(LINE // 8), np.uint64(8), np.uint64(0)

    @inlined(math=STRICT)
    def head(out, at, count):
        return min(((zero - np.uint64(out.ctypes.data) // eight) - at) & (line - np.uint64(1)), count)

    names = {"load": kind.load, "wide": kind.broadcast, "store": store, "stream": stream, "settle": settle}
    names |= {"head": head, "prefetch": prefetch, "LINE": line, "LANES": np.uint64(kind.n)}
    return {**names, "AHEAD": np.uint64(AHEAD)}


@functools.cache
def compiled_kernel(text: str) -> Any:
    """The compiled function of a kernel's text."""
    made = function_of(text, NAMES, sys.modules[__name__])
    return jit(made, math=STRICT, noalias=True, borrowed=STREAMS in text, key=(text,), by_address=True)


def function_of(text: str, names: Mapping[str, Any], home: ModuleType) -> Any:
    """The Python function of a kernel's text, by a name of its own in a module: Numba keeps it on disk by both."""
    name = f"fused_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    space: dict[str, Any] = {**names, "__name__": home.__name__}
    if STREAMS in text:
        space |= _streaming()
    exec(compile(text.replace("def fused_kernel", f"def {name}"), str(home.__file__), "exec"), space)
    function = space[name]
    function.__module__ = home.__name__
    setattr(home, name, function)
    return function


def _kernel_text(
    sweep: GraphSweep,
    kinds: Sequence[int],
    streams: bool = False,
    pairs: bool = False,
    own: Collection[Node] = (),
) -> str:
    """The kernel of a sweep as Python. kinds: for each array, targets first, which of the layouts it has. streams:
    whether rows of results go past the cache. pairs: whether two rows are computed in one loop; of an odd number of
    rows, one is computed twice. own: numbers that are a row each, behind the rings.
    """
    arrays = [f"a{k}" for k in range(len(kinds))]
    count = max(kinds) + 1
    place = {node: len(sweep.targets) + k for k, node in enumerate(sweep.leaves)}
    ring = {each.node: (k, each) for k, each in enumerate(sweep.stored)}
    number = {node: f"m{k}[k]" if node in own else f"s{k}" for k, node in enumerate(sweep.numbers)}
    room = [f"r{k}" for k in range(len(ring))]
    rows = [name[: -len("[k]")] for name in number.values() if name.endswith("]")]
    shared = [name for name in number.values() if not name.endswith("]")]
    head = [f"def fused_kernel({', '.join([*arrays, *room, *rows, *shared, 'geometry'])}):"]
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
    if pairs and sweep.dims == 2:
        body = ["    for pair in range(i0, i1, 2):", "        i = min(pair, i1 - 2)"]
    for made in (*sweep.stored, None):
        body += _loop(sweep, made, kinds, place, ring, number, streams and made is None, pairs)
    if streams:
        body.append(f"    {STREAMS}")
    return "\n".join([*head, *body, ""])


def _loop(
    sweep: GraphSweep,
    made: Stored | None,
    kinds: Sequence[int],
    place: dict[Node, int],
    ring: dict,
    number: dict[Node, str],
    streams: bool,
    pairs: bool,
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
    body, stores = [*cell.lines], []
    for a, result in enumerate(cell.results):
        if made:
            k, _ = ring[made.node]
            slab = f"((i + {lead + 64 * made.depth}) % {made.depth})" if sweep.dims > 1 else "0"
            stores.append(f"r{k}[{base(f'{slab} * slab{k} + (j - j0 + {-jl}) * row{k}')} + k] = {result}")
        else:
            stores.append(f"a{a}[{base(row_start(kinds[a], 0, 0, 0))} + k] = {result}")
    count = f"uint64((k1 - k0 + {kh - kl}) * members)"
    if pairs:
        di, dj, _ = three(_next_row((0,) * sweep.dims))
        below = CellText(sweep, sweep.targets, lambda node, at: load(node, _next_row(at)), number.__getitem__, name="n")
        body += below.lines
        for a, result in enumerate(below.results):
            stores.append(f"a{a}[{base(row_start(kinds[a], di, dj, 0))} + k] = {result}")
    body += stores
    first = base(row_start(kinds[0], 0, 0, 0))
    inside = [f"for j in range(j0 + {jl}, j1 + {jh}):"]
    if pairs and sweep.dims == 3:
        inside = ["for pair in range(j0, j1, 2):", "    j = min(pair, j1 - 2)"]
    inside += [f"    {name} = uint64({text})" for text, name in bases.items()]
    if streams:
        vectors: list[str] = []
        wide: dict[str, str] = {}

        def vector(value: str) -> str:
            if value.endswith("]"):
                return f"load({value[: -len('[k]')]}, first)"
            return wide.setdefault(value, f"v{len(wide)}")

        def load_line(node: Node, offset: Offset) -> str:
            array, at = load(node, offset)[:-1].split("[")
            return f"load({array}, {at[: -len(' + k')]} + first)"

        targets = sweep.targets
        lines = CellText(sweep, targets, load_line, lambda node: vector(number[node]), lambda x: vector(literal(x)))
        for a, result in enumerate(lines.results):
            put = "store" if a else "stream"
            vectors.append(f"{put}(a{a}, {base(row_start(kinds[a], 0, 0, 0))} + first, {result})")
        for leaf in sweep.leaves:  # lines that come from the memory: those of the slab ahead
            read = [at for node, at in expanded(targets, sweep.kept, sweep.dims) if node is leaf]
            if not read:  # by the loops of kept values alone
                continue
            array, at = load(leaf, max(read))[:-1].split("[")
            vectors.append(f"prefetch({array}, {at[: -len(' + k')]} + first + AHEAD)")
        inside += [f"    {name} = wide({value})" for value, name in wide.items()]
        inside += [f"    begin = head(a0, {first}, {count})", f"    end = begin + ({count} - begin) // LINE * LINE"]
        di, dj, _ = three(_next_row((0,) * sweep.dims)) if sweep.dims > 1 else (0, 0, 0)
        below = row_start(kinds[0], di, dj, 0)  # the lines that the next row writes a part of
        inside += [f"    prefetch(a0, uint64({below}))", f"    prefetch(a0, uint64({below}) + {count})"]
        inside += ["    for k in range(ZERO, begin):", *(f"        {each}" for each in body)]
        inside += ["    for first in range(begin, end, LANES):"]
        inside += [f"        {each}" for each in (*lines.lines, *vectors)]
        inside += [f"    for k in range(end, {count}):"]
    else:
        inside += [f"    for k in range(ZERO, {count}):"]
    inside += [f"        {line}" for line in body]
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
