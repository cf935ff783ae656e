"""Slabs in Numba: one pass over memory.

The layers of a slab are next to each other in memory, so that each outer index is one stretch to copy; without overlap
of array and buffer (noalias) the reads of many short stretches are under way at once, which is two to ten times faster.
Where an end of a unit-stride dim is copied to the other (inner == 1), both ends of a row are handled in one visit: the
end of a row and the start of the next one are neighbors in memory.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.intrinsics import prefetch
from hpckit.kernels.compile.jit import STRICT, jit

u8 = np.uint64
AHEAD = 16  # rows


@jit(math=STRICT, noalias=True)
def pack_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    outer, n, inner = array.shape
    flat, run = array.reshape(-1), u8(layers * inner)
    if run == 1:
        for o in range(outer):
            buffer[o] = array[o, first, 0]
    else:
        for o in range(outer):
            there, here = u8((o * n + first) * inner), u8(o) * run
            for i in range(run):
                buffer[here + i] = flat[there + i]


@jit(math=STRICT, noalias=True)
def unpack_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    outer, n, inner = array.shape
    flat, run = array.reshape(-1), u8(layers * inner)
    if run == 1:
        for o in range(outer):
            array[o, first, 0] = buffer[o]
    else:
        for o in range(outer):
            there, here = u8((o * n + first) * inner), u8(o) * run
            for i in range(run):
                flat[there + i] = buffer[here + i]


@jit(math=STRICT)
def add_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    outer, _, inner = array.shape
    for o in range(outer):
        for k in range(layers):
            at = (o * layers + k) * inner
            for i in range(inner):
                array[o, first + k, i] += buffer[at + i]


@jit(math=STRICT)
def wrap_ends(array: np.ndarray, width: int) -> None:
    outer, n, inner = array.shape
    high, flat = n - width, array.reshape(-1)
    if inner == 1:
        if width == 1:
            for o in range(outer):
                array[o, 0, 0] = array[o, high - 1, 0]
                array[o, high, 0] = array[o, 1, 0]
        else:
            for o in range(outer):
                # Rows are too far apart for the processor to foresee: those that the cache has lost are asked for.
                ahead = (o + AHEAD) * n
                prefetch(flat, ahead - 2 * width)
                prefetch(flat, ahead)
                prefetch(flat, ahead + 2 * width - 1)
                for k in range(width):
                    array[o, k, 0] = array[o, high - width + k, 0]
                    array[o, high + k, 0] = array[o, width + k, 0]
    else:
        for o in range(outer):
            for k in range(width):
                for i in range(inner):
                    array[o, k, i] = array[o, high - width + k, i]
                for i in range(inner):
                    array[o, high + k, i] = array[o, width + k, i]


@jit(math=STRICT)
def fold_ends(array: np.ndarray, width: int) -> None:
    outer, n, inner = array.shape
    high = n - width
    for o in range(outer):
        for k in range(width):
            for i in range(inner):
                array[o, high - width + k, i] += array[o, k, i]
        for k in range(width):
            for i in range(inner):
                array[o, width + k, i] += array[o, high + k, i]
        for k in range(width):
            for i in range(inner):
                array[o, k, i] = 0
                array[o, high + k, i] = 0


def clear_slab(array: np.ndarray, first: int, layers: int) -> None:
    """Set a slab to 0 by NumPy's own loop; see `reference.clear_slab`."""
    array[:, first : first + layers] = 0
