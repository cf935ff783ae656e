"""Patches of images and max pooling on a GPU: a thread a number that is written. See `reference`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads

THREADS = threads(256)
u8, i8 = np.uint64, np.int64


@kernel
def _gather_patches(patches, image, stride, padding):
    at = i8(cuda.blockIdx.x) * i8(cuda.blockDim.x) + i8(cuda.threadIdx.x)
    if at < i8(patches.size):
        _, rows, columns, kernel_rows, kernel_columns, channels = patches.shape
        _, height, width, _ = image.shape
        c, rest = at % channels, at // channels
        j, rest = rest % kernel_columns, rest // kernel_columns
        i, rest = rest % kernel_rows, rest // kernel_rows
        x, rest = rest % columns, rest // columns
        y, n = rest % rows, rest // rows
        row, column = y * stride + i - padding, x * stride + j - padding
        inside = row >= 0 and row < height and column >= 0 and column < width
        patches[n, y, x, i, j, c] = image[n, row, column, c] if inside else patches.dtype.type(0)


def gather_patches(patches: Any, image: Any, stride: int, padding: int) -> None:
    _gather_patches[blocks(patches.size, THREADS), THREADS](patches, image, stride, padding)


@kernel
def _add_patches(image, patches, stride, padding):
    """A cell adds the patches that it is in, in their order."""
    at = i8(cuda.blockIdx.x) * i8(cuda.blockDim.x) + i8(cuda.threadIdx.x)
    if at < i8(image.size):
        _, rows, columns, kernel_rows, kernel_columns, channels = patches.shape
        _, height, width, _ = image.shape
        c, rest = at % channels, at // channels
        column, rest = rest % width, rest // width
        row, n = rest % height, rest // height
        total = image[n, row, column, c]
        for back in range(kernel_rows):
            i = kernel_rows - 1 - back  # the later in a patch a cell is, the earlier the patch begins
            y = (row + padding - i) // stride
            if row + padding - i >= 0 and (row + padding - i) % stride == 0 and y < rows:
                for back_across in range(kernel_columns):
                    j = kernel_columns - 1 - back_across
                    x = (column + padding - j) // stride
                    if column + padding - j >= 0 and (column + padding - j) % stride == 0 and x < columns:
                        total += patches[n, y, x, i, j, c]
        image[n, row, column, c] = total


def add_patches(image: Any, patches: Any, stride: int, padding: int) -> None:
    _add_patches[blocks(image.size, THREADS), THREADS](image, patches, stride, padding)


@kernel
def _max_pool(out, place, image, size):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(out.size):
        c, rest = at % u8(out.shape[3]), at // u8(out.shape[3])
        x, rest = rest % u8(out.shape[2]), rest // u8(out.shape[2])
        y, n = rest % u8(out.shape[1]), rest // u8(out.shape[1])
        largest, first = image[n, y * u8(size), x * u8(size), c], u8(0)
        for k in range(u8(1), u8(size) * u8(size)):
            value = image[n, y * u8(size) + u8(k) // u8(size), x * u8(size) + u8(k) % u8(size), c]
            if value > largest or (value != value and largest == largest):  # the first nan stays
                largest, first = value, u8(k)
        out[n, y, x, c] = largest
        place[n, y, x, c] = np.uint8(first)


def max_pool(out: Any, place: Any, image: Any, size: int) -> None:
    _max_pool[blocks(out.size, THREADS), THREADS](out, place, image, size)


@kernel
def _max_pool_back(image, out, place, size):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(image.size):
        c, rest = at % u8(image.shape[3]), at // u8(image.shape[3])
        column, rest = rest % u8(image.shape[2]), rest // u8(image.shape[2])
        row, n = rest % u8(image.shape[1]), rest // u8(image.shape[1])
        y, x, value = row // u8(size), column // u8(size), image.dtype.type(0)
        inside = y < u8(out.shape[1]) and x < u8(out.shape[2])
        if inside and u8(place[n, y, x, c]) == (row % u8(size)) * u8(size) + column % u8(size):
            value = out[n, y, x, c]
        image[n, row, column, c] = value


def max_pool_back(image: Any, out: Any, place: Any, size: int) -> None:
    _max_pool_back[blocks(image.size, THREADS), THREADS](image, out, place, size)
