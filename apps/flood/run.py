"""The flood app's run: steps that follow the waves and end on frames, output, metrics and dry run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hpckit.apps.common.grid import GridRun, grid_dry_run, local_cells, run_on_grid, sent_bytes
from hpckit.apps.common.loop import Due, conserved
from hpckit.apps.flood import setups
from hpckit.apps.flood.config import METRICS, Config
from hpckit.apps.flood.model import AXES, Model, first_rate, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.io.checkpoint.state import Restored, State
from hpckit.kernels.flood.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from hpckit.run.steps import count_steps, frame_count, step_count

BYTES_PER_CELL_STEP = 2 * 48 + 24  # each stage reads and writes three fields, the second one reads the start too
VARIABLES = {
    "depth": {"units": "m", "long_name": "depth of the water"},
    "surface": {"units": "m", "long_name": "height of the surface, of the ground where it is dry"},
    "u": {"units": "m s-1", "long_name": "velocity along x"},
    "v": {"units": "m s-1", "long_name": "velocity along y"},
}


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


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    grid, shape = config.grid, (config.grid.ny, config.grid.nx)
    topology = Topology.over(ranks, shape, dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = Decomposition(shape, topology, halo=HALO)
    dt = min(config.time.cfl / first_rate(config), config.output.every)
    steps = step_count(config, dt)
    count_steps(config.time.end, config.output.every)
    return grid_dry_run(
        config,
        decomposition,
        (grid.dy, grid.dx),
        sides=f", x {grid.sides_x}, y {grid.sides_y}",
        halo_bytes=sent_bytes([decomposition], 3 * 8),
        memory_per_rank=10 * 8 * local_cells(decomposition),
        points=len(VARIABLES) * grid.ny * grid.nx,
        frames=frame_count(config, dt, steps),
        steps=steps,
        note=f"steps follow the waves, about {dt:.3g} s each; two halo exchanges a step",
    )
