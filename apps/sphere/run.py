"""The sphere app's run: output, metrics and dry run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from hpckit.apps.common.grid import FixedSteps, run_on_grid
from hpckit.apps.common.loop import conserved
from hpckit.apps.sphere import setups
from hpckit.apps.sphere.config import METRICS, PLACES, VARIABLES, Config
from hpckit.apps.sphere.layout import AXES, PARTS, WIDTHS, axes_of, time_step
from hpckit.apps.sphere.model import Model, warm_up
from hpckit.comm.mesh import Mesh
from hpckit.plan.grid.panels import PANELS
from hpckit.run.context import Run
from hpckit.run.steps import step_count

BYTES_PER_CELL_STEP = 3 * 8 * (3 * len(PARTS) + 1)  # of a stage: the state, its base, the result, and the bottom


class Sphere(FixedSteps):
    """The run of a planet."""

    app, bytes_per_cell_step, metrics, variables = "sphere", BYTES_PER_CELL_STEP, METRICS, VARIABLES
    coord_units: ClassVar[Mapping[str, str]] = dict.fromkeys(AXES, "1")
    model: Model

    def __init__(self, run: Run, model: Model) -> None:
        dt = time_step(model.config)
        super().__init__(run, model, dt, step_count(model.config, dt), model.config.time.end)

    def coords(self) -> dict[str, np.ndarray]:
        """The numbers of panels, and the tangents of the angles of the cells: places on the faces of a cube."""
        along = np.tan(self.model.sphere.middles)
        return {"panel": np.arange(float(PANELS)), "y": along, "x": along}

    def constants(self) -> dict[str, dict[str, Any]]:
        """Where the cells are, how large, and the height of the bottom."""
        sphere = self.model.sphere
        area = np.broadcast_to(sphere.area, (PANELS, *sphere.area.shape))
        given: dict[str, tuple[np.ndarray, dict[str, str]]] = {
            "lat": (np.degrees(sphere.latitude), {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": (np.degrees(sphere.longitude), {"units": "degrees_east", "standard_name": "longitude"}),
            "area": (area, {"units": "m2", "standard_name": "cell_area"}),
        }
        if self.config.start.kind == "mountain":
            about = {"units": "m", "long_name": "height of the bottom", **PLACES}
            given["bottom"] = setups.bottom(self.config, sphere.centers), about
        return {name: {"dims": AXES, "values": values, **about} for name, (values, about) in given.items()}

    def corners(self) -> np.ndarray:
        """The corners of the cells on the sphere."""
        return self.model.sphere.corners

    def check(self) -> None:
        """Collective: raise `BlowUpError` for lost or dry cells, and for waves too fast for the step."""
        self.model.require_sound(self.last, self.full)

    def cfl(self) -> float:
        """The Courant number of waves and flow together."""
        return self.model.cfl(self.last, self.dt)

    def conserved(self) -> dict[str, dict[str, float]]:
        """Mass exactly; energy and potential enstrophy as far as the scheme keeps them."""
        first, last = self.first, self.last
        names = ("mass", "energy", "enstrophy") if self.config.physics.rotation else ("mass", "energy")
        return conserved(**{name: (getattr(first, name), getattr(last, name)) for name in names})


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`; raises the errors of `run_on_grid`."""
    n = config.grid.n
    with Mesh(run.comm, shape=(PANELS, n, n), halo=WIDTHS, **axes_of(run.comm.size)) as mesh:
        run_on_grid(Sphere, Model, warm_up, config, run, mesh)
