"""Chooses the form of the shallow-water kernels by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.shallow_water import simd
from hpckit.kernels.shallow_water.constants import HALO


def step(
    h: Any, u: Any, v: Any, bottom: Any, rows: Any, columns: Any, gravity: float, dx: float, dy: float, dt: float,
    viscosity: float, drag: float, drag_quadratic: float, steps: int = 1,
) -> None:  # fmt: skip
    """Advance h, u and v by `steps` steps of dt in place; see `reference.step`. Two at once go over memory once."""
    _check(h, u, v, bottom, rows, columns, halo=steps * HALO)
    if bottom.shape != h.shape or rows.shape != (5, h.shape[0]) or columns.shape != (3, h.shape[1]):
        raise ValueError(f"bottom {bottom.shape}, rows {rows.shape} or columns {columns.shape} do not fit h {h.shape}")
    _form(h).step(h, u, v, bottom, rows, columns, gravity, dx, dy, dt, viscosity, drag, drag_quadratic, steps=steps)


def step_free(h: Any, u: Any, v: Any, f: Any, gravity: float, dx: float, dy: float, dt: float, steps: int = 1) -> None:
    """As `step`, flat, without walls and forces; see `reference.step_free`."""
    _check(h, u, v, f, halo=steps * HALO)
    _form(h).step_free(h, u, v, f, gravity, dx, dy, dt, steps=steps)


def diagnose(
    h: Any, u: Any, v: Any, bottom: Any, f: Any, gravity: float, dx: float, dy: float, halo: int = HALO
) -> Any:
    """What a run watches, float64[7]; see `reference.diagnose`."""
    _check(h, u, v, bottom, f, halo=halo)
    return _form(h).diagnose(h, u, v, bottom, f, gravity, dx, dy, halo)


def _form(h: Any) -> Any:
    """The module for arrays of this kind."""
    if is_device_array(h):
        from hpckit.kernels.shallow_water import cuda

        return cuda
    return simd


def _check(h: Any, u: Any, v: Any, *arrays: Any, halo: int) -> None:
    for array in () if is_device_array(h) else (h, u, v, *arrays):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise TypeError(f"the shallow-water kernels take C-contiguous float64 NumPy arrays, not {given}")
    if h.ndim != 2 or min(h.shape) <= 2 * halo:
        raise ValueError(f"h is [ny + {2 * halo}, nx + {2 * halo}], not {h.shape}")
    for name, field, dim in (("u", u, 1), ("v", v, 0)):
        more = tuple(n - m for n, m in zip(field.shape, h.shape, strict=True))
        if more not in ((0, 0), (0, 1) if dim else (1, 0)):
            raise ValueError(
                f"{name} is {field.shape}; it has the shape of h, {h.shape}, or one face more in dim {dim}"
            )
