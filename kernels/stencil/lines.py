"""Heat in the long rows of 3-D grids, Numba: lines of the cache as vectors, one step a pass or two.

What limits a step here, found by leaving parts of it out (t_eff at 640^3, double, on Zen 4, a plain copy 1; both with
streaming stores): adding up the three planes of the field and the coefficient, 1.2; with all seven neighbors, but
without more arithmetic, 0.8 to 0.9; the compiler's own loop, 0.65. So it is not the memory: the loads of a stencil fill
the processor's queues before enough lines of the memory are on their way, and each unaligned one takes two lines.
So here

- the western and the eastern neighbor are lanes of vectors that are there already, and all loads are of one alignment;
- lines of the plane ahead and of the coefficient are asked for `AHEAD` of their use: 1.1x at 64 cells, which take less
  time than the memory; 1.25x more at 384 on Zen 5 with 37 GB/s a core (1.3x with one coefficient for all);
- arrays that outgrow the cache are written past it (`compile.streams`), which saves 8 of 32 bytes a cell: 1.15x;
- no array is counted by reference within (`borrowed`): an atomic operation a row waits for all that was streamed;
- twice a number is exact, so that a difference to it is one instruction, with the bits of two (`bend`), and where a
  vector is half of a line two of them share a shuffle. With whole lines between two steps 1.14x for these on Zen 3.

Two steps in one pass keep three planes of a strip of the state between them in the cache: a cell then moves 24 bytes
for two steps, and not 48. The rows beside a strip are computed twice. What limits them, found in the same way at 640^3:
with all in the second-level cache a step takes 0.41 ns a cell, and what it writes past the cache costs nothing more; a
coefficient that comes from the memory makes it 1.07, where reading alone takes 0.28 to 0.37. So the two passes wait for
the memory with few lines on their way. Asking for every line by itself helps little (0.88), for many at once more
(0.71). So here

- the first step asks for the field, the second for the coefficient, each a plane of the strip before its use,
  `BURST` lines at once: 1.15x. More at once, or both in one step, is slower;
- the state between the steps is written in whole lines of the cache, and what is beside its rows does not count;
- one row is computed at a time: three side by side, which load what they share once, are 1.1x faster on Zen 4, but on
  Zen 5 take 1.2 times as long, whose memory then sends shorter stretches of more rows at once;
- with AVX-512, too, vectors of float64 are half a line of the cache: 1.02x to 1.06x on Zen 5, where one step, two of
  float32, and two with one coefficient for all are faster by whole lines. So is the second step where it streams:
  1.025x to 1.045x. Whole lines in the first step alone cost 5 %;
- strips are longer than what the second-level cache holds: fewer rows twice, and longer stretches of the memory;
- each step takes all rows of a strip, one behind the other. On Zen 5 half of them in turn take 1.06 times as long, rows
  of both steps in turn 1.4, and planes in pairs 1.2, although all of these read less from the third-level cache.

Arithmetic as written and in the order of `reference`, whose bits these kernels have.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.intrinsics import fused, prefetch, prefetch_second, store
from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.compile.lanes import lanes
from hpckit.kernels.compile.streams import LINE, after, before, settle, store_part, stream
from hpckit.kernels.compile.vectors import available
from hpckit.kernels.stencil.region import Box

LONG = 160  # cells of a row from which on vectors pay
STRIP, TWICE = 100_000, 52_000  # cells of a plane's strip, for one step and for two
AHEAD, BURST = 384, 15  # cells; lines that two steps ask for at once
ZERO, ONE, TWO, THREE = (np.uint64(k) for k in range(4))
MINUS_TWO = -2.0
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
def _cell(dtype: np.dtype, variable: bool, half: bool) -> tuple[Any, Any, Any]:
    """Vectors of a dtype, at most half a line of the cache where asked, and two functions that compute one of cells.

    `one` loads all that it reads; `beside` is given the cells, the vectors before and after them and those of the rows
    on each side, and takes the western and the eastern neighbors from among their lanes.
    """
    width = LINE if available()[0] == "avx512" and not half else LINE // 2
    kind = lanes("e" if dtype.itemsize == 8 else "h", width // dtype.itemsize)
    load, coefficient_at = kind.load, _own if variable else _same

    @piece
    def bend(pair, here):  # pair - (here + here)
        return fused(here, MINUS_TWO, pair)

    @piece
    def change(here, west, east, south, north, below, above, factor):
        lower = factor[1] * bend(south + north, here) + factor[2] * bend(west + east, here)
        return factor[0] * bend(below + above, here) + lower

    @piece
    def beside(west, here, east, south, north, field, coefficient, factor, below, above, q):
        around = change(
            here,
            before(west, here),
            after(here, east),
            south,
            north,
            load(field, below),
            load(field, above),
            factor,
        )
        return here + coefficient_at(load, coefficient, q) * around

    @piece
    def one(field, coefficient, factor, p, length, below, above, q):
        here = load(field, p)
        around = change(
            here,
            load(field, p - ONE),
            load(field, p + ONE),
            load(field, p - length),
            load(field, p + length),
            load(field, below),
            load(field, above),
            factor,
        )
        return here + coefficient_at(load, coefficient, q) * around

    return kind, one, beside


@cache
def _lined(dtype: np.dtype) -> Any:
    """The function that finds the whole lines of a row: its first cell in one, and the one past the last in one.

    What is before and behind them is stored as usual, and asked for a row before: of a line of which a part is streamed
    the processor waits for the rest, twice a row (1.5x on Zen 3, where a vector is half of a line).
    """
    line = np.uint64(LINE // dtype.itemsize)

    @piece
    def lined(out, o, cells):
        first = ((ZERO - np.uint64(out.ctypes.data) // np.uint64(out.itemsize)) - o) & (line - ONE)
        return first, first + (cells - first) // line * line

    return lined


@cache
def _part(dtype: np.dtype, variable: bool, half: bool) -> Any:
    """The function that computes cells from `x` to `end` of a row and stores them as usual, less than a vector by a
    mask.
    """
    kind, one, _ = _cell(dtype, variable, half)
    n = np.uint64(kind.n)

    @piece
    def part(out, o, field, p, length, below, above, coefficient, q, x, end, factor):
        while x < end:
            value = one(field, coefficient, factor, p + x, length, below + x, above + x, q + x)
            if end - x >= n:
                store(out, o + x, value)
            else:
                store_part(out, o + x, value, ZERO, end - x)
            x += n

    return part


@cache
def _row(dtype: np.dtype, variable: bool, streams: bool, asks: tuple[bool, bool], lines: int, ring: bool) -> Any:
    """The function that computes a row of a 3-D grid, its cells, neighbors and coefficients each from a place on.

    asks: whether lines of the field and of the coefficient are asked for, `far` and `far_c` cells further, so many at
    once: one for the first-level cache, several for the second. ring: `out` has room for whole lines, and what is
    beside its rows does not count; else lines of which the row `next_row` cells further writes a part are asked for.
    """
    single = lines == 1
    half = not (single or streams) and variable and dtype.itemsize == 8
    kind, _, beside = _cell(dtype, variable, half)
    load, n, line = kind.load, np.uint64(kind.n), np.uint64(LINE // dtype.itemsize)
    put, lined, part = stream if streams else store, _lined(dtype), _part(dtype, variable, half)
    burst, (asks_field, asks_coefficient) = np.uint64(lines) * line, asks
    fetch = prefetch if single else prefetch_second

    @piece
    def ask(at, field, p, coefficient, q):
        if asks_field:
            fetch(field, p + at)
        if asks_coefficient:
            fetch(coefficient, q + at)

    @piece
    def whole(out, o, field, p, length, below, above, coefficient, q, factor, west, here, at):
        for k in range(line // n):
            x = at + k * n
            east, south, north = load(field, p + x + n), load(field, p - length + x), load(field, p + length + x)
            value = beside(west, here, east, south, north, field, coefficient, factor, below + x, above + x, q + x)
            put(out, o + x, value)
            west, here = here, east
        return west, here

    @piece
    def row(out, o, field, p, length, below, above, coefficient, q, cells, factor, far, far_c, next_row):
        if ring:
            early = (np.uint64(out.ctypes.data) // np.uint64(out.itemsize) + o) & (line - ONE)
            o, p, below, above, q = o - early, p - early, below - early, above - early, q - early
            first, last = ZERO, (cells + early + line - ONE) // line * line
        else:
            first, last = lined(out, o, cells)
            if streams:
                prefetch_second(out, o + next_row)
                prefetch_second(out, o + next_row + cells - ONE)
            part(out, o, field, p, length, below, above, coefficient, q, ZERO, first, factor)
        west, here = load(field, p + first - n), load(field, p + first)
        for begin in range(first, last, burst):
            if single:
                ask(begin, field, p + far, coefficient, q + far_c)
                west, here = whole(out, o, field, p, length, below, above, coefficient, q, factor, west, here, begin)
            else:
                end = min(begin + burst, last)
                for at in range(begin, end, line):
                    ask(at, field, p + far, coefficient, q + far_c)
                for at in range(begin, end, line):
                    west, here = whole(out, o, field, p, length, below, above, coefficient, q, factor, west, here, at)
        if not ring:
            part(out, o, field, p, length, below, above, coefficient, q, last, cells, factor)

    return row


@cache
def once_kernel(dtype: np.dtype, variable: bool, streams: bool) -> Any:
    """A step of `reference.diffuse`: (out, field, coefficient, factor, shape, first, stop, strip)."""
    row, ahead = _row(dtype, variable, streams, (True, variable), 1, False), np.uint64(AHEAD)

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
                        out, p, field, p, length, p - plane, p + plane, coefficient, p, cells, factor,
                        plane + ahead, ahead, length,
                    )  # fmt: skip
            begin = end
        if streams:
            settle()

    return kernel


@cache
def twice_kernel(dtype: np.dtype, variable: bool, streams: bool) -> Any:
    """Two steps, as `reference.diffuse_twice`: (out, field, coefficient, factor, shape, first, stop, strip, ring).

    ring: `ring_of` a strip, three planes of the state between the two steps.
    """
    row = _row(dtype, variable, False, (True, False), BURST, True)
    row_out = _row(dtype, variable, streams, (False, variable), BURST, False)
    pad, within = np.uint64(LINE // dtype.itemsize), np.uint64(LINE // dtype.itemsize - 1)

    @jit(noalias=True, borrowed=True, math=STRICT, key=("diffuse twice in lines", dtype.str, variable, streams))
    def kernel(out, field, coefficient, factor, shape, first, stop, strip, ring):
        length = np.uint64(shape[2])
        plane = np.uint64(shape[1]) * length
        begin, last, cells = np.uint64(first[1]), np.uint64(stop[1]), np.uint64(stop[2] - first[2])
        pitch = np.uint64(ring.size) // (THREE * (np.uint64(strip) + TWO))
        layer = pitch * (np.uint64(strip) + TWO)
        x = np.uint64(first[2])
        # Lines of the ring start where those of the field do, if its rows are of whole lines.
        size = np.uint64(out.itemsize)
        lead = pad + (np.uint64(field.ctypes.data) // size + x - ONE - np.uint64(ring.ctypes.data) // size & within)
        while begin < last:
            end = min(begin + np.uint64(strip), last)
            for i in range(np.uint64(first[0]) - ONE, np.uint64(stop[0]) + ONE):
                top = (i % THREE) * layer + lead
                for j in range(begin - ONE, end + ONE):
                    p = i * plane + j * length + x - ONE
                    r = top + (j + ONE - begin) * pitch
                    row(
                        ring, r, field, p, length, p - plane, p + plane, coefficient, p, cells + TWO, factor,
                        TWO * plane, ZERO, ZERO,
                    )  # fmt: skip
                if i > np.uint64(first[0]):
                    middle, bottom = ((i - ONE) % THREE) * layer + lead, ((i + ONE) % THREE) * layer + lead
                    for j in range(begin, end):
                        p = (i - ONE) * plane + j * length + x
                        at = (j + ONE - begin) * pitch + ONE
                        row_out(
                            out, p, ring, middle + at, pitch, bottom + at, top + at, coefficient, p, cells, factor,
                            ZERO, TWO * plane, plane,
                        )  # fmt: skip
            begin = end
        if streams:
            settle()

    return kernel


def rows_of_strip(cells: int, box: Box) -> int:
    """How many rows of a box make a strip of about so many cells."""
    return min(max(8, cells // (box[1][2] - box[0][2])), box[1][1] - box[0][1])


def ring_of(strip: int, box: Box, dtype: np.dtype) -> np.ndarray:
    """Room for three planes of a strip and a row on each side of it, with cells beside each row.

    A row starts 12 lines or more behind the end of the one before: on Zen 5 two steps take 0.97 of the time with 3.
    """
    line = LINE // dtype.itemsize
    pitch = -(-(box[1][2] - box[0][2] + 2) // line) * line + 12 * line
    return np.zeros(3 * (strip + 2) * pitch, dtype)
