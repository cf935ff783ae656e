"""The box model on a GPU: the sweeps go from one state to another, and nothing waits for the device in a step."""

from __future__ import annotations

import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import Model, Watch
from hpckit.device import Device
from hpckit.kernels.euler2d.constants import INNER, OUTER, WHOLE
from hpckit.kernels.euler2d.cuda_target import Target, new_status, read_status
from hpckit.kernels.euler3d.cuda import diagnose, diffuse, sweep_x, sweep_y, sweep_z, turn
from hpckit.mesh import Mesh
from hpckit.timing import PhaseTimer


class GpuModel(Model):
    """As `Model`, on a GPU: dynamics, Coriolis force, constant diffusion, sides that are periodic or walls.

    Tiles and chunks that need no halo are swept while the halo is exchanged. The rest of the physics has no form for a
    GPU yet: `config.device_problems` refuses it.
    """

    def __init__(self, config: Config, mesh: Mesh, device: Device) -> None:
        super().__init__(config, mesh, device)
        self.spare = self.state.like()
        base = self.base
        self.column, self.height, self.faces, self.ghost, self.winds, self.rest, self.no_flux = (
            device.to_device(np.asarray(values, self.state.data.dtype))
            for values in (
                base.column, base.height, base.faces_3d, base.ghost, self.wind, self.calm, np.zeros((0, 0, 0))
            )
        )  # fmt: skip
        self.status = new_status(self.state.data)

    def _dynamics(self, dt: float, timer: PhaseTimer) -> None:
        """Sweeps along x, y, z and the Coriolis force; in the reverse order every other step."""
        parts = [*"xyz", *(["coriolis"] if self.config.coriolis else [])]
        for part in parts if self.steps_done % 2 == 0 else reversed(parts):
            if part == "coriolis":
                with timer("coriolis"):
                    turn(self.state.data, self.column, self.winds, self.config.coriolis * dt)
                continue
            if part == "z":
                with timer("z sweep"):
                    self._sweep_part("z", dt, WHOLE)
            else:
                with timer("halo"):
                    self.exchanges[part].start(self.state)
                with timer(f"{part} sweep"):
                    self._sweep_part(part, dt, INNER)
                with timer("halo"):
                    self.exchanges[part].finish(self.state)
                with timer(f"{part} sweep"):
                    self._sweep_part(part, dt, OUTER)
            self.state.data, self.spare.data = self.spare.data, self.state.data

    def _sweep_part(self, direction: str, dt: float, part: int) -> None:
        target = Target(self.spare.data, self.status, self.steps_done + 1)
        state, numbers = self.state.data, (self.spacing[direction], dt, self.config.beta, self.no_flux, target)
        if direction == "z":
            sweep_z(state, self.faces, self.ghost, *numbers)
        else:
            (sweep_x if direction == "x" else sweep_y)(state, self.column, *numbers, part)

    def _physics(self, dt: float, timer: PhaseTimer) -> None:
        """Constant diffusion; the spare state is its scratch."""
        if not self.config.diffusion:
            return
        with timer("halo"):
            for exchange in self.exchanges.values():
                exchange(self.state)
        with timer("mixing"):
            self._diffuse(dt)

    def _diffuse(self, dt: float) -> None:
        spacing = (self.spacing["x"], self.spacing["y"], self.spacing["z"])
        amount = self.config.diffusion * dt
        diffuse(self.state.data, self.column, self.rest, spacing, amount, self.spare.data)

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
        """Compile the kernels (or load them), with results that are thrown away or change nothing."""
        for direction in "xyz":
            self._sweep_part(direction, self.dt, WHOLE)
        turn(self.state.data, self.column, self.winds, 0.0)
        if self.config.diffusion:
            self._diffuse(0.0)
        self._diagnose()
        self.spare.data[...] = 0.0
        self.status = new_status(self.state.data)
