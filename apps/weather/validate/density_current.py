"""The density current of Straka et al. (1993): cold air falls and spreads, with a diffusion of 75 m2/s.

Straka, J. M., R. B. Wilhelmson, L. J. Wicker, J. R. Anderson and K. K. Droegemeier, 1993: Numerical solutions of a
non-linear density current: a benchmark solution and comparisons. Int. J. Numer. Methods Fluids 17, 1-22. After 900 s
their reference solution (25 m) has its front, the -1 K line of theta', at 15 537 m, and a least theta' of -9.77 K.

They perturb the temperature by -15 K. Giraldo, F. X. and M. Restelli, 2008 (J. Comput. Phys. 227, 3849-3877) perturb
theta by -15 K instead, less air for the same number; their finest solutions have the front at 14 767 m.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.apps.common.validation import Check, Curves, Found, at_most, near
from hpckit.apps.weather.report import front as front_in
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config

STRAKA = "Straka et al. 1993, 25 m reference"
GIRALDO = "Giraldo and Restelli 2008"
MIDDLE = 25_600.0
FRONT, COLDEST = 15_537.0, -9.77
# Spacing (m) -> tolerance of the front (m) and of the least theta' (K): what coarser grids are known to lack.
TOLERANCES = {200: (800.0, 0.6), 100: (400.0, 0.5), 50: (230.0, 0.25)}
THETA_COLD = {
    "amplitude": -15.0,
    "x": MIDDLE,
    "z": 3000.0,
    "radius_x": 4000.0,
    "radius_z": 2000.0,
    "of": "theta",
    "keeps": "pressure",
}


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The current on 200, 100 and 50 m, and on 100 m with theta perturbed."""
    spacings = [200, 100] if config.quick else [200, 100, 50]
    wanted = {f"straka-{spacing}m": Nested("weather/straka", _grid(spacing)) for spacing in spacings}
    if not config.quick:
        wanted["straka-theta-100m"] = Nested("weather/straka", {**_grid(100), "bubbles": [THETA_COLD]})
    return wanted


def _grid(spacing: int) -> dict:
    return {
        "grid": {"nx": 51_200 // spacing, "nz": 6400 // spacing},
        "time": {"monitor": 200},
        "output": {**DOUBLE, "every": 450.0},
    }


def compare(folders: Folders) -> Found:
    """Front, extremes, symmetry and mass."""
    checks, spacings, fronts = [], [], []
    for name, folder in folders.items():
        output = Output(folder)
        theta, place = output.last("theta"), front(output)
        if "theta" in name:
            checks += [near(name, "front at 900 s", place, 14_767.0, 370.0, GIRALDO, "m")]
            continue
        spacing = int(name.removeprefix("straka-").removesuffix("m"))
        checks += _of_one(name, place, theta, *TOLERANCES[spacing])
        checks.append(at_most(name, "relative change of mass", output.change("mass"), 1e-12, "closed box"))
        spacings.append(float(spacing))
        fronts.append(place)
    curve = Curves(
        "Density current: front at 900 s",
        "grid spacing (m)",
        "front (m)",
        {"ours": (spacings, fronts), STRAKA: ([25.0], [FRONT])},
    )
    finest = min(
        (name for name in folders if "theta" not in name), key=lambda name: len(Output(folders[name])["x"]) * -1
    )
    return Found(checks, [curve], [(finest, "theta", "Density current, 900 s: theta'")])


def front(output: Output) -> float:
    """Distance (m) of the -1 K line of theta' in the lowest cells from the middle."""
    return front_in(output["x"] - MIDDLE, output.last("theta")[0])


def _of_one(name: str, place: float, theta: np.ndarray, distance: float, kelvin: float) -> list[Check]:
    asymmetry = np.abs(theta - theta[:, ::-1]).max()
    return [
        near(name, "front at 900 s", place, FRONT, distance, STRAKA, "m"),
        near(name, "least theta'", theta.min(), COLDEST, kelvin, STRAKA, "K"),
        at_most(name, "greatest theta'", theta.max(), 0.3, "no heating: 0 but for overshoots", "K"),
        at_most(name, "greatest asymmetry of theta'", asymmetry, 1e-10, "mirror symmetry", "K"),
    ]


CASE = Case(runs, compare)
