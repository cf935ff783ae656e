"""What is seen of the box with split dynamics on all ranks: watches, budgets, output."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.atmosphere.output import full_fields, in_precision
from hpckit.apps.weather3d.model import Diagnostics
from hpckit.apps.weather3d.split.state import THROUGH, SplitState
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import CV, GAMMA, GRAVITY, RD
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.kernels.euler.rain.constants import CL, CVV, LATENT, RV, WATER_DENSITY

CLOUDY = 1e-6  # kg/kg: more cloud makes a cell cloudy


class WatchedState(SplitState):
    """The state of a run on this rank, and what is told of it. Momenta stand in the middles of cells here."""

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
        """Budgets between two watches, `unexplained` is rounding: of water, kg; with open sides of all dry air; of heat
        in a dry box with forcings that is closed and relaxes nowhere.
        """
        entered = last.more.get("water_entered", 0.0) - first.more.get("water_entered", 0.0)
        crossed = {name: last.more[name] - first.more[name] for name in THROUGH if self.open_axes}
        budgets = {}
        if self.open_axes:
            change, parts = last.mass - first.mass, {name.removeprefix("mass_"): crossed[name] for name in THROUGH[:2]}
            budgets["mass_budget"] = {"change": change, **parts, "unexplained": change - sum(parts.values())}
        if not self.is_moist:
            if not self.forced or self.relaxes or self.open_axes:  # relaxed or through sides: not counted
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
