"""The shallow-water model on a mesh: state, time step, diagnostics and output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.apps.common.lost import first_lost, place_of
from hpckit.apps.shallow_water import setups
from hpckit.apps.shallow_water.config import STABLE_CFL, Config
from hpckit.apps.shallow_water.layout import AXES, decompose, inverse_width
from hpckit.comm.agree import least_of_ranks, max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.grid.boundary_conditions import Fill, fixed, zero_gradient
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels.parts import INNER, OUTER, WHOLE
from hpckit.kernels.shallow_water.constants import (
    BROKEN,
    CORNER,
    COURANT_SPEED,
    DEPTH_MIN,
    ENERGY,
    ENSTROPHY,
    HALO,
    MASS,
    SPEED,
    F,
    Physics,
)
from hpckit.kernels.shallow_water.dispatch import diagnose, most_steps, step, step_free

LEVEL_STEP = 2.0**-30  # m; depth and heights are whole multiples, so that depth - height + height is exact


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics over all ranks: volume (m3), energy over density (m5/s2), potential enstrophy (m/s2),
    maximum speed and speed plus sqrt(g h) (m/s), minimum depth (m), cells that are not finite or dry.
    """

    mass: float
    energy: float
    enstrophy: float
    speed_max: float
    courant_speed: float
    depth_min: float
    broken_cells: int


