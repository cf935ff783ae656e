"""Settings of the sphere app, and its presets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.apps.common import settings
from hpckit.apps.common.settings import device_problems as device_problems
from hpckit.io.settings import LIMIT, OptionalSpan, Seconds, Section
from hpckit.report.settings import Report

SUMMARY = "shallow water on a rotating sphere: six panels of a cube; the tests of Williamson et al. and Galewsky et al."
METRICS = {
    "mass": "m3", "energy": "m5/s2", "enstrophy": "m/s2", "speed_max": "m/s", "depth_min": "m", "error": "1",
}  # fmt: skip
PLACES = {"coordinates": "lat lon"}
VARIABLES: dict[str, dict[str, Any]] = {
    "height": {"units": "m", "long_name": "height of the surface", **PLACES},
    "vorticity": {"units": "s-1", "long_name": "relative vorticity", **PLACES},
    "u": {"units": "m s-1", "long_name": "velocity to the east", "standard_name": "eastward_wind", **PLACES},
    "v": {"units": "m s-1", "long_name": "velocity to the north", "standard_name": "northward_wind", **PLACES},
}
STABLE_CFL = 1.2  # of speed plus waves over the smallest cell, both directions together: measured, 1.3 is unstable
DAY = 86_400.0

GPU = True  # supports `hpckit run --gpu`


class Grid(Section):
    """The cells."""

    n: int = Field(64, ge=6, le=4096, description="cells along an edge of a panel; the sphere has 6 n x n")


class Physics(Section):
    """The planet."""

    gravity: float = Field(9.80616, gt=0, description="acceleration of gravity, m/s2")
    radius: float = Field(6.37122e6, gt=0, description="radius of the sphere, m")
    rotation: float = Field(7.292e-5, description="angular velocity, 1/s")


class Start(Section):
    """The initial state, and the bottom that belongs to it."""

    kind: Literal["solid_body", "mountain", "rossby_haurwitz", "jet", "hill"] = Field(
        "jet",
        description="solid_body: steady zonal flow, axis tilted by `angle`; mountain: zonal flow over a cone; "
        "rossby_haurwitz: a wave of wave number 4; jet: an unstable jet in balance, with a bump; hill: a bump at rest",
    )
    angle: float = Field(0.0, ge=-180, le=180, description="solid_body: tilt of the axis of flow and rotation, degrees")
    speed: float = Field(80.0, gt=0, description="solid_body, mountain, jet: maximum speed, m/s")
    depth: float = Field(10_000.0, gt=0, description="depth at the equator of the flow, the poles, or mean, m")
    bump: float = Field(120.0, description="jet, hill: height of the bump on the surface, m; mountain: of the cone")


class Time(Section):
    """Duration and time step."""

    end: Seconds = Field(6 * DAY, ge=0, description="simulated time, s (or a span, '6 days')")
    cfl: float = Field(0.8, gt=0, le=STABLE_CFL, description="Courant number of waves and flow; limit 1.2")
    max_speed: float = Field(100.0, ge=0, description="maximum flow speed assumed for dt, m/s")
    monitor: int = Field(20, ge=1, description="steps between metric lines and checks of the solution")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(settings.Output):
    """Output files."""

    every: float = Field(DAY, gt=0, description="simulated time between frames, s")


class Config(settings.CheckedTogether):
    """All settings of a run."""

    app: Literal["sphere"] = "sphere"
    grid: Grid = Field(default_factory=Grid, description="cells")
    physics: Physics = Field(default_factory=Physics, description="gravity, radius, rotation")
    start: Start = Field(default_factory=Start, description="initial state")
    time: Time = Field(default_factory=Time, description="duration and time step")
    output: Output = Field(default_factory=Output, description="output files")
    report: Report = Field(default_factory=Report, description="contents of the report")

    @property
    def precision(self) -> str:
        """The precision of the state: double always."""
        return "float64"

    def problems(self) -> Iterator[str]:
        """Settings that contradict each other."""
        start, physics = self.start, self.physics
        if start.angle and start.kind != "solid_body":
            yield f"start.angle belongs to start.kind = 'solid_body', not to {start.kind!r}"
        if start.kind in ("hill", "jet", "mountain") and abs(start.bump) >= start.depth:
            yield f"start.bump of {start.bump:g} m is not below start.depth, {start.depth:g} m"
        if start.kind in ("solid_body", "mountain"):
            rise = (physics.radius * abs(physics.rotation) + start.speed / 2) * start.speed / physics.gravity
            if rise >= start.depth:
                yield (
                    f"start.speed of {start.speed:g} m/s lowers the surface at the poles by {rise:.4g} m,"
                    f" start.depth is {start.depth:g} m: give less speed or more depth"
                )
        if self.time.max_speed < start.speed and start.kind in ("solid_body", "mountain", "jet"):
            yield f"time.max_speed of {self.time.max_speed:g} m/s is below start.speed, {start.speed:g} m/s"


def spacing(config: Config) -> float:
    """The mean width of a cell along the equator, m."""
    return config.physics.radius * math.pi / 2 / config.grid.n


_WILLIAMSON_2 = {"kind": "solid_body", "angle": 45.0, "speed": 38.61068276698372, "depth": 2.94e4 / 9.80616}
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "williamson2": (
        "steady zonal flow in balance, tilted by 45 degrees over seams and corners: the error is the scheme's",
        {
            "physics": {"rotation": 7.292e-5},
            "start": _WILLIAMSON_2,
            "time": {"end": 5 * DAY, "max_speed": 50.0},
        },
    ),
    "williamson5": (
        "zonal flow over an isolated mountain sends out waves",
        {
            "start": {"kind": "mountain", "speed": 20.0, "depth": 5960.0, "bump": 2000.0},
            "time": {"end": 15 * DAY, "max_speed": 60.0},
        },
    ),
    "williamson6": (
        "a Rossby-Haurwitz wave of wave number 4 travels eastward and keeps its form",
        {
            "start": {"kind": "rossby_haurwitz", "depth": 8000.0},
            "time": {"end": 14 * DAY, "max_speed": 120.0},
        },
    ),
    "galewsky": (
        "a mid-latitude jet, steady but for a small bump, becomes unstable and rolls up in six days",
        {
            "grid": {"n": 128},
            "start": {"kind": "jet", "speed": 80.0, "depth": 10_000.0, "bump": 120.0},
            "time": {"end": 6 * DAY, "max_speed": 110.0},
            "output": {"every": DAY / 2},
            "report": {"variable": "vorticity"},
        },
    ),
    "ripple": (
        "a hump of water spreads over a sphere at rest and meets itself at the antipode",
        {
            "physics": {"rotation": 0.0},
            "start": {"kind": "hill", "depth": 5000.0, "bump": 100.0},
            "time": {"end": 1.1 * DAY, "max_speed": 10.0},
            "output": {"every": DAY / 20},
        },
    ),
}
