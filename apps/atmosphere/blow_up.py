"""Detection of a blow-up, and its first cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from hpckit.apps.atmosphere.base import BaseState
from hpckit.apps.atmosphere.stability import stable_cfl
from hpckit.apps.common.lost import first_lost, place_of
from hpckit.comm.agree import least_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.errors import BlowUpError
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import State
from hpckit.kernels.euler.constants import GAMMA
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.run.nan_guard import require_finite

WINDS = {"x": "u", "y": "v", "z": "w"}


class Checked(Protocol):
    """A model: state [fields, z, (y,) x] of rho', momenta in the order of `spacing`, (rho theta)'.

    spacing: cell width (m) by direction. A watch has speed_x, … (wind and sound, m/s) and broken_cells.
    """

    config: Any
    mesh: Mesh
    decomposition: Decomposition
    base: BaseState
    state: Field
    spacing: dict[str, float]
    steps_done: int
    first_broken_step: int | None

    def saved(self, **values: Any) -> State:
        """Collective: the content of a checkpoint, with extra `values`."""


def courant(model: Checked, watch: Any, dt: float) -> float:
    """The Courant number of sound and wind together."""
    return max(getattr(watch, f"speed_{name}") / spacing for name, spacing in model.spacing.items()) * dt


def require_sound(model: Checked, watch: Any, dt: float) -> None:
    """Collective: raise `BlowUpError` on every rank if a value is not finite or the CFL limit is exceeded."""
    if watch.broken_cells:
        _refuse_broken(model, watch)
    if not all(map(math.isfinite, getattr(watch, "more", {}).values())):  # masses of tracers, the same on all ranks
        require_finite(model.mesh.comm, model.steps_done, model.saved())
    if courant(model, watch, dt) > stable_cfl(model.config.beta):
        _refuse_fast(model, watch, dt)


def _refuse_broken(model: Checked, watch: Any) -> None:
    """Raise `BlowUpError` with the first lost field and cell, of the rank that lost it first."""
    step = model.first_broken_step if model.first_broken_step is not None else model.steps_done
    lost = first_lost(model.mesh, model.decomposition, _broken(model), step)
    names = ("rho", *(f"rho_{WINDS[name]}" for name in model.spacing), "rho_theta", "rho")
    raise BlowUpError(
        f"{names[lost.mask]} is not finite (or no air is left) in {watch.broken_cells} cells",
        where=lost.where,
        likely="a time step too long for this grid, or an initial state too violent for it",
        do="lower time.cfl, use more cells, or raise beta",
    )


def _broken(model: Checked) -> Iterator[np.ndarray]:
    """The cells that are not finite, field by field; last those where a density or pressure is not positive."""
    yield from (~np.isfinite(field) for field in model.state.to_host())
    yield (_total(model, 0) <= 0) | (_total(model, 1) <= 0)


def _refuse_fast(model: Checked, watch: Any, dt: float) -> None:
    """Raise `BlowUpError` with the fastest cell."""
    rho, rho_theta = _total(model, 0), _total(model, 1)
    sound = np.sqrt(GAMMA * _row(model, 2) * (rho_theta / _row(model, 1)) ** GAMMA / rho)
    each = [
        (np.abs(momentum / rho) + sound) * dt / spacing
        for momentum, spacing in zip(model.state.to_host()[1:-1], model.spacing.values(), strict=True)
    ]
    direction = max(range(len(each)), key=lambda i: each[i].max())
    cell = np.unravel_index(each[direction].argmax(), rho.shape)
    order = -round(each[direction].max() * 1e6)
    rank, (direction, *place) = least_of_ranks(model.mesh.comm, order, [direction, *map(int, cell)])
    cfl, limit, time = courant(model, watch, dt), stable_cfl(model.config.beta), model.config.time
    axis = list(model.spacing)[direction]
    fastest = max(getattr(watch, f"speed_{name}") for name in model.spacing)
    raise BlowUpError(
        f"the Courant number |{WINDS[axis]}| + c in {axis} is {cfl:.4f}, above the limit of {limit:.4f}",
        where=place_of(model.decomposition, rank, model.steps_done, place),
        likely=f"time.cfl = {time.cfl:g} assumes {time.max_speed:g} m/s, but wind and sound reach {fastest:.0f} m/s",
        do=f"set time.cfl to at most {np.floor(98 * limit / cfl * time.cfl) / 100:g}",
    )


def _row(model: Checked, number: int) -> np.ndarray:
    """A row of the base's column, to broadcast against a field."""
    return model.base.column[number].reshape(-1, *[1] * (model.decomposition.ndim - 1))


def _total(model: Checked, number: int) -> np.ndarray:
    """Density (0) or rho theta (1) of the owned cells, the base's included."""
    return model.state.to_host()[-number] + _row(model, number)
