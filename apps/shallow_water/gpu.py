"""The shallow-water model on a GPU: a step goes from one set of fields to another, and nothing waits for the device."""

from __future__ import annotations

import numpy as np

from hpckit.apps.shallow_water.config import Config
from hpckit.apps.shallow_water.model import Model
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.shallow_water.constants import F
from hpckit.kernels.shallow_water.cuda import step, step_free, tiles_of


class GpuModel(Model):
    """As `Model`, on a GPU. Tiles that need no halo are stepped while the halo is exchanged."""

    most_at_once = 1
    bottom: Field
    exchange: HaloExchange

    def __init__(self, config: Config, mesh: Mesh, device: Device) -> None:
        super().__init__(config, mesh)
        dtype = np.dtype(config.precision)
        self.exchange.close()
        self.h, self.u, self.v, self.bottom = (
            Field(device.to_device(host.data.astype(dtype)), host.decomposition, mesh, host.name, host.units, device)
            for host in (*self.fields, self.bottom)
        )
        self.exchange = HaloExchange(mesh, self.fields, walls=self._walls)
        self.spare = [field.like() for field in self.fields]
        self.f, self.device_rows, self.device_columns = (
            device.to_device(values.astype(dtype)) for values in (self.rows[F], self.rows, self.columns)
        )
        self.core, self.rim = (tiles_of(self.h.data, not self.free, core) for core in (True, False))

    def step(self, dt: float, timer: PhaseTimer, steps: int = 1) -> None:
        """Advance by dt (s), one step; afterwards the halo is stale."""
        with timer("halo"):
            self.exchange.start(self.fields)
        with timer("step"):
            self._step(dt, self.core)
        with timer("halo"):
            self.exchange.finish(self.fields)
        with timer("step"):
            self._step(dt, self.rim)
        for field, spare in zip(self.fields, self.spare, strict=True):
            field.data, spare.data = spare.data, field.data
        self.steps_done += steps

    def _step(self, dt: float, tiles: list[tuple[int, int, int, int]] | None = None) -> None:
        grid, physics = self.config.grid, self.config.physics
        now, out = [field.data for field in self.fields], tuple(spare.data for spare in self.spare)
        if self.free:
            step_free(*now, self.f, physics.gravity, grid.dx, grid.dy, dt, out, tiles)
        else:
            tables = (self.bottom.data, self.device_rows, self.device_columns)
            forces = (physics.viscosity, physics.drag, physics.drag_quadratic)
            step(*now, *tables, physics.gravity, grid.dx, grid.dy, dt, *forces, out, tiles)

    def warm_up(self) -> None:
        """Compile the kernels (or load them), with results that are thrown away."""
        self._step(0.0)
        for spare in self.spare:
            spare.data[...] = 0.0
        self.watch()
