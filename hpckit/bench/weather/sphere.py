"""A step on a cubed sphere against one of the same scheme on planes: what six panels and their seams cost.

The planes are as many periodic squares of as many cells, whose halos the ordinary exchange fills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpckit.apps.sphere.config import Config
from hpckit.apps.sphere.layout import WIDTHS, axes_of, time_step
from hpckit.apps.sphere.model import Model
from hpckit.comm.mesh import Mesh, world
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.kernels.sphere.constants import HALO, SEAM
from hpckit.kernels.sphere.dispatch import stage
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.panels import PANELS

STAGES = ((0, 1.0, 1), (1, 0.25, 2), (2, 2.0 / 3.0, 0))  # of SSP-RK3: from, share, to


class PlanetSteps:
    """A planet on this rank, and the same cells as periodic squares."""

    def __init__(self, n: int) -> None:
        self.config = Config.model_validate({"grid": {"n": n}})
        self.dt, self.cells = time_step(self.config), PANELS * n * n
        shape = (PANELS, n, n)
        self.model = Model(self.config, Mesh(world(), shape=shape, halo=WIDTHS, **axes_of(1)))
        mesh = Mesh(world(), shape=shape, halo=WIDTHS, periodic=("y", "x"), panel=1, y=1, x=1)
        decomposition = Decomposition(shape, mesh.topology, halo=(0, HALO, HALO))
        state = self.model.state
        self._fields = [type(state).zeros(mesh, decomposition, components=4) for _ in range(3)]
        self._fields[0].set_from_host(state.to_host())
        self._exchange = HaloExchange(mesh, self._fields[0])
        sides = self.model.tables.sides.copy()
        sides[..., SEAM] = 0
        self._tables = self.model.tables._replace(sides=sides)

    def on_sphere(self, steps: int) -> None:
        """Some steps of the planet."""
        for _ in range(steps):
            self.model.step(self.dt, PhaseTimer())

    def on_planes(self, steps: int) -> None:
        """As many of the squares, so short that a flow that no balance holds stays as it is."""
        model, fields = self.model, self._fields
        for _ in range(steps):
            for start, share, end in STAGES:
                self._exchange(fields[start])
                now, base, out = (fields[each].data for each in (start, 0, end))
                stage(now, base, model.bottom.data[0], model.seams, self._tables, model.physics, 1e-9, share, out)

    def ways(self, steps: int) -> dict[str, Callable[[], Any]]:
        """What is timed."""
        return {"planes": lambda: self.on_planes(steps), "sphere": lambda: self.on_sphere(steps)}
