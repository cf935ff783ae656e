"""The box model on a GPU: the sweeps go from one state to another, and nothing waits for the device in a step."""

from __future__ import annotations

import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import Model, Watch
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.cuda_jit import simulating
from hpckit.kernels.euler2d.constants import INNER, OUTER, WHOLE
from hpckit.kernels.euler2d.cuda_target import Target, new_status, read_status
from hpckit.kernels.euler3d.cuda import diagnose, sweep_x, sweep_y, sweep_z, turn


class GpuModel(Model):
    """As `Model`, on a GPU. Tiles and chunks that need no halo are swept while the halo is exchanged."""

    def __init__(self, config: Config, mesh: Mesh, device: Device) -> None:
        super().__init__(config, mesh, device)
        self.spare = self.state.like()
        self.faces, self.ghost, self.winds = (
            self._table(values) for values in (self.base.faces_3d, self.base.ghost, self.wind)
        )
        self.status = new_status(self.state.data)

    def _dynamics(self, dt: float, timer: PhaseTimer) -> None:
        """Sweeps along x, y, z and the Coriolis force; in the reverse order every other step."""
        parts = [*"xyz", *(["coriolis"] if self.config.coriolis else [])]
        for part in parts if self.steps_done % 2 == 0 else reversed(parts):
            if part == "coriolis":
                with timer("coriolis"):
                    turn(self.state.data, self.column, self.winds, self.config.coriolis * dt)
                continue
            self._sweep(part, None, dt, timer)

    def _sweep(self, direction: str, after: str | None, dt: float, timer: PhaseTimer) -> int:
        """One direction with its halo, and the tracers with it. The status stays on the device."""
        exchange, old = self.exchanges.get(direction), self.state.data
        if exchange:
            with timer("halo"):
                exchange.start(self.state)
            with timer(f"{direction} sweep"):
                self._sweep_part(direction, dt, INNER)
            with timer("halo"):
                exchange.finish(self.state)
        if self.tracers:
            with timer("halo"):
                self.tracers.before(direction, old)
        with timer(f"{direction} sweep"):
            self._sweep_part(direction, dt, OUTER if exchange else WHOLE)
        self.state.data, self.spare.data = self.spare.data, self.state.data
        if self.tracers:
            with timer("tracers"):
                self.tracers.after(direction, self.state.data, self.column, self.mass_flux[direction], dt)
        if direction in self.open_axes:
            self.entered[0] = self.entered[0] + self._mass_through(direction) * dt
        return 0

    def _sweep_part(self, direction: str, dt: float, part: int) -> None:
        target = Target(self.spare.data, self.status, self.steps_done + 1)
        numbers = self.spacing[direction], dt, self.config.beta, self.mass_flux[direction], target
        state = self.state.data
        if direction == "z":
            sweep_z(state, self.faces, self.ghost, *numbers)
        else:
            (sweep_x if direction == "x" else sweep_y)(state, self.column, *numbers, part)

    def _diagnose(self) -> np.ndarray:
        return diagnose(self.state.data, self.column, self.height)

    def watch(self) -> Watch:
        """Collective: as of `Model`; waits for the device and reads the status of the steps since the last time."""
        found = super().watch()
        marked = read_status(self.status)[1]
        if marked is not None:
            self.first_broken_step = marked
        return found

    def warm_up(self) -> None:
        """Compile the kernels (or load them): a step whose results are thrown away. Nothing to do in the simulator."""
        if simulating():
            return
        kept = self.state.to_host(), self.tracers.field.to_host() if self.tracers else None
        self.step(self.dt, PhaseTimer())
        self._diagnose()
        self.state.set_from_host(kept[0])
        if self.tracers and kept[1] is not None:
            self.tracers.field.set_from_host(kept[1])
        self.entered, self.steps_done = [0.0, 0.0], 0
        self.status = new_status(self.state.data)
