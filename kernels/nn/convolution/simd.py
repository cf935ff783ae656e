"""Patches of images and max pooling, Numba: the bits of `reference`, an image at a time."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit


@jit(math=STRICT, borrowed=True, noalias=True)
def gather_patches(patches, image, stride, padding):
    count, height, width, channels = image.shape
    rows, columns, kernel_rows, kernel_columns = patches.shape[1:5]
    for n in range(count):
        for y in range(rows):
            for x in range(columns):
                for i in range(kernel_rows):
                    row = y * stride + i - padding
                    for j in range(kernel_columns):
                        column = x * stride + j - padding
                        if 0 <= row < height and 0 <= column < width:
                            for c in range(channels):
                                patches[n, y, x, i, j, c] = image[n, row, column, c]
                        else:
                            for c in range(channels):
                                patches[n, y, x, i, j, c] = 0


@jit(math=STRICT, borrowed=True, noalias=True)
def add_patches(image, patches, stride, padding):
    count, height, width, channels = image.shape
    rows, columns, kernel_rows, kernel_columns = patches.shape[1:5]
    for n in range(count):
        for y in range(rows):
            for x in range(columns):
                for i in range(kernel_rows):
                    row = y * stride + i - padding
                    for j in range(kernel_columns):
                        column = x * stride + j - padding
                        if 0 <= row < height and 0 <= column < width:
                            for c in range(channels):
                                image[n, row, column, c] += patches[n, y, x, i, j, c]


@jit(math=STRICT, borrowed=True, noalias=True)
def max_pool(out, place, image, size):
    count, rows, columns, channels = out.shape
    for n in range(count):
        for y in range(rows):
            for x in range(columns):
                for c in range(channels):
                    out[n, y, x, c] = image[n, y * size, x * size, c]
                    place[n, y, x, c] = 0
                for k in range(1, size * size):
                    row, column = y * size + k // size, x * size + k % size
                    for c in range(channels):
                        value, most = image[n, row, column, c], out[n, y, x, c]
                        if value > most or (value != value and most == most):  # the first nan stays
                            out[n, y, x, c] = value
                            place[n, y, x, c] = np.uint8(k)


@jit(math=STRICT, borrowed=True, noalias=True)
def max_pool_back(image, out, place, size):
    count, rows, columns, channels = out.shape
    image[:] = 0
    for n in range(count):
        for y in range(rows):
            for x in range(columns):
                for c in range(channels):
                    k = np.int64(place[n, y, x, c])
                    image[n, y * size + k // size, x * size + k % size, c] = out[n, y, x, c]
