"""Hydrostatic rest: an atmosphere in balance, with its wind, stays as it is for hours, in the slab and in the box.

The columns: the analytic sounding of Weisman and Klemp (1982, Mon. Weather Rev. 110, 504-520), dry: theta rises from
300 K to 343 K at the tropopause of 12 km, 213 K above, in a sheared wind. An observed one where the settings name it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.apps.common.validation import Check, Found, at_most
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config

EXACT = "rest is exact"
HOURS = 6.0


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """Slab and box in the analytic column, both in the observed one too."""
    analytic = folder / "weisman-klemp.txt"
    columns = {"analytic": analytic} | ({"observed": config.sounding} if config.sounding else {})
    end = 3600.0 * (1 if config.quick else HOURS)
    wanted = {}
    for name, path in columns.items():
        base = {"kind": "sounding", "file": str(path), "wind": True, "extrapolate": True}
        common = {
            "base": base,
            "bubbles": [],
            "diffusion": 75.0,  # of deviations only: it must leave the column alone too
            "time": {"end": end, "monitor": 100},
            "output": {**DOUBLE, "every": end},
        }
        slab = {"nx": 37, "nz": 45, "width": 7400.0, "height": 9000.0}
        box = {"nx": 13, "ny": 14, "nz": 30, "width": 3900.0, "length": 4200.0, "height": 9000.0}
        wanted[f"rest-slab-{name}"] = Nested("weather", {**common, "grid": slab})
        wanted[f"rest-box-{name}"] = Nested("weather3d", {**common, "grid": box, "coriolis": 1e-4})
    return wanted


def prepare(folder: Path) -> None:
    """Write the analytic column as WRF's input_sounding."""
    z = np.arange(0.0, 20_001.0, 250.0)
    theta = np.where(z <= 12_000, 300 + 43 * (z / 12_000) ** 1.25, 343 * np.exp(9.81 / (1004 * 213) * (z - 12_000)))
    u = 25 * np.tanh(z / 3000)
    lines = [f"{a:.1f} {b:.3f} 0.0 {c:.3f} 0.0" for a, b, c in zip(z, theta, u, strict=True)]
    (folder / "weisman-klemp.txt").write_text("1000.0 300.0 0.0\n" + "\n".join(lines[1:]) + "\n")


def compare(folders: Folders) -> Found:
    """The greatest |w| on the way, and what theta and u have become."""
    checks: list[Check] = []
    for name, folder in folders.items():
        output = Output(folder)
        theta, u = output["theta"], output["u"]
        hours = output.times[-1] / 3600
        during = f"in {hours:.0f} h"
        checks += [
            at_most(name, f"greatest |w| {during}", output.metric("w_max").max(), 1e-9, EXACT, "m/s"),
            at_most(name, f"greatest change of theta {during}", np.abs(theta[-1] - theta[0]).max(), 1e-9, EXACT, "K"),
            at_most(name, f"greatest change of u {during}", np.abs(u[-1] - u[0]).max(), 1e-9, EXACT, "m/s"),
        ]
    return Found(checks)


CASE = Case(runs, compare, prepare)
