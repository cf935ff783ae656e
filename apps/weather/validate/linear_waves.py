"""Linear inertia-gravity waves in an isothermal channel against the exact solution of Baldauf and Brdar (2013).

Their set-up of the small scale: 300 km by 10 km, 250 K, a wind of 20 m/s, 0.01 K, 1800 s. The slab has no rotation; the
box runs the same wave along x and along y, on an f-plane with f = 1e-3 1/s, ten times that of middle latitudes, so
that half an hour turns the wind. Along y it must be the same wave as along x. Cells as high as wide, as in their
convergence study; ours are means over cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpckit.apps.atmosphere.base import QUADRATURE_POINTS, QUADRATURE_WEIGHTS
from hpckit.apps.common.validation import Check, Curves, Found, at_least, at_most, convergence_order
from hpckit.apps.exact.gravity_waves import WaveChannel, waves
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output, relative_errors
from hpckit.apps.weather.validate.config import Config
from hpckit.kernels.euler.constants import CP, GRAVITY, RD

WIDTH, HEIGHT, WIND, F = 300_000.0, 10_000.0, 20.0, 1e-3
SOURCE = "Baldauf and Brdar 2013, exact"
END = 1800.0
SPACINGS = (1000, 500, 250, 125)
# Greatest L2 errors, relative, by spacing: a quarter above what the scheme has.
BOUNDS = {
    1000: {"theta": 0.21, "u": 0.18, "v": 0.12, "w": 0.44},
    500: {"theta": 0.055, "u": 0.04, "v": 0.03, "w": 0.11},
    125: {"theta": 0.01, "u": 0.003, "w": 0.007},
}
THIN = 6  # cells of the box in the direction in which nothing changes
# Least orders: 2 is that of the split scheme, which w has; the rows beside the walls are of first order, which theta
# feels on the finest grids and u and v in part.
ORDERS = {"w": 1.9, "u": 1.5, "v": 1.5, "theta": 1.0}


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The slab on four grids, the box along x on two, along y on the coarsest: rows of six cells are slow."""
    slab = {f"waves-{n}m": Nested("weather/linear_waves", _slab(n)) for n in SPACINGS[: 2 if config.quick else 4]}
    box = {
        f"waves-{along}-{n}m": Nested("weather3d", box_settings(n, along))
        for along, grids in (("x", 1 if config.quick else 2), ("y", 1))
        for n in SPACINGS[:grids]
    }
    return {**slab, **box}


