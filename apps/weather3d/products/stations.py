"""Time series at stations: wind, temperature, vapor and pressure of the lowest cell, rain, the column's updraft.

A station stands for the cell that holds it. Series are in one small file, equal on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.weather3d.model import Model as ExplicitModel
from hpckit.apps.weather3d.products.statistics import base_theta
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.agree import sum_of_ranks
from hpckit.io.fields.profiles import ProfileWriter
from hpckit.kernels.euler.constants import C0, GAMMA, P0, RD
from hpckit.kernels.euler.rain.constants import RV

STATIONS = "stations.h5"
SERIES = {
    "u": ("m s-1", "wind along x of the lowest cell", "x_wind"),
    "v": ("m s-1", "wind along y of the lowest cell", "y_wind"),
    "temperature": ("K", "temperature of the lowest cell", "air_temperature"),
    "theta": ("K", "potential temperature of the lowest cell", "air_potential_temperature"),
    "pressure": ("Pa", "pressure of the lowest cell", "air_pressure"),
    "w_max": ("m s-1", "greatest vertical wind of the column", ""),
    "vapor": ("1", "mixing ratio of vapor of the lowest cell", "humidity_mixing_ratio"),
    "rain_at_ground": ("mm", "rain at the ground since the start", ""),
    "snow_at_ground": ("mm", "water of snow and ice at the ground since the start", ""),
    "graupel_at_ground": ("mm", "water of graupel at the ground since the start", ""),
}


class Stations:
    """The series of a run, in a file below `folder`; resume: the `kept` of an earlier writer."""

    def __init__(
        self, it: ExplicitModel | SplitModel, folder: Path, attributes: Mapping[str, Any], resume: Any
    ) -> None:
        self.model = it
        grid, given = it.config.grid, it.config.output.stations
        start, owned = (part(it.mesh.rank)[1:] for part in (it.decomposition.start, it.decomposition.owned))
        self.cells: list[tuple[int, int, int]] = []  # station, row and column on this rank
        places = [(min(int(each.y / grid.dy), grid.ny - 1), min(int(each.x / grid.dx), grid.nx - 1)) for each in given]
        for n, place in enumerate(places):
            own = [at - first for at, first in zip(place, start, strict=True)]
            if all(0 <= at < count for at, count in zip(own, owned, strict=True)):
                self.cells.append((n, *own))
        self._fallen = [f"{kind}_at_ground" for kind in it.config.moisture.falls]
        moist = {"vapor", *(name for name in SERIES if name.endswith("_at_ground"))}
        names = [name for name in SERIES if name not in moist or name in (*self._carried, *self._fallen)]
        told = {name: {"units": SERIES[name][0], "long_name": SERIES[name][1]} for name in names}
        for name in names:
            if SERIES[name][2]:
                told[name]["standard_name"] = SERIES[name][2]
            if SERIES[name][0] == "K":
                told[name]["units_metadata"] = "temperature: on_scale"
        where = {
            f"station_{axis}": {
                "dims": ("station",),
                "values": np.array([getattr(each, axis) for each in given]),
                "units": "m",
                "long_name": f"{axis} of the station",
            }
            for axis in "xy"
        }
        about = {**attributes, "stations": " ".join(each.name for each in given)}
        points = np.arange(len(given), dtype=np.float64)
        self.writer = ProfileWriter(
            it.mesh.comm, folder / STATIONS, "station", points, "1", told, about, resume, constants=where
        )
        self.names = names

    @property
    def _carried(self) -> tuple[str, ...]:
        return self.model.carried.water if isinstance(self.model, SplitModel) and self.model.carried else ()

    def sample(self, time: float) -> None:
        """Collective: the values at a time (s)."""
        shown = self.model.shown()
        it, count = self.model, len(self.model.config.output.stations)
        rows = np.zeros((len(self.names), count))
        lowest = [it.base.column[0][0], base_theta(it)[0]]
        if isinstance(it, SplitModel):
            lowest = [it.rest_of.rho[0], it.rest_of.theta[0]]
        rho_base, theta_base = (np.broadcast_to(each, shown["rho"].shape[1:]) for each in lowest)
        for n, y, x in self.cells:
            theta = shown["theta"][0, y, x] + theta_base[y, x]
            vapor = shown["vapor"][0, y, x] if self._carried else 0.0
            pressure = C0 * ((shown["rho"][0, y, x] + rho_base[y, x]) * theta * (1 + RV / RD * vapor)) ** GAMMA
            values = {
                "u": shown["u"][0, y, x],
                "v": shown["v"][0, y, x],
                "temperature": theta * (pressure / P0) ** (1 - 1 / GAMMA),
                "theta": theta,
                "pressure": pressure,
                "w_max": shown["w"][:, y, x].max(),
                "vapor": vapor,
            }
            if self._carried:
                assert isinstance(it, SplitModel)
                values |= {name: 1000.0 * float(it.rained.data[row, y, x]) for row, name in enumerate(self._fallen)}
            rows[:, n] = [values[name] for name in self.names]
        sum_of_ranks(it.mesh.comm, rows)
        self.writer.add(time, dict(zip(self.names, rows, strict=True)))
