"""Settings of the flood app, and its presets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.apps.common import settings
from hpckit.io.settings import LIMIT, InputFile, OptionalSpan, Seconds, Section
from hpckit.report.settings import Report

SUMMARY = "shallow water with shocks and dry land: dam breaks, flood waves, run-up, lakes in bowls"
METRICS = {  # energy divided by density
    "mass": "m3",
    "energy": "m5/s2",
    "speed_max": "m/s",
    "depth_max": "m",
    "wet_area": "m2",
    "depth_error": "1",
}
VARIABLES = {
    "depth": {"units": "m", "long_name": "depth of the water"},
    "surface": {"units": "m", "long_name": "height of the surface, of the ground where it is dry"},
    "u": {"units": "m s-1", "long_name": "velocity along x"},
    "v": {"units": "m s-1", "long_name": "velocity along y"},
}
LIMIT_CFL = 0.5  # up to this limit no cell loses more water than it holds
# The coordinates that each kind of start and of bottom uses; the others are ignored.
PLACES = {
    "dam": "x", "circular_dam": "xy", "hump": "xy", "lake": "", "bowl_planar": "", "bowl_radial": "",
    "flat": "", "bowl": "xy", "island": "xy", "beach": "x", "barrier": "xy", "file": "",
}  # fmt: skip
Sides = Literal["closed", "open", "periodic"]


GPU = True  # supports `hpckit run --gpu`
FINEST_DRY = 1e-4  # m, in single precision, which resolves levels of 100 m to about a tenth of this


class Grid(Section):
    """The area: cells, extent and boundaries. x and y are measured from its lower left corner."""

    nx: int = Field(400, ge=4, description="cells in x; each rank gets at least 2")
    ny: int = Field(4, ge=4, description="cells in y; each rank gets at least 2")
    width: float = Field(2000.0, gt=0, description="extent in x, m")
    height: float = Field(20.0, gt=0, description="extent in y, m")
    sides_x: Sides = Field("closed", description="boundaries in x: closed (walls), open (water leaves) or periodic")
    sides_y: Sides = Field("closed", description="boundaries in y, likewise")

    @property
    def dx(self) -> float:
        """Cell width, m."""
        return self.width / self.nx

    @property
    def dy(self) -> float:
        """Cell height, m."""
        return self.height / self.ny

    @property
    def sides(self) -> dict[str, Sides]:
        """The boundaries of each axis."""
        return {"y": self.sides_y, "x": self.sides_x}

    @property
    def periodic(self) -> tuple[str, ...]:
        """The periodic axes."""
        return tuple(axis for axis, sides in self.sides.items() if sides == "periodic")


class Physics(Section):
    """Gravity, friction, rotation."""

    gravity: float = Field(9.81, gt=0, description="acceleration of gravity, m/s2")
    manning: float = Field(0.0, ge=0, le=1, description="Manning's n of the bottom, s/m^(1/3); 0.03 for a river bed")
    drag: float = Field(0.0, ge=0, le=1, description="quadratic bottom drag coefficient; adds to manning")
    f: float = Field(0.0, description="Coriolis parameter, 1/s")
    dry: float = Field(1e-6, gt=0, description="depth below which the water is slowed to rest, m")


class Bottom(Section):
    """The ground; its heights and the water levels share one zero."""

    kind: Literal["flat", "bowl", "island", "beach", "barrier", "file"] = Field(
        "flat",
        description="flat: at 0; bowl: a paraboloid, -height at the center, 0 at radius; island: Gaussian in x and y;"
        " beach: rises from 0 at x to height over radius; barrier: a dam of that height and thickness 2 radius along y"
        " at x with a breach; file: heights from bottom.file",
    )
    height: float = Field(1.0, description="height (bowl: depth), m")
    x: float = Field(1000.0, description="center; foot of the beach, m")
    y: float = Field(10.0, description="center; center of the breach, m")
    radius: float = Field(100.0, gt=0, description="radius, standard deviation, length of the beach, half thickness, m")
    breach: float = Field(0.0, ge=0, description="width of the breach of a barrier, m")
    file: InputFile | None = Field(None, description="a NumPy file (.npy) of float64[ny, nx], m")


class Start(Section):
    """The initial water. Levels and bottom heights share one zero; ground above the level is dry."""

    kind: Literal["lake", "dam", "circular_dam", "hump", "bowl_planar", "bowl_radial"] = Field(
        "dam",
        description="lake: still water; dam: behind_level where x is less than start.x; circular_dam: behind_level"
        " within radius of (x, y); hump: a Gaussian on a lake; bowl_planar, bowl_radial: the lakes of"
        " Thacker, shifted or raised by amplitude, in a bottom of kind bowl",
    )
    level: float = Field(0.0, description="water level, m")
    behind_level: float = Field(10.0, description="water level behind the dam, m")
    amplitude: float = Field(1.0, description="amplitude of the hump and the bowls, m")
    x: float = Field(1000.0, description="position of the dam, or center, m")
    y: float = Field(10.0, description="center, m")
    radius: float = Field(100.0, gt=0, description="radius of the circular dam, standard deviation of the hump, m")


class Time(Section):
    """Duration and time step."""

    end: Seconds = Field(50.0, ge=0, description="simulated time, s (or a span, '15 min')")
    cfl: float = Field(
        0.45, gt=0, le=LIMIT_CFL, description="dt times the greatest of (wave speed)/dx + (wave speed)/dy; at most 0.5"
    )
    monitor: int = Field(20, ge=1, description="steps between metric lines and checks of the solution")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(settings.Output):
    """Output files."""

    every: float = Field(10.0, gt=0, description="simulated time between frames, s; steps end on frames")


class Config(settings.CheckedTogether):
    """All settings of a run."""

    app: Literal["flood"] = "flood"
    grid: Grid = Field(default_factory=Grid, description="cells, extent, boundaries")
    physics: Physics = Field(default_factory=Physics, description="gravity, friction, rotation")
    bottom: Bottom = Field(default_factory=Bottom, description="the ground")
    start: Start = Field(default_factory=Start, description="initial water")
    time: Time = Field(default_factory=Time, description="duration and time step")
    output: Output = Field(default_factory=Output, description="output files")
    precision: Literal["float64", "float32"] = Field(
        "float64", description="precision of the state; float32 halves memory and traffic (needs --gpu)"
    )
    report: Report = Field(default_factory=Report, description="contents of the report")

    def problems(self) -> Iterator[str]:
        """Misplaced and contradictory settings."""
        yield from self._misplaced()
        yield from self._contradictions()

    def _misplaced(self) -> Iterator[str]:
        """Positions outside the area."""
        used = {"start": PLACES[self.start.kind], "bottom": PLACES[self.bottom.kind]}
        yield from settings.outside(self, used, "area")
        if self.start.kind == "dam" and self.start.x in (0.0, self.grid.width):
            yield f"start.x of {self.start.x:g} m puts the dam on a side: move it inside the area"

    def _contradictions(self) -> Iterator[str]:
        """Settings that contradict each other."""
        start, bottom = self.start, self.bottom
        if (bottom.kind == "file") != (bottom.file is not None):
            yield "bottom.file goes with bottom.kind = 'file': give both or neither"
        if bottom.kind == "bowl" and bottom.height <= 0:
            yield f"bottom.height is the depth of the bowl: {bottom.height:g} m is not above 0"
        if start.kind.startswith("bowl") and bottom.kind != "bowl":
            yield f"start.kind = '{start.kind}' needs bottom.kind = 'bowl', not '{bottom.kind}'"
        if start.kind == "bowl_radial" and abs(start.amplitude) >= bottom.height:
            yield f"start.amplitude of {start.amplitude:g} m is not below the depth of the bowl, {bottom.height:g} m"
        if "dam" in start.kind and bottom.kind == "flat" and max(start.level, start.behind_level) <= 0:
            yield "there is no water: set start.level or start.behind_level above the bottom, which is at 0"


def device_problems(config: Config, gpu: bool) -> Iterator[str]:
    """Settings that a GPU, or a run without a GPU, does not support."""
    yield from settings.device_problems(config, gpu)
    if config.precision == "float32" and config.physics.dry < FINEST_DRY:
        yield (
            f"physics.dry of {config.physics.dry:g} m is below the resolution of single precision:"
            f" set it to {FINEST_DRY:g} or more, or omit precision"
        )


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "dam_break": (
        "a dam breaks over shallow water: a rarefaction and a shock, beside the exact solution of Stoker",
        {"start": {"level": 1.0}},
    ),
    "dry_dam_break": (
        "a dam breaks over dry ground: the front of water beside the exact solution of Ritter",
        {"time": {"end": 40.0}, "output": {"every": 8.0}},
    ),
    "parabolic_bowl": (
        "a lake circles in a parabolic bowl and wets and dries its shore, beside the exact solution of Thacker",
        {
            "grid": {"nx": 100, "ny": 100, "width": 4.0, "height": 4.0},
            "bottom": {"kind": "bowl", "height": 0.1, "radius": 1.0, "x": 2.0, "y": 2.0},
            "start": {"kind": "bowl_planar", "amplitude": 0.5},
            "time": {"end": 8.9716},
            "output": {"every": 0.373816},
        },
    ),
    "circular_dam_break": (
        "a round column of water falls over a shallow lake: a circular shock, and a second one that runs back",
        {
            "grid": {"nx": 300, "ny": 300, "width": 50.0, "height": 50.0, "sides_x": "open", "sides_y": "open"},
            "start": {
                "kind": "circular_dam", "behind_level": 10.0, "level": 1.0, "x": 25.0, "y": 25.0, "radius": 11.0,
            },
            "time": {"end": 2.4},
            "output": {"every": 0.1},
        },
    ),
    "partial_dam_break": (
        "a breach in a dam floods a rough valley",
        {
            "grid": {"nx": 200, "ny": 200, "width": 200.0, "height": 200.0, "sides_x": "open"},
            "physics": {"manning": 0.03},
            "bottom": {"kind": "barrier", "height": 20.0, "x": 100.0, "y": 132.5, "radius": 5.0, "breach": 75.0},
            "start": {"behind_level": 10.0, "level": 0.0, "x": 100.0},
            "time": {"end": 30.0},
            "output": {"every": 1.0},
        },
    ),
    "lake_at_rest": (
        "a lake with an island stays at rest to the bit",
        {
            "grid": {"nx": 120, "ny": 100, "width": 120.0, "height": 100.0},
            "bottom": {"kind": "island", "height": 3.0, "x": 60.0, "y": 50.0, "radius": 20.0},
            "start": {"kind": "lake", "level": 2.0},
            "time": {"end": 60.0},
        },
    ),
    "runup": (
        "a solitary hump of water runs up a beach and back",
        {
            "grid": {"nx": 400, "ny": 40, "width": 400.0, "height": 40.0, "sides_y": "periodic"},
            "physics": {"manning": 0.02},
            "bottom": {"kind": "beach", "height": 10.0, "x": 200.0, "radius": 200.0},
            "start": {"kind": "hump", "level": 4.0, "amplitude": 1.5, "x": 100.0, "y": 20.0, "radius": 15.0},
            "time": {"end": 90.0},
            "output": {"every": 2.0},
        },
    ),
}  # fmt: skip
