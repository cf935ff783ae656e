"""The warm bubbles of Bryan and Fritsch, in dry neutral air and in a saturated column: published extremes after 1000 s.

Bryan, G. H. and J. M. Fritsch, 2002: A benchmark simulation for moist nonhydrostatic numerical models. MWR 130,
2917-2928, figures 1 and 3: 100 m, without diffusion. The moist bubble has the same buoyancy at first as the dry one, at
the same pressure; the column has theta_e = 320 K and 20 g/kg of water, cloud everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.profiles import exner
from hpckit.apps.atmosphere.saturated import equivalent
from hpckit.apps.common.validation import Check, Found, at_most, near
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config

SOURCE = "Bryan and Fritsch 2002"
DRY = {"greatest theta'": 2.07178, "least theta'": -0.144409, "greatest w": 14.5396, "least w": -8.58069}
MOIST = {"greatest theta_e'": 4.09521, "least theta_e'": -0.305695, "greatest w": 15.7130, "least w": -9.92698}
# Tolerances by run: what it is held to on 100 m; what coarser grids are known to lack, and the explicit scheme,
# which comes to these winds from below as the grid is refined. theta_e of cloudy air is carried, and nowhere below that
# of the column at first: the least theta_e' of a solution is 0, that of a scheme its undershoot behind the vortices
# (-0.36 K on 200 m here, -0.27 K on 100 m).
WITHIN = {
    "dry-100m": {"greatest theta'": 0.01, "least theta'": 0.015, "greatest w": 0.01, "least w": 0.01},
    "moist-100m": {"greatest theta_e'": 0.015, "least theta_e'": 0.15, "greatest w": 0.015, "least w": 0.015},
    "explicit-50m": {"greatest theta'": 0.05, "greatest w": 0.07, "least w": 0.04},
    "dry-200m": {"greatest theta'": 0.1, "greatest w": 0.1, "least w": 0.12},
    "moist-200m": {"greatest theta_e'": 0.15, "greatest w": 0.1, "least w": 0.15},
    "explicit-100m": {"greatest theta'": 0.12, "greatest w": 0.16, "least w": 0.13},
}
THETA_E = 320.0


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """Dry and moist by split dynamics, dry by the explicit ones in the slab."""
    spacing = 200 if config.quick else 100
    many, fine = 20_000 // spacing, spacing // 2
    box: dict[str, Any] = {
        "grid": {"nx": many, "nz": many // 2, "length": 6.0 * spacing},
        "bubbles": [{"x": 10e3, "y": 3.0 * spacing, "radius_y": 1e9, "amplitude": 2.0, "keeps": "pressure"}],
        "output": {**DOUBLE, "every": 1000.0},
    }
    slab = {
        "grid": {"nx": 2 * many, "nz": many},
        "bubbles": [{"amplitude": 2.0, "keeps": "pressure"}],
        "beta": 0.01,
        "time": {"end": 1000.0},
        "output": {**DOUBLE, "every": 1000.0},
    }
    moist_box = box | {"output": {**box["output"], "fields": ["pressure"]}}
    return {
        f"bubble-dry-{spacing}m": Nested("weather3d/dry_bubble", box),
        f"bubble-explicit-{fine}m": Nested("weather/thermal", slab),
        f"bubble-moist-{spacing}m": Nested("weather3d/moist_bubble", moist_box),
    }


def compare(folders: Folders) -> Found:
    """The extremes, symmetry, and what is conserved."""
    checks: list[Check] = []
    for name, folder in folders.items():
        output = Output(folder)
        theta, w = output.last("theta"), output.last("w")
        if "explicit" not in name:
            w = w_at_faces(output)
        found = {"greatest w": w.max(), "least w": w.min()}
        if "moist" in name:
            expected = MOIST
            theta_e = theta_e_of(output)
            found |= {"greatest theta_e'": theta_e.max(), "least theta_e'": theta_e.min()}
            water = output.last("vapor") + output.last("cloud")
            checks += [
                at_most(name, "greatest change of the water", np.abs(water - 0.02).max(), 1e-14, "nothing falls"),
                at_most(name, "relative change of energy", output.change("energy"), 1e-6, "closed box"),
            ]
        else:
            expected = DRY
            found |= {"greatest theta'": theta.max(), "least theta'": theta.min()}
        for quantity, share in WITHIN[name.removeprefix("bubble-")].items():
            known, unit = expected[quantity], "K" if "theta" in quantity else "m/s"
            checks.append(near(name, quantity, found[quantity], known, share * abs(known), SOURCE, unit))
        even = 1e-6 if "moist" in name else 1e-8  # cloud is unstable at the front: rounding grows a thousandfold
        asymmetry = np.abs(theta - theta[..., ::-1]).max()
        checks += [
            at_most(name, "greatest asymmetry of theta'", asymmetry, even, "mirror symmetry", "K"),
            at_most(name, "relative change of mass", output.change("mass"), 1e-12, "closed box"),
        ]
    moist = next(name for name in folders if "moist" in name)
    return Found(checks, [], [(moist, "theta", "Moist bubble of Bryan and Fritsch, 1000 s: theta'")])


def w_at_faces(output: Output) -> np.ndarray:
    """Vertical wind at faces between levels, where the split dynamics and the published model have it (m/s); last time.

    The output has means of two faces, 0.5 (rho w + rho w above) / rho, and rho w is 0 at the ground.
    """
    rho = output.last("rho") + output["rho_base"][:, None, None]
    momentum = [np.zeros_like(rho[0])]
    for both in 2 * rho * output.last("w"):
        momentum.append(both - momentum[-1])
    return np.array(momentum[1:-1]) / (0.5 * (rho[1:] + rho[:-1]))


def theta_e_of(output: Output) -> np.ndarray:
    """Deviation of the wet equivalent potential temperature from that of the column (K), at the last time."""
    theta, pressure = output.last("theta") + output["theta_base"][:, None, None], output.last("pressure")
    vapor = output.last("vapor")
    return equivalent(theta * exner(pressure), pressure, vapor, vapor + output.last("cloud")) - THETA_E


CASE = Case(runs, compare)
