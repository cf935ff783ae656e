"""Settings of the shallow-water app, and its presets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.apps.common import settings
from hpckit.apps.common.settings import device_problems as device_problems
from hpckit.io.settings import LIMIT, InputFile, OptionalSpan, Seconds, Section
from hpckit.report.settings import Report

SUMMARY = "a rotating layer of shallow water: jets, eddies, gyres, tsunamis on an f-plane or beta-plane"
METRICS = {"mass": "m3", "energy": "m5/s2", "enstrophy": "m/s2", "speed_max": "m/s", "depth_min": "m"}
STABLE_CFL = math.sqrt(3) / 2  # SSP-RK3 is stable for w dt up to sqrt(3); the fastest wave on a C-grid has w = 2 c / dx

# The coordinates that each kind of start and of bottom uses; the others are ignored.
PLACES = {
    "rest": "", "step": "", "hill": "xy", "jet": "y", "eddies": "", "poincare": "", "kelvin": "", "file": "",
    "flat": "", "ridge": "x", "seamount": "xy", "shelf": "x",
}  # fmt: skip

GPU = True  # supports `hpckit run --gpu`


class Grid(Section):
    """The basin: cells, extent and boundaries."""

    nx: int = Field(256, ge=4, description="cells in x; each rank gets at least 3")
    ny: int = Field(256, ge=4, description="cells in y; each rank gets at least 3")
    width: float = Field(1_000_000.0, gt=0, description="extent in x, m")
    height: float = Field(1_000_000.0, gt=0, description="extent in y, m")
    sides: Literal["periodic", "channel", "closed"] = Field(
        "periodic", description="periodic: in x and y; channel: periodic in x, walls in y; closed: walls all around"
    )
    slip: Literal["free", "none"] = Field("free", description="at walls: free slip, or no slip (needs viscosity)")

    @property
    def dx(self) -> float:
        """Cell width, m."""
        return self.width / self.nx

    @property
    def dy(self) -> float:
        """Cell height, m."""
        return self.height / self.ny

    @property
    def periodic(self) -> tuple[str, ...]:
        """The periodic axes."""
        return {"periodic": ("y", "x"), "channel": ("x",), "closed": ()}[self.sides]


class Physics(Section):
    """Gravity, rotation, friction."""

    gravity: float = Field(9.81, gt=0, description="acceleration of gravity, or reduced gravity, m/s2")
    depth: float = Field(100.0, gt=0, description="depth of the layer at rest over a flat bottom, m")
    f: float = Field(1e-4, description="Coriolis parameter at the center of the basin, 1/s")
    beta: float = Field(0.0, description="northward gradient of f, 1/(m s) (not in a basin periodic in y)")
    viscosity: float = Field(0.0, ge=0, description="harmonic viscosity, m2/s")
    drag: float = Field(0.0, ge=0, description="linear bottom drag, 1/s")
    drag_quadratic: float = Field(0.0, ge=0, le=1, description="quadratic bottom drag coefficient")


class Wind(Section):
    """Steady wind stress along x; 0 turns it off."""

    stress: float = Field(0.0, description="maximum stress, N/m2")
    shape: Literal["uniform", "single_gyre", "double_gyre"] = Field(
        "double_gyre",
        description="stress times: uniform: 1; single_gyre: -cos(pi y / height); double_gyre: -cos(2 pi y / height)",
    )
    density: float = Field(1025.0, gt=0, description="density of the water, kg/m3")


class Bottom(Section):
    """Topography that rises from the flat bottom."""

    kind: Literal["flat", "ridge", "seamount", "shelf", "file"] = Field(
        "flat",
        description="ridge: Gaussian in x; seamount: Gaussian in x and y; shelf: rises along x as (1 + tanh) / 2;"
        " file: heights from bottom.file",
    )
    height: float = Field(50.0, description="height, m")
    x: float = Field(500_000.0, description="center, m")
    y: float = Field(500_000.0, description="center (seamount), m")
    radius: float = Field(100_000.0, gt=0, description="standard deviation, or half width of the rise, m")
    file: InputFile | None = Field(
        None, description="a NumPy file (.npy) of float64[ny, nx]: heights above the flat bottom, m"
    )


class Start(Section):
    """The initial state."""

    kind: Literal["rest", "step", "hill", "jet", "eddies", "poincare", "kelvin", "file"] = Field(
        "jet",
        description="rest; step: a jump of the surface at mid-x; hill: a Gaussian of the surface; jet: u ="
        " speed / cosh(d / radius)**2 in balance, with a small bump; eddies: random waves in balance; poincare, kelvin:"
        " one linear wave along x; file: a surface from start.file, at rest",
    )
    amplitude: float = Field(0.1, description="of the surface: half the step, hill, bump on the jet, waves, m")
    speed: float = Field(1.0, description="maximum speed of the jet; root mean square of the eddies, m/s")
    radius: float = Field(50_000.0, gt=0, description="half width of the jet; standard deviation of hill and bump, m")
    x: float = Field(500_000.0, description="center of hill and bump, m")
    y: float = Field(500_000.0, description="center of hill, bump and jet, m")
    mode: int = Field(1, ge=1, description="waves along x (poincare, kelvin); mean wave number of the eddies")
    seed: int = Field(1, ge=0, description="random seed: the same seed gives the same eddies on any number of ranks")
    file: InputFile | None = Field(
        None, description="a NumPy file (.npy) of float64[ny, nx]: elevations of the surface, m"
    )


class Time(Section):
    """Duration and time step."""

    end: Seconds = Field(864_000.0, ge=0, description="simulated time, s (or a span, '15 min')")
    cfl: float = Field(
        0.6, gt=0, description="Courant number of dt: (c + max_speed) dt sqrt(1/dx2 + 1/dy2); limit 0.866"
    )
    max_speed: float = Field(2.0, ge=0, description="maximum flow speed assumed for dt, m/s")
    monitor: int = Field(20, ge=1, description="steps between metric lines and checks of the solution")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(settings.Output):
    """Output files."""

    every: float = Field(86_400.0, gt=0, description="simulated time between frames, s")


class Config(settings.CheckedTogether):
    """All settings of a run."""

    app: Literal["shallow_water"] = "shallow_water"
    grid: Grid = Field(default_factory=Grid, description="cells, extent, boundaries")
    physics: Physics = Field(default_factory=Physics, description="gravity, rotation, friction")
    wind: Wind = Field(default_factory=Wind, description="steady wind stress")
    bottom: Bottom = Field(default_factory=Bottom, description="topography")
    start: Start = Field(default_factory=Start, description="initial state")
    time: Time = Field(default_factory=Time, description="duration and time step")
    output: Output = Field(default_factory=Output, description="output files")
    precision: Literal["float64", "float32"] = Field(
        "float64", description="precision of h, u and v; float32 halves memory and traffic (needs --gpu)"
    )
    report: Report = Field(default_factory=Report, description="contents of the report")

    def problems(self) -> Iterator[str]:
        """Misplaced and contradictory settings."""
        yield from self._misplaced()
        yield from self._contradictions()

    def _misplaced(self) -> Iterator[str]:
        """Positions outside the basin."""
        used = {"start": PLACES[self.start.kind], "bottom": PLACES[self.bottom.kind]}
        if self.start.kind == "jet" and self.start.amplitude:
            used["start"] = "xy"  # its bump
        yield from settings.outside(self, used, "basin")

    def _contradictions(self) -> Iterator[str]:
        """Settings that contradict each other."""
        grid, physics, start = self.grid, self.physics, self.start
        if physics.beta and "y" in grid.periodic:
            yield (
                f"physics.beta is {physics.beta:g}, but f must be the same at both ends of a basin periodic in y:"
                " set grid.sides to channel or closed, or beta to 0"
            )
        if grid.slip == "none" and (grid.sides == "periodic" or not physics.viscosity):
            yield "grid.slip = 'none' needs walls (grid.sides) and physics.viscosity above 0"
        for name, section in (("bottom", self.bottom), ("start", start)):
            if (section.kind == "file") != (section.file is not None):
                yield f"{name}.file goes with {name}.kind = 'file': give both or neither"
        if self.bottom.kind not in ("flat", "file") and self.bottom.height >= physics.depth:
            yield (
                f"bottom.height of {self.bottom.height:g} m reaches the surface of {physics.depth:g} m of water:"
                " lower it; this scheme has no dry land"
            )
        if abs(start.amplitude) >= physics.depth:
            yield f"start.amplitude of {start.amplitude:g} m is not below physics.depth, {physics.depth:g} m"
        if start.kind == "kelvin" and (grid.sides != "channel" or not physics.f or physics.beta):
            yield "start.kind = 'kelvin' needs grid.sides = 'channel', and physics.f without beta"
        if start.kind == "poincare" and grid.sides != "periodic":
            yield "start.kind = 'poincare' needs grid.sides = 'periodic'"
        if start.kind == "eddies" and grid.sides != "periodic":
            yield "start.kind = 'eddies' needs grid.sides = 'periodic'"
        if start.kind == "jet" and grid.sides == "closed":
            yield "start.kind = 'jet' flows along x: set grid.sides to channel or periodic"
        waves = math.sqrt(physics.gravity * physics.depth)
        counted = self.time.cfl * waves / (waves + self.time.max_speed)
        if counted > STABLE_CFL:
            yield (
                f"time.cfl = {self.time.cfl:g} is unstable: waves of {waves:.3g} m/s alone have a Courant number of"
                f" {counted:.3g}, above the scheme's limit of {STABLE_CFL:.3f}: at most"
                f" {math.floor(100 * STABLE_CFL * self.time.cfl / counted) / 100:g}"
            )
        if start.kind in ("poincare", "kelvin", "eddies") and 4 * start.mode > grid.nx:
            yield f"start.mode is {start.mode}: {grid.nx} cells in x resolve at most {grid.nx // 4}"


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "adjustment": (
        "a step in the surface sends out waves and leaves a current in geostrophic balance",
        {
            "grid": {"nx": 512, "ny": 32, "width": 16e6, "height": 1e6},
            "physics": {"depth": 1000.0},
            "start": {"kind": "step", "amplitude": 1.0},
            "time": {"end": 172_800.0},
            "output": {"every": 7_200.0},
        },
    ),
    "barotropic_jet": (
        "a narrow jet in a channel is unstable, meanders and sheds eddies",
        {
            "grid": {"nx": 400, "ny": 200, "width": 2e6, "height": 1e6, "sides": "channel"},
            "physics": {"depth": 500.0, "viscosity": 50.0},
            "start": {"kind": "jet", "speed": 5.0, "radius": 40_000.0, "amplitude": 0.5, "y": 500_000.0},
            "time": {"end": 1_728_000.0, "max_speed": 8.0},
            "output": {"every": 86_400.0},
        },
    ),
    "double_gyre": (
        "steady wind over a closed basin on a beta-plane drives two gyres and a western boundary current",
        {
            "grid": {"nx": 200, "ny": 200, "width": 2e6, "height": 2e6, "sides": "closed"},
            "physics": {"gravity": 0.02, "depth": 500.0, "f": 9e-5, "beta": 1.8e-11, "viscosity": 400.0, "drag": 1e-8},
            "wind": {"stress": 0.08},
            "start": {"kind": "rest"},
            "time": {"end": 31_104_000.0, "max_speed": 2.0, "monitor": 50},
            "output": {"every": 1_296_000.0},
        },
    ),
    "tsunami": (
        "a hump of water spreads as a long wave and rises over a continental shelf",
        {
            "grid": {"nx": 400, "ny": 300, "width": 2e6, "height": 1.5e6, "sides": "closed"},
            "physics": {"depth": 4000.0, "f": 0.0, "drag_quadratic": 0.0025},
            "bottom": {"kind": "shelf", "height": 3800.0, "x": 1.6e6, "radius": 80_000.0},
            "start": {"kind": "hill", "amplitude": 2.0, "radius": 40_000.0, "x": 600_000.0, "y": 750_000.0},
            "time": {"end": 10_800.0, "max_speed": 5.0},
            "output": {"every": 600.0},
        },
    ),
    "geostrophic_jet": (
        "a broad jet in geostrophic balance stays as it is",
        {
            "grid": {"nx": 64, "ny": 200, "width": 400_000.0, "sides": "channel"},
            "physics": {"depth": 1000.0},
            "start": {"kind": "jet", "speed": 2.0, "radius": 100_000.0, "amplitude": 0.0},
            "time": {"end": 432_000.0},
            "output": {"every": 43_200.0},
        },
    ),
    "eddies": (
        "random eddies in balance merge into fewer and larger ones",
        {
            "physics": {"gravity": 0.5, "depth": 400.0, "viscosity": 10.0},
            "start": {"kind": "eddies", "speed": 1.0, "mode": 8},
            "time": {"end": 1_728_000.0, "max_speed": 5.0},
            "output": {"every": 86_400.0},
        },
    ),
}
