"""Slabs on a GPU: one thread a value of a buffer.

Along the unit-stride dim (inner == 1) neighboring threads take neighboring layers of a row, so that the few values of a
row come from one sector of memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads

THREADS = threads(256)
u8 = np.uint64


@kernel
def _pack(array, first, layers, n, inner, buffer):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(buffer.size):
        slab = u8(layers) * u8(inner)
        outer = at // slab
        buffer[at] = array[(outer * u8(n) + u8(first)) * u8(inner) + (at - outer * slab)]


@kernel
def _unpack(array, first, layers, n, inner, buffer):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(buffer.size):
        slab = u8(layers) * u8(inner)
        outer = at // slab
        array[(outer * u8(n) + u8(first)) * u8(inner) + (at - outer * slab)] = buffer[at]


@kernel
def _add(array, first, layers, n, inner, buffer):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(buffer.size):
        slab = u8(layers) * u8(inner)
        outer = at // slab
        array[(outer * u8(n) + u8(first)) * u8(inner) + (at - outer * slab)] += buffer[at]


@kernel
def _clear(array, first, layers, n, inner, count):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(count):
        slab = u8(layers) * u8(inner)
        outer = at // slab
        array[(outer * u8(n) + u8(first)) * u8(inner) + (at - outer * slab)] = 0


@kernel
def _wrap(array, width, n, inner, count):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(count):
        slab = u8(width) * u8(inner)
        outer = at // slab
        low = outer * u8(n) * u8(inner) + (at - outer * slab)
        period = u8(n - 2 * width) * u8(inner)
        array[low] = array[low + period]
        array[low + period + slab] = array[low + slab]


@kernel
def _fold(array, width, n, inner, count):
    """One thread a place in a row and its row: layers of one row may be added to one cell."""
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(count):
        step = u8(inner)
        outer = at // step
        low = outer * u8(n) * step + (at - outer * step)
        period = u8(n - 2 * width) * step
        far = u8(width) * step
        for k in range(u8(width)):
            array[low + k * step + period] += array[low + k * step]
        for k in range(u8(width)):
            array[low + k * step + far] += array[low + k * step + period + far]
        for k in range(u8(width)):
            array[low + k * step] = 0
            array[low + k * step + period + far] = 0


def _launch(kernel: Any, array: Any, first: int, layers: int, buffer: Any) -> None:
    if buffer.size:
        _, n, inner = array.shape
        kernel[blocks(buffer.size, THREADS), THREADS](array.reshape(-1), first, layers, n, inner, buffer)


def pack_slab(array: Any, first: int, layers: int, buffer: Any) -> None:
    _launch(_pack, array, first, layers, buffer)


def unpack_slab(array: Any, first: int, layers: int, buffer: Any) -> None:
    _launch(_unpack, array, first, layers, buffer)


def add_slab(array: Any, first: int, layers: int, buffer: Any) -> None:
    _launch(_add, array, first, layers, buffer)


def clear_slab(array: Any, first: int, layers: int) -> None:
    outer, n, inner = array.shape
    count = outer * layers * inner
    if count:
        _clear[blocks(count, THREADS), THREADS](array.reshape(-1), first, layers, n, inner, count)


def wrap_ends(array: Any, width: int) -> None:
    outer, n, inner = array.shape
    count = outer * width * inner
    if count:
        _wrap[blocks(count, THREADS), THREADS](array.reshape(-1), width, n, inner, count)


def fold_ends(array: Any, width: int) -> None:
    outer, n, inner = array.shape
    if outer * inner and width:
        _fold[blocks(outer * inner, THREADS), THREADS](array.reshape(-1), width, n, inner, outer * inner)
