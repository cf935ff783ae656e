"""The tile on processors with vectors; see `reference` for the meaning.

Rows are packed in blocks that fit the second cache, tile by tile, as panels are. A panel then meets all rows of the
block while it lies in the first cache, and the sums of a block and a panel never leave the caches.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpckit.kernels.compile.intrinsics import called
from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.nn.tile.packed import (
    BLOCK,
    KINDS,
    QUADS,
    Packed,
    from_gguf,
    kind_of,
    pack_blocks,
    room,
    to_blocks,
)
from hpckit.kernels.nn.tile.tile import SHAPE, SHAPES, heights_of, instruction, tile, width_of, words_of

HEIGHTS, BESIDE = SHAPE.heights, SHAPE.beside
BLOCK_BYTES = 1 << 20  # of packed rows: half of a second cache
AHEAD = 32 << 10  # bytes that a panel is asked for before it is used, where rows are few
# Measured: where memory is the limit the processor asks soon enough by itself, and our asking takes its places.
ASKED = "bfloat16"  # the kind of which that does not hold for the second lowest tile
SLAB_BYTES = 32 << 10  # of a panel that all rows of a block meet at once: a first cache, or half of one
ISA = next(name for name, shape in SHAPES.items() if shape == SHAPE)


def pack(weight: np.ndarray, kind: str, out: np.ndarray | None = None) -> Packed:
    """See `reference.pack`; panels as wide as this processor likes them."""
    inputs, outputs = weight.shape
    width = width_of(kind_of(kind) and kind)
    if KINDS[kind].along == BLOCK:
        return Packed(kind, inputs, outputs, width, pack_blocks(*to_blocks(weight, kind), kind, width, out))
    panels = room(kind, inputs, outputs, width, out)
    _packer(kind)(weight, panels, width)
    return Packed(kind, inputs, outputs, width, panels)


def pack_gguf(data: np.ndarray, kind: str) -> Packed:
    """See `reference.pack_gguf`."""
    width = width_of(kind_of(kind) and kind)
    return Packed(kind, BLOCK * data.shape[1], len(data), width, pack_blocks(*from_gguf(data, kind), kind, width))


def multiply(
    a: np.ndarray, weight: Packed, out: np.ndarray, add: bool = False, bounds: np.ndarray | None = None
) -> None:
    """See `reference.multiply`."""
    kind = weight.kind
    multiplier(kind)(a, weight.panels, weight.inputs, weight.outputs, out, add, _units(weight, bounds))


def _units(weight: Packed, bounds: np.ndarray | None) -> np.ndarray:
    """The bounds of the parts in units."""
    units = weight.panels.shape[1]
    if bounds is None:
        return np.array([0, units])
    return -(-np.asarray(bounds, np.int64) // KINDS[weight.kind].along)


@jit(math=STRICT)
def _bfloat16(value):
    """The bits of a float32 rounded to bfloat16."""
    bits = np.float32(value).view(np.uint32)
    if value != value:
        return np.uint16(0x7FC0)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@functools.cache
def _packer(kind: str) -> Any:
    """The kernel `(weight, panels, width)` that packs numbers."""
    short, pairs = kind.startswith("bfloat16"), KINDS[kind].along == 2

    @jit(math=STRICT, key=(kind,))
    def pack_panels(weight, panels, width):
        inputs, outputs = weight.shape
        for p in range(panels.shape[0]):
            last = min(width, outputs - p * width)
            for begin in range(0, inputs, 32):  # where columns are contiguous, a block of rows stays in the cache
                end = min(begin + 32, inputs)
                for column in range(width):
                    for k in range(begin, end):
                        value = weight[k, p * width + column] if column < last else panels.dtype.type(0)
                        if pairs:
                            panels[p, k // 2, 2 * column + k % 2] = _bfloat16(value) if column < last else 0
                        elif short:
                            panels[p, k, column] = _bfloat16(value) if column < last else 0
                        else:
                            panels[p, k, column] = value
            if pairs and inputs % 2:
                for column in range(width):
                    panels[p, inputs // 2, 2 * column + 1] = 0

    return pack_panels


@functools.cache
def _row_packer(kind: str) -> Any:
    """The kernel `(a, first, rows, height, units, packed, at)`: so many rows of a, filled up with zeros to a height."""
    words, offset = words_of(kind), KINDS[kind].offset

    if KINDS[kind].along == 1:

        @jit(math=STRICT, key=(kind,))
        def pack_rows(a, first, rows, height, units, packed, at):
            for k in range(units):
                for r in range(rows):
                    packed[at + k * height + r] = a[first + r, k]
                for r in range(rows, height):
                    packed[at + k * height + r] = 0

    elif KINDS[kind].along == 2:

        @jit(math=STRICT, key=(kind,))
        def pack_rows(a, first, rows, height, units, packed, at):
            own = packed.view(np.uint16)
            for k in range(units):
                for r in range(height):
                    place = 2 * (at + k * height + r)
                    there = r < rows
                    own[place] = _bfloat16(a[first + r, 2 * k]) if there else 0
                    own[place + 1] = _bfloat16(a[first + r, 2 * k + 1]) if there and 2 * k + 1 < a.shape[1] else 0

    else:

        @jit(math=STRICT, key=(kind,))
        def pack_rows(a, first, rows, height, units, packed, at):
            own, whole = packed.view(np.int8), packed.view(np.int32)
            for unit in range(units):
                base = at + unit * height * words
                begin, count = BLOCK * unit, min(BLOCK, a.shape[1] - BLOCK * unit)
                for r in range(height):
                    largest = np.float32(0)
                    if r < rows:
                        for k in range(count):
                            largest = max(largest, abs(a[first + r, begin + k]))
                    inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
                    total = 0
                    for k in range(BLOCK):
                        value = 0
                        if k < count and r < rows:
                            value = int(np.rint(a[first + r, begin + k] * inverse))
                        total += value
                        own[4 * (base + (k // 4) * height + r) + k % 4] = value
                    packed[base + QUADS * height + r] = largest / np.float32(127)
                    whole[base + (QUADS + 1) * height + r] = -offset * total

    return pack_rows


@functools.cache
def multiplier(kind: str) -> Any:
    """The kernel `(a, panels, inputs, outputs, out, add, bounds)` of a kind."""
    sums, width = np.dtype(KINDS[kind].sums), width_of(kind)
    size_of_sum = sums.itemsize
    words, unit_bytes = words_of(kind), width * KINDS[kind].nbytes
    heights = heights_of(kind)
    key = (kind, ISA, instruction(kind), heights, BESIDE)
    tile0, tile1, tile2, tile3 = (tile(kind, height) for height in heights)
    height0, height1, height2, height3 = heights
    lowest, unasked = tile(kind, height3, BESIDE), height3 if kind == ASKED else height2
    slab = max(SLAB_BYTES // unit_bytes, 1)
    pack_rows = _row_packer(kind)

    @jit(math=STRICT, key=key)
    def height_of(left):
        return height3 if left <= height3 else height2 if left <= height2 else height1 if left <= height1 else height0

    @jit(math=STRICT, key=key, borrowed=True)
    def part(packed, rows, units, panels, panel, beside, begin, end, scratch, at):
        """The sums of all rows of a block over the units begin to end of panels, to scratch[at:]."""
        called()  # compiled once, not for every memory layout of rows and results
        step = end - begin if rows <= height0 else slab
        stride = units * unit_bytes
        start = panel * stride
        if beside > 1:
            there, count = start + begin * unit_bytes, end - begin
            lowest(packed, begin * height3 * words, panels, there, stride, count, scratch, at, beside * width, False, 0)
            return
        for first in range(begin, max(end, begin + 1), step if step > 0 else 1):
            count, goes_on = min(step, end - first), first > begin
            ahead = 0 if rows <= unasked else AHEAD if rows <= height0 else count * unit_bytes
            above = 0
            while above < rows:
                height = height_of(rows - above)
                own = (above * units + first * height) * words
                place, there = at + above * width, start + first * unit_bytes
                if height == height0:
                    tile0(packed, own, panels, there, stride, count, scratch, place, width, goes_on, ahead)
                elif height == height1:
                    tile1(packed, own, panels, there, stride, count, scratch, place, width, goes_on, ahead)
                elif height == height2:
                    tile2(packed, own, panels, there, stride, count, scratch, place, width, goes_on, ahead)
                else:
                    tile3(packed, own, panels, there, stride, count, scratch, place, width, goes_on, ahead)
                above += height

    @jit(math=STRICT, key=key)
    def multiply_panels(a, panels, inputs, outputs, out, add, bounds):
        every, units, parts = a.shape[0], panels.shape[1], len(bounds) - 1
        block = max(BLOCK_BYTES // (max(units, 1) * words * size_of_sum), 48) // height0 * height0
        block = min(block, every + height0)
        packed = np.empty(block * units * words + 16, sums)
        packed = packed[-packed.ctypes.data % 64 // size_of_sum :]
        levels = 1
        while 1 << (levels - 1) < parts:
            levels += 1
        size = block * width
        scratch = np.empty((levels + 1) * size + 16, sums)
        scratch = scratch[-scratch.ctypes.data % 64 // size_of_sum :]
        for begin in range(0, every, block):
            rows, above = min(block, every - begin), 0
            while above < rows:
                height = height_of(rows - above)
                pack_rows(a, begin + above, min(height, rows - above), height, units, packed, above * units * words)
                above += height
            panel = 0
            while panel < panels.shape[0]:
                beside = BESIDE if rows <= height3 and panel + BESIDE <= panels.shape[0] else 1
                columns = beside * width
                level = 0  # how many sums of parts wait in scratch, each of twice as many parts as the next
                for n in range(parts):
                    part(packed, rows, units, panels, panel, beside, bounds[n], bounds[n + 1], scratch, level * size)
                    level += 1
                    merged = n + 1
                    while level > 1 and (merged % 2 == 0 or n == parts - 1):
                        below, top = (level - 2) * size, (level - 1) * size
                        for i in range(above * columns):
                            scratch[below + i] += scratch[top + i]
                        level, merged = level - 1, merged // 2
                first = panel * width
                for r in range(rows):
                    for column in range(min(columns, outputs - first)):
                        value = scratch[r * columns + column]
                        out[begin + r, first + column] = out[begin + r, first + column] + value if add else value
                panel += beside

    return multiply_panels
