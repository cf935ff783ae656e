"""Paged attention on a GPU: a thread a query of one head, over the blocks in order; what it computes: `reference`.

A thread goes over its text twice: for the largest score, then for the sums, which it adds in the order of tokens. Its
bits depend on the text up to its token alone, as on processors; they are not those of processors.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.nn.paged.pages import PAGE

THREADS = threads(64)


@kernel
def _keep(qkv, keys, values, positions, slots, cosines, sines):
    """A thread a row and a group."""
    at = cuda.grid(1)
    groups, lines, width, panel = qkv.shape[1], qkv.shape[2], qkv.shape[3], keys.shape[4]
    if at < qkv.shape[0] * groups:
        row, g = at // groups, at % groups
        if cosines.shape[0] > 0:
            half, position = width // 2, positions[row]
            for line in range(lines - 1):
                for i in range(half):
                    x, y = qkv[row, g, line, i], qkv[row, g, line, i + half]
                    c, s = cosines[position, i], sines[position, i]
                    qkv[row, g, line, i] = x * c - y * s
                    qkv[row, g, line, i + half] = y * c + x * s
        block, place = slots[row] // PAGE, slots[row] % PAGE
        for i in range(width):
            keys[g, block, place // panel, i, place % panel] = qkv[row, g, lines - 2, i]
            values[g, block, i // panel, place, i % panel] = qkv[row, g, lines - 1, i]


def keep(qkv: Any, keys: Any, values: Any, positions: Any, slots: Any, cosines: Any, sines: Any) -> None:
    """See `reference.keep`."""
    count = qkv.shape[0] * qkv.shape[1]
    if count:
        _keep[blocks(count, THREADS), THREADS](qkv, keys, values, positions, slots, cosines, sines)


@functools.cache
def _attend(dtype: str, width: int) -> Any:
    real = np.dtype(dtype).type

    @inlined
    def score(query, keys, g, block, place, factor):
        panel = keys.shape[4]
        total = real(0)
        for i in range(width):
            total += query[i] * keys[g, block, place // panel, i, place % panel]
        return total * factor

    @kernel
    def attend(qkv, keys, values, rows, starts, tables, window, factor, out):
        query, found = cuda.local.array(width, real), cuda.local.array(width, real)
        at = cuda.grid(1)
        groups, heads, panel = qkv.shape[1], qkv.shape[2] - 2, keys.shape[4]
        if at < qkv.shape[0] * groups * heads:
            row, place = at // (groups * heads), at % (groups * heads)
            g, head = place // heads, place % heads
            piece = 0
            while rows[piece + 1] <= row:
                piece += 1
            seen = starts[piece] + row - rows[piece] + 1
            low = max(0, seen - window) if window > 0 else 0
            for i in range(width):
                query[i] = qkv[row, g, head, i]
                found[i] = real(0)
            most = real(-1e30)
            for t in range(low, seen):
                most = max(most, score(query, keys, g, tables[piece, t // PAGE], t % PAGE, factor))
            total = real(0)
            for t in range(low, seen):
                block = tables[piece, t // PAGE]
                weight = real(math.exp(score(query, keys, g, block, t % PAGE, factor) - most))
                total += weight
                for i in range(width):
                    found[i] += weight * values[g, block, i // panel, t % PAGE, i % panel]
            for i in range(width):
                out[row, place * width + i] = found[i] / total

    return attend


def attend(qkv: Any, keys: Any, values: Any, rows: Any, starts: Any, tables: Any, window: int, out: Any) -> None:
    """See `reference.attend`."""
    count, width = qkv.shape[0] * qkv.shape[1] * (qkv.shape[2] - 2), qkv.shape[3]
    if count:
        launch = _attend(qkv.dtype.char, width)[blocks(count, THREADS), THREADS]
        launch(qkv, keys, values, rows, starts, tables, window, qkv.dtype.type(width**-0.5), out)
