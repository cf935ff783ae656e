"""Column statistics: means, variances and vertical fluxes of each level over time, equal on any number of ranks.

All are plain means over the cells of a level, of deviations from the mean of the level, in the middles of cells:
u' = u - <u>, variance <u'u'>, resolved flux <w'u'>. Over flat ground the subgrid flux is what unresolved mixing
carries upward, and the ground at its face; in a middle it stands as the mean of the faces below and above. Over terrain
a level follows the ground and has its mean height as `altitude`; w is the true vertical wind, and there are no subgrid
fluxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.output import DEVIATIONS, FULL
from hpckit.apps.weather3d import model
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.apps.weather3d.split.watches import CLOUDY
from hpckit.grid.sums import totals
from hpckit.io.fields.profiles import ProfileWriter
from hpckit.kernels.euler.constants import RD
from hpckit.kernels.euler.hevi.constants import HALO, PER_FACE
from hpckit.kernels.euler.rain.constants import RV

FILE, FRACTION, ALTITUDE = "statistics.h5", "cloud_fraction", "altitude"
KAPPA = RV / RD
INNER = slice(HALO, -HALO)


class Statistics:
    """The statistics of a run, in a file of their own below `folder`; resume: the `kept` of an earlier writer."""

    def __init__(
        self,
        it: model.Model | SplitModel,
        folder: Path,
        attributes: Mapping[str, Any],
        resume: Mapping[str, Any] | None,
    ) -> None:
        self.model = it
        carried = it.carried if isinstance(it, SplitModel) else it.tracers
        self.names = ["u", "v", "w", "theta", *(carried.names if carried else ())]
        self.terrain = it.terrain if isinstance(it, SplitModel) else None
        has_subgrid = isinstance(it, SplitModel) and not it.terrain and (it.mu is not None or it.forced is not None)
        self.subgrid = [name for name in self.names if name != "w"] if has_subgrid else []
        height, told = it.base.height, described(self.names, self.subgrid)
        if self.terrain:
            told[ALTITUDE] = {"units": "m", "long_name": "mean height of a level", "standard_name": ALTITUDE}
        self.writer = ProfileWriter(it.mesh.comm, folder / FILE, "z", height, "m", told, attributes, resume)

    def sample(self, time: float) -> None:
        """Collective: the statistics of the state, at a time (s)."""
        shown = self.model.shown()
        rows: dict[str, np.ndarray] = {}
        means = {name: self.mean(shown[name]) for name in self.names}
        off = {name: shown[name] - means[name][:, None, None] for name in self.names}
        for name in self.names:
            rows[name] = means[name]
            rows[f"{name}_variance"] = self.mean(off[name] * off[name])
            if name != "w":
                rows[f"{name}_flux"] = self.mean(off["w"] * off[name])
        if self.terrain:
            rows["theta"] = self.mean(shown["theta"] + self.terrain.cells.theta)
            rows[ALTITUDE] = self.mean(self.terrain.height)
        else:
            rows["theta"] = means["theta"] + base_theta(self.model)
        if "cloud" in self.names:
            floats = shown["cloud"] + shown["ice"] if "ice" in self.names else shown["cloud"]
            rows[FRACTION] = self.mean((floats > CLOUDY).astype(np.float64))
        if isinstance(self.model, SplitModel) and self.subgrid:
            for name, values in unresolved(self.model, shown).items():
                rows[f"{name}_subgrid_flux"] = self.mean(values)
        self.writer.add(time, rows)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Collective: the mean of each level of float64[nz, ny, nx], the same bits on any number of ranks."""
        grid = self.model.config.grid
        cells = grid.nx * grid.ny
        return totals(values, self.model.mesh.comm, cells) / cells


def base_theta(it: model.Model | SplitModel) -> np.ndarray:
    """Theta of the base state (K), that of dry air, which the output's theta deviates from."""
    return it.base_theta if isinstance(it, SplitModel) else it.base.theta


