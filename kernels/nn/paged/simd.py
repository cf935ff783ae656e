"""Paged attention on processors with vectors; see `reference` for the meaning.

Scores and results are products by the tile: each is one chain of fused multiply-adds, in the order of the numbers of a
head and of tokens. A row's softmax adds LANES chains over the blocks, then those in order. So the bits of a row depend
on its text up to it alone: not on the rows beside it, on how its text was cut into pieces, or on where blocks lie.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpckit.kernels.compile.intrinsics import called
from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.nn.elementary import exponential
from hpckit.kernels.nn.paged.pages import LANES, PAGE
from hpckit.kernels.nn.tile.simd import HEIGHTS, ISA
from hpckit.kernels.nn.tile.tile import tile, width_of

AHEAD = 4096  # bytes that a panel is asked for before it is used
LOWEST = np.float32(-1e30)


@jit(math=STRICT)
def keep(qkv, keys, values, positions, slots, cosines, sines):
    rows, groups, lines, width = qkv.shape
    half, panel = width // 2, keys.shape[4]
    for row in range(rows):
        block, place = slots[row] // PAGE, slots[row] % PAGE
        for g in range(groups):
            if len(cosines):
                c, s = cosines[positions[row]], sines[positions[row]]
                for line in range(lines - 1):
                    head = qkv[row, g, line]
                    for i in range(half):
                        x, y = head[i], head[i + half]
                        head[i] = x * c[i] - y * s[i]
                        head[i + half] = y * c[i] + x * s[i]
            for i in range(width):
                keys[g, block, place // panel, i, place % panel] = qkv[row, g, lines - 2, i]
                values[g, block, i // panel, place, i % panel] = qkv[row, g, lines - 1, i]


@functools.cache
def attention() -> Any:
    """The kernel `(qkv, keys, values, rows, starts, tables, window, factor, out)` of `attend`."""
    exp, panel = exponential("float32"), width_of("float32")
    tile0, tile1, tile2, tile3 = (tile("float32", height) for height in HEIGHTS)
    height0, height1, height2, height3 = HEIGHTS
    columns = PAGE // panel  # panels of the keys of a block
    key, zero = ("paged", ISA, HEIGHTS), np.float32(0)

    @jit(math=STRICT, key=(*key, "product"), borrowed=True)
    def product(height, packed, first, panels, start, units, out, place, goes_on):
        called()
        if height == height0:
            tile0(packed, first, panels, start, 0, units, out, place, panel, goes_on, AHEAD)
        elif height == height1:
            tile1(packed, first, panels, start, 0, units, out, place, panel, goes_on, AHEAD)
        elif height == height2:
            tile2(packed, first, panels, start, 0, units, out, place, panel, goes_on, AHEAD)
        else:
            tile3(packed, first, panels, start, 0, units, out, place, panel, goes_on, AHEAD)

    @inlined(math=STRICT)
    def strip(scores, at, low, seen, most, sums, lane):
        """exp(score - most) of LANES scores, 0 below `low` and from `seen` on, to `lane`; added to the sums."""
        for c in range(LANES):
            value = exp(scores[at + c] - most)
            value = value if low <= c < seen else zero
            sums[c] += value
            lane[c] = value

    @jit(math=STRICT, key=(*key, "softmax"), borrowed=True)
    def softmax(scores, row, height, low, seen, begin, panels, sums, lane, weights):
        """Pack the weights of a row from panel `begin` on; its scores from `low` to `seen` count; returns their sum."""
        called()
        most = LOWEST
        for p in range(begin, panels):
            at = (p * height + row) * panel
            for c in range(max(0, low - p * panel), min(panel, seen - p * panel)):
                most = max(most, scores[at + c])
        sums[:] = zero
        for p in range(begin, panels):
            for part in range(0, panel, LANES):
                before = p * panel + part
                strip(scores, (p * height + row) * panel + part, low - before, seen - before, most, sums, lane)
                to = (p * panel + part) * height + row
                for c in range(LANES):
                    weights[to + c * height] = lane[c]
        total = zero
        for c in range(LANES):
            total += sums[c]
        return total

    @jit(math=STRICT, key=(*key, "attend"))
    def attend(qkv, keys, values, rows, starts, tables, window, factor, out):
        _, groups, lines, width = qkv.shape
        blocks, wide, heads = keys.shape[1], values.shape[2], lines - 2
        longest = 1
        for piece in range(len(starts)):
            longest = max(longest, starts[piece] + rows[piece + 1] - rows[piece])
        longest = -(-longest // PAGE) * PAGE
        query = np.empty(height0 * width, np.float32)
        scores, weights = np.empty(height0 * longest, np.float32), np.empty(height0 * longest, np.float32)
        found, totals = np.empty(height0 * wide * panel, np.float32), np.empty(height0, np.float32)
        sums, lane = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
        for piece in range(len(starts)):
            first, start = rows[piece], starts[piece]
            every = (rows[piece + 1] - first) * heads
            for g in range(groups):
                above = 0
                while above < every:
                    left = every - above
                    height = height3
                    height = height2 if left > height3 else height
                    height = height1 if left > height2 else height
                    height = height0 if left > height1 else height
                    count = min(height, left)
                    last = start + (above + count - 1) // heads + 1  # tokens that the tile's last row sees
                    many = -(-last // PAGE)
                    # Blocks before the window of the first row are left out: their weights would be zeros.
                    begin = max(0, start + above // heads + 1 - window) // PAGE if window else 0
                    for r in range(height):
                        at = min(above + r, every - 1)
                        source = qkv[first + at // heads, g, at % heads]
                        for i in range(width):
                            query[i * height + r] = factor * source[i]
                    for b in range(begin, many):
                        place = (g * blocks + tables[piece, b]) * columns
                        for c in range(columns):
                            start_byte = (place + c) * width * panel * 4
                            to = (b * columns + c) * height * panel
                            product(height, query, 0, keys, start_byte, width, scores, to, False)
                    for r in range(height):
                        seen = start + min(above + r, every - 1) // heads + 1
                        low, first_panel = max(0, seen - window) if window else 0, begin * columns
                        totals[r] = softmax(
                            scores, r, height, low, seen, first_panel, many * columns, sums, lane, weights
                        )
                    for p in range(wide):
                        for b in range(begin, many):
                            at = ((g * blocks + tables[piece, b]) * wide + p) * PAGE * panel * 4
                            units = min(PAGE, last - b * PAGE)
                            goes_on = b > begin
                            product(
                                height,
                                weights,
                                b * PAGE * height,
                                values,
                                at,
                                units,
                                found,
                                p * height * panel,
                                goes_on,
                            )
                    for r in range(count):
                        row, head = first + (above + r) // heads, (above + r) % heads
                        inverse, base = np.float32(1) / totals[r], (g * heads + head) * width
                        for i in range(width):
                            out[row, base + i] = found[((i // panel) * height + r) * panel + i % panel] * inverse
                    above += height

    return attend


def attend(qkv, keys, values, rows, starts, tables, window, out):
    attention()(qkv, keys, values, rows, starts, tables, window, np.float32(qkv.shape[3] ** -0.5), out)
