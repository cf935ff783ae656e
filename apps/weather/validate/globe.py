"""Shallow water on a sphere: a steady flow tilted over seams and corners, a jet in balance, flow over a mountain, and a
Rossby-Haurwitz wave.

The norms of Williamson's test 2 after 0.68 days stand beside those of compatible finite elements with as many cells
(GridapGeosciences.jl); the speed of the wave beside that of a layer without divergence.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.apps.common.validation import Curves, Found, at_least, at_most, convergence_order, near
from hpckit.apps.exact.rotating import ROSSBY_HAURWITZ, rossby_haurwitz_speed
from hpckit.apps.weather.validate.case import DOUBLE, Case, Folders, Nested, Output
from hpckit.apps.weather.validate.config import Config
from hpckit.grid.cubed_sphere import CubedSphere

ELEMENTS = {8: (1.455e-3, 2.84e-3), 16: (3.68e-4, 7.42e-4)}  # L2 of h and u
DAY, ROTATION = 86_400.0, 7.292e-5  # s, 1/s
SHORT = 0.68 * DAY


def runs(config: Config, folder: Path) -> dict[str, Nested]:
    """Three or four grids of the tilted flow; the others on one grid."""

    def nested(preset: str, n: int, end: float, every: float, **start: float) -> Nested:
        output = {**DOUBLE, "every": every}
        return Nested(f"sphere/{preset}", {"grid": {"n": n}, "time": {"end": end}, "output": output, "start": start})

    sizes = (8, 16, 32) if config.quick else (8, 16, 32, 64)
    n, days = (24, 1) if config.quick else (64, 5)
    return {
        **{f"tilted-{n}": nested("williamson2", n, SHORT, SHORT) for n in sizes},
        "jet": nested("galewsky", 48 if config.quick else 96, DAY, DAY, bump=0.0),
        "mountain": nested("williamson5", n, days * DAY, days * DAY),
        "wave": nested("williamson6", n, days * DAY, DAY / 4),
    }


def compare(folders: Folders) -> Found:
    """Norms, orders, conservation, and the speed of the wave."""
    checks, spacings, errors = [], [], []
    for name in (each for each in folders if each.startswith("tilted")):
        output, n = Output(folders[name]), int(name.split("-")[1])
        depth, velocity = norms(output)
        spacings.append(90.0 / n)
        errors.append((depth, velocity))
        source = "Williamson et al. 1992, test 2: steady"
        if n in ELEMENTS:
            source = "as good as finite elements of second order"
            checks.append(at_most(name, "relative L2 error of velocity", velocity, ELEMENTS[n][1], source))
        bound = ELEMENTS.get(n, (1e-4, 0.0))[0]
        checks.append(at_most(name, "relative L2 error of depth", depth, bound, source))
        checks.append(at_most(name, "relative change of mass", output.change("mass"), 1e-13, "exact"))
    for part, title in enumerate(("depth", "velocity")):
        order = convergence_order(spacings, [each[part] for each in errors])
        checks.append(at_least("tilted", f"order of {title}", order, 1.95, "second order"))
    jet, mountain, wave = (Output(folders[name]) for name in ("jet", "mountain", "wave"))
    bound = 2e-4 * (48 / jet["height"].shape[-1]) ** 2
    source = "Galewsky et al. 2004: steady but for truncation"
    checks.append(at_most("jet", "relative change of depth in a day", jet.metric("error")[-1], bound, source))
    for name, output in (("mountain", mountain), ("wave", wave)):
        checks.append(at_most(name, "relative change of mass", output.change("mass"), 1e-12, "exact"))
        checks.append(at_most(name, "relative change of energy", output.change("energy"), 1e-4, "small where resolved"))
    spin, ours = wave_speed(wave)
    checks.append(near("wave", "angular speed", ours, spin, 0.08 * abs(spin), "Haurwitz 1940, no divergence", "1/day"))
    lines = {
        "depth": (spacings, [each[0] for each in errors]),
        "velocity": (spacings, [each[1] for each in errors]),
        "elements, depth": ([90 / n for n in ELEMENTS], [each[0] for each in ELEMENTS.values()]),
        "elements, velocity": ([90 / n for n in ELEMENTS], [each[1] for each in ELEMENTS.values()]),
    }
    curve = Curves("Steady flow over seams: errors after 0.68 days", "cell (degrees)", "relative L2", lines, True)
    pictures = [("mountain", "height", "Flow over a mountain"), ("wave", "height", "Rossby-Haurwitz wave")]
    return Found(checks, [curve], pictures)


def norms(output: Output) -> tuple[float, float]:
    """The relative L2 errors of depth and velocity of a steady flow at the last time."""
    area, first = output["area"], {name: output[name][0] for name in ("height", "u", "v")}
    off = {name: (output.last(name) - values) ** 2 for name, values in first.items()}
    depth = (area * off["height"]).sum() / (area * first["height"] ** 2).sum()
    velocity = (area * (off["u"] + off["v"])).sum() / (area * (first["u"] ** 2 + first["v"] ** 2)).sum()
    return float(np.sqrt(depth)), float(np.sqrt(velocity))


def wave_speed(output: Output) -> tuple[float, float]:
    """The angular speed (1/day) of a Rossby-Haurwitz wave without divergence, and that of the run.

    The phase is that of the wave number in the surface over all latitudes: an integral of the whole sphere.
    """
    omega, wave = ROSSBY_HAURWITZ
    sphere = CubedSphere(output["height"].shape[-1], 1.0)
    turn = np.exp(-1j * wave * sphere.longitude) * np.cos(sphere.latitude) ** wave * output["area"]
    phases = np.unwrap(np.angle([(turn * surface).sum() for surface in output["height"]]))
    return rossby_haurwitz_speed(omega, wave, ROTATION) * DAY, float(
        np.polyfit(output.times / DAY, -phases / wave, 1)[0]
    )


CASE = Case(runs, compare)
