"""The flood model on a GPU. A step waits for the device once: how fast its waves were decides the next one's length."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.flood.config import Config
from hpckit.apps.flood.model import Model
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.flood.cuda import found_by, result, stage, tiles_of


class GpuModel(Model):
    """As `Model`, on a GPU. Tiles that need no halo are computed while the halo is exchanged."""

    bottom: Field
    exchange: HaloExchange
    _states: list[Any]

    def __init__(self, config: Config, mesh: Mesh, device: Device) -> None:
        super().__init__(config, mesh)
        self.exchange.close()
        host, dtype = self.bottom, np.dtype(config.precision)
        self.bottom = Field(
            device.to_device(host.data.astype(dtype)), host.decomposition, mesh, host.name, host.units, device
        )
        self._states = [device.to_device(state.astype(dtype)) for state in self._states]
        self._fields = [self._as_fields(state, device) for state in self._states]
        self.exchange = self._exchange_of(self.fields)
        self.found = [found_by(self.state) for _ in range(2)]
        self.core, self.rim = (tiles_of(self.state, core) for core in (True, False))

    def _advance(self, new: int, now: int, weight: float, dt: float, timer: PhaseTimer) -> Any:
        with timer("halo"):
            self.exchange.start(self._fields[now])
        with timer("step"):
            self._stage_of(new, now, weight, dt, self.core)
        with timer("halo"):
            self.exchange.finish(self._fields[now])
        with timer("step"):
            return self._stage_of(new, now, weight, dt, self.rim)

    def _stage_of(self, new: int, now: int, weight: float, dt: float, tiles: Any) -> Any:
        """One stage on some tiles; returns what its blocks find, which is on the device."""
        found, states, numbers = self.found[now], self._states, self._numbers(weight, dt)
        stage(states[new], states[now], states[0], self.bottom.data, *numbers, found, tiles)
        return found

    def _agree(self, *results: Any) -> tuple[float, ...]:
        return super()._agree(*(result(each) if is_device_array(each) else each for each in results))

    def warm_up(self) -> None:
        """Compile the kernels (or load them), with results that are thrown away."""
        self._agree(self._stage_of(1, 0, 1.0, 0.0, self.rim))
        self.watch()
