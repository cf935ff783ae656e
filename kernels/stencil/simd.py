"""Stencils, Numba: one pass over flat arrays, SIMD along the last dim.

One loop nest serves 1-, 2- and 3-D (leading dims of length 1) and all stencils; what a cell computes is compiled into
it as an inlined function, with weights as constants (weights read at run time cost a factor of 30 on the Parallel
Research Kernels' own Numba version). Indices are unsigned: to Numba a signed one may be negative, and the test for it
keeps LLVM from vectorizing (0.3 of the rate). The arithmetic is STRICT, which costs nothing here, memory being the
limit, and gives the bits of `reference`.

In 3-D the rows of large planes are taken in strips, so that the three planes a strip reads stay in the cache: 1.1x at
640^3. In long rows vectors are stored to whole lines of the cache, behind a few cells of their own: 1.03x to 1.09x for
heat with AVX-512, whose vectors are as long as a line. Short rows lose by it, and stars gain nothing. Heat in long rows
of 3-D grids has kernels of its own: `lines`.

noalias is worth 1.1x for the flux form (10 streams) and nothing for the others; stars are compiled without. They take
two rows at a time: 1.1x at radius 2 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.compile.streams import LINE, STREAMED
from hpckit.kernels.stencil import lines
from hpckit.kernels.stencil.region import Box, grown

# Planes of more cells (2 MiB of double) are taken in strips of 512 KiB: below, cutting them costs more than it saves.
WHOLE, STRIP = 1 << 18, 1 << 16
LONG = lines.LONG  # cells of a row from which on vectors start at a line of the cache
ONE, TWO = np.uint64(1), np.uint64(2)
piece = inlined(math=STRICT)


def _sweep(point: Callable, noalias: bool, pairs: bool, *key: Any) -> Any:
    """The kernel that sets out[p] = point(...) for the cells p of a box; flat arrays, 3-D bounds.

    pairs: two rows at a time, which share most of what they load where a star is wide.
    """

    @jit(noalias=noalias, math=STRICT, key=key)
    def kernel(out, field, coefficient, factor, shape, first, stop, strip):
        rows, length = np.uint64(shape[1]), np.uint64(shape[2])
        plane = rows * length
        begin, last = np.uint64(first[1]), np.uint64(stop[1])
        # Where lines of the cache start in `out`: cells p with (p - ahead) & within == 0; in short rows every cell.
        ahead = np.uint64(0) - np.uint64(out.ctypes.data) // np.uint64(out.itemsize)
        within = np.uint64(LINE) // np.uint64(out.itemsize) - ONE if stop[2] - first[2] >= LONG else np.uint64(0)
        while begin < last:
            end = min(begin + np.uint64(strip), last)
            for i in range(np.uint64(first[0]), np.uint64(stop[0])):
                j = begin
                if pairs:
                    while j + ONE < end:
                        row = i * plane + j * length
                        for p in range(row + np.uint64(first[2]), row + np.uint64(stop[2])):
                            out[p] = point(out, field, coefficient, factor, p, length, plane)
                            out[p + length] = point(out, field, coefficient, factor, p + length, length, plane)
                        j += TWO
                while j < end:
                    row = i * plane + j * length
                    west, east = row + np.uint64(first[2]), row + np.uint64(stop[2])
                    edge = min(west + ((ahead - west) & within), east)
                    for p in range(west, edge):
                        out[p] = point(out, field, coefficient, factor, p, length, plane)
                    for p in range(edge, east):
                        out[p] = point(out, field, coefficient, factor, p, length, plane)
                    j += ONE
            begin = end

    return kernel


def _run(kernel: Any, out: np.ndarray, field: np.ndarray, coefficient: Any, factor: tuple, box: Box) -> None:
    pad = 3 - field.ndim
    shape = (1,) * pad + field.shape
    first, stop = (0,) * pad + box[0], (1,) * pad + box[1]
    flat = coefficient.reshape(-1) if isinstance(coefficient, np.ndarray) else coefficient
    strip = max(8, STRIP // shape[2]) if field.ndim == 3 and shape[1] * shape[2] > WHOLE else shape[1]
    kernel(out.reshape(-1), field.reshape(-1), flat, factor, shape, first, stop, strip)


@piece
def own(coefficient, p):
    """The coefficient of a cell, where each has its own."""
    return coefficient[p]


@piece
def same(coefficient, p):
    """The coefficient of a cell, where all have the same."""
    return coefficient


@piece
def curvature(below, above, factor, twice):
    """What one dim adds to the Laplacian, from the two neighbors and twice the cell."""
    return factor * ((below + above) - twice)


@piece
def _curvature(f, p, step, factor, twice):
    return curvature(f[p - step], f[p + step], factor, twice)


@piece
def _laplacian_1d(f, factor, p, length, plane, twice):
    return _curvature(f, p, ONE, factor[0], twice)


@piece
def _laplacian_2d(f, factor, p, length, plane, twice):
    return _curvature(f, p, length, factor[0], twice) + _curvature(f, p, ONE, factor[1], twice)


@piece
def _laplacian_3d(f, factor, p, length, plane, twice):
    lower = _curvature(f, p, length, factor[1], twice) + _curvature(f, p, ONE, factor[2], twice)
    return _curvature(f, p, plane, factor[0], twice) + lower


@piece
def _gain(f, k, p, step, factor, here, own):
    above = (own + k[p + step]) * (f[p + step] - here)
    below = (k[p - step] + own) * (here - f[p - step])
    return factor * (above - below)


@piece
def _gains_1d(f, k, factor, p, length, plane, here, own):
    return _gain(f, k, p, ONE, factor[0], here, own)


@piece
def _gains_2d(f, k, factor, p, length, plane, here, own):
    return _gain(f, k, p, length, factor[0], here, own) + _gain(f, k, p, ONE, factor[1], here, own)


@piece
def _gains_3d(f, k, factor, p, length, plane, here, own):
    lower = _gain(f, k, p, length, factor[1], here, own) + _gain(f, k, p, ONE, factor[2], here, own)
    return _gain(f, k, p, plane, factor[0], here, own) + lower


@cache
def diffuse_point(ndim: int, variable: bool) -> Any:
    """The new value of a cell as `reference.diffuse` has it, for a number of dims, with coefficient field or number."""
    coefficient_at = own if variable else same
    laplacian = (_laplacian_1d, _laplacian_2d, _laplacian_3d)[ndim - 1]

    @piece
    def point(out, field, coefficient, factor, p, length, plane):
        here = field[p]
        change = laplacian(field, factor, p, length, plane, here + here)
        return here + coefficient_at(coefficient, p) * change

    return point


@cache
def diffuse_kernel(ndim: int, variable: bool) -> Any:
    """The compiled step of `reference.diffuse` for a number of dims, with a coefficient field or a number."""
    return _sweep(diffuse_point(ndim, variable), True, False, "diffuse", ndim, variable)


@cache
def flux_point(ndim: int) -> Any:
    """The new value of a cell as `reference.diffuse_flux` has it, for a number of dims."""
    gains = (_gains_1d, _gains_2d, _gains_3d)[ndim - 1]

    @piece
    def point(out, field, conductivity, factor, p, length, plane):
        here = field[p]
        return here + gains(field, conductivity, factor, p, length, plane, here, conductivity[p])

    return point


@cache
def flux_kernel(ndim: int) -> Any:
    """The compiled step of `reference.diffuse_flux` for a number of dims."""
    return _sweep(flux_point(ndim), True, False, "flux", ndim)


@cache
def star_point(ndim: int, dtype: np.dtype, weights: tuple, symmetric: bool) -> Any:
    """The new value of a cell for one set of weights: of `reference.star_laplacian` if symmetric, else of `star`.

    dtype: that of the weights; without it a weight of 0.25 in single precision would be taken for that in double.
    """
    pair = (_sum_of_pairs if symmetric else _difference_of_pairs)[ndim - 1]
    total = _center(weights[0]) if symmetric else _pairs(pair, 1, weights[0])
    for distance, weight in enumerate(weights[1:], start=1 if symmetric else 2):
        total = _longer(total, pair, distance, weight)

    @piece
    def set_point(out, field, coefficient, factor, p, length, plane):
        return total(field, p, length, plane)

    @piece
    def add_point(out, field, coefficient, factor, p, length, plane):
        return out[p] + total(field, p, length, plane)

    return set_point if symmetric else add_point


@cache
def star_kernel(ndim: int, dtype: np.dtype, weights: tuple, symmetric: bool) -> Any:
    """The compiled star of one set of weights: `reference.star_laplacian` if symmetric, else `reference.star`."""
    names = tuple(float(weight).hex() for weight in weights)
    point = star_point(ndim, dtype, weights, symmetric)
    return _sweep(point, False, True, "star", ndim, symmetric, dtype.str, names)


def _center(weight: Any) -> Any:
    @piece
    def total(f, p, length, plane):
        return weight * f[p]

    return total


def _pairs(pair: Callable, distance: int, weight: Any) -> Any:
    far = np.uint64(distance)

    @piece
    def total(f, p, length, plane):
        return weight * pair(f, p, far, length, plane)

    return total


def _longer(shorter: Callable, pair: Callable, distance: int, weight: Any) -> Any:
    """A star with one more cell at the end of each arm."""
    far = np.uint64(distance)

    @piece
    def total(f, p, length, plane):
        return shorter(f, p, length, plane) + weight * pair(f, p, far, length, plane)

    return total


@piece
def _difference_1d(f, p, far, length, plane):
    return f[p + far] - f[p - far]


@piece
def _difference_2d(f, p, far, length, plane):
    return (f[p + far * length] - f[p - far * length]) + (f[p + far] - f[p - far])


@piece
def _difference_3d(f, p, far, length, plane):
    lower = (f[p + far * length] - f[p - far * length]) + (f[p + far] - f[p - far])
    return (f[p + far * plane] - f[p - far * plane]) + lower


@piece
def _sum_1d(f, p, far, length, plane):
    return f[p + far] + f[p - far]


@piece
def _sum_2d(f, p, far, length, plane):
    return (f[p + far * length] + f[p - far * length]) + (f[p + far] + f[p - far])


@piece
def _sum_3d(f, p, far, length, plane):
    lower = (f[p + far * length] + f[p - far * length]) + (f[p + far] + f[p - far])
    return (f[p + far * plane] + f[p - far * plane]) + lower


_difference_of_pairs = (_difference_1d, _difference_2d, _difference_3d)
_sum_of_pairs = (_sum_1d, _sum_2d, _sum_3d)


def diffuse(out: np.ndarray, field: np.ndarray, coefficient: Any, factor: Sequence[Any], box: Box) -> None:
    variable = isinstance(coefficient, np.ndarray)
    if not lines.suits(out, box):
        _run(diffuse_kernel(field.ndim, variable), out, field, coefficient, tuple(factor), box)
        return
    kernel = lines.once_kernel(out.dtype, variable, streams(out, 2 + variable, box))
    strip = lines.rows_of_strip(lines.STRIP, box) if out.shape[1] * out.shape[2] > WHOLE else out.shape[1]
    flat = coefficient.reshape(-1) if variable else coefficient
    kernel(out.reshape(-1), field.reshape(-1), flat, tuple(factor), out.shape, *box, strip)


def diffuse_twice(out: np.ndarray, field: np.ndarray, coefficient: Any, factor: Sequence[Any], box: Box) -> None:
    variable = isinstance(coefficient, np.ndarray)
    if not lines.suits(out, box):
        between = np.empty_like(out)
        diffuse(between, field, coefficient, factor, grown(box, 1))
        diffuse(out, between, coefficient, factor, box)
        return
    kernel = lines.twice_kernel(out.dtype, variable, streams(out, 2 + variable, box))
    strip = lines.rows_of_strip(lines.TWICE, box)
    flat = coefficient.reshape(-1) if variable else coefficient
    ring = lines.ring_of(strip, box, out.dtype)
    kernel(out.reshape(-1), field.reshape(-1), flat, tuple(factor), out.shape, *box, strip, ring)


def streams(out: np.ndarray, arrays: int, box: Box) -> bool:
    """Whether a sweep over a box moves more than the cache holds, in so many arrays."""
    return arrays * out.itemsize * math.prod(b - a for a, b in zip(*box, strict=True)) >= STREAMED


def diffuse_flux(out: np.ndarray, field: np.ndarray, conductivity: Any, factor: Sequence[Any], box: Box) -> None:
    _run(flux_kernel(field.ndim), out, field, conductivity, tuple(factor), box)


def star(out: np.ndarray, field: np.ndarray, weights: Sequence[Any], box: Box) -> None:
    _run(star_kernel(field.ndim, field.dtype, tuple(weights), False), out, field, 0, (), box)


def star_laplacian(out: np.ndarray, field: np.ndarray, weights: Sequence[Any], box: Box) -> None:
    _run(star_kernel(field.ndim, field.dtype, tuple(weights), True), out, field, 0, (), box)
