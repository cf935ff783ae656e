"""What the air of the split dynamics carries: water and tracers, moved once a large step by its mean mass fluxes.

The fluxes change the density in the acoustic substeps; here it is changed by the same once more, direction by
direction, and each mixing ratio with it (`kernels.euler.tracers.reference`): a constant stays constant, masses are
kept, nothing new arises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.layout import TRACER_HALOS
from hpckit.apps.weather3d.physics.tracers import numbers_of, start_of
from hpckit.apps.weather3d.sides import HORIZONTAL, open_axes, scalar_walls
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.kernels.euler.rain.dispatch import total
from hpckit.kernels.euler.tracers.dispatch import borrow, transport
from hpckit.plan.grid.decomposition import Decomposition

OWNED = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))


class Carried:
    """Mixing ratios on this rank, [n, nz, ny, nx]: water first where there is any, then the tracers of the settings."""

    def __init__(
        self,
        config: Config,
        mesh: Mesh,
        device: Device,
        like: Field,
        start: np.ndarray | None,
        over: tuple[np.ndarray, Any] | None = None,
    ) -> None:
        """`like`: the state; start: all kinds of water (`moisture.water`) of the owned cells of moist air.

        over: terrain's heights of the owned cells (m) and base density times J there, on the device.
        """
        grid = config.grid
        self.water = config.moisture.water
        self.names = [*self.water, *(tracer.name for tracer in config.tracers)]
        self._mesh, self._bounded = mesh, config.moisture.transport == "monotone"
        self._widths = {"x": grid.dx, "y": grid.dy}
        thick = np.diff(grid.edges)
        self._reference = float(thick.max())
        self._share, *rates = (
            device.to_device(each.astype(config.precision))
            for each in (thick / self._reference, 1 / thick, 0 * thick + 1 / grid.dy, 0 * thick + 1 / grid.dx)
        )
        self._rates = dict(zip("zyx", rates, strict=True))
        shape = (grid.nz, grid.ny, grid.nx)
        cells = Decomposition(shape, mesh.topology, halo=TRACER_HALOS)
        self.field = Field.zeros(
            mesh, cells, config.precision, name="carried", components=len(self.names), device=device
        )
        self.spare = self.field.like()
        # Of the air after the first direction and after the second; after the third it is in the first again.
        self._densities = [
            Field.zeros(mesh, like.decomposition, config.precision, name="density", components=1, device=device)
            for _ in range(2)
        ]
        self._is_open = bool(self.water and open_axes(config))
        self.entered = 0.0  # water through open sides of this rank, kg
        walls = scalar_walls(config)

        def exchange(field: Field, axes: Any) -> HaloExchange:
            return HaloExchange(mesh, field, {axis: walls[axis] for axis in axes if axis in walls} or None, axes=axes)

        self._exchanges = {
            axis: [exchange(self.field, (axis,)), exchange(self._densities[0], (axis,))] for axis in HORIZONTAL
        }
        self.corners = exchange(self.field, HORIZONTAL)
        z, y, x = self.field.coords((grid.dz, grid.dy, grid.dx))
        z = (0.5 * (grid.edges[1:] + grid.edges[:-1]))[:, None, None] if over is None else over[0]
        self._base = None if over is None else over[1]
        whole = np.zeros(self.field.interior.shape[1:])
        mixed = [] if start is None else list(start)
        mixed += [start_of(tracer, config, z, y, x) + whole for tracer in config.tracers]
        self.field.set_from_host(np.array(mixed, self.field.data.dtype))

    @property
    def wait_seconds(self) -> float:
        """Seconds spent in MPI waits so far."""
        pairs = [each for pair in self._exchanges.values() for each in pair]
        return sum(each.wait_seconds for each in [*pairs, self.corners])

    def move(self, start: Any, column: Any, fluxes: list[Any], dt: float, forward: bool, timer: PhaseTimer) -> None:
        """Advance by a large step of dt (s) with its mean mass fluxes along x, y and z. start: the state before it."""
        old, sloping = start[0], self._base is not None
        if sloping:
            self._densities[1].interior[0], column = self._air(old, column)
            old = self._densities[1].data[0]
        before = self.contents(old[OWNED], column) if self._is_open else 0.0
        along = dict(zip("xyz", fluxes, strict=True))
        for turn, axis in enumerate("xyz" if forward else "zyx"):
            new = self._densities[turn % 2]
            with timer("halo"):
                if axis in self._exchanges:
                    carried, density = self._exchanges[axis]
                    carried(self.field)
                    if turn or sloping:  # the start has its halo
                        density(self._densities[1 - turn % 2])
            with timer("transport"):
                rest = (column, along[axis], "zyx".index(axis), dt * self._rates[axis], self._bounded, True)
                transport(self.field.data, self.spare.data, old, new.data[0], *rest)
                self.field, self.spare, old = self.spare, self.field, new.data[0]

        if self._is_open:
            self.entered += self.contents(old[OWNED], column) - before

    def _air(self, rho: Any, column: Any) -> tuple[Any, Any]:
        """Density of the owned cells beside the rows of a base state, and these rows."""
        if self._base is None:
            return rho[OWNED], column
        return rho[OWNED] + self._base, 0.0 * column  # a column has no base state of its own over terrain

    def contents(self, density: Any, column: Any) -> float:
        """The water of the owned cells, kg. density: of these; column: of the base state, to which it is added."""
        air = (density + column[0][:, None, None]) * self._share[:, None, None]
        area = self._reference * self._widths["x"] * self._widths["y"]
        return float((self.field.interior[: len(self.water)] * air).sum(dtype=np.float64)) * area

    def relax(self, old: Any, state: Any, column: Any, still: Any, lost: Any) -> float:
        """Water loses a share ([ny, nx]) of its difference from `still` ([kinds, nz, …]), at open sides.

        old, state: that of the air before it was relaxed, [nz, …], and after. Returns the water that both added, kg.
        """
        before = self.contents(*self._air(old, column))
        for part, goal in zip(self.field.interior[: len(self.water)], still, strict=True):
            part -= lost * (part - goal)
        return self.contents(*self._air(state[0], column)) - before

    def fill_holes(self, column: Any) -> None:
        """Water below 0 is made up for from its column, of which `column` is the base state.

        Mixing may leave it in dry air: of deviations from the base state's vapor, and over terrain of all kinds.
        """
        kinds = len(self.water)
        if self.field.interior[:kinds].min() < 0.0:
            air = self._densities[0].data
            if self._base is None:
                air = air + column[0][:, None, None]
            borrow(self.field.data[:kinds], air * self._share[:, None, None])

    def total_water(self, out: Any) -> None:
        """Collective: fill the mixing ratio of all water, in the owned cells and three around them."""
        self.corners(self.field)
        self.sum_water(out)

    def sum_water(self, out: Any) -> None:
        """As `total_water`, with the halo filled already."""
        total(self.field.data, len(self.water), out)

    def watch(self, rho: np.ndarray, volumes: np.ndarray) -> dict[str, float]:
        """Collective: mass (kg), least and greatest mixing ratio of each, by metric name. rho: of the owned cells."""
        q = self.field.to_host().astype(np.float64, copy=False)
        mass = (q * (rho * volumes)).sum(axis=(1, 2, 3))
        ends = np.array([-q.min(axis=(1, 2, 3)), q.max(axis=(1, 2, 3))])
        return numbers_of(self._mesh, self.names, mass, ends)
