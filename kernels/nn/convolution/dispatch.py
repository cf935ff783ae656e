"""Checks the arguments of patches and pooling and chooses their form by the arrays given.

NumPy arrays in C order take `simd`, other strides `reference`, arrays of a GPU `cuda`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.forms import form_for
from hpckit.kernels.nn.convolution import reference
from hpckit.kernels.nn.convolution.reference import out_size

__all__ = ["add_patches", "gather_patches", "max_pool", "max_pool_back", "out_size"]

LARGEST_WINDOW = 16  # a place is a uint8


def gather_patches(patches: Any, image: Any, stride: int = 1, padding: int = 0) -> None:
    """Write all patches of an image; see `reference`.

    patches: [n, out height, out width, kernel height, kernel width, channels]; image: [n, height, width, channels];
    both float32 or float64. ValueError for shapes that do not fit, TypeError for other dtypes.
    """
    _check_patches(patches, image, stride, padding)
    _form(patches, image).gather_patches(patches, image, stride, padding)


def add_patches(image: Any, patches: Any, stride: int = 1, padding: int = 0) -> None:
    """Add every patch to the cells it came from, the adjoint of `gather_patches`; arguments as there."""
    _check_patches(patches, image, stride, padding)
    _form(patches, image).add_patches(image, patches, stride, padding)


def max_pool(out: Any, place: Any, image: Any, size: int) -> None:
    """The largest value of each window of size x size cells of an image [n, height, width, channels], and its place."""
    _check_pool(out, place, image, size)
    _form(out, place, image).max_pool(out, place, image, size)


def max_pool_back(image: Any, out: Any, place: Any, size: int) -> None:
    """The adjoint of `max_pool`; writes the whole image."""
    _check_pool(out, place, image, size)
    _form(out, place, image).max_pool_back(image, out, place, size)


def _form(*arrays: Any) -> Any:
    suited = is_device_array(arrays[0]) or all(array.flags.c_contiguous for array in arrays)
    return form_for(__package__, arrays[0]) if suited else reference


def _check_patches(patches: Any, image: Any, stride: int, padding: int) -> None:
    _check_dtypes(patches, image)
    if patches.ndim != 6 or image.ndim != 4 or stride < 1 or padding < 0:
        raise ValueError(
            f"patches have 6 dims, an image 4, a stride is at least 1 and a padding at least 0; not {patches.ndim},"
            f" {image.ndim}, {stride} and {padding}"
        )
    n, height, width, channels = image.shape
    kernel = patches.shape[3:5]
    sizes = tuple(out_size(size, k, stride, padding) for size, k in zip((height, width), kernel, strict=True))
    wanted = (n, *sizes, *kernel, channels)
    if patches.shape != wanted or min(wanted) < 1:
        raise ValueError(f"patches of shape {patches.shape} do not fit an image of {image.shape}: {wanted}")


def _check_pool(out: Any, place: Any, image: Any, size: int) -> None:
    _check_dtypes(out, image)
    if not 1 <= size <= LARGEST_WINDOW:
        raise ValueError(f"windows of 1 to {LARGEST_WINDOW} cells are pooled, not of {size}")
    n, height, width, channels = image.shape
    wanted = (n, height // size, width // size, channels)
    if out.shape != wanted or place.shape != wanted or place.dtype != np.uint8 or min(wanted) < 1:
        raise ValueError(
            f"pooling {image.shape} by {size} gives {wanted} with places uint8, not {out.shape} and {place.shape}"
            f" {place.dtype}"
        )


def _check_dtypes(one: Any, other: Any) -> None:
    if one.dtype != other.dtype or one.dtype not in (np.float32, np.float64):
        raise TypeError(f"images are float32 or float64, both the same, not {one.dtype} and {other.dtype}")