def _slab(spacing: int) -> dict:
    return {
        "grid": {"nx": round(WIDTH) // spacing, "nz": round(HEIGHT) // spacing},
        "time": {"monitor": 100},
        "output": {**DOUBLE, "every": END / 2},
    }


def box_settings(spacing: int, along: str) -> dict:
    """Settings of the box with the wave along an axis."""
    cells, high, side = round(WIDTH) // spacing, round(HEIGHT) // spacing, float(THIN * spacing)
    extents = {"width": WIDTH, "length": side} if along == "x" else {"width": side, "length": WIDTH}
    grid = {"nx": cells, "ny": THIN} if along == "x" else {"nx": THIN, "ny": cells}
    wind = {"u": WIND} if along == "x" else {"v": WIND}
    return {
        "grid": {**grid, **extents, "nz": high, "height": HEIGHT},
        "base": {"kind": "isothermal", "temperature": 250.0, **wind},
        "bubbles": [],
        "wave": {"amplitude": 0.01, "along": along},
        "coriolis": F,
        "time": {"end": END, "cfl": 1.2, "monitor": 100},
        "output": {**DOUBLE, "every": END},
    }


def compare(folders: Folders) -> Found:
    """Errors and their order in u, v, w and theta."""
    checks: list[Check] = []
    lines = {}
    families: dict[str, list[tuple[float, dict[str, tuple[float, float]]]]] = {}
    for name, folder in folders.items():
        family, _, spacing = name.rpartition("-")
        errors = errors_of(Output(folder), family)
        families.setdefault(family, []).append((float(spacing[:-1]), errors))
        for field, (mean, greatest) in errors.items():
            if (bound := BOUNDS.get(round(float(spacing[:-1])), {}).get(field)) is not None:
                checks.append(at_most(name, f"relative L2 error of {field}", mean, bound, SOURCE))
                checks.append(at_most(name, f"relative greatest error of {field}", greatest, 4 * bound, SOURCE))
    for family, found in families.items():
        if len(found) < 2:
            continue
        spacings = [spacing for spacing, _ in found]
        for field in found[0][1]:
            errors_l2 = [errors[field][0] for _, errors in found]
            lines[f"{field} ({family})"] = (spacings, errors_l2)
            order = convergence_order(spacings, errors_l2)
            checks.append(at_least(family, f"order of the L2 error of {field}", order, ORDERS[field], SOURCE))
    along_x, along_y = (folders.get(f"waves-{along}-{SPACINGS[0]}m") for along in "xy")
    if along_x and along_y:
        checks += _turned(_fields(Output(along_x), "waves-x"), _fields(Output(along_y), "waves-y"))
    curves = [Curves("Linear waves: L2 errors", "grid spacing (m)", "relative error", lines, logarithmic=True)]
    finest = min((n for n in folders if n.count("-") == 1), key=lambda n: int(n.split("-")[-1][:-1]))
    return Found(
        checks, [*curves, _profile(Output(folders[finest]), finest)], [(finest, "w", "Linear waves, 1800 s: w")]
    )


def exact_means(channel: WaveChannel, time: float, x: np.ndarray, z: np.ndarray) -> dict[str, np.ndarray]:
    """The exact solution as means over cells around x and z (m)."""
    dx, dz = x[1] - x[0], z[1] - z[0]
    heights = z + np.multiply.outer(QUADRATURE_POINTS - 0.5, np.full(len(z), dz))  # [points, len(z)]
    total: dict[str, np.ndarray] = {}
    for px, wx in zip(QUADRATURE_POINTS - 0.5, QUADRATURE_WEIGHTS, strict=True):
        for name, values in waves(channel, time, x + px * dx, heights.reshape(-1)).items():
            means = np.tensordot(QUADRATURE_WEIGHTS, values.reshape(*heights.shape, len(x)), 1)
            total[name] = total.get(name, 0.0) + wx * means
    return total


def _channel(f: float) -> WaveChannel:
    return WaveChannel(WIDTH, HEIGHT, 250.0, WIND, 0.01, 100_000.0, 5_000.0, f, GRAVITY, RD, CP)


def _fields(output: Output, family: str) -> dict[str, np.ndarray]:
    """Our fields at the end, [z, along the wave], named as if it went along x, without the wind."""
    if family == "waves":
        ours = {name: output.last(name) for name in ("theta", "u", "w")}
    elif family == "waves-x":
        ours = {name: output.last(name)[:, 0] for name in ("theta", "u", "v", "w")}
    else:  # along y, what was v is -u
        theta, u, v, w = (output.last(name)[:, :, 0] for name in ("theta", "u", "v", "w"))
        ours = {"theta": theta, "u": v, "v": -u, "w": w}
    return {**ours, "u": ours["u"] - WIND}


def errors_of(output: Output, family: str) -> dict[str, tuple[float, float]]:
    """Relative L2 and greatest error of each field."""
    along = output["y" if family == "waves-y" else "x"]
    exact = exact_means(_channel(0.0 if family == "waves" else F), output.times[-1], along, output["z"])
    return {name: relative_errors(values, exact[name]) for name, values in _fields(output, family).items()}


def _turned(along_x: dict[str, np.ndarray], along_y: dict[str, np.ndarray]) -> Iterator[Check]:
    """The same wave in both directions: sweeps along x and along y are one scheme."""
    for name, values in along_y.items():
        greatest = relative_errors(values, along_x[name])[1]
        yield at_most("waves-y", f"greatest difference of {name} from the wave along x", greatest, 1e-9, "symmetry")


def _profile(output: Output, name: str) -> Curves:
    """W along x in the middle of the channel, ours and exact."""
    x, z = output["x"], output["z"]
    row = len(z) // 2
    exact = waves(_channel(0.0), output.times[-1], x, z[row : row + 1])["w"][0]
    km = x / 1000
    lines = {"exact": (km, exact), f"ours ({name})": (km, output.last("w")[row])}
    return Curves(f"Linear waves: w at z = {z[row]:.0f} m after 1800 s", "x (km)", "w (m/s)", lines)


CASE = Case(runs, compare)
