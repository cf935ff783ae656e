"""Stencils, CUDA: what a cell computes is the piece of `simd`, compiled for the GPU.

The steps of `diffuse` in 2-D and 3-D march: a thread takes a column of cells along the first dim, keeps the cell and
the one below in registers, and asks for the cell after next before it needs it, so that each value of a plane is read
from memory once and is in flight while another plane is computed. The neighbors along the other dims were loaded by
the threads beside it a plane earlier and come from the first-level cache. All other kernels take a cell a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.device_array import empty
from hpckit.kernels.stencil.region import Box, grown
from hpckit.kernels.stencil.simd import curvature, diffuse_point, flux_point, own, same, star_point

WARP, THREADS = threads(32), threads(256)
DEPTH = 32  # cells of a column: two planes more are read than written
FEW = 132 * 16  # blocks below which a column is cut shorter, so that all multiprocessors have work
ONE = np.uint64(1)
u8 = np.uint64


@cache
def march_kernel(ndim: int, variable: bool) -> Any:
    """The step of `reference.diffuse` in 2-D or 3-D, columns along the first dim."""
    coefficient_at = own if variable else same
    deep = ndim == 3

    @kernel
    def diffuse_march(out, field, coefficient, factor, plane, length, first, stop, depth):
        k = u8(first[2]) + u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        j = u8(first[1]) + u8(cuda.blockIdx.y) * u8(cuda.blockDim.y) + u8(cuda.threadIdx.y)
        i = u8(first[0]) + u8(cuda.blockIdx.z) * u8(depth)
        if k < u8(stop[2]) and j < u8(stop[1]):
            step = u8(plane)
            row = u8(length)
            end = min(i + u8(depth), u8(stop[0]))
            p = i * step + j * row + k
            below, here, above = field[p - step], field[p], field[p + step]
            while i < end:
                i += ONE
                # the last column of all has no cell after next
                after = field[p + step + step] if i < end else above
                twice = here + here
                change = curvature(field[p - ONE], field[p + ONE], factor[-1], twice)
                if deep:
                    change = curvature(field[p - row], field[p + row], factor[1], twice) + change
                change = curvature(below, above, factor[0], twice) + change
                out[p] = here + coefficient_at(coefficient, p) * change
                below, here, above = here, above, after
                p += step

    return diffuse_march


@cache
def cell_kernel(point: Callable) -> Any:
    """A kernel that sets out[p] = point(...) for the cells p of a box, one a thread."""

    @kernel
    def stencil_cell(out, field, coefficient, factor, plane, length, first, stop):
        k = u8(first[2]) + u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        j = u8(first[1]) + u8(cuda.blockIdx.y) * u8(cuda.blockDim.y) + u8(cuda.threadIdx.y)
        i = u8(first[0]) + u8(cuda.blockIdx.z)
        if k < u8(stop[2]) and j < u8(stop[1]):
            p = i * u8(plane) + j * u8(length) + k
            out[p] = point(out, field, coefficient, factor, p, u8(length), u8(plane))

    return stencil_cell


def shape_of_block(wide: int) -> tuple[int, int, int]:
    """Threads of a block along (x, y, z): a warp along x, less where the box is narrower, as a rim is."""
    x = min(WARP, 1 << max(0, wide - 1).bit_length())
    return x, THREADS // x, 1


def _run(cells: Any, out: Any, field: Any, coefficient: Any, factor: tuple, box: Box) -> None:
    """Launch a kernel of single cells."""
    pad = 3 - field.ndim
    shape = (1,) * pad + field.shape
    first, stop = (0,) * pad + box[0], (1,) * pad + box[1]
    block = shape_of_block(stop[2] - first[2])
    grid = (blocks(stop[2] - first[2], block[0]), blocks(stop[1] - first[1], block[1]), stop[0] - first[0])
    flat = coefficient if np.isscalar(coefficient) else coefficient.reshape(-1)
    cells[grid, block](out.reshape(-1), field.reshape(-1), flat, factor, shape[1] * shape[2], shape[2], first, stop)


def _march(columns: Any, out: Any, field: Any, coefficient: Any, factor: tuple, box: Box) -> None:
    """Launch a kernel of columns along the first dim; 2-D as 3-D with one row a plane."""
    flat = field.ndim == 2
    first, stop = ((box[0][0], 0, box[0][1]), (box[1][0], 1, box[1][1])) if flat else box
    length = field.shape[-1]
    plane = length if flat else length * field.shape[1]
    wide = stop[2] - first[2]
    block = (max(WARP, min(THREADS, blocks(wide, WARP) * WARP)), 1, 1) if flat else shape_of_block(wide)
    across = blocks(wide, block[0]), blocks(stop[1] - first[1], block[1])
    deep = stop[0] - first[0]
    depth = max(1, min(DEPTH, deep * across[0] * across[1] // FEW))
    coefficient = coefficient if np.isscalar(coefficient) else coefficient.reshape(-1)
    columns[(*across, blocks(deep, depth)), block](
        out.reshape(-1), field.reshape(-1), coefficient, factor, plane, length, first, stop, depth
    )


def diffuse(out: Any, field: Any, coefficient: Any, factor: Sequence[Any], box: Box) -> None:
    variable = not np.isscalar(coefficient)
    if field.ndim == 1:
        _run(cell_kernel(diffuse_point(1, variable)), out, field, coefficient, tuple(factor), box)
    else:
        _march(march_kernel(field.ndim, variable), out, field, coefficient, tuple(factor), box)


def diffuse_twice(out: Any, field: Any, coefficient: Any, factor: Sequence[Any], box: Box) -> None:
    """Two launches: a GPU has no cache that would keep the state between them."""
    between = empty(out.shape, out)
    diffuse(between, field, coefficient, factor, grown(box, 1))
    diffuse(out, between, coefficient, factor, box)


def diffuse_flux(out: Any, field: Any, conductivity: Any, factor: Sequence[Any], box: Box) -> None:
    _run(cell_kernel(flux_point(field.ndim)), out, field, conductivity, tuple(factor), box)


def star(out: Any, field: Any, weights: Sequence[Any], box: Box) -> None:
    _run(cell_kernel(star_point(field.ndim, field.dtype, tuple(weights), False)), out, field, 0, (), box)


def star_laplacian(out: Any, field: Any, weights: Sequence[Any], box: Box) -> None:
    _run(cell_kernel(star_point(field.ndim, field.dtype, tuple(weights), True)), out, field, 0, (), box)
