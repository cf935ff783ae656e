"""Checks the arguments of a stencil and chooses its form by the arrays it is given.

NumPy arrays in C order take `simd`; other strides take `reference`, which has the same bits and less speed. Arrays of a
GPU, in C order, take `cuda`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array, may_share_memory
from hpckit.kernels.stencil import reference, simd
from hpckit.kernels.stencil.reference import largest_step, prk_weights
from hpckit.kernels.stencil.region import Region, boxes

__all__ = ["diffuse", "diffuse_flux", "diffuse_twice", "largest_step", "prk_weights", "star", "star_laplacian"]

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))


def diffuse(
    out: Any, field: Any, coefficient: Any, dt: float, spacing: float | Sequence[float], region: Region = None
) -> None:
    """One explicit Euler step of the heat equation: out = field + dt * coefficient * laplacian(field).

    out, field: float64 or float32 array of 1, 2 or 3 dims, the same shape and dtype, not overlapping in memory.
    coefficient: a number, or an array like `field` of which each cell's own value counts (m2/s). dt in s, within
    `largest_step`. spacing: m, one number or one a dim. region: a slice a dim, or several such tuples; None is every
    cell that has its neighbors. Cells outside the region are left as they are.

    Central differences of second order (5-point star in 2-D, 7-point in 3-D). Bytes that must move per cell: 16 with a
    number, 24 with a field of coefficients (double), as ParallelStencil counts t_eff.

    TypeError for arrays of another kind or dtype; ValueError for shapes, overlap, or a region that lacks neighbors.
    """
    _heat("diffuse", 1, out, field, coefficient, dt, spacing, region)


def diffuse_twice(
    out: Any, field: Any, coefficient: Any, dt: float, spacing: float | Sequence[float], region: Region = None
) -> None:
    """Two explicit Euler steps of the heat equation: `diffuse` of `diffuse`, with its arguments and its bits.

    Each cell needs two neighbors on every side, so a halo of 2 serves two steps with one exchange; None is every cell
    that has them. In 3-D, with rows of 160 cells and more, the two are one pass over memory: with a field of
    coefficients (double) 24 bytes a cell move for both, in place of 48; elsewhere, and on GPUs, they are two passes.

    What lies beyond walls does not change between the two steps: where a wall's fill depends on the field, the cells
    within two of that wall take two calls of `diffuse`.
    """
    _heat("diffuse_twice", 2, out, field, coefficient, dt, spacing, region)


def _heat(
    name: str, radius: int, out: Any, field: Any, coefficient: Any, dt: float, spacing: Any, region: Region
) -> None:
    form = _form(name, out, field)
    if not isinstance(coefficient, float | int):
        form = _like(form, "coefficient", coefficient, out, field)
    else:
        coefficient = field.dtype.type(coefficient)
    factor = reference.factors(dt, _per_dim(spacing, field), field.dtype)
    for box in boxes(field.shape, region, radius):
        getattr(form, name)(out, field, coefficient, factor, box)


def diffuse_flux(
    out: Any, field: Any, conductivity: Any, dt: float, spacing: float | Sequence[float], region: Region = None
) -> None:
    """One explicit Euler step in conservative form: out = field + dt * div(k grad field).

    Arguments as in `diffuse`, with the conductivity k an array like `field`, of which a face takes the mean of its two
    cells (so its halo must be filled). What leaves a cell through a face enters the next one.
    """
    form = _like(_form("diffuse_flux", out, field), "conductivity", conductivity, out, field)
    factor = reference.factors(dt, _per_dim(spacing, field), field.dtype, faces=True)
    for box in boxes(field.shape, region, 1):
        form.diffuse_flux(out, field, conductivity, factor, box)


def star(out: Any, field: Any, weights: int | Sequence[float], region: Region = None) -> None:
    """Add a divergence star: out += sum_k w_k sum_d (f_+k - f_-k along d), k = 1 .. radius.

    weights: w_1 .. w_radius, compiled in as constants (a kernel each set), or a radius for those of the Parallel
    Research Kernels. Arrays and region as in `diffuse`.
    """
    form = _form("star", out, field)
    values = _constants(prk_weights(weights) if isinstance(weights, int) else weights, field.dtype, 1)
    for box in boxes(field.shape, region, len(values)):
        form.star(out, field, values, box)


def star_laplacian(out: Any, field: Any, weights: Sequence[float], region: Region = None) -> None:
    """A symmetric star: out = w_0 f + sum_k w_k sum_d (f_+k + f_-k along d), k = 1 .. radius.

    weights: w_0 .. w_radius, compiled in as constants; w_0 counts once, so a Laplacian of n dims has n times its 1-D
    value there. Of radius 2, order 4, spacing h: (-2.5 n, 4/3, -1/12) / h^2. Arrays and region as in `diffuse`.
    """
    form = _form("star_laplacian", out, field)
    values = _constants(weights, field.dtype, 2)
    for box in boxes(field.shape, region, len(values) - 1):
        form.star_laplacian(out, field, values, box)


def _form(name: str, out: Any, field: Any) -> ModuleType:
    on_device = is_device_array(field)
    for array in (out, field):
        if not isinstance(array, np.ndarray) and not is_device_array(array):
            raise TypeError(
                f"{name} takes NumPy or CuPy arrays, not {type(array).__name__}; of a Field give `field.data`"
            )
    if is_device_array(out) != on_device:
        raise TypeError(f"{name} takes two arrays of one device: one is on the GPU, the other is not")
    if field.dtype not in DTYPES or out.dtype != field.dtype:
        raise TypeError(f"{name} takes two arrays of float64 or two of float32, not {out.dtype} and {field.dtype}")
    if out.shape != field.shape or not 1 <= field.ndim <= 3:
        raise ValueError(f"{name} takes two arrays of one shape and 1 to 3 dims, not {out.shape} and {field.shape}")
    if may_share_memory(out, field):
        raise ValueError(f"{name} reads neighbors that it would have overwritten: `out` and `field` share memory")
    if on_device:
        _require_c_order(name, out, field)
        from hpckit.kernels.stencil import cuda

        return cuda
    return simd if out.flags.c_contiguous and field.flags.c_contiguous else reference


def _require_c_order(name: str, *arrays: Any) -> None:
    if not all(array.flags.c_contiguous for array in arrays):
        raise ValueError(f"{name} takes C-contiguous arrays on a GPU: give the whole array and a region, not a slice")


def _like(form: ModuleType, name: str, array: Any, out: Any, field: Any) -> ModuleType:
    """The form that also suits a third array, which must be like `field`."""
    if not isinstance(array, np.ndarray) and not is_device_array(array):
        raise TypeError(f"{name} is an array like the field, not {type(array).__name__}")
    if is_device_array(array) != is_device_array(field):
        raise TypeError(f"{name} and the field are on different devices")
    if array.dtype != field.dtype:
        raise TypeError(f"{name} has the dtype {array.dtype}, the field {field.dtype}")
    if array.shape != field.shape:
        raise ValueError(f"{name} has the shape {array.shape}, the field {field.shape}")
    if may_share_memory(out, array):
        raise ValueError(f"`out` and {name} share memory")
    if is_device_array(array):
        _require_c_order(name, array)
        return form
    return form if array.flags.c_contiguous else reference


def _per_dim(spacing: float | Sequence[float], field: Any) -> tuple[float, ...]:
    each = (float(spacing),) * field.ndim if isinstance(spacing, float | int) else tuple(float(h) for h in spacing)
    if len(each) != field.ndim or not all(h > 0 for h in each):
        raise ValueError(f"spacing is a positive number, or {field.ndim} of them for {field.ndim} dims, not {spacing}")
    return each


def _constants(weights: Sequence[float], dtype: np.dtype, least: int) -> tuple[Any, ...]:
    values = tuple(dtype.type(weight) for weight in weights)
    if len(values) < least:
        raise ValueError(f"a star takes at least {least} weights, not {len(values)}")
    return values
