"""Packing of slabs, NumPy: definition and test oracle of the compiled forms.

`array` is [outer, n, inner] and C-contiguous; `buffer` is flat, of the array's dtype, with outer * layers * inner
values in the order of the array.
"""

from __future__ import annotations

import numpy as np


def pack_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    """Copy array[:, first : first + layers] to the buffer."""
    buffer.reshape(array.shape[0], layers, array.shape[2])[...] = array[:, first : first + layers]


def unpack_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    """Copy the buffer to array[:, first : first + layers]."""
    array[:, first : first + layers] = buffer.reshape(array.shape[0], layers, array.shape[2])


def add_slab(array: np.ndarray, first: int, layers: int, buffer: np.ndarray) -> None:
    """Add the buffer to array[:, first : first + layers]."""
    array[:, first : first + layers] += buffer.reshape(array.shape[0], layers, array.shape[2])


def wrap_ends(array: np.ndarray, width: int) -> None:
    """Fill the halo of a periodic dim, the `width` layers at both ends of the middle dim, from the opposite end."""
    array[:, :width] = array[:, -2 * width : -width]
    array[:, -width:] = array[:, width : 2 * width]


def fold_ends(array: np.ndarray, width: int) -> None:
    """The adjoint of `wrap_ends`: add the halo of a periodic dim to the layers that own it, and clear the halo."""
    array[:, -2 * width : -width] += array[:, :width]
    array[:, width : 2 * width] += array[:, -width:]
    array[:, :width] = 0
    array[:, -width:] = 0


def clear_slab(array: np.ndarray, first: int, layers: int) -> None:
    """Set array[:, first : first + layers] to 0."""
    array[:, first : first + layers] = 0
