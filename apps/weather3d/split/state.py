"""What a rank holds of the box with split dynamics: fields, tables, checkpoints.

The state is that of `weather3d.model`, but on Arakawa's C grid: rho u, rho v and rho w stand at the low faces of their
cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState, levels_state
from hpckit.apps.atmosphere.profiles import Profile
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.layout import halos_of
from hpckit.apps.weather3d.physics.carried import Carried
from hpckit.apps.weather3d.physics.forcing import Forced, is_forced, levels_of
from hpckit.apps.weather3d.setups import column_of, initial_state, initial_water, vapor_noise
from hpckit.apps.weather3d.sides import (
    HORIZONTAL,
    open_axes,
    relaxation_rates,
    scalar_walls,
    staggered_walls,
    state_walls,
)
from hpckit.apps.weather3d.terrain import Terrain, flat_cells, require_thick
from hpckit.comm.agree import all_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels.euler.box.constants import FIELDS, RHO_U, RHO_V
from hpckit.kernels.euler.hevi import dispatch as hevi
from hpckit.kernels.euler.hevi.constants import (
    DRY,
    HALO,
    LEVELS,
    MIRRORED,
    NO_WATER,
    WATER,
    WORKS,
    WRAPPED,
    upwind_weights,
)
from hpckit.kernels.euler.hevi.terrain import dispatch as sloping
from hpckit.kernels.euler.hevi.terrain.constants import SIZE
from hpckit.kernels.euler.hevi.terrain.constants import WORKS as SLOPING_WORKS
from hpckit.kernels.euler.hevi.terrain.stress.constants import ROWS
from hpckit.kernels.euler.hevi.turns import deepest
from hpckit.kernels.euler.rain.dispatch import rows_at_once
from hpckit.plan.grid.decomposition import Decomposition

THROUGH = ("mass_through_sides", "mass_relaxed", "water_through_sides", "water_relaxed")  # kg since the start


class SplitState:
    """The state of a run on this rank."""

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        grid = config.grid
        self.config, self.mesh, self.edges = config, mesh, grid.edges
        self.spacing = {"x": grid.dx, "y": grid.dy, "z": float(np.diff(self.edges).min())}
        self.cells = grid.nx * grid.ny * grid.nz
        self.decomposition = Decomposition((grid.nz, grid.ny, grid.nx), mesh.topology, halo=halos_of(config))
        profile = column_of(config.base, self.is_moist)
        self.base: BaseState = levels_state(profile, self.edges)
        self.open_axes = open_axes(config)
        self._make_fields(device)
        levels = level_tables(self.edges)
        self._make_ground(profile, levels)
        water = self._begin(profile)
        self._make_work()
        self._make_tables(levels)
        self._make_rates()
        self._make_carried(water)
        mixes = config.diffusion or config.smagorinsky.coefficient
        shape, dtype = self.state.data.shape[1:], self.state.data.dtype
        self.mu = device.zeros(shape, dtype) if mixes else None
        self.stresses = device.zeros((ROWS, *shape), dtype) if mixes and self.terrain else None
        self._greatest: Any = 0.0  # eddy viscosity, m2/s; on a GPU a number there
        self.steps_done = 0

    def _make_fields(self, device: Device) -> None:
        """The state and the pressure, and what fills their halos."""
        config, mesh, grid = self.config, self.mesh, self.config.grid
        shape, dtype = self.decomposition.local_shape(mesh.rank), np.dtype(config.precision)
        cells = device.zeros((FIELDS, *shape), dtype, lead=HALO)
        self.state = Field(mesh, self.decomposition, cells, "state", device=device)
        self.exchange = HaloExchange(mesh, self.state, staggered_walls(config), axes=HORIZONTAL)  # corners too
        around = Decomposition((grid.nz, grid.ny, grid.nx), mesh.topology, halo=(0, 1, 1))
        self.pressure = Field.zeros(mesh, around, config.precision, name="pressure", device=device)
        # Rows of several substeps in turn where they are whole and no side changes what a substep does; 0: nowhere.
        nz, ny, nx = self.state.interior.shape[1:]
        together = not device.is_gpu and mesh.topology.sizes[mesh.topology.axis("x")] == 1 and not self.open_axes
        self.sweeps = deepest(ny, nx, nz) if together else 0
        self.ends = WRAPPED if mesh.topology.is_periodic("x") else MIRRORED
        walls = scalar_walls(config)
        if together:  # beyond their ends the kernels fill the pressure
            along_y = {axis: fill for axis, fill in walls.items() if axis == "y"}
            self.pressure_exchange = HaloExchange(mesh, self.pressure, along_y, axes="y")
        else:
            self.pressure_exchange = HaloExchange(mesh, self.pressure, walls)

    def _cells(self, count: int, rows: int | None = None) -> Any:
        """Zeros beside the state, so many of each of its cells, or of the cells of so many rows along x."""
        nz, tall, wide = self.state.data.shape[1:]
        return self.state.device.zeros((count, nz, rows or tall, wide), self.state.data.dtype, lead=HALO)

    def _make_ground(self, profile: Profile, levels: np.ndarray) -> None:
        """The base state of the cells, and the terrain under them."""
        config, grid = self.config, self.config.grid
        self.terrain: Terrain | None = None
        self.base_water = initial_water(profile, self.base, np.zeros((FIELDS, grid.nz, 1, 1)))[..., 0, 0]
        self.base_vapor = self.base_water[0]
        self.rest_of = flat_cells(self.base, self.base_vapor, self.edges, grid.dx * grid.dy)
        self.base_theta = self.rest_of.theta[:, 0, 0]
        if config.terrain.kind != "flat":
            self.terrain = Terrain(config, profile, levels, (self.decomposition, self.mesh.rank), self._table)
            self.rest_of, self.spacing["z"] = self.terrain.cells, require_thick(config)

    def _begin(self, profile: Profile) -> np.ndarray:
        """Fill the state as the run starts; vapor, cloud and rain then, [3, nz, …]."""
        config, cells, rank = self.config, self.decomposition, self.mesh.rank
        starts, counts = cells.start(rank), cells.owned(rank)
        rows, columns = (np.arange(starts[dim], starts[dim] + counts[dim]) for dim in (1, 2))
        faces, rest, size = None, self.base, np.ones((config.grid.nz, 1, 1))
        if self.terrain:
            faces, rest, size = self.terrain.faces, self.terrain.base, self.terrain.size
        begin = initial_state(config, profile, rest, rows, columns, faces)
        water = initial_water(profile, rest, begin)
        water[0] += vapor_noise(config, profile, rest, rows, columns)
        self.state.set_from_host(begin * size)
        self._stagger()
        return water

    def _make_work(self) -> None:
        """What a large step works on: its start, slow tendencies, mean mass fluxes at faces."""
        nz, ny, nx = self.state.interior.shape[1:]
        self.start, self.slow = self._cells(FIELDS), self._cells(FIELDS)
        self.faces_kept = sloping.faces_kept(self.start, self.sweeps if self.terrain else 0)
        self.work = self._cells(SLOPING_WORKS if self.terrain else WORKS)
        # Where nothing comes between them, slow tendencies and the first substeps are one pass over the rows. What only
        # substeps of the same stage read is then kept of few rows, if it is all of them.
        self.joins = self.sweeps > 0 and self.pressure_exchange.within_node
        self.near = self.work, self.slow
        at_once = self.joins and max(self.config.substeps) <= self.sweeps
        if at_once and (rows := (sloping if self.terrain else hevi).rows_kept(self.start)) < self.start.shape[2]:
            self.near = self._cells(len(self.work), rows), self._cells(FIELDS, rows)
        for work in (self.work, self.near[0]):
            work[DRY] = 1.0
        shapes = (nz, ny, nx + 1), (nz, ny + 1, nx), (nz + 1, ny, nx)
        self.mass_flux = [self.state.device.zeros(shape, self.state.data.dtype) for shape in shapes]

    def _make_tables(self, levels: np.ndarray) -> None:
        """What kernels read by level, and the forcings."""
        config = self.config
        calm = np.array([self.base.wind, self.base.wind_v, np.zeros(config.grid.nz), self.base.theta])
        geostrophic = calm[:2].copy()
        for row, points in enumerate((config.forcing.geostrophic_u, config.forcing.geostrophic_v)):
            if points:
                geostrophic[row] = levels_of(points, self.base.height)
        upwind = upwind_weights(config.dynamics.order, config.dynamics.weno)
        self.column, self.levels, self.rest, self.wind, self.weights, self.water = (
            self._table(values) for values in (self.base.column, levels, calm, geostrophic, upwind, NO_WATER)
        )
        tables = (config, self.base, self.edges, self.column, self._table, self.terrain)
        self.forced = Forced(*tables) if is_forced(config) else None
        # What mixing leaves alone: the base state, but over flat ground not where fluxes and forcings change it.
        still = calm.mean(axis=1, keepdims=True) + 0.0 * calm
        self.unmixed = self._table(still) if self.forced else self.rest

    def _make_rates(self) -> None:
        """How fast the state goes back to the base state, below the lid and beside open sides."""
        rates = relaxation_rates(self.config, self.decomposition, self.mesh.rank)
        here = any(rate.any() for rate in rates.values())
        self.relaxes = bool(all_of_ranks(self.mesh.comm, here).any())  # exchanges go with it
        self.rates = {axis: self._table(rate) for axis, rate in rates.items()}
        x, y = rates["x"][[0, 1, 0, 0, 0]], rates["y"][[0, 0, 1, 0, 0]]  # of rho, momenta and heat, where they stand
        beside = np.maximum(x[:, None, :], y[:, :, None])  # open sides
        self.beside = self._table(beside) if beside.any() else None
        self.still = self._table(self.terrain.still()) if self.terrain and self.open_axes else None
        self.through_sides = [0.0] * 3  # of this rank: mass through open sides, mass and water that relaxation added

    def _make_carried(self, water: np.ndarray) -> None:
        """Water and tracers; water: vapor, cloud and rain as the run starts."""
        config, mesh, device, terrain = self.config, self.mesh, self.state.device, self.terrain
        kinds, falls = config.moisture.water, config.moisture.falls
        self.is_complete = self.is_moist and config.moisture.equations == "complete"
        # Vapor, too, is mixed as its deviation, else mixing would saturate air whose theta it leaves alone.
        self.unmixed_vapor = 0.0 * self.base_vapor if self.forced else self.base_vapor
        over, whole = (terrain.height, terrain.density) if terrain else None, None
        if self.is_moist:
            whole = np.concatenate([water, np.zeros((len(kinds) - len(water), *water.shape[1:]))])
        carries = self.is_moist or config.tracers
        self.carried = Carried(config, mesh, device, self.state, whole, over) if carries else None
        # Since the start: what has fallen (m of water), by kind; the air's warmth and the latent heat of ice (J/m2)
        self.rained = self._of_ground("rained", len(falls) or 1)
        self.heated = self._of_ground("heated", 2) if config.moisture.kind == "ice" else None
        if self.is_moist:
            self._make_moist(len(kinds))

    def _make_moist(self, kinds: int) -> None:
        """What the water of so many kinds needs beside what is carried."""
        device, terrain, dtype = self.state.device, self.terrain, self.state.data.dtype
        nz, ny, nx = self.state.interior.shape[1:]
        rains_at_once = self.config.moisture.kind == "kessler" and not device.is_gpu
        rows = min(ny, rows_at_once(nz, nx)) if rains_at_once else ny
        self.parcels = [device.zeros((n, nz, rows, nx), dtype) for n in (4, kinds)]
        self.water = device.zeros(self.state.data.shape[1:], dtype)
        self._still_vapor = self._table(terrain.vapor if terrain else self.unmixed_vapor[:, None, None])
        self.levels[WATER, :-1] = self._table(self.base_water.sum(axis=0))
        rests = np.array([terrain.cells.vapor, terrain.cloud]) if terrain else self.base_water[..., None, None]
        self.still_water = self._table(np.zeros((kinds, *rests.shape[1:])))
        self.still_water[: len(rests)] = self._table(rests)
        self.thickness = self._table(terrain.thick if terrain else np.diff(self.edges))
        # by level, or by cell with its halo over terrain: base state of the air, and J
        flat = self.column, self._table(np.ones(len(self.edges) - 1))
        self.of_air = (terrain.ground.base[:3], terrain.ground.metric[SIZE]) if terrain else flat

    def _of_ground(self, name: str, rows: int) -> Field:
        """Zeros of the columns of this rank."""
        grid = self.config.grid
        cells = Decomposition((rows, grid.ny, grid.nx), self.mesh.topology, halo=(0, 0, 0))
        return Field.zeros(self.mesh, cells, self.config.precision, name=name, device=self.state.device)

    def _table(self, values: np.ndarray) -> Any:
        """Values that kernels read, on the state's device and in its precision."""
        return self.state.device.to_device(values.astype(self.state.data.dtype, copy=False))

    def _stagger(self) -> None:
        """Momenta from the middles of cells to their low faces."""
        with HaloExchange(self.mesh, self.state, state_walls(self.config), axes=HORIZONTAL) as exchange:
            exchange(self.state)  # as momenta in the middles are beyond sides
        data = self.state.data
        data[RHO_U, :, :, 1:] = 0.5 * (data[RHO_U, :, :, 1:] + data[RHO_U, :, :, :-1])
        data[RHO_V, :, 1:] = 0.5 * (data[RHO_V, :, 1:] + data[RHO_V, :, :-1])
        self.exchange(self.state)  # and nothing passes walls

    @property
    def is_moist(self) -> bool:
        """Whether the air holds water."""
        return self.config.moisture.kind != "none"

    @property
    def dt(self) -> float:
        """The full time step, s."""
        return self.config.full_step

    @property
    def fields(self) -> list[Field]:
        """The fields that a checkpoint holds."""
        more = [self.rained, *([self.heated] if self.heated else [])] if self.is_moist else []
        return [self.state, *([self.carried.field] if self.carried else []), *more]

    def values(self) -> dict[str, Any]:
        """Collective: the numbers that a checkpoint holds."""
        values: dict[str, Any] = {"step": self.steps_done}
        if self.forced:
            entered = sum_of_ranks(self.mesh.comm, np.array([float(each) for each in self.forced.entered]))
            values["entered"] = entered.tolist()
        return values | ({"crossed": self._crossed()} if self.open_axes else {})

    def own(self, values: dict[str, Any]) -> None:
        """Take over the numbers of a checkpoint."""
        self.steps_done = values["step"]
        if self.forced:
            self.forced.entered = list(values["entered"]) if self.mesh.rank == 0 else [0.0, 0.0]
        if self.open_axes:
            crossed = values["crossed"] if self.mesh.rank == 0 else [0.0] * len(THROUGH)
            self.through_sides = [*crossed[:2], crossed[3]]
            if self.carried:
                self.carried.entered = crossed[2]

    def _crossed(self) -> list[float]:
        """Collective: what came through open sides and by relaxation there since the start, kg, as `THROUGH`."""
        water = self.carried.entered if self.carried else 0.0
        sums = np.array([*self.through_sides[:2], water, self.through_sides[2]])
        return list(map(float, sum_of_ranks(self.mesh.comm, sums)))

    def saved(self, **values: Any) -> State:
        """Collective: the content of a checkpoint: fields, numbers, and extra `values`."""
        return State([Piece.of_field(each) for each in self.fields], {**self.values(), **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        for each in self.fields:
            read_into(restored, each)
        self.own(restored.values)


def level_tables(edges: np.ndarray) -> np.ndarray:
    """The tables of levels that the kernels read (`kernels.euler.hevi.reference`) of dry air, float64[5, nz + 1]."""
    thick = np.diff(edges)
    tables = np.zeros((LEVELS, len(edges)))
    tables[0, :-1] = 1 / thick
    tables[1, 1:-1] = 2 / (thick[1:] + thick[:-1])
    tables[2, 1:-1] = thick[:-1] / (thick[:-1] + thick[1:])
    tables[2, -1] = 1.0
    tables[3] = 1 - tables[2]
    return tables
