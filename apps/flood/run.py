"""The flood app's run: steps that follow the waves and end on frames, output and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hpckit.apps.common.grid import GridRun, run_on_grid
from hpckit.apps.common.loop import Due, conserved
from hpckit.apps.flood import setups
from hpckit.apps.flood.config import METRICS, VARIABLES, Config
from hpckit.apps.flood.layout import AXES
from hpckit.apps.flood.model import Model, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.io.checkpoint.state import Restored, State
from hpckit.kernels.flood.constants import HALO
from hpckit.run.context import Run

BYTES_PER_CELL_STEP = 2 * 48 + 24  # each stage reads and writes three fields, the second one reads the start too


class Flood(GridRun):
    """The run of a flood; `frames` are written after the start."""

    app, bytes_per_cell_step, metrics, variables = "flood", BYTES_PER_CELL_STEP, METRICS, VARIABLES
    model: Model
    frames = 0

    @property
    def is_over(self) -> bool:
        """Whether the end is reached."""
        return self.time >= self.end

    def coords(self) -> dict[str, np.ndarray]:
        """The cell centers, m."""
        return dict(zip(AXES, setups.places(self.config), strict=True))

    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint."""
        super().restore(kept)
        self.time, self.frames = self.model.time, kept.values["frames"]

    def saved(self) -> State:
        """Collective: the content of a checkpoint."""
        state = super().saved()
        return State(state.pieces, {**state.values, "frames": self.frames})

    def advance(self) -> Due:
        """Collective: do the next step, which ends exactly on a frame that it would pass."""
        model, target = self.model, min(self.end, (self.frames + 1) * self.config.output.every)
        once = partial(model.step, target - model.time, self.run.timer)
        self.dt = self.run.advance(model.steps_done + 1, once, model.saved, model.restore)
        frame = model.time + self.dt >= target * (1 - 1e-14)
        model.time = target if frame else model.time + self.dt
        self.step, self.time = model.steps_done, model.time
        self.frames += frame
        return Due(self.step % self.config.time.monitor == 0 or frame, frame)

    def check(self) -> None:
        """Collective: raise `BlowUpError` if cells are lost."""
        self.model.require_sound(self.last)

    def cfl(self) -> float:
        """The Courant number of the waves."""
        return self.model.rate * self.dt

    def conserved(self) -> dict[str, dict[str, float]]:
        """The mass, if no boundary is open."""
        closed = "open" not in self.config.grid.sides.values()
        return conserved(mass=(self.first.mass, self.last.mass)) if closed else {}

    def more(self) -> Mapping[str, Any]:
        """The number of repeated steps, and the error of the depth if an exact solution is known."""
        error = self.last.depth_error
        if error is None:
            return {"steps_taken_again": self.model.tries}
        self.run.say(f"depth against the exact solution: mean error {error:.3%} of the mean depth")
        return {"steps_taken_again": self.model.tries, "depth_error": error}


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`; raises the errors of `run_on_grid`."""
    grid = config.grid
    with Mesh(run.comm, shape=(grid.ny, grid.nx), periodic=grid.periodic, halo=HALO, y=0, x=0) as mesh:
        run_on_grid(Flood, Model, warm_up, config, run, mesh)
