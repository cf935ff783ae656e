"""The run of the diffusion app: output and metrics."""

from __future__ import annotations

import numpy as np

from hpckit.apps.common.grid import FixedSteps, run_on_grid
from hpckit.apps.common.loop import conserved
from hpckit.apps.diffusion.config import METRICS, Config
from hpckit.apps.diffusion.model import Model, warm_up
from hpckit.apps.diffusion.start import places
from hpckit.comm.mesh import Mesh
from hpckit.kernels import stencil
from hpckit.run.context import Run

BYTES_PER_CELL_STEP = 16  # the temperature read once and written once
VARIABLES = {"temperature": {"units": "K", "long_name": "temperature"}}


class Diffusion(FixedSteps):
    """The run of a body."""

    app, bytes_per_cell_step, metrics, variables = "diffusion", BYTES_PER_CELL_STEP, METRICS, VARIABLES
    model: Model

    def __init__(self, run: Run, model: Model) -> None:
        super().__init__(run, model, model.dt, model.steps, None)
        self.limit = stencil.largest_step(self.config.diffusivity, self.config.grid.spacing)

    def coords(self) -> dict[str, np.ndarray]:
        """The cell centers, m."""
        return dict(zip(self.config.grid.axes, places(self.config), strict=True))

    def check(self) -> None:
        """Nothing: a watch raises `BlowUpError` itself."""

    def cfl(self) -> float:
        """The time step over the stability limit."""
        return self.dt / self.limit

    def is_frame(self, step: int) -> bool:
        """Whether a frame follows a step."""
        return is_frame(self.config, step, self.steps)

    def conserved(self) -> dict[str, dict[str, float]]:
        """The heat, if no wall conducts."""
        walls = [wall for axis in self.config.grid.axes for wall in self.config.walls.of(axis)]
        closed = all(wall == "insulated" for wall in walls)
        return conserved(heat=(self.first.heat, self.last.heat)) if closed else {}


def is_frame(config: Config, step: int, steps: int) -> bool:
    """Whether a frame follows `step`: frames divide the run evenly and include the last step."""
    frames = min(config.output.frames, steps)
    return step * frames // steps > (step - 1) * frames // steps


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`; raises the errors of `run_on_grid`."""
    grid = config.grid
    with Mesh(run.comm, shape=grid.shape, periodic=grid.periodic, **dict.fromkeys(grid.axes, 0)) as mesh:
        run_on_grid(Diffusion, Model, warm_up, config, run, mesh)
