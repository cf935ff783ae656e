"""Terrain under the split dynamics: waves over a small hill against linear theory, and rest between mountains.

The hill is low enough for linear theory to be exact (1 m), in an isothermal channel whose solution in time is known:
`apps.exact.mountain_waves.channel`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.common.validation import Check, Found, at_least, at_most, convergence_order
from hpckit.apps.exact.mountain_waves import channel
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config

EXACT = "linear theory"
HILL, WIDTH, TOP, WIND, TEMPERATURE, END = "mountain-hill", 80e3, 12e3, 20.0, 250.0, 2000.0
# Greatest relative L2 errors of w by spacing in x (m), a fifth above what the scheme has: dz is a fifth of it.
ERRORS = {2000: 0.175, 1000: 0.047}
# The start sends out sound, which theory leaves out. With a fixed off-centering it outlives the run on fine grids (5 %
# of w on 500 m) and hides the order, for it fades at a rate of (implicit - 1/2) dt omega**2. So that off-centering is
# 0.25 s on every grid: 3 % of the slowest sound (0.083 1/s) are left, and waves of gravity lose a percent.
CENTERED, LATER, SUBSTEP = 0.5, 0.25, 0.002  # shares of the new level; s; s of substep by m of spacing


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The hill on two grids, and air at rest between mountains."""
    wanted = {f"{HILL}-{n}m": Nested("weather3d/linear_hill", _hill(n)) for n in ((2000,) if config.quick else ERRORS)}
    rest = {
        "grid": {"nx": 30, "ny": 14, "nz": 25, "lowest": 50.0, "width": 30e3, "length": 14e3, "height": 12e3},
        "dynamics": {"kind": "hevi"},
        "base": {"kind": "stable", "frequency": 0.015},
        "terrain": {"kind": "schaer", "height": 1500.0, "half_width": 6e3, "wavelength": 8e3, "x": 15e3},
        "bubbles": [],
        "coriolis": 1e-4,
        "time": {"end": 900.0, "monitor": 50},
        "output": {**DOUBLE, "every": 900.0},
    }
    return {**wanted, "mountain-rest": Nested("weather3d", rest)}


def _hill(spacing: int) -> dict[str, Any]:
    cells = {"nx": round(WIDTH / spacing), "nz": round(5 * TOP / spacing)}
    return {
        "grid": {**cells, "width": WIDTH, "length": 600e3, "height": TOP},
        "dynamics": {"step": 6 * SUBSTEP * spacing, "substeps": 6, "implicit": CENTERED + LATER / (SUBSTEP * spacing)},
        "terrain": {"x": WIDTH / 2, "levels": "linear"},
        "lid": {"depth": 0.0},
        "time": {"end": END},
        "output": {**DOUBLE, "every": END},
    }


def compare(folders: Folders) -> Found:
    """Errors and order over the hill, what rest has become."""
    checks: list[Check] = []
    found: list[tuple[float, float]] = []
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
        spacing = int(name.rpartition("-")[2][:-1])
        error = hill_error(output)
        found.append((float(spacing), error))
        checks.append(at_most(name, "relative L2 error of w", error, ERRORS[spacing], EXACT))
    if len(found) > 1:
        order = convergence_order([at for at, _ in found], [error for _, error in found])
        checks.append(at_least(HILL, "order of the L2 error of w", order, 1.8, EXACT))
    hill = next(name for name in folders if name.startswith(HILL))
    return Found(checks, [], [(hill, "w", f"Waves over a hill of one meter, {END:g} s: w")])


def hill_error(output: Output) -> float:
    """Relative L2 error of w in the whole channel, without the sound of the start, which the scheme damps."""
    exact = channel(output["surface_altitude"][0], WIDTH, TOP, output["z"], END, WIND, TEMPERATURE, sound=False)
    return _error(output.last("w")[:, 0], exact)


def _error(ours: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sqrt(((ours - exact) ** 2).sum() / (exact**2).sum()))


CASE = Case(runs, compare)
