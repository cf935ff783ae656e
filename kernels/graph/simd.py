"""Sweeps, Numba: the kernel of a sweep is generated, compiled once for its text, and kept on disk.

Three loops run over slabs, rows and cells; rows are unit-stride and vectorize: indices are unsigned, arrays do not
overlap, and a choice (`where`, `maximum`) is a selection between two values that both exist. The arithmetic is STRICT;
products and sums become one rounding only where the text says so, hence the same bits in every cell, wherever a loop
starts. Values that the sweep keeps are computed slab by slab ahead of the targets, into rings that stay in the cache.

Three things depend on the size of the arrays (`options`), and change no bits. Where the slabs that a cell's neighbors
lie in do not fit the cache, the rows of a 3-D grid are taken in strips: 1.12x for heat with planes of 13 MB. Where a
pass moves more than the cache holds, the first result goes past it, in explicit vectors, so that its lines are not read
before they are written, and lines of the slab ahead are asked for early: 1.1x; both together 1.37x; 1.2x more where
they are asked for 384 values ahead and not 64 (Burgers' equation on Zen 5). Elsewhere explicit vectors are those of a
whole line, and the last of a row lies over the one before: no cell is computed alone, 1.2x to 1.5x for rows of 13 to
512 values; the place of a vector is a minimum, so that one index serves all arrays: pointers that advance, one for each
neighbor, do not fit the registers (0.75x to 1x). Rows that do not fit the nearest cache, as those of an ensemble, are
taken in parts, all rows of a part one after the other, and lines are asked for that the next row reads: 1.15x for 32
members. Values that are kept are computed in vectors, too: 1.05x to 1.1x for gradients of Jacobi's method and `hdiff`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from hpckit.kernels.compile import functions  # noqa: F401  (math.sqrt and fabs of vectors)
from hpckit.kernels.compile.intrinsics import fused, prefetch, select, store
from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.compile.lanes import lanes
from hpckit.kernels.compile.streams import LINE, STREAMED, settle, stream
from hpckit.kernels.compile.vectors import available
from hpckit.kernels.graph.nodes import ARRAYS, POINTWISE, Node, Offset, is_truth
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
STREAMS, HALVES = "settle()", "# vectors of half a line"  # in the text of a kernel
WHOLE, STRIP = 12 << 20, 2 << 20  # bytes of slabs up to which they are taken whole, else those of a strip
AHEAD = 384  # values that a line is asked for before its use
LONG = 160  # values of a row from which on results may go past the cache
UNCUT, PART = 36 << 10, 24 << 10  # bytes of the rows near a cell up to which they are taken whole, else of a part
VECTORS = POINTWISE - {"power", "exp", "log", "sin", "cos", "tanh"}  # the operations of explicit vectors
LOGICAL = frozenset(("logical_and", "logical_or", "logical_not"))


Form = Literal["cells", "kept", "vectors", "parts", "halves", "streams"]
"""How a row is computed: cell by cell, as the compiler likes; so, but what is kept in explicit vectors; in these; in
these, a part of a row, while lines are asked for that the next row reads; in vectors of half a line, for what comes
from the memory; or in these, and the first result goes past the cache.
"""


class SweepOptions(NamedTuple):
    """rows: of a slab that are taken at once. parts: of all rows, which are taken one after the other. slabs, moved:
    the bytes of all slabs that a cell's neighbors lie in, and those that a pass moves.
    """

    rows: int
    parts: int
    form: Form
    slabs: int
    moved: int

    @property
    def streams(self) -> bool:
        """Whether the first result goes past the cache."""
        return self.form == "streams"


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
    if nk * members < _lanes() or available()[0] == "scalar":
        return SweepOptions(rows, 1, "cells", slabs, moved)
    vectors = _in_vectors(sweep, sweep.targets)
    if vectors and moved >= STREAMED and nk * members >= LONG:
        return SweepOptions(rows, 1, "streams", slabs, moved)
    if not vectors or sweep.stored:  # with targets in vectors, too, 0.85x for the adjoint of heat on 40^3 cells
        return SweepOptions(rows, 1, "kept" if sweep.stored else "cells", slabs, moved)
    parts = max(1, min(_parts(sweep, row), nk // (2 * _even(members))))
    return SweepOptions(rows, parts, "parts" if parts > 1 else "vectors", slabs, moved)


def _lanes() -> int:
    """The values of a vector, where results stay in the cache."""
    return LINE // 8 if available()[0] == "avx512" else LINE // 16


def _even(members: int) -> int:
    """The cells that are whole lines of the cache."""
    return LINE // 8 // math.gcd(LINE // 8, members)


def _parts(sweep: GraphSweep, row: int) -> int:
    """How many parts of rows of so many bytes, so that what a cell's neighbors lie in remains in the nearest cache."""
    if sweep.dims == 1:
        return 1
    read = {(node, offset[:-1]) for node, offset in expanded(sweep.targets, (), sweep.dims) if node.op in ARRAYS}
    needed = row * (len(read) + len(sweep.targets))
    return -(-needed // PART) if needed > UNCUT else 1


def _next_row(offset: Offset) -> Offset:
    """The offset of the same neighbor, for a cell of the next row."""
    return (*offset[:-2], offset[-2] + 1, offset[-1])


def _in_vectors(sweep: GraphSweep, made: Collection[Node]) -> bool:
    """Whether explicit vectors have the operations of some nodes; what is true or false is not a number there."""
    found = {node for node, _ in expanded(tuple(made), sweep.kept, sweep.dims) if node.op in POINTWISE}
    found -= set(sweep.kept) - set(made)  # which are loaded
    for node in found:
        condition, values = (node.args[:1], node.args[1:]) if node.op == "where" else ((), node.args)
        known = all(arg.is_field for arg in condition) and all(is_truth(arg) == (node.op in LOGICAL) for arg in values)
        if node.op not in VECTORS or not known:
            return False
    return not any(map(is_truth, made))


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
    whether the first result goes past the cache, too, of what comes from the memory, where that is not to follow from
    the box.
    """
    classes, kinds = _layouts(blocks)
    bounds, members = loops(box), blocks[0].members
    if any(a >= b for a, b in bounds):
        return None, [], []
    (i0, i1), (j0, j1), (k0, k1) = bounds
    rows, parts, form, *_ = options(sweep, [b - a for a, b in zip(*box, strict=True)], members)
    if past is not None and form != "cells":
        parts, form = 1, "streams" if past else "kept" if sweep.stored else "halves"
    starts = [value for shape in classes for value in shape]
    ends = [k0 + (k1 - k0) * part // parts // _even(members) * _even(members) for part in range(parts)] + [k1]
    strips = [
        np.array([*starts, i0, i1, j, min(j + rows, j1), *some, members])
        for some in itertools.pairwise(ends)
        for j in range(j0, j1, rows)
    ]
    within = ((i0, i1), (j0, j0 + rows), (k0, k1))
    sizes = [_ring_size(each, sweep.dims, within, members) for each in sweep.stored]
    return _kernel(sweep, kinds, form, frozenset(own)), strips, sizes


def near(sweep: GraphSweep, blocks: Sequence[Block], box: Box, own: Collection[Node] = ()) -> Callable[[], Any] | None:
    """What makes the kernel whose results stay in the cache, for the same geometries; None if `placed` has that one."""
    if not options(sweep, [b - a for a, b in zip(*box, strict=True)], blocks[0].members).streams:
        return None
    form: Form = "kept" if sweep.stored else "vectors"
    return functools.partial(_kernel, sweep, _layouts(blocks)[1], form, frozenset(own))


def _layouts(blocks: Sequence[Block]) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """The layouts of some arrays, and which of them each has."""
    shapes = [block.strides() for block in blocks]
    classes: list[tuple[int, ...]] = list(dict.fromkeys(shapes))
    return classes, tuple(classes.index(shape) for shape in shapes)


def _kernel(sweep: GraphSweep, kinds: tuple[int, ...], form: Form, own: frozenset[Node]) -> Any:
    key = "simd", kinds, form, own
    found = sweep.kernels.get(key)
    if found is None:
        found = sweep.kernels[key] = compiled_kernel(_kernel_text(sweep, kinds, form, own))
    return found


@functools.cache
def _of_vectors(half: bool) -> dict[str, Any]:
    """What the text of a kernel of explicit vectors calls. half: they are LANES values of half a line of the cache.

    Of vectors of a whole line each neighbor beside a cell lies in two lines, of half a line every second: on Zen 5 heat
    in 3-D is 1.5x to 1.9x as fast, a gradient of Burgers' equation 1.2x.

    head(out, at, count): how many values of a row come before the first line of `out`. The lines that rows share with
    what is beside them are stored as usual: of those of which a part is streamed the processor waits for the rest.
    """
    kind = lanes("e", LINE // 16 if half else _lanes())
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
    return jit(made, math=STRICT, noalias=True, borrowed=True, key=(text,), by_address=True)


def function_of(text: str, names: Mapping[str, Any], home: ModuleType) -> Any:
    """The Python function of a kernel's text, by a name of its own in a module: Numba keeps it on disk by both."""
    name = f"fused_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    space: dict[str, Any] = {**names, "__name__": home.__name__}
    if "LANES" in text:
        space |= _of_vectors(STREAMS in text or HALVES in text)
    exec(compile(text.replace("def fused_kernel", f"def {name}"), str(home.__file__), "exec"), space)
    function = space[name]
    function.__module__ = home.__name__
    setattr(home, name, function)
    return function


def _kernel_text(sweep: GraphSweep, kinds: Sequence[int], form: Form, own: Collection[Node] = ()) -> str:
    """The kernel of a sweep as Python. kinds: for each array, targets first, which of the layouts it has. own: numbers
    that are a row each, behind the rings.
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
    body = [f"for i in range(i0 - {warm}, i1):"]
    for made in (*sweep.stored, None):
        body += _loop(sweep, made, kinds, place, ring, number, form)
    if form in ("streams", "halves"):
        body.append(STREAMS if form == "streams" else HALVES)
    return "\n".join([*head, *(f"    {line}" for line in body), ""])


def _loop(
    sweep: GraphSweep,
    made: Stored | None,
    kinds: Sequence[int],
    place: dict[Node, int],
    ring: dict,
    number: dict[Node, str],
    form: Form,
) -> list[str]:
    """The loop over the rows of a slab that makes a kept value, or (None) the targets."""
    if made:
        form = "vectors" if form != "cells" and _in_vectors(sweep, (made.node,)) else "cells"
    elif form == "kept":
        form = "cells"
    bases: dict[str, str] = {}  # expression of a row's start -> its name
    wide: dict[str, str] = {}  # a number -> the vector of it
    made_here = (made.node,) if made else sweep.targets
    (il, ih), (jl, jh), (kl, kh) = three(made.reach) if made else ((0, 0),) * 3
    lead = made.lead if made else 0

    def base(text: str) -> str:
        return bases.setdefault(text, f"q{len(bases)}")

    def start(node: Node, offset: Offset) -> tuple[str, str]:
        """The array that holds a value at an offset, and where the row begins."""
        di, dj, dk = three(offset)
        if node in ring:
            k, other = ring[node]
            _, (ojl, _), (okl, _) = three(other.reach)
            slab = f"((i + {lead + di + 64 * other.depth}) % {other.depth})" if sweep.dims > 1 else "0"
            return f"r{k}", base(f"{slab} * slab{k} + (j - j0 + {dj - ojl}) * row{k} + {kl + dk - okl} * members")
        a = place[node]
        return f"a{a}", base(row_start(kinds[a], lead + di, dj, kl + dk))

    def target(a: int) -> tuple[str, str]:
        """The array that a result goes to, and where the row begins."""
        if not made:
            return f"a{a}", base(row_start(kinds[a], 0, 0, 0))
        k, _ = ring[made.node]
        slab = f"((i + {lead + 64 * made.depth}) % {made.depth})" if sweep.dims > 1 else "0"
        return f"r{k}", base(f"{slab} * slab{k} + (j - j0 + {-jl}) * row{k}")

    def scalars() -> list[str]:
        """What a cell computes."""
        cell = CellText(sweep, made_here, lambda *at: "{}[{} + k]".format(*start(*at)), number.__getitem__)
        stores = ["{}[{} + k] = ".format(*target(a)) + result for a, result in enumerate(cell.results)]
        return [f"    {line}" for line in (*cell.lines, *stores)]

    def vectors() -> list[str]:
        """What LANES cells compute; the lines that the memory or a cache far away has are asked for early."""

        def value(text: str) -> str:
            row = text.removesuffix("[k]")
            return wide.setdefault(text, f"v{len(wide)}") if row == text else f"load({row}, k)"

        cell = CellText(
            sweep,
            made_here,
            lambda *at: "load({}, {} + k)".format(*start(*at)),
            lambda node: value(number[node]),
            lambda x: value(literal(x)),
        )
        lines = list(cell.lines)
        for a, result in enumerate(cell.results):
            put = "stream" if form == "streams" and a == 0 else "store"
            lines.append(f"{put}({', '.join(target(a))} + k, {result})")
        for leaf in sweep.leaves:  # the last of the neighbors
            read = [at for node, at in expanded(made_here, sweep.kept, sweep.dims) if node is leaf]
            if read:  # not by the loops of kept values alone
                array, at = start(leaf, _next_row(max(read)) if form == "parts" else max(read))
                lines.append(f"prefetch({array}, {at} + k{'' if form == 'parts' else ' + AHEAD'})")
        return [f"    {line}" for line in lines]

    count = f"uint64((k1 - k0 + {kh - kl}) * members)"
    if form == "streams":
        di, dj, _ = three(_next_row((0,) * sweep.dims)) if sweep.dims > 1 else (0, 0, 0)
        below = row_start(kinds[0], di, dj, 0)  # the lines that the next row writes a part of
        body = [f"begin = head(a0, {target(0)[1]}, {count})", f"end = begin + ({count} - begin) // LINE * LINE"]
        body += [f"prefetch(a0, uint64({below}))", f"prefetch(a0, uint64({below}) + {count})"]
        body += ["for k in range(ZERO, begin):", *scalars(), "for k in range(begin, end, LANES):", *vectors()]
        body += [f"for k in range(end, {count}):", *scalars()]
    elif form != "cells":  # the last may lie over the one before
        body = [f"last = {count} - LANES", f"for first in range(ZERO, {count}, LANES):"]
        body += ["    k = min(first, last)", *vectors()]
    else:
        body = [f"for k in range(ZERO, {count}):", *scalars()]
    names = [f"{name} = uint64({text})" for text, name in bases.items()]
    body = [*names, *(f"{name} = wide({number})" for number, name in wide.items()), *body]
    if sweep.dims == 3:
        rows = f"for j in range(j0 + {jl}, j1 + {jh}):"
        body = [rows, *(f"    {line}" for line in body)]
    else:
        body = ["j = j0", *body]
    if sweep.stored and sweep.dims > 1:
        within = f"i0 + {il} <= i + {lead} and i + {lead} < i1 + {ih}"
        body = [f"if {within}:", *(f"    {line}" for line in body)]
    return [f"    {line}" for line in body]


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
