"""Heat in the long rows of 3-D grids, Numba: lines of the cache as vectors, one step a pass or two.

What limits a step here, found by leaving parts of it out (t_eff at 640^3, double, on Zen 4, a plain copy 1; both with
streaming stores): adding up the three planes of the field and the coefficient, 1.2; with all seven neighbors, but
without more arithmetic, 0.8 to 0.9; the compiler's own loop, 0.65. So it is not the memory: the loads of a stencil fill
the processor's queues before enough lines of the memory are on their way, and each unaligned one takes two lines.
So here

- the western and the eastern neighbor are lanes of vectors that are there already, and all loads are of one alignment;
- lines of the plane ahead and of the coefficient are asked for `AHEAD` of their use: 1.1x. Two steps ask for them a
  whole plane of a strip before, to the second-level cache, with strips so short that all planes stay there: 1.15x.
  Without that, short strips are slower than long ones, since the processor does not look into another plane by itself;
- arrays that outgrow the cache are written past it (`compile.streams`), which saves 8 of 32 bytes a cell: 1.15x;
- no array is counted by reference within (`borrowed`): an atomic operation a row waits for all that was streamed.

Two steps in one pass keep three planes of a strip of the state between them in the cache: a cell then moves 24 bytes
for two steps, and not 48. The rows beside a strip are computed twice.

Arithmetic as written and in the order of `reference`, whose bits these kernels have.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.compile.lanes import lanes
from hpckit.kernels.compile.streams import LINE, after, before, settle, store_part, stream
from hpckit.kernels.compile.vectors import available, prefetch, prefetch_second, store
from hpckit.kernels.stencil.region import Box

LONG = 160  # cells of a row from which on vectors pay
STRIP, TWICE = 100_000, 6_000  # cells of a plane's strip, for one step and for two
AHEAD = 64  # cells
ONE, ZERO = np.uint64(1), np.uint64(0)
piece = inlined(math=STRICT)


def suits(out: np.ndarray, box: Box) -> bool:
    """Whether these kernels serve the box of an array."""
    return out.ndim == 3 and box[1][2] - box[0][2] >= LONG and available()[0] != "scalar"


@piece
def _own(load, coefficient, p):
    return load(coefficient, p)


@piece
def _same(load, coefficient, p):
    return coefficient


@cache
def _row(dtype: np.dtype, variable: bool, streams: bool, ask: Any = None) -> Any:
    """The function that computes a row of a 3-D grid, its cells, neighbors and coefficients each from a place on.

    ask: how it asks for what is read `ahead` of the cell, of the plane above and the coefficient; None if it is there.
    """
    width = LINE if available()[0] == "avx512" else 32
    kind = lanes("e" if dtype.itemsize == 8 else "h", width // dtype.itemsize)
    load, n = kind.load, np.uint64(kind.n)
    coefficient_at, asks = _own if variable else _same, ask is not None

    @piece
    def change(here, west, east, south, north, below, above, factor):
        twice = here + here
        lower = factor[1] * ((south + north) - twice) + factor[2] * ((west + east) - twice)
        return factor[0] * ((below + above) - twice) + lower

    @piece
    def one(field, coefficient, factor, p, south, north, below, above, q):
        here = load(field, p)
        around = change(
            here,
            load(field, p - ONE),
            load(field, p + ONE),
            load(field, south),
            load(field, north),
            load(field, below),
            load(field, above),
            factor,
        )
        return here + coefficient_at(load, coefficient, q) * around

    @piece
    def row(out, o, field, p, south, north, below, above, coefficient, q, cells, factor, ahead):
        # The cells before the first line of `out`, with others that were there; then whole lines; then the rest.
        first = ((ZERO - np.uint64(out.ctypes.data) // np.uint64(out.itemsize)) - o) & (n - ONE)
        if first > ZERO:
            x = first - n
            value = one(field, coefficient, factor, p + x, south + x, north + x, below + x, above + x, q + x)
            store_part(out, o + x, value, n - first, n)
        count = (cells - first) // n
        west, here = load(field, p + first - n), load(field, p + first)
        for k in range(count):
            x = first + k * n
            if asks:
                ask(field, above + x + ahead)
                if variable:
                    ask(coefficient, q + x + ahead)
            east = load(field, p + x + n)
            around = change(
                here,
                before(west, here),
                after(here, east),
                load(field, south + x),
                load(field, north + x),
                load(field, below + x),
                load(field, above + x),
                factor,
            )
            value = here + coefficient_at(load, coefficient, q + x) * around
            if streams:
                stream(out, o + x, value)
            else:
                store(out, o + x, value)
            west, here = here, east
        x = first + count * n
        if x < cells:
            value = one(field, coefficient, factor, p + x, south + x, north + x, below + x, above + x, q + x)
            store_part(out, o + x, value, ZERO, cells - x)

    return row


@cache
def once_kernel(dtype: np.dtype, variable: bool, streams: bool) -> Any:
    """A step of `reference.diffuse`: (out, field, coefficient, factor, shape, first, stop, strip)."""
    row, far = _row(dtype, variable, streams, prefetch), np.uint64(AHEAD)

    @jit(noalias=True, borrowed=True, math=STRICT, key=("diffuse in lines", dtype.str, variable, streams))
    def kernel(out, field, coefficient, factor, shape, first, stop, strip):
        length = np.uint64(shape[2])
        plane = np.uint64(shape[1]) * length
        begin, last, cells = np.uint64(first[1]), np.uint64(stop[1]), np.uint64(stop[2] - first[2])
        while begin < last:
            end = min(begin + np.uint64(strip), last)
            for i in range(np.uint64(first[0]), np.uint64(stop[0])):
                for j in range(begin, end):
                    p = i * plane + j * length + np.uint64(first[2])
                    row(
                        out,
                        p,
                        field,
                        p,
                        p - length,
                        p + length,
                        p - plane,
                        p + plane,
                        coefficient,
                        p,
                        cells,
                        factor,
                        far,
                    )
            begin = end
        if streams:
            settle()

    return kernel


@cache
def twice_kernel(dtype: np.dtype, variable: bool, streams: bool) -> Any:
    """Two steps, as `reference.diffuse_twice`: (out, field, coefficient, factor, shape, first, stop, strip, ring).

    ring: `ring_of` a strip, three planes of the state between the two steps.
    """
    to_ring, to_out = _row(dtype, variable, False, prefetch_second), _row(dtype, variable, streams)
    pad = np.uint64(LINE // dtype.itemsize)

    @jit(noalias=True, borrowed=True, math=STRICT, key=("diffuse twice in lines", dtype.str, variable, streams))
    def kernel(out, field, coefficient, factor, shape, first, stop, strip, ring):
        three = np.uint64(3)
        length = np.uint64(shape[2])
        plane = np.uint64(shape[1]) * length
        begin, last, cells = np.uint64(first[1]), np.uint64(stop[1]), np.uint64(stop[2] - first[2])
        pitch = np.uint64(ring.size) // (three * (np.uint64(strip) + np.uint64(2)))
        layer = pitch * (np.uint64(strip) + np.uint64(2))
        x = np.uint64(first[2])
        while begin < last:
            end = min(begin + np.uint64(strip), last)
            for i in range(np.uint64(first[0]) - ONE, np.uint64(stop[0]) + ONE):
                top = (i % three) * layer + pad
                for j in range(begin - ONE, end + ONE):
                    p = i * plane + j * length + x - ONE
                    r = top + (j + ONE - begin) * pitch
                    to_ring(
                        ring, r, field, p, p - length, p + length, p - plane, p + plane, coefficient, p,
                        cells + ONE + ONE, factor, plane,
                    )  # fmt: skip
                if i > np.uint64(first[0]):
                    middle, bottom = ((i - ONE) % three) * layer + pad, ((i + ONE) % three) * layer + pad
                    for j in range(begin, end):
                        p = (i - ONE) * plane + j * length + x
                        at = (j + ONE - begin) * pitch + ONE
                        r = middle + at
                        to_out(
                            out, p, ring, r, r - pitch, r + pitch, bottom + at, top + at, coefficient, p, cells, factor,
                            ZERO,
                        )  # fmt: skip
            begin = end
        if streams:
            settle()

    return kernel


def rows_of_strip(cells: int, box: Box) -> int:
    """How many rows of a box make a strip of about so many cells."""
    return min(max(8, cells // (box[1][2] - box[0][2])), box[1][1] - box[0][1])


def ring_of(strip: int, box: Box, dtype: np.dtype) -> np.ndarray:
    """Room for three planes of a strip and a row on each side of it, with cells beside each row."""
    line = LINE // dtype.itemsize
    pitch = -(-(box[1][2] - box[0][2] + 2) // line) * line + 2 * line
    return np.zeros(3 * (strip + 2) * pitch, dtype)
