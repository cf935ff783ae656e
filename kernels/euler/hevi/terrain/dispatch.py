"""Chooses the form of the split dynamics over terrain by the state it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.hevi.constants import HALO, LEVELS, NO_WALLS, LargeStage, Substep
from hpckit.kernels.euler.hevi.terrain.constants import FACES_KEPT, METRICS, WORKS, Ground
from hpckit.kernels.forms import double_form_for


def prepare(state: Any, water: Any, ground: Ground, levels: Any, work: Any) -> None:
    """Fill `work` from a state; see `reference.prepare`."""
    form = _form(state, ground, levels, work, water)
    if water.size and water.shape != state.shape[1:]:
        raise ValueError(f"the water of this box is {state.shape[1:]}, not {water.shape}")
    form.prepare(state, water, ground, levels, work)


def tendencies(
    state: Any, work: Any, ground: Ground, column: Any, levels: Any, weights: Any, stage: LargeStage, slow: Any
) -> None:
    """The slow tendencies; see `reference.tendencies`."""
    form = _form(state, ground, levels, work, column, weights, slow)
    if slow.shape != state.shape or weights.shape != (3, 7):
        raise ValueError(f"the tendencies must be {state.shape} and the weights of faces (3, 7)")
    form.tendencies(state, work, ground, column, levels, weights, stage, slow)


def substep(
    old: Any, new: Any, work: Any, ground: Ground, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any,
    flux_z: Any, numbers: Substep,
) -> None:  # fmt: skip
    """An acoustic substep; see `reference.substep`."""
    given = old, new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    _checked(*given).substep(*given)


def sweep(
    old: Any, new: Any, work: Any, ground: Ground, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any,
    flux_z: Any, numbers: Substep, turns: Any, ends: int, kept_faces: Any,
) -> None:  # fmt: skip
    """Rows of some substeps in turn, as the flat one; kept_faces: `faces_kept` of these substeps."""
    given = old, new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    _checked(*given).sweep(*given, turns, ends, kept_faces)


def linearize_and_sweep(
    state: Any, water: Any, ground: Ground, column: Any, weights: Any, stage: LargeStage, old: Any, new: Any, work: Any,
    slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any, flux_z: Any, numbers: Substep, turns: Any,
    ends: int, kept_faces: Any, walls: tuple[bool, bool, bool, bool] = NO_WALLS,
) -> None:  # fmt: skip
    """All of a stage before its first exchange in one pass, as the flat one: with the bits of `prepare`, `tendencies`,
    no momentum through walls, `begin` of the flat kernels, and `sweep`.
    """
    given = new, work, ground, slow, pressure, levels, flux_x, flux_y, flux_z, numbers
    form = _checked(old, *given)
    double_form_for(__package__, state, water, column, weights)
    tall = state.shape[2]
    if slow.shape[2] < min(tall, rows_kept(state)):
        raise ValueError(f"tendencies need {min(tall, rows_kept(state))} rows in the cache, not {slow.shape[2]}")
    if slow.shape != (FIELDS, *work.shape[1:]) or weights.shape != (3, 7):
        raise ValueError(f"the tendencies must be {(FIELDS, *work.shape[1:])} and the weights of faces (3, 7)")
    first = state, water, ground, column, weights, stage, old, new, work, slow, pressure, levels
    form.linearize_and_sweep(*first, flux_x, flux_y, flux_z, numbers, turns, ends, kept_faces, walls)


def rows_kept(state: Any) -> int:
    """As of the flat kernels."""
    nz, _, wide = state.shape[1:]
    return double_form_for(__package__, state).rows_kept(wide - 2 * HALO, nz)


def faces_kept(state: Any, substeps: int) -> np.ndarray:
    """Room for what `sweep` keeps of faces between turns."""
    return np.empty((substeps, FACES_KEPT, state.shape[1], state.shape[3] - 2 * HALO + 1))


def _checked(
    old: Any, new: Any, work: Any, ground: Ground, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any,
    flux_z: Any, numbers: Substep,
) -> Any:  # fmt: skip
    form = _form(new, ground, levels, work, old, slow, pressure, flux_x, flux_y, flux_z)
    nz, ny, nx = new.shape[1], new.shape[2] - 2 * HALO, new.shape[3] - 2 * HALO
    wanted = [new.shape, (nz, ny + 2, nx + 2)]
    if numbers.share:
        wanted += [(nz, ny, nx + 1), (nz, ny + 1, nx), (nz + 1, ny, nx)]
    given = [each.shape for each in (old, pressure, flux_x, flux_y, flux_z)][: len(wanted)]
    if given != wanted:
        raise ValueError(f"old state, pressure and mean mass fluxes of this box are {wanted}, not {given}")
    return form


def relax(state: Any, ground: Ground, levels: Any, lid: Any, dt: float) -> None:
    """Relax toward the base state below the lid, in place; see `reference.relax`."""
    form = _form(state, ground, levels, None, lid)
    if lid.shape != (state.shape[1],):
        raise ValueError(f"the rates of this box are [{state.shape[1]}], not {lid.shape}")
    form.relax(state, ground, levels, lid, dt)


def _form(state: Any, ground: Ground, levels: Any, work: Any, *arrays: Any) -> Any:
    given = [*ground, levels, *([] if work is None else [work])]
    form = double_form_for(__package__, state, *given, *arrays)
    if state.ndim != 4 or state.shape[0] != FIELDS or state.shape[1] < 4 or min(state.shape[2:]) < 3 * HALO:
        raise ValueError(
            f"a state is [{FIELDS}, nz, ny + {2 * HALO}, nx + {2 * HALO}] with nz of at least 4, ny and nx of at least"
            f" {HALO}, not {state.shape}"
        )
    nz, cells = state.shape[1], state.shape[1:]
    wanted = [(4, *cells), (METRICS, *cells), (2, *cells), (2, nz), (LEVELS, nz + 1)]
    if work is not None:  # of all rows or of those that are kept
        wanted.append((WORKS, nz, min(work.shape[2], cells[1]), cells[2]))
    if [each.shape for each in given] != wanted:
        raise ValueError(f"terrain, levels and work space of this box are {wanted}")
    return form
