"""The finite-volume scheme of shallow water with shocks and dry land: dam breaks, lakes in bowls, and its order.

Stoker, J. J., 1957: Water Waves. Interscience, ch. 10.8. Ritter, A., 1892: Z. VDI 36, 947-954. Thacker, W. C., 1981: J.
Fluid Mech. 107, 499-508. Their solutions are in `hpckit.apps.exact.shallow_water`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.apps.common.validation import Check, Curves, Found, at_least, at_most, convergence_order, near
from hpckit.apps.exact.rotating import long_waves
from hpckit.apps.exact.shallow_water import middle_depth, ritter, stoker, thacker_frequency, thacker_planar
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config

GRAVITY = 9.81
DAM, DEEP, SHALLOW = 1000.0, 10.0, 1.0
BOWL = {"radius": 1.0, "depth": 0.1, "shift": 0.5}
LAKE = {"side": 1000.0, "depth": 10.0}


def dam_runs(config: Config, folder: Path) -> dict[str, Nested]:
    """Both dams on two or three grids."""
    sizes = (200, 400) if config.quick else (200, 400, 800)
    ends = {"dam": ("flood/dam_break", 50.0), "dry-dam": ("flood/dry_dam_break", 40.0)}
    return {
        f"{name}-{nx}": Nested(target, {"grid": {"nx": nx}, "time": {"end": end}, "output": {**DOUBLE, "every": end}})
        for name, (target, end) in ends.items()
        for nx in sizes
    }


def dams(folders: Folders) -> Found:
    """Depths and their order; the middle depth and the shock of Stoker, the dam's depth and the front of Ritter."""
    checks: list[Check] = []
    curves = []
    for family, source in (("dam", "Stoker 1957, exact"), ("dry-dam", "Ritter 1892, exact")):
        spacings, errors, lines = [], [], {}
        for name, folder in folders.items():
            if name.rpartition("-")[0] != family:
                continue
            output = Output(folder)
            x, t, h = output["x"] - DAM, float(output.times[-1]), output.last("depth").mean(axis=0)
            exact = stoker(x, t, DEEP, SHALLOW, GRAVITY)[0] if family == "dam" else ritter(x, t, DEEP, GRAVITY)[0]
            spacings.append(float(x[1] - x[0]))
            errors.append(float(np.abs(h - exact).sum() / exact.sum()))
            checks.append(at_most(name, "relative L1 error of the depth", errors[-1], 0.0004 * spacings[-1], source))
            checks.append(at_most(name, "relative change of mass", output.change("mass"), 1e-12, "closed basin"))
            lines = {"exact": (x, exact), f"ours ({name})": (x, h)}
        checks.append(at_least(family, "order of the depth, L1", convergence_order(spacings, errors), 0.8, source))
        finest = list(name for name in folders if name.rpartition("-")[0] == family)[-1]
        checks += (_stoker if family == "dam" else _ritter)(finest, x, t, h, source)
        title = f"Dam break{'' if family == 'dam' else ' on dry ground'}, {t:.0f} s"
        curves.append(Curves(title, "distance from the dam (m)", "depth (m)", lines))
    return Found(checks, curves)


def _stoker(name: str, x: np.ndarray, t: float, h: np.ndarray, source: str) -> list[Check]:
    middle = middle_depth(DEEP, SHALLOW, GRAVITY)
    velocity = 2 * (np.sqrt(GRAVITY * DEEP) - np.sqrt(GRAVITY * middle))
    shock = middle * velocity / (middle - SHALLOW) * t
    plateau = h[(x > (velocity - np.sqrt(GRAVITY * middle)) * t + 40) & (x < shock - 40)]
    half = 0.5 * (middle + SHALLOW)
    dx = x[1] - x[0]
    return [
        near(name, "depth behind the shock", plateau.mean(), middle, 0.002 * middle, source, "m"),
        near(name, "place of the shock", _crossing(x, h, half), shock, dx, source, "m"),
    ]


def _ritter(name: str, x: np.ndarray, t: float, h: np.ndarray, source: str) -> list[Check]:
    speed = np.sqrt(GRAVITY * DEEP)
    at_dam = float(np.interp(0.0, x, h))
    shallow = 0.01 * DEEP  # the tip itself is thinner than any scheme resolves
    place = (2 - 3 * np.sqrt(shallow / DEEP)) * speed * t
    return [
        near(name, "depth at the dam", at_dam, 4 / 9 * DEEP, 0.01 * DEEP, source, "m"),
        near(name, "place where 1 % of the depth is left", _crossing(x, h, shallow), place, 12.0, source, "m"),
    ]


