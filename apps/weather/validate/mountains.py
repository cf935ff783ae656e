"""Terrain under the split dynamics: waves over a small hill and over Schaer's ridges against linear theory, and rest.

The hill is low enough for linear theory to be exact (1 m), in an isothermal channel whose solution in time is known:
`apps.exact.mountain_waves.channel`. Schaer's ridges (2002, MWR 130, 2459-2480) are 250 m high, in air of constant N:
linear theory holds to a tenth or so, below the sponge, once waves are steady there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.common.validation import Check, Found, at_least, at_most, convergence_order, near
from hpckit.apps.exact.mountain_waves import boussinesq, channel
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config

EXACT = "linear theory"
HILL, WIDTH, TOP, WIND, TEMPERATURE, END = "mountain-hill", 80e3, 12e3, 20.0, 250.0, 2000.0
# Greatest relative L2 errors of w by spacing in x (m), a fifth above what the scheme has: dz is a fifth of it.
ERRORS = {2000: 0.3, 1000: 0.08}
RIDGES = 0.25


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The hill on two grids, the ridges, and air at rest between mountains."""
    wanted = {f"{HILL}-{n}m": Nested("weather3d/linear_hill", _hill(n)) for n in ((2000,) if config.quick else ERRORS)}
    if not config.quick:
        ridges = {
            "grid": {"nx": 120, "nz": 60, "width": 60e3, "height": 18e3},
            "terrain": {"x": 30e3},
            "lid": {"depth": 7e3},
            "time": {"end": 12_000.0, "monitor": 100},
            "output": {**DOUBLE, "every": 12_000.0},
        }
        wanted["mountain-schaer"] = Nested("weather3d/schaer", ridges)
    hours = 1.0 if config.quick else 6.0
    rest = {
        "grid": {"nx": 30, "ny": 14, "nz": 25, "lowest": 50.0, "width": 30e3, "length": 14e3, "height": 12e3},
        "dynamics": {"kind": "hevi"},
        "base": {"kind": "stable", "frequency": 0.015},
        "terrain": {"kind": "schaer", "height": 1500.0, "half_width": 6e3, "wavelength": 8e3, "x": 15e3},
        "bubbles": [],
        "coriolis": 1e-4,
        "time": {"end": 3600.0 * hours, "monitor": 100},
        "output": {**DOUBLE, "every": 3600.0 * hours},
    }
    return {**wanted, "mountain-rest": Nested("weather3d", rest)}


def _hill(spacing: int) -> dict[str, Any]:
    cells = {"nx": round(WIDTH / spacing), "nz": round(5 * TOP / spacing)}
    return {
        "grid": {**cells, "width": WIDTH, "length": 600e3, "height": TOP},
        "dynamics": {"step": 0.012 * spacing, "implicit": 0.51},  # off-centering is of first order
        "terrain": {"x": WIDTH / 2, "levels": "linear"},
        "lid": {"depth": 0.0},
        "time": {"end": END},
        "output": {**DOUBLE, "every": END},
    }


def compare(folders: Folders) -> Found:
    """Errors and order over the hill, the error over the ridges, what rest has become."""
    checks: list[Check] = []
    found: list[tuple[float, float]] = []
    pictures = []
    for name, folder in folders.items():
        output = Output(folder)
        if name == "mountain-rest":
            theta = output["theta"]
            checks += [
                at_most(name, "greatest |w|", output.metric("w_max").max(), 1e-10, "rest is exact", "m/s"),
                at_most(name, "greatest change of theta", np.abs(theta[-1]).max(), 1e-10, "rest is exact", "K"),
            ]
            continue
        checks.append(at_most(name, "relative change of mass", output.change("mass"), 1e-12, "closed box"))
        if name.startswith(HILL):
            spacing = int(name.rpartition("-")[2][:-1])
            error = hill_error(output)
            found.append((float(spacing), error))
            checks.append(at_most(name, "relative L2 error of w", error, ERRORS[spacing], EXACT))
        else:
            ours, exact = ridge_waves(output)
            source = f"{EXACT}, ridges of finite height"
            checks += [
                at_most(name, "relative L2 error of w", _error(ours, exact), RIDGES, source),
                near(name, "standard deviation of w", ours.std(), exact.std(), 0.15 * exact.std(), source, "m/s"),
            ]
            pictures.append((name, "w", "Waves over Schaer's ridges, 12,000 s: w"))
    if len(found) > 1:
        order = convergence_order([at for at, _ in found], [error for _, error in found])
        checks.append(at_least(HILL, "order of the L2 error of w", order, 1.7, EXACT))
    return Found(checks, [], pictures)


def hill_error(output: Output) -> float:
    """Relative L2 error of w in the whole channel."""
    exact = channel(output["surface_altitude"][0], WIDTH, TOP, output["z"], END, WIND, TEMPERATURE)
    return _error(output.last("w")[:, 0], exact)


def ridge_waves(output: Output) -> tuple[np.ndarray, np.ndarray]:
    """W of a run over ridges and of linear theory at the true heights of its cells, from 1 to 9 km over ground at 0."""
    settings = output.resolved()
    grid, base, ground = settings["grid"], settings["base"], output["surface_altitude"][0]
    z, true = output["z"], output["altitude"][:, 0]
    fine = np.linspace(0.0, z[-1], 4 * len(z))
    rho = np.interp(fine, z, output["rho_base"])
    waves = boussinesq(ground, grid["width"], fine, base["u"], base["frequency"], rho, rho[0])
    exact = np.array([np.interp(true[:, i], fine, waves[:, i]) for i in range(len(ground))]).T
    low = (z > 1e3) & (z < 9e3)
    return output.last("w")[low, 0], exact[low]


def _error(ours: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sqrt(((ours - exact) ** 2).sum() / (exact**2).sum()))


CASE = Case(runs, compare)
