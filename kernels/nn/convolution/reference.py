"""Patches of images and max pooling, NumPy: definition and test oracle of the compiled forms.

An image is [n, height, width, channels] (channels last), so that a patch is `kernel height` runs of contiguous memory,
and a convolution is one matrix product of its patches (im2col: Chellapilla, Puri and Simard 2006). A patch may reach
`padding` cells beyond the image, which are zero. Patch (y, x) begins at the cell (y * stride - padding, ...).
"""

from __future__ import annotations

import numpy as np


def out_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """The number of patches along a dim of `size` cells; below 1 if none fits."""
    return (size + 2 * padding - kernel) // stride + 1


def gather_patches(patches: np.ndarray, image: np.ndarray, stride: int, padding: int) -> None:
    """Write all patches [n, out height, out width, kernel height, kernel width, channels] of the image."""
    rows, columns, kernel_rows, kernel_columns = patches.shape[1:5]
    wide = np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    for i in range(kernel_rows):
        for j in range(kernel_columns):
            cells = wide[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
            patches[:, :, :, i, j] = cells[:, :rows, :columns]


def add_patches(image: np.ndarray, patches: np.ndarray, stride: int, padding: int) -> None:
    """The adjoint of `gather_patches`: add each patch to its cells, in the order of the patches."""
    height, width = image.shape[1:3]
    rows, columns, kernel_rows, kernel_columns = patches.shape[1:5]
    wide = np.pad(image, ((0, 0), (padding, padding + stride), (padding, padding + stride), (0, 0)))
    for i in reversed(range(kernel_rows)):  # a cell late in its patch belongs to an early patch
        for j in reversed(range(kernel_columns)):
            cells = wide[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
            cells[:, :rows, :columns] += patches[:, :, :, i, j]
    image[...] = wide[:, padding : padding + height, padding : padding + width]


def max_pool(out: np.ndarray, place: np.ndarray, image: np.ndarray, size: int) -> None:
    """The largest value of each window of size x size cells, and its place in the window (uint8, the first of equals).

    A nan counts as the largest. out, place: [n, height // size, width // size, channels]; cells outside the last whole
    window are ignored.
    """
    n, rows, columns, channels = out.shape
    windows = image[:, : rows * size, : columns * size].reshape(n, rows, size, columns, size, channels)
    windows = windows.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows, columns, size * size, channels)
    place[...] = windows.argmax(axis=3)
    out[...] = windows.max(axis=3)


def max_pool_back(image: np.ndarray, out: np.ndarray, place: np.ndarray, size: int) -> None:
    """The adjoint of `max_pool`: each value of `out` at the place of its window's maximum, zeros elsewhere."""
    n, rows, columns, channels = out.shape
    windows = np.zeros((n, rows, columns, size * size, channels), image.dtype)
    np.put_along_axis(windows, place[:, :, :, None].astype(np.intp), out[:, :, :, None], axis=3)
    windows = windows.reshape(n, rows, columns, size, size, channels).transpose(0, 1, 3, 2, 4, 5)
    image[...] = 0
    image[:, : rows * size, : columns * size] = windows.reshape(n, rows * size, columns * size, channels)
