"""Unresolved mixing: diffusion with a constant or an eddy viscosity, of the air and its tracers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.physics.tracers import Tracers
from hpckit.apps.weather3d.sides import HORIZONTAL, state_walls
from hpckit.comm.agree import max_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.device_array import empty, placed
from hpckit.kernels.euler.box.dispatch import diffuse
from hpckit.kernels.euler.turbulence.dispatch import eddy_viscosity, mix, mix_tracers


class Mixing:
    """Constant diffusion and Smagorinsky's of a run on this rank. `base`: not diffused, float64[4, nz]."""

    def __init__(self, config: Config, mesh: Mesh, state: Field, column: Any, base: Any) -> None:
        grid = config.grid
        self.config = config
        self._mesh = mesh
        self._column, self._base = column, base
        self._spacing = (grid.dx, grid.dy, grid.dz)
        self._work = state.device.zeros(state.data.shape, state.data.dtype)
        self._viscosity = state.device.zeros(state.data.shape[1:], state.data.dtype)
        self._exchange = HaloExchange(mesh, state, state_walls(config), axes=HORIZONTAL)  # corners too
        self._greatest: Any = 0.0  # or a number on the device

    @property
    def wait_seconds(self) -> float:
        """Seconds spent in MPI waits so far."""
        return self._exchange.wait_seconds

    def apply(self, state: Field, tracers: Tracers | None, dt: float, timer: PhaseTimer) -> None:
        """Mix over dt (s), tracers like theta; each scheme after its halo exchange."""
        config = self.config
        if config.smagorinsky.coefficient:
            self._fill_halo(state, tracers, timer)
            with timer("eddy viscosity"):
                self._smagorinsky(state, tracers, dt)
        if config.diffusion:
            self._fill_halo(state, tracers, timer)
            with timer("diffusion"):
                diffuse(state.data, self._column, self._base, self._spacing, config.diffusion * dt, self._work)
                if tracers:
                    self._viscosity[...] = config.diffusion
                    self._mix_tracers(state, tracers, dt)

    def _smagorinsky(self, state: Field, tracers: Tracers | None, dt: float) -> None:
        coefficient, prandtl = self.config.smagorinsky.coefficient, self.config.smagorinsky.prandtl
        limit = viscosity_limit(self.config, dt)
        self._greatest = eddy_viscosity(
            state.data, self._column, self._spacing, coefficient, prandtl, limit, self._work, self._viscosity
        )
        mix(state.data, self._base, self._spacing, dt, prandtl, self._work, self._viscosity)
        if tracers:
            self._mix_tracers(state, tracers, dt / prandtl)

    def _fill_halo(self, state: Field, tracers: Tracers | None, timer: PhaseTimer) -> None:
        with timer("halo"):
            self._exchange(state)
            if tracers:
                for axis in HORIZONTAL:
                    tracers.fill_halo(axis)

    def _mix_tracers(self, state: Field, tracers: Tracers, dt: float) -> None:
        mix_tracers(
            tracers.field.data, tracers.spare.data, state.data, self._column, self._spacing, dt, self._viscosity
        )  # fmt: skip
        tracers.swap()

    def watch(self) -> dict[str, float]:
        """Collective: the maximum eddy viscosity of the last step (m2/s), if there is one."""
        if not self.config.smagorinsky.coefficient:
            return {}
        greatest = max_of_ranks(self._mesh.comm, np.array(float(self._greatest)))
        return {"eddy_viscosity_max": float(greatest)}


def viscosity_limit(config: Config, dt: float) -> float:
    """The maximum eddy viscosity (m2/s) at which an explicit step of dt (s) is stable, for momentum and scalars."""
    grid = config.grid
    share = min(0.25, config.smagorinsky.prandtl / 2)
    return share / (dt * (grid.dx**-2 + grid.dy**-2 + grid.dz**-2))


def warm_up(state: Any, column: Any) -> None:
    """Compile the kernels (or load them) on a few cells of a state and their column."""
    base, spacing, work = (
        placed(np.zeros((4, len(column[0])), state.dtype), state),
        (1.0, 1.0, 1.0),
        empty(state.shape, state),
    )
    viscosity, q = empty(state.shape[1:], state), placed(np.zeros((1, 4, 12, 12), state.dtype), state)
    diffuse(state, column, base, spacing, 0.0, work)
    eddy_viscosity(state, column, spacing, 0.2, 1.0, 1.0, work, viscosity)
    mix(state, base, spacing, 0.0, 1.0, work, viscosity)
    mix_tracers(q, empty(q.shape, q), state, column, spacing, 0.0, viscosity)
