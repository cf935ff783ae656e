"""The weather3d app's run: output, metrics and dry run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.loop import AtmosphereRun
from hpckit.apps.atmosphere.output import base_profiles, variables
from hpckit.apps.atmosphere.parcel import ADIABATS, lift_profile
from hpckit.apps.common.grid import run_on_grid
from hpckit.apps.common.loop import Due
from hpckit.apps.weather3d import model
from hpckit.apps.weather3d.config import METRICS, Config
from hpckit.apps.weather3d.model import Model, mesh_for
from hpckit.apps.weather3d.products.maps import Maps
from hpckit.apps.weather3d.products.parcels import Parcels
from hpckit.apps.weather3d.products.stations import Stations
from hpckit.apps.weather3d.products.statistics import Statistics
from hpckit.apps.weather3d.setups import column_of
from hpckit.apps.weather3d.split.compilation import warm_up as warm_up_split
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.apps.weather3d.terrain import corners, heights, level_heights, parts_of
from hpckit.io.checkpoint.state import Restored, State
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.run.context import Run
from hpckit.run.steps import passes

# Three sweeps, five fields of 8 bytes, each read once and written once, the write after a read of the cache line.
BYTES_PER_CELL_STEP = 3 * FIELDS * 8 * 3
# Of the split dynamics: arrays that a stage and a substep read or write, each once.
STAGE_ARRAYS, SUBSTEP_ARRAYS = 62, 20
SLOPING_STAGE, SLOPING_SUBSTEP = 30, 8  # as many more over terrain

NAMED = {
    "vapor": {"long_name": "mixing ratio of vapor", "standard_name": "humidity_mixing_ratio"},
    "cloud": {"long_name": "mixing ratio of cloud", "standard_name": "cloud_liquid_water_mixing_ratio"},
    "ice": {"long_name": "mixing ratio of cloud ice", "standard_name": "cloud_ice_mixing_ratio"},
}
OVER_TERRAIN = "deviation from the base state at the altitude of the cell"


class Weather3D(AtmosphereRun):
    """The run of the box."""

    app, bytes_per_cell_step, metrics = "weather3d", BYTES_PER_CELL_STEP, METRICS
    model: Model | SplitModel

    def __init__(self, run: Run, model: Model) -> None:
        super().__init__(run, model)
        self.is_split = self.config.dynamics.kind == "hevi"
        if self.is_split:
            sloping = self.config.terrain.kind != "flat"
            arrays = 3 * (STAGE_ARRAYS + SLOPING_STAGE * sloping)
            arrays += sum(self.config.substeps) * (SUBSTEP_ARRAYS + SLOPING_SUBSTEP * sloping)
            self.bytes_per_cell_step = 8 * arrays
        tracers = [*self.water, *(tracer.name for tracer in self.config.tracers)]
        mixed = {name: {"units": "1", **NAMED.get(name, {"long_name": f"mixing ratio of {name}"})} for name in tracers}
        self.variables = variables("uvw", self.config.output.fields) | mixed
        if self.config.terrain.kind != "flat":
            for name in ("theta", "rho"):
                self.variables[name] = {**self.variables[name], "comment": OVER_TERRAIN}

        self.statistics: Statistics | None = None
        self.stations: Stations | None = None
        self.maps: Maps | None = None
        self.parcels: Parcels | None = None
        attributes = {"title": run.title, "source": f"hpckit {self.app}"}
        folder, asked = run.directory.output, self.config.output
        if asked.statistics:
            self.statistics = Statistics(model, folder, attributes, run.kept("statistics"))
            run.keep("statistics", self.statistics.writer.kept)
        if asked.stations:
            self.stations = Stations(model, folder, attributes, run.kept("stations"))
            run.keep("stations", self.stations.writer.kept)
        if asked.maps:
            assert isinstance(model, SplitModel)  # the settings were checked
            self.maps = Maps(model, folder, self.coords(), attributes, run.kept("maps"))
            run.keep("maps", self.maps.writer.kept)
        if self.config.parcels.count:
            assert isinstance(model, SplitModel)  # the settings were checked
            self.parcels = Parcels(model, folder, attributes, run.kept("parcels"))
            run.keep("parcels", self.parcels.writer.kept)

    def begin(self) -> None:
        """Collective: check and write the initial state."""
        if self.parcels:
            self.parcels.begin()
        for each in (self.statistics, self.stations, self.parcels):
            if each:
                each.sample(self.time)
        super().begin()

    def advance(self) -> Due:
        """Collective: the next step, and the statistics where they are due."""
        due = super().advance()
        asked = self.config.output
        if self.parcels:
            with self.run.timer("statistics"):
                self.parcels.move(self.dt)
        sampled = ((self.statistics, asked.statistics), (self.stations, asked.series), (self.parcels, asked.series))
        for each, every in sampled:
            if each and (self.step == self.steps or passes(every, self.full, self.step)):
                with self.run.timer("statistics"):
                    each.sample(self.time)
        if self.maps:
            with self.run.timer("statistics"):
                self.maps.sample()
        return due

    def write(self) -> None:
        """Collective: write a frame, and the statistics so far."""
        super().write()
        if self.maps:
            self.maps.write(self.time)
        self._write_statistics()

    def saved(self) -> State:
        """Collective: the content of a checkpoint; the statistics that it counts are on disk."""
        self._write_statistics()
        state = super().saved()
        if self.maps:
            state = State([*state.pieces, self.maps.piece()], state.values)
        if self.parcels:
            state = State(state.pieces, {**state.values, "parcels": self.parcels.values()})
        return state

    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint."""
        super().restore(kept)
        if self.maps:
            self.maps.restore(kept)
        if self.parcels:
            self.parcels.restore(kept.values["parcels"])

    def close(self) -> None:
        """Collective: write what is left of the statistics."""
        super().close()
        self._write_statistics()
        if self.maps:
            self.maps.writer.close(last=self.is_over)

    def _write_statistics(self) -> None:
        for each in (self.statistics, self.stations, self.parcels):
            if each:
                each.writer.write()

    @property
    def water(self) -> tuple[str, ...]:
        """The kinds of water in the air."""
        return self.config.moisture.water

    def coords(self) -> dict[str, np.ndarray]:
        """The cell centers, and the faces of levels, m."""
        return {**super().coords(), "z_face": self.config.grid.edges}

    def corners(self) -> np.ndarray | None:
        """The corners of cells over terrain, m."""
        return None if self.config.terrain.kind == "flat" else corners(self.config)

    def constants(self) -> Mapping[str, Mapping[str, Any]]:
        """The base state; of moist air its theta, not the moist theta, and its vapor; altitudes over terrain."""
        if not self.water:
            return {**super().constants(), **altitudes(self.config)}
        assert isinstance(self.model, SplitModel)
        base, vapor = self.model.base, self.model.base_vapor
        shown = base_profiles(dataclasses.replace(base, theta=self.model.base_theta))
        told = {"units": "1", "long_name": "mixing ratio of vapor of the base state"}
        return {**shown, "vapor_base": {"dims": ("z",), "values": vapor, **told}, **altitudes(self.config)}

    def check(self) -> None:
        """Collective: raise `BlowUpError` for a state that is not finite or too fast for the step."""
        if isinstance(self.model, SplitModel):
            self.model.require_sound(self.last, self.full)
        else:
            super().check()

    def more(self) -> Mapping[str, Any]:
        """The budgets (mass with open sides, water, heat from the ground), and the lifted parcel of moist air."""
        return {**self.model.budgets(self.first, self.last), **self._parcel()}

    def _parcel(self) -> Mapping[str, Any]:
        """CAPE, CIN (J/kg) and levels (m) of the base state by adiabat, where it has vapor, that of a sounding too."""
        base = self.config.base
        column = column_of(base, bool(self.water) or base.kind == "sounding")
        if not column.vapor(np.zeros(1))[0]:
            return {}
        return {"parcel": {kind: lift_profile(column, adiabat=kind).numbers() for kind in ADIABATS}}


def altitudes(config: Config) -> Mapping[str, Mapping[str, Any]]:
    """Heights of ground and cells over terrain; nothing of a flat box. Then z is the height over ground at 0 m."""
    if config.terrain.kind == "flat":
        return {}
    ground, edges = heights(config), config.grid.edges
    z = level_heights(config, edges, *parts_of(config, ground))
    named = {
        "surface_altitude": (("y", "x"), ground, "height of the ground"),
        "altitude": (("z", "y", "x"), (0.5 * (z[1:] + z[:-1])).astype(np.float32), "height of the cells"),
    }
    up = {"units": "m", "positive": "up"}
    return {
        name: {"dims": dims, "values": values, **up, "standard_name": name, "long_name": told}
        for name, (dims, values, told) in named.items()
    }


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`; raises the errors of `run_on_grid`."""
    with mesh_for(config, run.comm) as mesh:
        if config.dynamics.kind == "hevi":
            run_on_grid(Weather3D, SplitModel, warm_up_split, config, run, mesh)
        else:
            run_on_grid(Weather3D, Model, model.warm_up, config, run, mesh)
