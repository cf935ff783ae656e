"""Storms: the supercell of DCMIP2016 and a squall line, by what they must keep and what they are known to do.

No exact solution is known. The supercell starts symmetric in y, so the storm must split into mirror images. The squall
line starts uniform along y and must stay so until rounding has grown. The ranges of the updrafts are our own: they
hold later versions to what this one found (`OWN`), and say nothing of the truth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.apps.common.validation import Check, Found, at_least, at_most
from hpckit.apps.weather.validate.case import Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config

KLEMP, ROTUNNO, OWN = "Klemp et al. 2015", "Rotunno et al. 1988", "own regression range"


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The supercell on 2 km and the squall line on 1 km; quick: 4 km for half an hour, 2 km for an hour."""
    cell, line = {}, {}
    if config.quick:
        cell = {"grid": {"nx": 42, "ny": 42, "nz": 32}, "dynamics": {"step": 12.0}, "time": {"end": 1800.0}}
        line = {"grid": {"nx": 150, "length": 12e3}, "dynamics": {"step": 10.0}, "time": {"end": 3600.0}}
    return {
        "storms-supercell": Nested("weather3d/dcmip_supercell", cell),
        "storms-line": Nested("weather3d/squall_line", line),
    }


def compare(folders: Folders) -> Found:
    """Budgets, symmetry, updrafts, rain."""
    checks: list[Check] = []
    for name, folder in folders.items():
        output = Output(folder)
        budget = output.summary()["water_budget"]
        closed = abs(budget["unexplained"]) / budget["in_air"]
        w, updraft = output.last("w"), output.metric("w_max")
        long = output.times[-1] > 3600.0
        checks += [
            at_most(name, "unexplained over all water", closed, 1e-12, "closed budget"),
            at_most(name, "relative change of mass", output.change("mass"), 1e-12, "closed box"),
        ]
        if "supercell" in name:
            if not long:  # later rounding has grown
                mirrored = float(np.abs(w - w[:, ::-1]).max() / np.abs(w).max())
                checks.append(at_most(name, "asymmetry of w over its greatest", mirrored, 1e-6, "mirror symmetry"))
            else:
                late = float(updraft[len(updraft) // 2 :].max())
                checks.append(Check(name, "greatest w of the second hour", late, 22.0, 50.0, OWN, unit="m/s"))
                columns = w.max(axis=0)
                north = columns[columns.shape[0] // 2 :]
                distance = float(np.unravel_index(north.argmax(), north.shape)[0]) * 2.0
                checks.append(at_least(name, "half the distance of the two storms", distance, 6.0, KLEMP, "km"))
        else:
            if not long:
                uniform = float(np.abs(w - w[:, :1]).max() / np.abs(w).max())
                checks.append(at_most(name, "variation of w along the line", uniform, 1e-3, "uniform start"))
            else:
                checks.append(Check(name, "greatest w", float(updraft.max()), 12.0, 38.0, OWN, unit="m/s"))
                theta = output.last("theta")[0].mean(axis=0)
                checks.append(at_most(name, "theta' of the cold pool", float(theta.min()), -3.0, ROTUNNO, "K"))
        if long:
            checks.append(at_least(name, "rain at the ground", budget["rain"], 1e6, KLEMP, "kg"))
    return Found(checks, [], [(name, "w", f"{name}: w at the end") for name in folders])


CASE = Case(runs, compare)
