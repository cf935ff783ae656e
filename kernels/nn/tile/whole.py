"""Products of whole matrices by the tile, float32: neither is packed before, blocks of both are as the product goes on.

A block of the right matrix lies in the second cache as panels and meets all rows of the left one, a few at a time,
which lie in the first. The rows are packed while they meet the first block, and meet the others as they are; the next
block comes nearer while this one is multiplied. Sums go on from block to block along K in the result itself, so every
output is one chain of fused multiply-adds in the order of K: its bits depend on its row, its column and on what the
chain begins with, and on nothing else.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpckit.kernels.compile.addresses import values_at
from hpckit.kernels.compile.intrinsics import called, prefetch_second
from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.nn.tile.simd import HEIGHTS, ISA
from hpckit.kernels.nn.tile.tile import tile, width_of
from hpckit.kernels.nn.tile.turn import LANES, moved, turned

KIND = "float32"
WIDTH, HEIGHT = width_of(KIND), HEIGHTS[0]
INNER, COLUMNS = 512, 128  # at most, of a block of the right matrix: two of them in half of a second cache of 1 MiB
LINE = 16  # numbers of a line of the cache
GROUP = 4 * HEIGHT  # rows of the left matrix that are packed at once: where K goes down, whole lines of the cache
TALL = 12 * GROUP  # rows at most that stay packed
# Numbers that a product needs besides its matrices: the packed blocks, and a tile of which the result has only a part.
ROOM = INNER * (COLUMNS + TALL) + LANES + HEIGHT * WIDTH
IS_FAST = LANES >= HEIGHT  # on processors whose registers hold a tile's height; for the others BLAS is as good


@functools.cache
def multiplier() -> Any:
    """The kernel `(left, right, out, shape, begin, room)`.

    out[rows, columns] = left[rows, inner] right[inner, columns] for the shape (rows, columns, inner). left, right: the
    address of a matrix, from row to row so many numbers, and whether it is stored as its transpose; out: the first two.
    begin: what chains begin with: (whether it is what is in `out`, the address of a vector of columns or 0, the address
    of a matrix or 0, from row to row of that so many numbers); the sum of the latter two, else 0. room: the address of
    ROOM numbers. All float32.
    """
    key = ("whole", ISA, HEIGHTS, INNER, COLUMNS, TALL)
    tile0, tile1, tile2, tile3 = (tile(KIND, height, asks=False) for height in HEIGHTS)
    height0, height1, height2, height3 = HEIGHTS
    moved_rows, moved_columns, numbers = moved(HEIGHT), moved(WIDTH), values_at(KIND)
    turned_rows, turned_columns = turned(min(HEIGHT, LANES)), turned(LANES)

    @jit(math=STRICT, key=key)
    def height_of(left):
        return height0 if left >= height0 else height1 if left >= height1 else height2 if left >= height2 else height3

    @jit(math=STRICT, key=key)
    def corner_of(k, first, turned, pitch):
        """Where a block of the right matrix begins."""
        return first * pitch + k if turned else k * pitch + first

    @jit(math=STRICT, key=key, borrowed=True)
    def pack_rows(a, at, turned, pitch, rows, units, packed, own):
        """Some rows of the left matrix, height by height, from packed[own] on."""
        called()
        whole = rows // height0 * height0
        if turned:
            for k in range(units):
                for above in range(0, whole, height0):
                    moved_rows(a, at + k * pitch + above, packed, own + above * units + k * height0)
        else:
            for above in range(0, whole, height0):
                source, place, even = at + above * pitch, own + above * units, units // LANES * LANES
                for k in range(0, even, LANES):
                    turned_rows(a, source + k, pitch, packed, place + k * height0, height0)
                for k in range(even, units):
                    for r in range(height0):
                        packed[place + k * height0 + r] = a[source + r * pitch + k]
        along, down = (pitch, 1) if turned else (1, pitch)
        above = whole
        while above < rows:
            height = height_of(rows - above)
            source, place = at + above * down, own + above * units
            for k in range(units):
                for r in range(height):
                    packed[place + k * height + r] = a[source + r * down + k * along]
            above += height

    @jit(math=STRICT, key=key, borrowed=True)
    def pack_columns(b, at, turned, pitch, columns, units, packed):
        """A block of the right matrix as panels; the last one is filled up with zeros."""
        called()
        panel, whole, even = units * WIDTH, columns // WIDTH, units // LANES * LANES
        if turned:
            for p in range(whole):
                source, place = at + p * WIDTH * pitch, p * panel
                for k in range(0, even, LANES):
                    for c in range(0, WIDTH, LANES):
                        turned_columns(b, source + c * pitch + k, pitch, packed, place + k * WIDTH + c, WIDTH)
                for k in range(even, units):
                    for c in range(WIDTH):
                        packed[place + k * WIDTH + c] = b[source + c * pitch + k]
        else:
            for k in range(units):
                for p in range(whole):
                    moved_columns(b, at + k * pitch + p * WIDTH, packed, p * panel + k * WIDTH)
        along, down, done = (1, pitch, whole * WIDTH) if turned else (pitch, 1, whole * WIDTH)
        for k in range(units if done < columns else 0):
            for c in range(WIDTH):
                source, place = at + (done + c) * down + k * along, whole * panel + k * WIDTH + c
                packed[place] = b[source] if done + c < columns else np.float32(0)

    @jit(math=STRICT, key=key, borrowed=True)
    def ask(a, at, pitch, rows, count):
        """Ask for the first numbers of some rows as they lie in memory."""
        called()
        for r in range(rows):
            for number in range(0, count, LINE):
                prefetch_second(a, at + r * pitch + number)

    @jit(math=STRICT, key=key, borrowed=True)
    def sums(height, packed, first, panels, start, units, out, place, pitch, goes_on):
        called()
        if height == height0:
            tile0(packed, first, panels, start, 0, units, out, place, pitch, goes_on, 0)
        elif height == height1:
            tile1(packed, first, panels, start, 0, units, out, place, pitch, goes_on, 0)
        elif height == height2:
            tile2(packed, first, panels, start, 0, units, out, place, pitch, goes_on, 0)
        else:
            tile3(packed, first, panels, start, 0, units, out, place, pitch, goes_on, 0)

    @jit(math=STRICT, key=key, borrowed=True)
    def begin_with(out, at, pitch, vector, column, matrix, corner, down, height, count):
        """Set a tile of the result to what its chains begin with."""
        called()
        for r in range(np.uint64(height)):
            place = np.uint64(at) + r * np.uint64(pitch)
            for c in range(np.uint64(count)):
                value = np.float32(0)
                if matrix.size:
                    value = matrix[np.uint64(corner) + r * np.uint64(down) + c]
                if vector.size:
                    value = value + vector[np.uint64(column) + c] if matrix.size else vector[np.uint64(column) + c]
                out[place + c] = value

    @jit(math=STRICT, key=key)
    def multiply(left, right, out, shape, begin, room):
        (a, a_pitch, a_turned), (b, b_pitch, b_turned), (to, pitch) = left, right, out
        (rows, columns, inner), (add, start, onto, down) = shape, begin
        ours, theirs, result = numbers(a, rows), numbers(b, rows), numbers(to, rows)  # the lengths are not looked at
        vector, matrix = numbers(start, columns if start else 0), numbers(onto, rows if onto else 0)
        panels, packed = numbers(room, rows), numbers(room + 4 * INNER * COLUMNS, rows)
        edge = numbers(room + 4 * (INNER * (COLUMNS + TALL) + LANES), rows)
        begun = start != 0 or onto != 0
        stretches = max(1, -(-inner // INNER))
        stretch = max(1, min(INNER, -(-inner // (stretches * LANES)) * LANES))
        for top in range(0, rows, TALL):
            tall = min(TALL, rows - top)
            for k in range(0, max(inner, 1), stretch):
                units, goes_on, begins = min(stretch, inner - k), add or begun or k > 0, begun and k == 0
                along_a, down_a = (k * a_pitch, 1) if a_turned else (k, a_pitch)
                for first in range(0, columns, COLUMNS):
                    wide, corner = min(COLUMNS, columns - first), corner_of(k, first, b_turned, b_pitch)
                    pack_columns(theirs, corner, b_turned, b_pitch, wide, units, panels)
                    next_k, next_first = (k, first + COLUMNS) if first + COLUMNS < columns else (k + stretch, 0)
                    next_b = corner_of(next_k, next_first, b_turned, b_pitch)
                    across, along = min(COLUMNS, columns - next_first), min(stretch, inner - next_k)
                    lines_b, length_b = (across, along) if b_turned else (along, across)
                    if along <= 0:
                        lines_b = 0
                    tiles = -(-tall // HEIGHT) * -(-wide // WIDTH)
                    asked_b, share_b, wait = 0, -(-2 * lines_b // tiles), tiles // 2
                    for row in range(0, tall, GROUP):
                        high, coming = min(GROUP, tall - row), min(GROUP, tall - row - GROUP) if first == 0 else 0
                        if first == 0:
                            source = along_a + (top + row) * down_a
                            pack_rows(ours, source, a_turned, a_pitch, high, units, packed, row * units)
                        # While this group meets the block, the next one comes nearer, a share of its lines a tile.
                        next_a = along_a + (top + row + GROUP) * down_a
                        lines, length = (units if coming > 0 else 0, coming) if a_turned else (coming, units)
                        above, asked, share = row, 0, -(-lines // (-(-high // HEIGHT) * -(-wide // WIDTH)))
                        while above < row + high:
                            height, own = height_of(row + high - above), above * units
                            for column in range(0, wide, WIDTH):
                                if asked < lines:
                                    ask(ours, next_a + asked * a_pitch, a_pitch, min(share, lines - asked), length)
                                    asked += share
                                wait -= 1
                                if wait < 0 and asked_b < lines_b:
                                    count = min(share_b, lines_b - asked_b)
                                    ask(theirs, next_b + asked_b * b_pitch, b_pitch, count, length_b)
                                    asked_b += share_b
                                panel, count = column * units, min(WIDTH, wide - column)
                                place = (top + above) * pitch + first + column
                                ask(result, place + WIDTH, pitch, height, WIDTH)
                                if begins:
                                    of, carried = first + column, (top + above) * down + first + column
                                    begin_with(result, place, pitch, vector, of, matrix, carried, down, height, count)
                                if count == WIDTH:
                                    sums(height, packed, own, panels, 4 * panel, units, result, place, pitch, goes_on)
                                    continue
                                if goes_on:
                                    for r in range(height):
                                        for c in range(count):
                                            edge[r * WIDTH + c] = result[place + r * pitch + c]
                                sums(height, packed, own, panels, 4 * panel, units, edge, 0, WIDTH, goes_on)
                                for r in range(height):
                                    for c in range(count):
                                        result[place + r * pitch + c] = edge[r * WIDTH + c]
                            above += height

    return multiply