def _crossing(x: np.ndarray, h: np.ndarray, level: float) -> float:
    """The last place where h falls through `level`, linear between cells."""
    i = int(np.flatnonzero(h >= level)[-1])
    return float(x[i] + (x[i + 1] - x[i]) * (h[i] - level) / (h[i] - h[i + 1]))


def lake_runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The lake of Thacker on two grids, small waves on two or three, a lake at rest around an island."""
    period = 2 * np.pi / thacker_frequency(BOWL["radius"], BOWL["depth"], GRAVITY)
    bowls = {
        f"bowl-{n}": Nested(
            "flood/parabolic_bowl",
            {"grid": {"nx": n, "ny": n}, "time": {"end": period}, "output": {**DOUBLE, "every": period}},
        )
        for n in ((50, 100) if config.quick else (50, 100, 200))
    }
    waves = {
        f"ripple-{n}": Nested(
            "flood",
            {
                "grid": {
                    "nx": n, "ny": n, "width": LAKE["side"], "height": LAKE["side"],
                    "sides_x": "periodic", "sides_y": "periodic",
                },
                "start": {
                    "kind": "hump", "level": LAKE["depth"], "amplitude": 1e-3, "x": 500.0, "y": 500.0, "radius": 80.0,
                },
                "time": {"end": 25.0},
                "output": {**DOUBLE, "every": 25.0},
            },
        )
        for n in ((50, 100) if config.quick else (50, 100, 200))
    }  # fmt: skip
    rest = {"island": Nested("flood/lake_at_rest", {"output": {**DOUBLE, "every": 60.0}})}
    return {**bowls, **waves, **rest}


def lakes(folders: Folders) -> Found:
    """The depth after one turn of the lake, the surface of small waves, their orders, and rest."""
    checks: list[Check] = []
    lines = {}
    for family, source, least in (
        ("bowl", "Thacker 1981, exact", 1.0),
        ("ripple", "linear waves, exact (Fourier)", 1.7),
    ):
        spacings, errors = [], []
        for name, folder in folders.items():
            if name.startswith(f"{family}-"):
                output = Output(folder)
                spacings.append(float(output["x"][1] - output["x"][0]))
                errors.append(_bowl(output) if family == "bowl" else _ripple(output))
                checks.append(at_most(name, "relative change of mass", output.change("mass"), 1e-12, "closed"))
        lines[family] = ([s / spacings[0] for s in spacings], errors)
        finest = [name for name in folders if name.startswith(f"{family}-")][-1]
        bound = 0.02 if family == "bowl" else 0.015
        checks.append(at_most(finest, "relative L1 error", errors[-1], bound, source))
        checks.append(at_least(family, "order of the L1 error", convergence_order(spacings, errors), least, source))
    output = Output(folders["island"])
    greatest = max(np.abs(output.last("u")).max(), np.abs(output.last("v")).max())
    checks.append(at_most("island", "greatest velocity", greatest, 0.0, "rest, to the bit", "m/s"))
    finest = [name for name in folders if name.startswith("bowl-")][-1]
    curve = Curves("Finite volumes: L1 errors", "spacing over the coarsest", "relative error", lines, logarithmic=True)
    return Found(checks, [curve], [(finest, "depth", "Lake in a bowl after one turn: depth")])


def _bowl(output: Output) -> float:
    x, y = output["x"] - 2.0, output["y"][:, None] - 2.0
    exact = thacker_planar(x, y, float(output.times[-1]), BOWL["radius"], BOWL["depth"], BOWL["shift"], GRAVITY)[0]
    return float(np.abs(output.last("depth") - exact).sum() / exact.sum())


def _ripple(output: Output) -> float:
    surface = output["surface"] - LAKE["depth"]
    time = float(output.times[-1])
    exact = long_waves(surface[0], LAKE["side"], LAKE["side"], time, GRAVITY, LAKE["depth"])
    return float(np.abs(surface[-1] - exact).sum() / np.abs(exact).sum())


DAMS = Case(dam_runs, dams)
LAKES = Case(lake_runs, lakes)
