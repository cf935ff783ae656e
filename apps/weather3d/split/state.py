"""What a rank holds of the box with split dynamics: fields, tables, checkpoints; and what it shows: watches, output.

The state is that of `weather3d.model`, but on Arakawa's C grid: rho u, rho v and rho w stand at the low faces of their
cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState, levels_state
from hpckit.apps.atmosphere.output import full_fields, in_precision
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.layout import halos_of
from hpckit.apps.weather3d.model import Diagnostics
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
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import CV, GAMMA, GRAVITY, RD
from hpckit.kernels.euler.hevi.constants import HALO, LEVELS, MIRRORED, NO_WATER, WORKS, WRAPPED, upwind_weights
from hpckit.kernels.euler.hevi.terrain.constants import SIZE
from hpckit.kernels.euler.hevi.terrain.constants import WORKS as SLOPING_WORKS
from hpckit.kernels.euler.hevi.terrain.dispatch import faces_kept
from hpckit.kernels.euler.hevi.terrain.stress.constants import ROWS
from hpckit.kernels.euler.hevi.turns import deepest
from hpckit.kernels.euler.rain.constants import CL, CVV, LATENT, RV, WATER_DENSITY
from hpckit.plan.grid.decomposition import Decomposition

THROUGH = ("mass_through_sides", "mass_relaxed", "water_through_sides", "water_relaxed")  # kg since the start
CLOUDY = 1e-6  # kg/kg: more cloud makes a cell cloudy


class SplitState:
    """The state of a run on this rank."""

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        grid = config.grid
        self.config, self.mesh = config, mesh
        self.edges = grid.edges
        self.spacing = {"x": grid.dx, "y": grid.dy, "z": float(np.diff(self.edges).min())}
        self.cells = grid.nx * grid.ny * grid.nz
        self.decomposition = Decomposition((grid.nz, grid.ny, grid.nx), mesh.topology, halo=halos_of(config))
        profile = column_of(config.base, config.moisture.kind != "none")
        self.base: BaseState = levels_state(profile, self.edges)
        shape, dtype = (FIELDS, *self.decomposition.local_shape(mesh.rank)), np.dtype(config.precision)

        def cells(rows: int) -> Any:
            return device.zeros((rows, *shape[1:]), dtype, lead=HALO)

        self.state = Field(mesh, self.decomposition, cells(FIELDS), "state", device=device)
        self.exchange = HaloExchange(mesh, self.state, staggered_walls(config), axes=HORIZONTAL)  # corners too
        around = Decomposition((grid.nz, grid.ny, grid.nx), mesh.topology, halo=(0, 1, 1))
        self.pressure = Field.zeros(mesh, around, config.precision, name="pressure", device=device)
        # Rows of several substeps in turn where they are whole and no side changes what a substep does; 0: nowhere.
        nz, ny, nx = self.state.interior.shape[1:]
        together = not device.is_gpu and mesh.topology.sizes[mesh.topology.axis("x")] == 1 and not open_axes(config)
        self.sweeps = deepest(ny, nx, nz) if together else 0
        self.ends = WRAPPED if mesh.topology.is_periodic("x") else MIRRORED
        walls = scalar_walls(config)
        if together:  # beyond their ends the kernels fill the pressure
            self.pressure_exchange = HaloExchange(
                mesh, self.pressure, {axis: fill for axis, fill in walls.items() if axis == "y"}, axes="y"
            )
        else:
            self.pressure_exchange = HaloExchange(mesh, self.pressure, walls)
        _, rows, columns = (
            np.arange(start, start + count)
            for start, count in zip(
                self.decomposition.start(mesh.rank), self.decomposition.owned(mesh.rank), strict=True
            )
        )
        levels, self.terrain = level_tables(self.edges), None
        still_water = initial_water(profile, self.base, np.zeros((FIELDS, grid.nz, 1, 1)))[..., 0, 0]
        self.base_vapor = still_water[0]
        self.rest_of = flat_cells(self.base, self.base_vapor, self.edges, grid.dx * grid.dy)
        self.base_theta = self.rest_of.theta[:, 0, 0]
        faces, rest, size = None, self.base, np.ones(grid.nz)
        if config.terrain.kind != "flat":
            self.terrain = Terrain(config, profile, levels, (self.decomposition, mesh.rank), self._table)
            self.rest_of, self.spacing["z"] = self.terrain.cells, require_thick(config)
            faces, rest, size = self.terrain.faces, self.terrain.base, self.terrain.size
        begin = initial_state(config, profile, rest, rows, columns, faces)
        warm = initial_water(profile, rest, begin)
        warm[0] += vapor_noise(config, profile, rest, rows, columns)
        self.state.set_from_host(begin * size.reshape(grid.nz, *(size.shape[1:] or (1, 1))))
        self._stagger()
        self.start, self.slow = cells(FIELDS), cells(FIELDS)
        self.faces_kept = faces_kept(self.start, self.sweeps if self.terrain else 0)
        self.work = cells(SLOPING_WORKS if self.terrain else WORKS)
        self.work[6] = 1.0
        self.mass_flux = [
            device.zeros(faces, dtype) for faces in ((nz, ny, nx + 1), (nz, ny + 1, nx), (nz + 1, ny, nx))
        ]
        calm = np.array([self.base.wind, self.base.wind_v, np.zeros(grid.nz), self.base.theta])
        geostrophic = calm[:2].copy()
        for row, points in enumerate((config.forcing.geostrophic_u, config.forcing.geostrophic_v)):
            if points:
                geostrophic[row] = levels_of(points, self.base.height)
        self.column, self.levels, self.rest, self.wind, self.weights, self.water = (
            self._table(values)
            for values in (
                self.base.column,
                levels,
                calm,
                geostrophic,
                upwind_weights(config.dynamics.order, config.dynamics.weno),
                NO_WATER,
            )
        )
        tables = (config, self.base, self.edges, self.column, self._table, self.terrain)
        self.forced = Forced(*tables) if is_forced(config) else None
        # What mixing leaves alone: the base state, but over flat ground not where fluxes and forcings change it.
        still = calm.mean(axis=1, keepdims=True) + 0.0 * calm
        self.unmixed = self._table(still) if self.forced else self.rest
        rates = relaxation_rates(config, self.decomposition, mesh.rank)
        self.relaxes = any(rate.any() for rate in rates.values())
        self.rates = {axis: self._table(rate) for axis, rate in rates.items()}
        self.open_axes = open_axes(config)
        x, y = rates["x"][[0, 1, 0, 0, 0]], rates["y"][[0, 0, 1, 0, 0]]  # of rho, momenta and heat, where they stand
        beside = np.maximum(x[:, None, :], y[:, :, None])  # open sides
        self.beside = self._table(beside) if beside.any() else None
        self.still = self._table(self.terrain.still()) if self.terrain and self.open_axes else None
        self.through_sides = [0.0] * 3  # of this rank: mass through open sides, mass and water that relaxation added
        moist = config.moisture.kind != "none"
        self.is_complete = moist and config.moisture.equations == "complete"
        kinds, falls = config.moisture.water, config.moisture.falls
        water = None
        if moist:
            water = np.concatenate([warm, np.zeros((len(kinds) - len(warm), *warm.shape[1:]))])
        # Vapor, too, is mixed as its deviation, else mixing would saturate air whose theta it leaves alone.
        self.unmixed_vapor = 0.0 * self.base_vapor if self.forced else self.base_vapor
        unmixed_vapor = self.terrain.vapor if self.terrain else self.unmixed_vapor[:, None, None]
        over = (self.terrain.height, self.terrain.density) if self.terrain else None
        self.carried = Carried(config, mesh, device, self.state, water, over) if moist or config.tracers else None

        def ground(name: str, rows: int) -> Field:
            cells = Decomposition((rows, grid.ny, grid.nx), mesh.topology, halo=(0, 0, 0))
            return Field.zeros(mesh, cells, config.precision, name=name, device=device)

        # Since the start: what has fallen (m of water), by kind; the air's warmth and the latent heat of ice (J/m2)
        self.rained = ground("rained", len(falls) or 1)
        self.heated = ground("heated", 2) if config.moisture.kind == "ice" else None
        if moist:
            self.parcels = [
                device.zeros((n, *self.state.interior.shape[1:]), config.precision) for n in (4, len(kinds))
            ]
            self.water = device.zeros(shape[1:], dtype)
            self._still_vapor = self._table(unmixed_vapor)
            self.levels[4, :-1] = self._table(still_water.sum(axis=0))
            if self.terrain:
                still_water = np.array([self.terrain.cells.vapor, self.terrain.cloud])
            rests = still_water.reshape(*still_water.shape[:2], *(still_water.shape[2:] or (1, 1)))
            self.still_water = self._table(np.zeros((len(kinds), *rests.shape[1:])))
            self.still_water[: len(rests)] = self._table(rests)
            self.thickness = self._table(self.terrain.thick if self.terrain else np.diff(self.edges))
            sloping = self.terrain.ground if self.terrain else None
            # by level, or by cell with its halo over terrain: base state of the air, and J
            self.of_air = (sloping.base[:3], sloping.metric[SIZE]) if sloping else (self.column, self._table(size))
        mixes = config.diffusion or config.smagorinsky.coefficient
        self.mu = device.zeros(shape[1:], dtype) if mixes else None
        self.stresses = device.zeros((ROWS, *shape[1:]), dtype) if mixes and self.terrain else None
        self._greatest: Any = 0.0  # eddy viscosity, m2/s; on a GPU a number there
        self.steps_done = 0

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

    def _middles(self) -> tuple[np.ndarray, ...]:
        """Collective: rho, u, v, w and rho theta in the middles of the owned cells, on the host, float64."""
        self.exchange(self.state)
        return self.middles(self.state.device.to_host(self.state.data).astype(np.float64, copy=False))

    def middles(self, data: np.ndarray) -> tuple[np.ndarray, ...]:
        """As `_middles`, from the state on the host with its halo filled."""
        if self.terrain:
            return self.terrain.middles(data)
        base_rho, base_heat, _ = self.base.column[:, :, None, None]
        inner = slice(HALO, -HALO)
        beyond = slice(HALO, 1 - HALO)
        rho, heat = data[RHO, :, inner, inner] + base_rho, data[RHO_THETA, :, inner, inner] + base_heat
        u, v = data[RHO_U, :, inner, beyond], data[RHO_V, :, beyond, inner]
        w = np.concatenate([data[RHO_W, :, inner, inner], np.zeros_like(rho[:1])])
        with np.errstate(all="ignore"):
            u, v, w = (
                0.5 * (u[..., 1:] + u[..., :-1]) / rho,
                0.5 * (v[:, 1:] + v[:, :-1]) / rho,
                0.5 * (w[1:] + w[:-1]) / rho,
            )
        return rho, u, v, w, heat

    def _theta(self, rho: np.ndarray, heat: np.ndarray) -> np.ndarray:
        """Deviation of theta from the base state's; of moist air not that of the moist theta."""
        return heat / self._with_vapor(rho) - self.rest_of.theta

    def _with_vapor(self, rho: np.ndarray) -> np.ndarray:
        """What rho theta of the state (with the moist theta) and rho T are divided by for theta and T, kg/m3."""
        if not self.is_moist:
            return rho
        assert self.carried
        return rho * (1 + RV / RD * self.carried.field.to_host()[0])

    def watch(self) -> Diagnostics:
        """Collective: mass, energy, extremes. Sums may differ in the last bits between numbers of ranks."""
        grid, rest = self.config.grid, self.rest_of
        rho, u, v, w, heat = self._middles()
        volumes = rest.volume
        with np.errstate(all="ignore"):
            pressure = rest.pressure * (heat / rest.heat) ** GAMMA
            sound = np.sqrt(GAMMA * pressure / rho)
            theta = self._theta(rho, heat)
            energy = rho * (0.5 * (u * u + v * v + w * w) + GRAVITY * rest.height)
            energy = self._with_heat(energy, rho, pressure)
            good = np.isfinite(energy + sound + theta)
        mass = (rho - rest.rho) * volumes
        own = [mass[good].sum(), (energy * volumes)[good].sum(), good.size - np.count_nonzero(good)]
        sums = np.array(own, np.float64)
        most = [np.abs(speed[good]).max(initial=0.0) for speed in (u, v, w)]
        ends = np.array([*most, -theta[good].min(initial=np.inf), theta[good].max(initial=-np.inf)])
        sum_of_ranks(self.mesh.comm, sums)
        max_of_ranks(self.mesh.comm, ends)
        still = np.array(float((rest.rho * volumes).sum()))
        if self.terrain:
            sum_of_ranks(self.mesh.comm, still)
        else:
            still = still * (grid.nx * grid.ny)
        mass_total = float(still + sums[0])
        more = self.carried.watch(rho, volumes) if self.carried else {}
        if self.is_moist:
            more |= self._ground_watch()
            more |= self._cloud_watch(rho, volumes)
        if self.forced:
            more |= self._forced_watch(heat, rho, volumes)
        if self.open_axes:
            more |= dict(zip(THROUGH, self._crossed(), strict=True))
        if self.config.smagorinsky.coefficient:
            greatest = max_of_ranks(self.mesh.comm, np.array(float(self._greatest)))
            more["eddy_viscosity_max"] = float(greatest)
        # speeds of the wind alone: sound does not limit the step
        return Diagnostics(mass_total, sums[1], *ends[:3], ends[2], -ends[3], ends[4], round(sums[2]), more)

    def _crossed(self) -> list[float]:
        """Collective: what came through open sides and by relaxation there since the start, kg, as `THROUGH`."""
        water = self.carried.entered if self.carried else 0.0
        sums = np.array([*self.through_sides[:2], water, self.through_sides[2]])
        return list(map(float, sum_of_ranks(self.mesh.comm, sums)))

    def _ground_watch(self) -> dict[str, float]:
        """Collective: what has fallen, kg by kind, and with ice what the air gained and water gave of heat, J."""
        area = self.config.grid.dx * self.config.grid.dy

        def total(rows: Any, each: float) -> list[float]:
            sums = np.array([float(row.sum(dtype=np.float64)) * area * each for row in rows])
            return list(map(float, sum_of_ranks(self.mesh.comm, sums)))

        names = [f"{kind}_on_ground" for kind in self.config.moisture.falls]
        more = dict(zip(names, total(self.rained.data, WATER_DENSITY), strict=True))
        if self.heated:
            more |= dict(zip(("air_heated", "water_heat"), total(self.heated.data, 1.0), strict=True))
        return more

    def _cloud_watch(self, rho: np.ndarray, volumes: np.ndarray) -> dict[str, float]:
        """Collective: the share of columns with cloud, and the mean water that floats or falls over an area (kg/m2)."""
        assert self.carried
        water = self.carried.field.to_host()[: len(self.carried.water)]
        floats = water[1] + water[3] if self.heated else water[1]
        covered = np.count_nonzero((floats > CLOUDY).any(axis=0))
        paths = [(part * (rho * volumes)).sum(dtype=np.float64) for part in (water[1:3], water[3:])]
        sums = sum_of_ranks(self.mesh.comm, np.array([covered, *paths]))
        grid = self.config.grid
        names = ("liquid_water_path", "ice_water_path") if self.heated else ("liquid_water_path",)
        return {"cloud_cover": float(sums[0]) / (grid.nx * grid.ny)} | {
            name: float(path) / (grid.width * grid.length) for name, path in zip(names, sums[1:], strict=False)
        }

    def _forced_watch(self, heat: np.ndarray, rho: np.ndarray, volumes: np.ndarray) -> dict[str, float]:
        """Collective: moist theta (K kg) of the air over the base state's, what entered, and the mixed layer's top."""
        assert self.forced
        mean = np.array([(heat / rho).sum(axis=(1, 2))[k] for k in range(len(heat))])
        warmth = ((heat - self.rest_of.heat) * volumes).sum()
        sums = np.array([warmth, *map(float, self.forced.entered)])
        sum_of_ranks(self.mesh.comm, sums)
        sum_of_ranks(self.mesh.comm, mean)
        rises = np.diff(mean) / np.diff(self.base.height)
        top = float(self.edges[1 + int(rises.argmax())])
        names = ("warmth", "warmth_entered", "water_entered")
        return dict(zip(names, map(float, sums), strict=True)) | {"inversion": top}

    def _with_heat(self, energy: np.ndarray, rho: np.ndarray, pressure: np.ndarray) -> np.ndarray:
        """Motion and height of dry air, with its heat; in the complete equations those of all water, too."""
        if not self.is_complete:
            return energy + CV / RD * pressure
        assert self.carried
        vapor, cloud, rain = self.carried.field.to_host()[:3].astype(np.float64, copy=False)
        temperature = pressure / (rho * (RD + RV * vapor))
        heat = (CV + CVV * vapor + CL * (cloud + rain)) * temperature - LATENT * (cloud + rain)
        return energy * (1 + vapor + cloud + rain) + rho * heat

    def budgets(self, first: Diagnostics, last: Diagnostics) -> dict[str, dict[str, float]]:
        """Budgets between two watches, `unexplained` is rounding: of water, kg, and with open sides of all dry air."""
        entered = last.more.get("water_entered", 0.0) - first.more.get("water_entered", 0.0)
        crossed = {name: last.more[name] - first.more[name] for name in THROUGH if self.open_axes}
        budgets = {}
        if self.open_axes:
            change, parts = last.mass - first.mass, {name.removeprefix("mass_"): crossed[name] for name in THROUGH[:2]}
            budgets["mass_budget"] = {"change": change, **parts, "unexplained": change - sum(parts.values())}
        if not self.is_moist:
            if not self.forced or self.relaxes:
                return budgets
            change, added = (last.more[name] - first.more[name] for name in ("warmth", "warmth_entered"))
            heat = {"in_air": last.more["warmth"], "change": change, "entered": added}
            return {"heat_budget": {**heat, "unexplained": change - added}}
        moisture = self.config.moisture
        air = [sum(watch.more[f"{name}_mass"] for name in moisture.water) for watch in (first, last)]
        fallen = {kind: last.more[f"{kind}_on_ground"] - first.more[f"{kind}_on_ground"] for kind in moisture.falls}
        change = air[1] - air[0]
        water = {"in_air": air[1], "change": change, **fallen, "entered": entered}
        sides = {name.removeprefix("water_"): crossed[name] for name in THROUGH[2:] if name in crossed}
        entered += sum(sides.values())
        budgets["water_budget"] = {**water, **sides, "unexplained": change + sum(fallen.values()) - entered}
        if self.heated:
            warmed, released = (last.more[name] - first.more[name] for name in ("air_heated", "water_heat"))
            heat = {"warmed": warmed, "released": released, "unexplained": warmed - released}
            budgets["latent_heat_budget"] = heat
        return budgets

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

    def saved(self, **values: Any) -> State:
        """Collective: the content of a checkpoint: fields, numbers, and extra `values`."""
        return State([Piece.of_field(each) for each in self.fields], {**self.values(), **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        for each in self.fields:
            read_into(restored, each)
        self.own(restored.values)

    def shown(self) -> dict[str, np.ndarray]:
        """Collective: the output fields, float64: theta and rho as deviations, winds in the middles; fills the halo."""
        rho, u, v, w, heat = self._middles()
        theta = self._theta(rho, heat)
        fields = {"theta": theta, "u": u, "v": v, "w": w, "rho": rho - self.rest_of.rho}
        fields |= full_fields(self.config.output.fields, self._with_vapor(rho), heat)
        if self.carried:
            carried = self.carried.field.to_host().astype(np.float64, copy=False)
            fields |= dict(zip(self.carried.names, carried, strict=True))
        return fields

    def output(self) -> dict[str, np.ndarray]:
        """Collective: the output fields, on the owned cells, in the precision of the files."""
        return in_precision(self.shown(), self.config.output.single)


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
