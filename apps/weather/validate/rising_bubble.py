"""A warm bubble in neutral air: the smooth one of Giraldo and Restelli (2008) in the box of Robert (1993).

Robert, A., 1993: Bubble convection experiments with a semi-implicit formulation of the Euler equations. J. Atmos. Sci.
50, 1865-1873. Giraldo, F. X. and M. Restelli, 2008: J. Comput. Phys. 227, 3849-3877, section 5.2: 0.5 K, radius 250 m.

The case has no exact solution and its published results are pictures. Checked are the start, where the acceleration
follows from the anelastic equations (`apps.exact.anelastic`), and what must hold to the end: mirror symmetry, mass,
energy, no new extremes, and that the height of the bubble no longer depends on the grid.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.apps.common.validation import Found, at_most, near
from hpckit.apps.exact.anelastic import initial_acceleration
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output, relative_errors
from hpckit.apps.weather.validate.config import Config
from hpckit.kernels.euler.constants import CP, GRAVITY, P0, RD

ANELASTIC = "anelastic, exact at first"
SIDE, THETA = 1000.0, 300.0
HEIGHTS = {"bubble-20m": 15.0, "bubble-10m": 5.0}  # m, between a grid and the next
BEGIN = 40.0  # s; the bubble has risen by less than 10 m


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The start, and the whole rise on two grids."""
    spacings = (20, 10) if config.quick else (10, 5)
    wanted = {"bubble-start": Nested("weather/rising_bubble", _settings(10, BEGIN, 4.0))}
    return wanted | {f"bubble-{n}m": Nested("weather/rising_bubble", _settings(n, 700.0, 350.0)) for n in spacings}


def _settings(spacing: int, end: float, every: float) -> dict:
    cells = round(SIDE) // spacing
    return {"grid": {"nx": cells, "nz": cells}, "time": {"end": end}, "output": {**DOUBLE, "every": every}}


def compare(folders: Folders) -> Found:
    """The acceleration at first, and what holds at the end."""
    checks = _start("bubble-start", Output(folders["bubble-start"]))
    heights = []
    whole = [name for name in folders if name != "bubble-start"]
    for name in whole:
        output = Output(folders[name])
        theta, z = output.last("theta"), output["z"]
        warm = np.maximum(output["theta"][1], 0.0)
        heights.append((warm * z[:, None]).sum() / warm.sum())
        asymmetry = np.abs(theta - theta[:, ::-1]).max()
        checks += [
            at_most(name, "greatest asymmetry of theta'", asymmetry, 1e-8, "mirror symmetry", "K"),
            at_most(name, "greatest theta'", theta.max(), 0.5 + 0.05, "no heating: at most 0.5 K and overshoots", "K"),
            at_most(name, "- least theta'", -theta.min(), 0.1, "no cooling: 0 but for overshoots", "K"),
            at_most(name, "relative change of mass", output.change("mass"), 1e-12, "closed box"),
            at_most(name, "relative change of energy", output.change("energy"), 1e-6, "closed box"),
        ]
    source = f"the same on {whole[1].removeprefix('bubble-')}"
    checks.append(
        near(whole[0], "mean height of the warm air at 350 s", heights[0], heights[1], HEIGHTS[whole[0]], source, "m")
    )
    return Found(checks, [], [(whole[1], "theta", "Rising bubble, 700 s: theta'")])


def _start(name: str, output: Output) -> list:
    x, z = output["x"], output["z"]
    exner = 1 - GRAVITY * z / (CP * THETA)
    rho = P0 / (RD * THETA) * exner ** (CP / RD - 1)
    exact = initial_acceleration(GRAVITY / THETA * output["theta"][0], rho, x[1] - x[0], z[1] - z[0])
    late = output.times >= BEGIN / 4  # sound has spread by then
    t, w = output.times[late], output["w"][late]
    ours = np.tensordot(t, w, axes=1) / (t**2).sum()
    return [
        near(name, "greatest acceleration", ours.max(), exact.max(), 0.02 * exact.max(), ANELASTIC, "m/s2"),
        at_most(name, "relative L2 error of the acceleration", relative_errors(ours, exact)[0], 0.05, ANELASTIC),
    ]


CASE = Case(runs, compare)
