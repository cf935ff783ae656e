"""The slab model on a GPU: the sweeps go from one state to another, and nothing waits for the device in a step."""

from __future__ import annotations

import numpy as np

from hpckit.apps.weather.config import Config
from hpckit.apps.weather.model import Model, Watch
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.euler2d.constants import INNER, OUTER, WHOLE
from hpckit.kernels.euler2d.cuda import sweep_x, sweep_z
from hpckit.kernels.euler2d.cuda_target import Target, new_status, read_status
from hpckit.kernels.euler2d.diffusion.cuda import diffuse


class GpuModel(Model):
    """As `Model`, on a GPU. Tiles that need no halo are swept while the halo is exchanged."""

    def __init__(self, config: Config, mesh: Mesh, device: Device) -> None:
        super().__init__(config, mesh, device)
        self.spare = self.state.like()
        self.faces, self.ghost = self._table(self.base.faces), self._table(self.base.ghost)
        self.rest = self._table(self.calm)
        self.horizontal_force = self.force if config.compat else self._table(np.zeros((0, 0)))
        self.status = new_status(self.state.data)

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s): both sweeps and diffusion, in the reverse order every other step."""
        parts = ["x", "z", "diffusion"][: 3 if self.config.diffusion else 2]
        for part in parts if self.steps_done % 2 == 0 else reversed(parts):
            if part == "diffusion":
                with timer("halo"):
                    self.exchange(self.state)
                with timer("diffusion"):
                    self._advance_diffusion(self.config.diffusion * dt)
                continue
            if part == "x":
                with timer("halo"):
                    self.exchange.start(self.state)
                with timer("x sweep"):
                    self._advance_x(dt, INNER)
                with timer("halo"):
                    self.exchange.finish(self.state)
                with timer("x sweep"):
                    self._advance_x(dt, OUTER)
            else:
                with timer("z sweep"):
                    self._advance_z(dt)
            self.state.data, self.spare.data = self.spare.data, self.state.data
        self.steps_done += 1

    def _advance_x(self, dt: float, part: int) -> None:
        arrays = (self.horizontal_force, self.inflow)
        sweep_x(
            self.state.data, self.column, self.config.grid.dx, dt, self.config.beta, *arrays, self.at_left,
            self.at_right, self._target, part,
        )  # fmt: skip

    def _advance_z(self, dt: float) -> None:
        tables = (self.faces, self.ghost)
        sweep_z(self.state.data, *tables, self.config.grid.dz, dt, self.config.beta, self.force, self._target)

    def _advance_diffusion(self, amount: float) -> None:
        grid = self.config.grid
        diffuse(self.state.data, self.column, self.rest, grid.dx, grid.dz, amount, self.spare.data)

    @property
    def _target(self) -> Target:
        return Target(self.spare.data, self.status, self.steps_done + 1)

    def watch(self) -> Watch:
        """Collective: as of `Model`; waits for the device and reads the status of the steps since the last time."""
        found = super().watch()
        marked = read_status(self.status)[1]
        if marked is not None:
            self.first_broken_step = marked
        return found

    def warm_up(self) -> None:
        """Compile the kernels (or load them), with results that are thrown away."""
        self._advance_x(self.dt, WHOLE)
        self._advance_z(self.dt)
        self._advance_diffusion(0.0)
        super().watch()
        self.status = new_status(self.state.data)
