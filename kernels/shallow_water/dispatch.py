"""Chooses the form of the shallow-water kernels by the state they are given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.device_array import is_device_array, may_share_memory
from hpckit.kernels.forms import double_form_for
from hpckit.kernels.parts import WHOLE
from hpckit.kernels.shallow_water.constants import AT_ONCE, HALO, Physics

Fields = tuple[Any, Any, Any]


def step(
    fields: Fields, out: Fields, bottom: Any, rows: Any, columns: Any, physics: Physics, dt: float, steps: int = 1,
    part: int = WHOLE,
) -> None:  # fmt: skip
    """Advance h, u and v by `steps` steps of dt; see `reference.step`. Two at once go over memory once."""
    form, h = _form(fields, out, steps, bottom, rows, columns), fields[0]
    if bottom.shape != h.shape or rows.shape != (5, h.shape[0]) or columns.shape != (3, h.shape[1]):
        raise ValueError(f"bottom {bottom.shape}, rows {rows.shape} or columns {columns.shape} do not fit h {h.shape}")
    form.step(fields, out, bottom, rows, columns, physics, dt, steps, part)


def step_free(
    fields: Fields, out: Fields, f: Any, physics: Physics, dt: float, steps: int = 1, part: int = WHOLE
) -> None:
    """Advance a flat basin without walls and forces; see `reference.step_free`."""
    _form(fields, out, steps, f).step_free(fields, out, f, physics, dt, steps, part)


def diagnose(fields: Fields, bottom: Any, f: Any, physics: Physics, halo: int = HALO) -> Any:
    """What a run watches, float64[7]; see `reference.diagnose`."""
    form = double_form_for(__package__, *fields, bottom, f)
    _check_shapes(fields, halo)
    return form.diagnose(fields, bottom, f, physics, halo)


def most_steps(on_gpu: bool) -> int:
    """How many steps at once a GPU takes, or a host."""
    return 1 if on_gpu else AT_ONCE


def _form(fields: Fields, out: Fields, steps: int, *tables: Any) -> Any:
    on_gpu = is_device_array(fields[0])
    form = double_form_for(__package__, *fields, *tables)
    if not 1 <= steps <= (most := most_steps(on_gpu)):
        raise ValueError(f"1 to {most} steps are taken at once, not {steps}")
    _check_shapes(fields, steps * HALO)
    if out is fields and not on_gpu:
        return form
    double_form_for(__package__, *out)
    if any(field.shape != target.shape for field, target in zip(fields, out, strict=True)):
        raise ValueError("the result of a step has the shapes of its fields")
    if on_gpu and may_share_memory(fields[0], out[0]):
        raise ValueError("on a GPU the result of a step goes to other arrays than the state")
    return form


def _check_shapes(fields: Fields, halo: int) -> None:
    h, u, v = fields
    if h.ndim != 2 or min(h.shape) <= 2 * halo:
        raise ValueError(f"h is [ny + {2 * halo}, nx + {2 * halo}], not {h.shape}")
    if u.shape == v.shape == h.shape:
        return
    for name, field, dim in (("u", u, 1), ("v", v, 0)):
        more = tuple(n - m for n, m in zip(field.shape, h.shape, strict=True))
        if more not in ((0, 0), (0, 1) if dim else (1, 0)):
            raise ValueError(
                f"{name} is {field.shape}; it has the shape of h, {h.shape}, or one face more in dim {dim}"
            )
