"""The shallow-water app's run: with up to two steps at once: output and metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.common.grid import FixedSteps, run_on_grid
from hpckit.apps.common.loop import conserved
from hpckit.apps.shallow_water import setups
from hpckit.apps.shallow_water.config import METRICS, Config
from hpckit.apps.shallow_water.layout import time_step
from hpckit.apps.shallow_water.model import Model, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.kernels.shallow_water.constants import HALO
from hpckit.run.context import Run
from hpckit.run.steps import step_count

BYTES_PER_CELL_STEP = 3 * 48  # three tendencies, each of which reads and writes h, u and v once
VARIABLES: dict[str, dict[str, Any]] = {
    "elevation": {"units": "m", "long_name": "height of the surface above rest"},
    "vorticity": {"units": "s-1", "long_name": "relative vorticity"},
    "u": {"units": "m s-1", "long_name": "velocity along x", "location": ("center", "face")},
    "v": {"units": "m s-1", "long_name": "velocity along y", "location": ("face", "center")},
}


class ShallowWater(FixedSteps):
    """The run of a basin."""

    app, bytes_per_cell_step, metrics, variables = "shallow_water", BYTES_PER_CELL_STEP, METRICS, VARIABLES
    model: Model

    def __init__(self, run: Run, model: Model) -> None:
        dt = time_step(model.config)
        super().__init__(run, model, dt, step_count(model.config, dt), model.config.time.end)

    def coords(self) -> dict[str, np.ndarray]:
        """The middles of the cells, and their faces, m."""
        places = (*setups.centers(self.config), *setups.faces(self.config))
        return dict(zip(("y", "x", "y_face", "x_face"), places, strict=True))

    def at_once(self) -> int:
        """The number of steps to take at once: up to the next look at the state, or the last step but one."""
        for many in range(1, self.model.at_once):
            step = self.step + many
            if self.is_looked_at(step) or self.run.saves_after(step) or step + 1 >= self.steps:
                return many
        return self.model.at_once

    def is_looked_at(self, step: int) -> bool:
        """Whether metrics follow a step, as after each frame."""
        return step % self.config.time.monitor == 0 or self.is_frame(step)

    def check(self) -> None:
        """Collective: raise `BlowUpError` for lost or dry cells, and for waves too fast for the step."""
        self.model.require_sound(self.last, self.full)

    def cfl(self) -> float:
        """The Courant number of long waves and flow together."""
        return self.model.cfl(self.last, self.dt)

    def conserved(self) -> dict[str, dict[str, float]]:
        """The mass and, without friction and wind, the energy."""
        physics, first, last = self.config.physics, self.first, self.last
        pairs = {"mass": (first.mass, last.mass)}
        if not any((physics.viscosity, physics.drag, physics.drag_quadratic, self.config.wind.stress)):
            pairs["energy"] = (first.energy, last.energy)
        return conserved(**pairs)


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`; raises the errors of `run_on_grid`."""
    grid = config.grid
    with Mesh(run.comm, shape=(grid.ny, grid.nx), periodic=grid.periodic, halo=HALO, y=0, x=0) as mesh:
        run_on_grid(ShallowWater, Model, warm_up, config, run, mesh)