class Model:
    """The state of a run on this rank, and its time step: `h` at centers, `u` and `v` on faces.

    `mesh` splits y and x: `Mesh(comm, y=0, x=0, periodic=config.grid.periodic, …)`. If blocks are thick enough, the
    halo serves two steps, and `at_once` is 2. Raises `DecompositionError` for blocks thinner than 3 cells, on every
    rank alike.
    """

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        self.config, self.mesh = config, mesh
        self.decomposition = decompose(config, mesh.topology, most_steps(device.is_gpu))
        self.halo = self.decomposition.halo[0]
        self.at_once = self.halo // HALO
        self.h = Field.zeros(mesh, self.decomposition, name="h", units="m")
        self.u = Field.zeros(mesh, self.decomposition.at(("center", "face")), name="u", units="m s-1")
        self.v = Field.zeros(mesh, self.decomposition.at(("face", "center")), name="v", units="m s-1")
        self.bottom = self.h.like(name="bottom")
        self.exchange = HaloExchange(mesh, self.fields, walls=self._walls)
        self._add(self.bottom, setups.bottom(config), setups.map_of(config, "bottom"))
        self.bottom.data[...] = np.rint(self.bottom.data / LEVEL_STEP) * LEVEL_STEP
        self.depth = round(config.physics.depth / LEVEL_STEP) * LEVEL_STEP
        with HaloExchange(mesh, self.bottom, walls=self._walls[0]) as exchange:
            exchange(self.bottom)
        for field, terms in zip(self.fields, setups.start(config), strict=True):
            self._add(field, terms, setups.map_of(config, "start") if field is self.h else None)
        self.h.interior[...] += self.depth - self.bottom.interior
        self.free = setups.is_free(config)
        cuts = [slice(first, first + n + 2 * self.halo) for first, n in zip(*self._block, strict=True)]
        self.rows = np.ascontiguousarray(setups.rows(config, self.halo)[:, cuts[0]])
        self.columns = np.ascontiguousarray(setups.columns(config, self.halo)[:, cuts[1]])
        self.physics, self.spare = physics_of(config), self.fields  # a step is done in place
        self.f, self.row_table, self.column_table = self.rows[F], self.rows, self.columns  # where the state is
        self.steps_done = 0
        if device.is_gpu:
            self._go_to(device)

    def _go_to(self, device: Device) -> None:
        """Move the arrays from the host to a GPU, where a step is out of place."""

        def moved(array: np.ndarray) -> Any:
            return device.to_device(array.astype(self.config.precision))

        self.exchange.close()
        self.h, self.u, self.v, self.bottom = (
            Field(self.mesh, host.decomposition, moved(host.data), host.name, host.units, device)
            for host in (*self.fields, self.bottom)
        )
        self.exchange = HaloExchange(self.mesh, self.fields, walls=self._walls)
        self.spare = [field.like() for field in self.fields]
        self.f, self.row_table, self.column_table = map(moved, (self.rows[F], self.rows, self.columns))

    @property
    def fields(self) -> list[Field]:
        """The state: h, u, v."""
        return [self.h, self.u, self.v]

    @property
    def _walls(self) -> list[dict[str, Fill]]:
        """The boundary conditions at walls, of h, u and v."""
        walled = [axis for axis in AXES if axis not in self.config.grid.periodic]
        return [dict.fromkeys(walled, fill) for fill in (zero_gradient, fixed(0.0), fixed(0.0))]

    @property
    def _block(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.decomposition.start(self.mesh.rank), self.decomposition.owned(self.mesh.rank)

    def _add(self, field: Field, terms: list[setups.Term], heights: np.ndarray | None = None) -> None:
        """Add terms and a map of the whole grid to the owned part of a field."""
        cut_y, cut_x = field.decomposition.global_slices(self.mesh.rank)
        if heights is not None:
            field.interior[...] += heights[cut_y, cut_x]
        for along_y, along_x in terms:
            field.interior[...] += along_y[cut_y, None] * along_x[cut_x]

    def step(self, dt: float, timer: PhaseTimer, steps: int = 1) -> None:
        """Advance by `steps` steps of dt (s), at most `at_once`; afterwards the halo is stale."""
        part = WHOLE
        if self.h.device.is_gpu:  # on CPU cores splitting costs more than the overlap saves
            with timer("halo"):
                self.exchange.start(self.fields)
            with timer("step"):
                self._step(dt, steps, INNER)
            with timer("halo"):
                self.exchange.finish(self.fields)
            part = OUTER
        else:
            with timer("halo"):
                self.exchange(self.fields)
        with timer("step"):
            self._step(dt, steps, part)
        for field, spare in zip(self.fields, self.spare, strict=True):  # the same in place
            field.data, spare.data = spare.data, field.data
        self.steps_done += steps

    def _step(self, dt: float, steps: int, part: int) -> None:
        now, out = self._data, tuple(spare.data for spare in self.spare)
        if self.free:
            step_free(now, out, self.f, self.physics, dt, steps, part)
        else:
            step(now, out, self.bottom.data, self.row_table, self.column_table, self.physics, dt, steps, part)

    @property
    def _data(self) -> tuple[Any, Any, Any]:
        return self.h.data, self.u.data, self.v.data

    def watch(self) -> Diagnostics:
        """Collective: fill the halo and watch; sums may differ in the last bits between numbers of ranks."""
        self.exchange(self.fields)
        grid = self.config.grid
        own = diagnose(self._data, self.bottom.data, self.f, self.physics, self.halo)
        sums = sum_of_ranks(self.mesh.comm, own[[MASS, ENERGY, ENSTROPHY, BROKEN]])
        ends = max_of_ranks(self.mesh.comm, own[[SPEED, COURANT_SPEED, DEPTH_MIN]] * [1, 1, -1])
        mass, energy, enstrophy = (float(value) for value in sums[:3] * grid.dx * grid.dy)
        return Diagnostics(mass, energy, enstrophy, float(ends[0]), float(ends[1]), -float(ends[2]), round(sums[3]))

    def cfl(self, watch: Diagnostics, dt: float) -> float:
        """The Courant number of long waves and flow together."""
        return watch.courant_speed * dt * inverse_width(self.config)

    def require_sound(self, watch: Diagnostics, dt: float) -> None:
        """Collective: raise `BlowUpError` on every rank if a cell is lost or dry, or the CFL limit is exceeded."""
        if watch.broken_cells:
            self._refuse_broken(watch)
        if self.cfl(watch, dt) > STABLE_CFL:
            self._refuse_fast(watch, dt)

    def _refuse_broken(self, watch: Diagnostics) -> None:
        """Raise `BlowUpError` with the first lost field and cell of the lowest rank that has one."""
        masks = [~np.isfinite(field.to_host()) for field in self.fields]
        lost = first_lost(self.mesh, self.decomposition, [*masks, self.h.to_host() <= 0], self.steps_done)
        is_dry = lost.mask == len(masks)
        name = self.h.name if is_dry else self.fields[lost.mask].name
        raise BlowUpError(
            f"{name} is {'not above 0 (the layer is dry)' if is_dry else 'not finite'};"
            f" {watch.broken_cells} cells are lost",
            where=f"{lost.where}, field {name}",
            likely="a layer that is too thin for its waves"
            if is_dry
            else "a time step too long, or too little friction",
            do="make physics.depth greater or bottom.height less"
            if is_dry
            else "lower time.cfl, use more cells, or raise physics.viscosity",
        )

    def _refuse_fast(self, watch: Diagnostics, dt: float) -> None:
        """Raise `BlowUpError` with the fastest cell."""
        h, u, v = (field.to_host()[: self._block[1][0], : self._block[1][1]] for field in self.fields)
        speed = np.hypot(u, v) + np.sqrt(self.config.physics.gravity * h)
        y, x = (int(i) for i in np.unravel_index(speed.argmax(), speed.shape))
        rank, cell = least_of_ranks(self.mesh.comm, -round(float(speed.max()) * 1e9), [y, x])
        cfl, time = self.cfl(watch, dt), self.config.time
        raise BlowUpError(
            f"the Courant number of speed + sqrt(g h) is {cfl:.4f}, above the limit of {STABLE_CFL:.4f}",
            where=f"{place_of(self.decomposition, rank, self.steps_done, cell)}, field u, v",
            likely=f"time.cfl = {time.cfl:g} assumes {time.max_speed:g} m/s, the flow has {watch.speed_max:.3g} m/s",
            do=f"set time.max_speed to {watch.speed_max * 1.5:.2g}, or time.cfl to at most"
            f" {math.floor(98 * STABLE_CFL / cfl * time.cfl) / 100:g}",
        )

    def saved(self, **values: Any) -> State:
        """The content of a checkpoint: the state, the step, and extra `values`."""
        return State([Piece.of_field(field) for field in self.fields], {"step": self.steps_done, **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        for field in self.fields:
            read_into(restored, field)
        self.steps_done = restored.values["step"]

    def output(self) -> dict[str, np.ndarray]:
        """The output fields, on the owned points: the halo must be filled (`watch` does it)."""
        h, bottom, u, v = (field.to_host() for field in (self.h, self.bottom, self.u, self.v))
        fields = {"elevation": h + bottom - self.depth, "vorticity": self.vorticity(), "u": u, "v": v}
        dtype = np.float32 if self.config.output.single else np.float64
        return {name: np.ascontiguousarray(values, dtype) for name, values in fields.items()}

    def vorticity(self) -> np.ndarray:
        """Relative vorticity (1/s) of the owned cells: the mean of their four corners; the halo must be filled."""
        grid, (ny, nx), halo = self.config.grid, self._block[1], self.halo
        low, high = slice(halo - 1, halo + ny), slice(halo, halo + ny + 1)
        west, east = slice(halo - 1, halo + nx), slice(halo, halo + nx + 1)
        u, v = (field.device.to_host(field.data) for field in (self.u, self.v))
        corners = (v[high, east] - v[high, west]) / grid.dx - (u[high, east] - u[low, east]) / grid.dy
        corners *= self.rows[CORNER, high, None] * self.columns[CORNER, east]
        return 0.25 * (corners[:-1, :-1] + corners[:-1, 1:] + corners[1:, :-1] + corners[1:, 1:])


def physics_of(config: Config) -> Physics:
    """The physical parameters of the kernels."""
    grid, physics = config.grid, config.physics
    forces = physics.viscosity, physics.drag, physics.drag_quadratic
    return Physics(physics.gravity, grid.dx, grid.dy, *forces)


def warm_up(config: Config, device: Device = HOST) -> None:
    """Compile the kernels of a run (or load them), so that the time loop does not."""

    def table(*shape: int) -> Any:
        return device.to_device(np.ones(shape, config.precision))

    fields = table(8, 8), table(8, 8), table(8, 8)
    out = (table(8, 8), table(8, 8), table(8, 8)) if device.is_gpu else fields
    rows, physics = table(5, 8), physics_of(config)
    if setups.is_free(config):
        step_free(fields, out, rows[F], physics, 1e-6)
    else:
        step(fields, out, table(8, 8), rows, table(3, 8), physics, 1e-6)
    diagnose(fields, table(8, 8), rows[F], physics)
