"""Shallow water on an f-plane: adjustment of a step, a jet in balance, the phase speeds of Kelvin and Poincaré waves.

The numbers are those of the linear theory (Gill 1982, see `apps.exact.rotating`); amplitudes are so small that
nonlinear terms are negligible.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from hpckit.apps.common.validation import Check, Curves, Found, at_least, at_most, convergence_order, near
from hpckit.apps.exact.rotating import (
    adjusted_step,
    adjustment_energies,
    gravity_wave_speed,
    poincare_speed,
    poincare_speed_c_grid,
    rossby_radius,
)
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output, relative_errors
from hpckit.apps.weather.validate.config import Config

GILL = "Gill 1982, exact"
GRAVITY, F = 9.81, 1e-4
INERTIAL = 2 * math.pi / F

# The adjustment: 32 Rossby radii around, so that the two steps do not feel one another.
STEP = {"width": 32e6, "amplitude": 0.1, "depth": 1000.0}
PERIODS = 6
CELLS = 512
SAMPLES = 64  # frames a period: the fastest wave that this grid holds, 2 c / dx = 32 f, must not pass for a slow one
# Waves: one wave length around, five periods.
WAVE = {"width": 2e6, "depth": 100.0, "amplitude": 1e-4}
K = 2 * math.pi / WAVE["width"]
CYCLES = 5


def adjustment_runs(config: Config, folder: Path) -> dict[str, Nested]:
    """One run of six inertial periods."""
    settings = {
        "grid": {"nx": CELLS, "ny": 6, "width": STEP["width"], "height": 24 * STEP["width"] / CELLS},
        "physics": {"gravity": GRAVITY, "depth": STEP["depth"], "f": F},
        "start": {"kind": "step", "amplitude": STEP["amplitude"]},
        "time": {"end": PERIODS * INERTIAL, "max_speed": 1.0, "monitor": 200},
        "output": {**DOUBLE, "every": INERTIAL / SAMPLES},
    }
    return {"adjustment": Nested("shallow_water", settings)}


def adjustment(folders: Folders) -> Found:
    """The mean over six periods, in a window that waves of the inertial frequency and above do not pass."""
    name, output = "adjustment", Output(folders["adjustment"])
    x = output["x"]
    window = np.hanning(len(output.times))[:, None] ** 2
    surface, v = ((output[field].mean(axis=1) * window).sum(axis=0) / window.sum() for field in ("elevation", "v"))
    args = (STEP["width"], STEP["amplitude"], GRAVITY, STEP["depth"], F)
    exact, exact_v = adjusted_step(x, *args)
    dx, radius = x[1] - x[0], rossby_radius(GRAVITY, STEP["depth"], F)
    lost = 0.5 * GRAVITY * (STEP["amplitude"] ** 2 - surface**2).sum() * dx
    gained = 0.5 * STEP["depth"] * (v**2).sum() * dx
    lost_exact, gained_exact = adjustment_energies(*args)
    near_step = (x > STEP["width"] / 2 - 2 * radius) & (x < STEP["width"] / 2 - 0.2 * radius)
    slope = np.polyfit(x[near_step], np.log(1 - surface[near_step] / STEP["amplitude"]), 1)[0]
    checks = [
        at_most(name, "relative L2 error of the surface", relative_errors(surface, exact)[0], 1e-3, GILL),
        at_most(name, "relative L2 error of v", relative_errors(v, exact_v)[0], 2e-3, GILL),
        near(name, "Rossby radius", 1 / slope / 1000, radius / 1000, 0.002 * radius / 1000, GILL, "km"),
        near(name, "kinetic energy gained / potential lost", gained / lost, 1 / 3, 0.001, GILL),
        near(name, "potential energy lost / exact", lost / lost_exact, 1.0, 0.002, GILL),
        near(name, "kinetic energy gained / exact", gained / gained_exact, 1.0, 0.002, GILL),
    ]
    km = x / 1000
    lines = {"exact": (km, exact), "ours, mean": (km, surface), "start": (km, output["elevation"][0].mean(axis=0))}
    return Found(checks, [Curves("Geostrophic adjustment: surface", "x (km)", "elevation (m)", lines)])


def jet_runs(config: Config, folder: Path) -> dict[str, Nested]:
    """The balanced jet on two grids."""
    days = 2 if config.quick else 5
    return {
        f"jet-{ny}": Nested(
            "shallow_water/geostrophic_jet",
            {
                "grid": {"nx": 16, "ny": ny},
                "time": {"end": 86_400.0 * days, "monitor": 200},
                "output": {**DOUBLE, "every": 86_400.0 * days},
            },
        )
        for ny in (50, 100)
    }


def jet(folders: Folders) -> Found:
    """How much u changes, and how much v there is, over the greatest u.

    The start is in exact balance by the trapezoidal rule; the scheme's own balance differs by its truncation.
    """
    checks = []
    source = "steady but for truncation, second order"
    for name, folder in folders.items():
        output = Output(folder)
        u, v = output["u"], output["v"]
        greatest = np.abs(u[0]).max()
        bound = 1e-6 * (50 / len(output["y"])) ** 1.5
        checks += [
            at_most(name, "change of u over its greatest", np.abs(u[-1] - u[0]).max() / greatest, bound, source),
            at_most(name, "v at the end over the greatest u", np.abs(v[-1]).max() / greatest, bound, source),
            at_most(name, "relative change of energy", output.change("energy"), 1e-12, "the scheme keeps it"),
        ]
    return Found(checks)


def wave_runs(kind: str, config: Config) -> dict[str, Nested]:
    """A Kelvin wave in a channel or a Poincaré wave, on two or three grids."""
    sizes = (32, 64) if config.quick else (32, 64, 128)
    speed = _speed(kind)
    period = WAVE["width"] / speed
    return {
        f"{kind}-{nx}": Nested(
            "shallow_water",
            {
                "grid": {
                    "nx": nx,
                    "ny": nx if kind == "kelvin" else 6,
                    "width": WAVE["width"],
                    "height": WAVE["width"] if kind == "kelvin" else 6 * WAVE["width"] / nx,
                    "sides": "channel" if kind == "kelvin" else "periodic",
                },
                "physics": {"gravity": GRAVITY, "depth": WAVE["depth"], "f": F},
                "start": {"kind": kind, "amplitude": WAVE["amplitude"]},
                "time": {"end": CYCLES * period, "max_speed": 0.1, "monitor": 200, "cfl": 0.4},
                "output": {**DOUBLE, "every": period / 4},
            },
        )
        for nx in sizes
    }


def kelvin(folders: Folders) -> Found:
    """Phase speed, its order, the decay off the wall, and no flow across the channel."""
    found = _waves("kelvin", folders)
    finest = list(folders)[-1]
    output = Output(folders[finest])
    size = np.abs(np.fft.rfft(output.last("elevation"), axis=1)[:, 1])
    y, radius = output["y"], rossby_radius(GRAVITY, WAVE["depth"], F)
    inside = y < 2 * radius
    decay = -1 / np.polyfit(y[inside], np.log(size[inside]), 1)[0]
    across = np.abs(output.last("v")).max() / np.abs(output.last("u")).max()
    found.checks.extend(
        [
            near(finest, "decay off the wall", decay / 1000, radius / 1000, 0.005 * radius / 1000, GILL, "km"),
            at_most(finest, "greatest v over the greatest u", across, 0.01, GILL),
        ]
    )
    return Found(found.checks, found.curves, [(finest, "elevation", "Kelvin wave after five periods")])


def poincare(folders: Folders) -> Found:
    """Phase speed, its order, and the speed that a C-grid has by its dispersion relation."""
    found = _waves("poincare", folders)
    for name, folder in folders.items():
        output = Output(folder)
        exact = poincare_speed_c_grid(GRAVITY, WAVE["depth"], F, K, WAVE["width"] / len(output["x"]))
        ours = _phase_speed(output, _speed("poincare"))
        source = "dispersion on a C-grid, Arakawa and Lamb 1977"
        found.checks.append(near(name, "phase speed on this grid", ours, exact, 2e-4 * exact, source, "m/s"))
    return found


def _waves(kind: str, folders: Folders) -> Found:
    exact, checks, spacings, errors, fields = _speed(kind), [], [], [], []
    for name, folder in folders.items():
        output = Output(folder)
        cells = len(output["x"])
        ours = _phase_speed(output, exact)
        tolerance = 1.2 * exact * _truncation(kind, WAVE["width"] / cells)
        checks.append(near(name, "phase speed", ours, exact, tolerance, GILL, "m/s"))
        spacings.append(WAVE["width"] / cells / 1000)
        errors.append(abs(ours / exact - 1))
        # Five whole periods: the exact wave is where it started.
        fields.append(relative_errors(output.last("elevation"), output["elevation"][0])[0])
    checks += _orders(kind, spacings, {"the phase speed": errors, "the surface": fields})
    lines = {"phase speed": (spacings, errors), "surface, L2": (spacings, fields)}
    curve = Curves(f"{kind.capitalize()} wave: errors", "grid spacing (km)", "relative error", lines, logarithmic=True)
    return Found(checks, [curve])


def _orders(kind: str, spacings: list[float], errors: dict[str, list[float]]) -> list[Check]:
    source = "second order of the C-grid"
    return [
        at_least(kind, f"order of {name}", convergence_order(spacings, values), 1.9, source)
        for name, values in errors.items()
    ]


def _truncation(kind: str, dx: float) -> float:
    """The relative error of the phase speed on a C-grid to leading order, from its dispersion relation."""
    f2, c2k2 = (0.0 if kind == "kelvin" else F**2), GRAVITY * WAVE["depth"] * K**2
    return (K * dx) ** 2 * (f2 / 4 + c2k2 / 12) / (2 * (f2 + c2k2))


def _speed(kind: str) -> float:
    """The exact phase speed, m/s."""
    if kind == "kelvin":
        return gravity_wave_speed(GRAVITY, WAVE["depth"])
    return poincare_speed(GRAVITY, WAVE["depth"], F, K)


def _phase_speed(output: Output, guess: float) -> float:
    """Speed (m/s) of the wave in the lowest row, from the phase of its Fourier mode at the first and the last time.

    `guess` (m/s) tells how many whole turns lie between them.
    """
    surface = output["elevation"][:, 0]
    first, last = np.angle(np.fft.rfft(surface[[0, -1]], axis=1)[:, 1])
    time = output.times[-1] - output.times[0]
    turns = round((K * guess * time - (first - last)) / (2 * math.pi))
    return float((first - last + 2 * math.pi * turns) / (K * time))


ADJUSTMENT = Case(adjustment_runs, adjustment)
JET = Case(jet_runs, jet)
KELVIN = Case(lambda config, folder: wave_runs("kelvin", config), kelvin)
POINCARE = Case(lambda config, folder: wave_runs("poincare", config), poincare)
