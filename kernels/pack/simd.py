"""Slabs in Numba: one pass over memory, with a loop of its own for the unit-stride dim.

There (inner == 1) a slab takes a value or two from each cache line, so both ends of a row are handled in one visit:
the end of a row and the start of the next one are neighbors in memory.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.jit import STRICT, jit


@jit(math=STRICT)
def pack_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    """As `reference.pack_slab`."""
    outer, _, inner = array.shape
    if inner == 1:
        if layers == 1:
            for o in range(outer):
                buffer[o] = array[o, first, 0]
        else:
            for o in range(outer):
                for k in range(layers):
                    buffer[o * layers + k] = array[o, first + k, 0]
    else:
        for o in range(outer):
            for k in range(layers):
                at = (o * layers + k) * inner
                for i in range(inner):
                    buffer[at + i] = array[o, first + k, i]


@jit(math=STRICT)
def unpack_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    """As `reference.unpack_slab`."""
    outer, _, inner = array.shape
    if inner == 1:
        if layers == 1:
            for o in range(outer):
                array[o, first, 0] = buffer[o]
        else:
            for o in range(outer):
                for k in range(layers):
                    array[o, first + k, 0] = buffer[o * layers + k]
    else:
        for o in range(outer):
            for k in range(layers):
                at = (o * layers + k) * inner
                for i in range(inner):
                    array[o, first + k, i] = buffer[at + i]


@jit(math=STRICT)
def add_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    """As `reference.add_slab`."""
    outer, _, inner = array.shape
    for o in range(outer):
        for k in range(layers):
            at = (o * layers + k) * inner
            for i in range(inner):
                array[o, first + k, i] += buffer[at + i]


@jit(math=STRICT)
def wrap_ends(array: np.ndarray, width: int) -> None:
    """As `reference.wrap_ends`."""
    outer, n, inner = array.shape
    high = n - width
    if inner == 1:
        if width == 1:
            for o in range(outer):
                array[o, 0, 0] = array[o, high - 1, 0]
                array[o, high, 0] = array[o, 1, 0]
        else:
            for o in range(outer):
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
    """As `reference.fold_ends`."""
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
    """As `reference.clear_slab`: NumPy's own loop."""
    array[:, first : first + layers] = 0
