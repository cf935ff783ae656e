"""The weather app's run: mesh, output and metrics."""

from __future__ import annotations

from typing import Any

from hpckit.apps.atmosphere.loop import AtmosphereRun
from hpckit.apps.atmosphere.output import variables
from hpckit.apps.common.grid import run_on_grid
from hpckit.apps.weather.config import METRICS, Config
from hpckit.apps.weather.model import Model, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.run.context import Run

# Two sweeps, four fields of 8 bytes, each read once and written once, the write after a read of the cache line.
BYTES_PER_CELL_STEP = 2 * 4 * 8 * 3


class Weather(AtmosphereRun):
    """The run of the slab."""

    app, bytes_per_cell_step, metrics = "weather", BYTES_PER_CELL_STEP, METRICS

    def __init__(self, run: Run, model: Any) -> None:
        super().__init__(run, model)
        self.variables = variables("uw", self.config.output.fields)


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`; raises the errors of `run_on_grid`."""
    with Mesh(run.comm, z=1, x=0, periodic=("x",)) as mesh:
        run_on_grid(Weather, Model, warm_up, config, run, mesh)
