"""Chooses the form of the slab kernels by the state they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array, may_share_memory
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.sweeps.lines import TILE
from hpckit.kernels.euler.sweeps.ring import STRIP
from hpckit.kernels.forms import double_form_for
from hpckit.kernels.parts import WHOLE

Lines = tuple[int, int]
NO_SEAMS = np.zeros((0, 4, 2, HALO))  # for sweeps in one part


def sweep_x(
    state: Any, out: Any, column: Any, source: Any, inflow: Any, at_left: bool, at_right: bool, sweep: Sweep,
    status: Any, part: int = WHOLE, seams: Any = NO_SEAMS,
) -> None:  # fmt: skip
    """Advance the x direction by dt; see `reference.sweep_x`."""
    form = _form(state, column, source, inflow, seams)
    require_out(__package__, state, out)
    if part != WHOLE and not is_device_array(state) and seams.shape != (state.shape[1], 4, 2, HALO):
        raise ValueError(f"the seams of a sweep in parts are {(state.shape[1], 4, 2, HALO)}, not {seams.shape}")
    form.sweep_x(state, out, column, source, inflow, at_left, at_right, sweep, status, part, seams)


def sweep_z(
    state: Any, out: Any, faces: Any, ghost: Any, source: Any, sweep: Sweep, status: Any, lines: Lines | None = None
) -> None:
    """Advance the z direction by dt, by default in all columns; see `reference.sweep_z`."""
    form = _form(state, faces, ghost, source)
    require_out(__package__, state, out)
    form.sweep_z(state, out, faces, ghost, source, sweep, status, range_of(state, lines, state.shape[2] - 2 * HALO))


def diffuse(state: Any, column: Any, base: Any, dx: float, dz: float, amount: float, work: Any) -> None:
    """Diffuse u, w and theta in place; see `reference.diffuse`."""
    form, levels = _form(state, column, base, work), state.shape[1]
    if work.shape != state.shape:
        raise ValueError(f"state and work are [4, nz, nx + {2 * HALO}], not {state.shape} and {work.shape}")
    if column.shape != (3, levels) or base.shape != (3, levels):
        raise ValueError(f"column {column.shape} or base {base.shape} do not fit {levels} rows")
    form.diffuse(state, column, base, dx, dz, amount, work)


def has_inner(cells: int) -> bool:
    """Whether rows of that many cells along x have, on the host, a part that needs no halo: three tiles or more."""
    return cells > 2 * TILE


def columns_at_once() -> int:
    """How many columns a sweep across x takes at a time on the host; pieces of that size cost no more than all."""
    return STRIP


def diagnose(state: Any, column: Any, height: Any) -> Any:
    """What a run watches, float64[10]; see `reference.diagnose`."""
    return _form(state, column, height).diagnose(state, column, height)


def range_of(state: Any, lines: Lines | None, owned: int) -> Lines:
    """The lines of a sweep, all where None is given. Raises `ValueError` for others than those there are."""
    begin, end = (0, owned) if lines is None else lines
    if not 0 <= begin <= end <= owned:
        raise ValueError(f"a sweep goes from begin to end within 0 and {owned}, not from {begin} to {end}")
    if is_device_array(state) and end - begin < owned:
        raise ValueError("a sweep on a GPU does all lines")
    return begin, end


def require_out(package: str, state: Any, out: Any) -> None:
    """Raise `ValueError` where `out` is not like the state, or is the state on a GPU."""
    on_gpu = is_device_array(state)
    if out is state and not on_gpu:
        return
    double_form_for(package, out)
    if out.shape != state.shape:
        raise ValueError(f"the result of a sweep is {state.shape}, as the state, not {out.shape}")
    if on_gpu and may_share_memory(state, out):
        raise ValueError("on a GPU the result of a sweep goes to another array than the state")


def _form(state: Any, *arrays: Any) -> Any:
    form = double_form_for(__package__, state, *arrays)
    if state.ndim != 3 or state.shape[0] != 4 or state.shape[2] < 3 * HALO:
        raise ValueError(f"a state is [4, nz, nx + {2 * HALO}] with nx of at least {HALO}, not {state.shape}")
    return form
