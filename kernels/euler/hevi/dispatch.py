"""Chooses the form of the split dynamics by the state it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.hevi.constants import HALO, LEVELS, NO_WALLS, WORKS, LargeStage, Substep
from hpckit.kernels.forms import double_form_for


def prepare(state: Any, water: Any, column: Any, levels: Any, work: Any, sounds: bool = True) -> None:
    """Fill `work` from a state; see `reference.prepare`."""
    form = _form(state, water, column, levels, work)
    _check("the tables of levels", levels, (LEVELS, state.shape[1] + 1))
    _check("the work space", work, (WORKS, *state.shape[1:]))
    if water.size:
        _check("the water", water, state.shape[1:])
    form.prepare(state, water, column, levels, work, sounds)


def tendencies(
    state: Any, work: Any, column: Any, levels: Any, wind: Any, weights: Any, stage: LargeStage, slow: Any
) -> None:
    """The slow tendencies; see `reference.tendencies`."""
    form = _form(state, work, column, levels, wind, weights, slow)
    _check("the tendencies", slow, state.shape)
    _check("the weights of faces", weights, (3, 7))
    form.tendencies(state, work, column, levels, wind, weights, stage, slow)


def linearize(
    state: Any, water: Any, column: Any, levels: Any, work: Any, wind: Any, weights: Any, stage: LargeStage, slow: Any,
    start: Any, pressure: Any,
) -> None:  # fmt: skip
    """What substeps need, and the slow tendencies; see `reference.linearize`."""
    form = _linear(state, water, column, levels, work, wind, weights, stage, slow, start, pressure)
    form.linearize(state, water, column, levels, work, wind, weights, stage, slow, start, pressure)


def _linear(
    state: Any, water: Any, column: Any, levels: Any, work: Any, wind: Any, weights: Any, stage: LargeStage, slow: Any,
    start: Any, pressure: Any, kept: tuple[int, int, int] | None = None,
) -> Any:  # fmt: skip
    """kept: the cells of `work` and `slow`, where they are not those of the state."""
    cells = kept or state.shape[1:]
    form = _form(state, water, column, levels, work, wind, weights, slow, start, pressure)
    _check("the state at the start", start, state.shape)
    _check("the pressure", pressure, _with_halo(state, 1))
    _check("the tables of levels", levels, (LEVELS, state.shape[1] + 1))
    _check("the work space", work, (WORKS, *cells))
    _check("the tendencies", slow, (FIELDS, *cells))
    _check("the weights of faces", weights, (3, 7))
    if stage.wet:
        _check("the water", water, state.shape[1:])
    return form


def begin(start: Any, work: Any, pressure: Any) -> None:
    """The pressure at the start of a stage; see `reference.begin`."""
    form = _form(start, work, pressure)
    _check("the pressure", pressure, _with_halo(start, 1))
    form.begin(start, work, pressure)


def substep(
    old: Any, new: Any, work: Any, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any, flux_z: Any,
    numbers: Substep,
) -> None:  # fmt: skip
    """An acoustic substep; see `reference.substep`."""
    given = old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    _checked(*given).substep(*given)


def sweep(
    old: Any, new: Any, work: Any, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any, flux_z: Any,
    numbers: Substep, turns: Any, ends: int,
) -> None:  # fmt: skip
    """Rows of some substeps in turn (`turns`), on the host; ends: what fills the pressure beyond the ends of rows.

    The first substep starts from `old`. All turns of some substeps, with exchanges between, leave what as many calls of
    `substep` leave.
    """
    given = old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    _checked(*given).sweep(*given, turns, ends)


def linearize_and_sweep(
    state: Any, water: Any, column: Any, wind: Any, weights: Any, stage: LargeStage, old: Any, new: Any, work: Any,
    slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any, flux_z: Any, numbers: Substep, turns: Any,
    ends: int, walls: tuple[bool, bool, bool, bool] = NO_WALLS,
) -> None:  # fmt: skip
    """`linearize` and the first `sweep` of a stage in one pass over the rows, on the host: with the same bits.

    The state is `old`, which is that at the start of the step, or `new`. turns: `core`, not after rims. Where they are
    all substeps of the stage, `slow` and `work` may have `rows_kept` rows instead of all. walls: whether there is one
    in the west, east, south and north: no momentum grows there.
    """
    nz, tall, wide = state.shape[1:]
    rows = slow.shape[2]
    if rows < min(tall, rows_kept(state)):
        raise ValueError(f"tendencies need {min(tall, rows_kept(state))} rows in the cache, not {rows}")
    linear = state, water, column, levels, work, wind, weights, stage, slow, old, pressure
    _linear(*linear, (nz, rows, wide))
    given = old, new, work, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    form = _checked(*given)
    form.linearize_and_sweep(state, water, column, wind, weights, stage, *given, turns, ends, walls)


def rows_kept(state: Any) -> int:
    """How many rows of `slow` and `work` a stage needs, if its tendencies and all of its substeps are one pass.

    So few stay in the cache: memory does not see what only substeps of the same stage read.
    """
    nz, _, wide = state.shape[1:]
    return _form(state).rows_kept(wide - 2 * HALO, nz)


def _checked(
    old: Any, new: Any, work: Any, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any, flux_z: Any,
    numbers: Substep,
) -> Any:  # fmt: skip
    form = _form(new, old, work, slow, pressure, levels, flux_x, flux_y, flux_z)
    _check("the old state", old, new.shape)
    if numbers.share:
        nz, ny, nx = _with_halo(new, 0)
        for name, flux, wanted in (
            ("x", flux_x, (nz, ny, nx + 1)),
            ("y", flux_y, (nz, ny + 1, nx)),
            ("z", flux_z, (nz + 1, ny, nx)),
        ):
            _check(f"the mass flux along {name}", flux, wanted)
    return form


def _with_halo(state: Any, halo: int) -> tuple[int, int, int]:
    nz, tall, wide = state.shape[1:]
    return nz, tall - 2 * (HALO - halo), wide - 2 * (HALO - halo)


def _form(state: Any, *arrays: Any) -> Any:
    form = double_form_for(__package__, state, *arrays)
    if state.ndim != 4 or state.shape[0] != FIELDS or state.shape[1] < 4 or min(state.shape[2:]) < 3 * HALO:
        raise ValueError(
            f"a state is [{FIELDS}, nz, ny + {2 * HALO}, nx + {2 * HALO}] with nz of at least 4, ny and nx of at least"
            f" {HALO}, not {state.shape}"
        )
    return form


def _check(name: str, array: Any, wanted: tuple[int, ...]) -> None:
    if array.shape != tuple(wanted):
        raise ValueError(f"{name} must be {tuple(wanted)}, not {array.shape}")