def unresolved(it: SplitModel, shown: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Upward subgrid fluxes in the middles of the owned cells: of u and v (m2/s2), theta (K m/s) and what air carries.

    shown: `it.shown()` of the state, which filled the halo.
    """
    rho = shown["rho"] + it.base.column[0][:, None, None]
    return {name: 0.5 * (each[1:] + each[:-1]) / rho for name, each in through_faces(it, shown, rho).items()}


def through_faces(it: SplitModel, shown: Mapping[str, np.ndarray], rho: np.ndarray) -> dict[str, np.ndarray]:
    """As `unresolved`, but times the density, float64[nz + 1, ny, nx].

    Of constant diffusion and Smagorinsky's mixing together, as
    the kernels have them (`kernels.euler.hevi.stress.reference`), and of the ground at the lowest face.
    """
    device, grid = it.state.device, it.config.grid
    names = ["u", "v", "theta", *(it.carried.names if it.carried else ())]
    faces = {name: np.zeros((grid.nz + 1, *rho.shape[1:])) for name in names}
    rest = device.to_host(it.unmixed).astype(np.float64)[:, :, None, None]
    mixed = {"vapor": shown["vapor"] - it.unmixed_vapor[:, None, None]} if it.is_moist else {}
    per_face = device.to_host(it.levels)[PER_FACE].astype(np.float64)[1:-1, None, None]
    if it.carried and it.mu is not None:
        it.carried.corners(it.carried.field)
    for prandtl, cross, _ in it.viscosities(it.dt) if it.mu is not None else ():
        u, v, w, theta = (device.to_host(each).astype(np.float64) for each in it.work[:4])
        mu = device.to_host(it.mu).astype(np.float64)
        upright = mu[1:] + mu[:-1]
        for name, wind, dim, width in (("u", u, 2, grid.dx), ("v", v, 1, grid.dy)):
            across = 0.25 * (np.roll(upright, 1, dim) + upright)
            shear = np.diff(wind - rest["uv".index(name)], axis=0) * per_face
            stress = across * (shear + cross * (w - np.roll(w, 1, dim))[1:] / width)
            faces[name][1:-1] -= (0.5 * (stress + np.roll(stress, -1, dim)))[:, INNER, INNER]
        rate = 0.5 * upright[:, INNER, INNER] * per_face / prandtl
        for name in names[3:]:
            faces[name][1:-1] -= rate * np.diff(mixed.get(name, shown[name]), axis=0)
        moist = -rate * np.diff((theta - rest[3])[:, INNER, INNER], axis=0)
        if it.is_moist:  # the moist theta is mixed
            warm, vapor = shown["theta"] + base_theta(it)[:, None, None], shown["vapor"]
            warm, vapor = 0.5 * (warm[1:] + warm[:-1]), 0.5 * (vapor[1:] + vapor[:-1])
            wet = -rate * np.diff(mixed["vapor"], axis=0)
            moist = (moist - KAPPA * warm * wet) / (1 + KAPPA * vapor)
        faces["theta"][1:-1] += moist
    if it.forced:
        low_theta = shown["theta"][0] + base_theta(it)[0]
        vapor = shown["vapor"][0] if it.is_moist else np.zeros_like(low_theta)
        for name, flux in it.forced.at_ground(shown["u"][0], shown["v"][0], low_theta, vapor).items():
            if name in faces:
                faces[name][0] = rho[0] * flux
    return faces


def described(names: list[str], subgrid: list[str]) -> dict[str, dict[str, str]]:
    """The variables of the file with their CF attributes."""
    told: dict[str, dict[str, str]] = {}
    if "cloud" in names:
        named = {"long_name": "share of cloudy cells", "standard_name": "cloud_area_fraction_in_atmosphere_layer"}
        told[FRACTION] = {"units": "1", **named, "cell_methods": "area: mean"}
    for name in names:
        known = FULL["theta_total"] if name == "theta" else DEVIATIONS.get(name)
        known = known or {"units": "1", "long_name": f"mixing ratio of {name}"}
        unit, called = known["units"], known["long_name"]
        told[name] = {**known, "long_name": f"mean {called}", "cell_methods": "area: mean"}
        square = {"m s-1": "m2 s-2", "1": "1"}.get(unit, f"{unit}2")
        told[f"{name}_variance"] = {
            "units": square,
            "long_name": f"variance of {called}",
            "cell_methods": "area: variance",
        }
        flux = {"m s-1": "m2 s-2", "1": "m s-1"}.get(unit, f"{unit} m s-1")
        for kind, on in (("flux", name != "w"), ("subgrid_flux", name in subgrid)):
            if on:
                how = "resolved" if kind == "flux" else "subgrid"
                told[f"{name}_{kind}"] = {
                    "units": flux,
                    "long_name": f"{how} upward flux of {called}",
                    "cell_methods": "area: mean",
                }
    return told
