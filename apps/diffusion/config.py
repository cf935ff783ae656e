"""Settings of the diffusion app, and its presets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.apps.common.settings import CheckedTogether, FieldFiles
from hpckit.io.settings import LIMIT, OptionalSpan, Seconds, Section
from hpckit.report.settings import Report

SUMMARY = "the heat equation in 2-D or 3-D: hot spots spread between walls or in a periodic box"
METRICS = {"heat": "K m{dims}", "temperature_min": "K", "temperature_max": "K"}  # dims: of the grid
GPU = True  # supports `hpckit run --gpu`
AXES = ("z", "y", "x")
Axis = Literal["z", "y", "x"]
Wall = float | Literal["insulated"]


class Grid(CheckedTogether):
    """The body: cells and extent."""

    shape: tuple[int, ...] = Field((200, 300), min_length=2, max_length=3, description="cells in (y, x) or (z, y, x)")
    lengths: tuple[float, ...] = Field((1.0, 1.5), min_length=2, max_length=3, description="extent in the same dims, m")
    periodic: tuple[Axis, ...] = Field((), description="periodic axes; the others end at walls")

    def problems(self) -> Iterator[str]:
        """Dims that do not agree, and a grid without cells or extent."""
        if len(self.lengths) != len(self.shape):
            yield (
                f"shape has {len(self.shape)} dims and lengths has {len(self.lengths)}: give both for"
                f" ({', '.join(self.axes)})"
            )
        if min(self.shape) < 2:
            yield f"shape is {list(self.shape)}: a grid needs at least 2 cells along each dim"
        if min(self.lengths) <= 0:
            yield f"lengths are {list(self.lengths)}: all must be above 0 m"
        for name in self.periodic:
            if name not in self.axes:
                yield f"periodic names the axis {name!r}, but a grid of {len(self.shape)} dims has {self.axes}"

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the dims."""
        return AXES[-len(self.shape) :]

    @property
    def spacing(self) -> tuple[float, ...]:
        """Cell edges, m."""
        return tuple(length / n for length, n in zip(self.lengths, self.shape, strict=True))


class Walls(Section):
    """Boundary condition of each wall: a fixed temperature in K, or "insulated" (no heat flux)."""

    x_low: Wall = Field("insulated", description="wall at x = 0: a temperature in K, or insulated")
    x_high: Wall = Field("insulated", description="wall at the other end of x")
    y_low: Wall = Field("insulated", description="wall at y = 0")
    y_high: Wall = Field("insulated", description="wall at the other end of y")
    z_low: Wall = Field("insulated", description="wall at z = 0 (3-D)")
    z_high: Wall = Field("insulated", description="wall at the other end of z (3-D)")

    def of(self, axis: str) -> tuple[Wall, Wall]:
        """The walls at the low and the high end of an axis."""
        return getattr(self, f"{axis}_low"), getattr(self, f"{axis}_high")


class Start(Section):
    """The initial temperature."""

    kind: Literal["spots", "gaussian", "sine"] = Field(
        "spots",
        description="spots: Gaussian hot spots at random places; gaussian: one at the center; sine: a product of"
        " sine waves, an eigenmode of each dim (cosines where the walls are insulated)",
    )
    background: float = Field(300.0, ge=0, description="temperature away from the spots, K")
    amplitude: float = Field(50.0, description="rise above the background at the peak, K")
    radius: float = Field(0.06, gt=0, description="standard deviation of a spot or of the gaussian, m")
    count: int = Field(12, ge=1, le=10_000, description="number of spots")
    seed: int = Field(1, ge=0, description="random seed: the same seed gives the same spots on any number of ranks")
    modes: tuple[int, ...] = Field(
        (1, 1), min_length=2, max_length=3, description="half waves along each dim (full waves if periodic)"
    )


class Time(Section):
    """Duration and time step."""

    end: Seconds = Field(300.0, gt=0, description="simulated time, s (or a span, '15 min'); without `steps`")
    steps: int | None = Field(None, ge=1, description="number of full steps, in place of `end`")
    safety: float = Field(0.9, gt=0, description="dt over the stability limit of the scheme; unstable above 1")
    monitor: int = Field(50, ge=1, description="steps between metric lines and checks of the solution")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(FieldFiles):
    """Output files."""

    frames: int = Field(10, ge=1, description="frames after the first, evenly spaced over the run")


class Config(CheckedTogether):
    """All settings of a run."""

    app: Literal["diffusion"] = "diffusion"
    diffusivity: float = Field(
        1.1e-4, gt=0, description="diffusivity of the material, m2/s (copper 1.1e-4, iron 2.3e-5)"
    )
    grid: Grid = Field(default_factory=Grid, description="cells and extent")
    walls: Walls = Field(
        default_factory=Walls, description="boundary condition of each wall: a temperature in K, or insulated"
    )
    start: Start = Field(default_factory=Start, description="initial temperature")
    time: Time = Field(default_factory=Time, description="duration and time step")
    output: Output = Field(default_factory=Output, description="output files")
    report: Report = Field(default_factory=Report, description="contents of the report")

    def problems(self) -> Iterator[str]:
        """Walls and waves that do not fit the grid."""
        grid = self.grid
        for axis in AXES:
            for side, wall in zip(("low", "high"), self.walls.of(axis), strict=True):
                name = f"walls.{axis}_{side}"
                if wall == "insulated":
                    continue
                if axis not in grid.axes:
                    yield f"{name} is given, but a grid of {len(grid.shape)} dims has no axis {axis}"
                if axis in grid.periodic:
                    yield f"{name} is given, but {axis} is periodic: omit it, or take {axis} out of grid.periodic"
                if wall < 0:
                    yield f"{name} is {wall:g} K: temperatures are not below 0 K"
        modes = self.start.modes
        if self.start.kind == "sine" and len(modes) != len(grid.shape):
            yield f"start.modes is {list(modes)}: give one number for each of {grid.axes}"
        elif self.start.kind == "sine":
            for axis, mode, n in zip(grid.axes, modes, grid.shape, strict=True):
                most = n // 2 if axis in grid.periodic else n
                if not 0 <= mode <= most:
                    yield f"start.modes has {mode} along {axis}: {n} cells resolve 0 to {most}"


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "heat": (
        "hot spots on a copper plate between a warm wall and a cold one",
        {"walls": {"x_low": 340.0, "x_high": 280.0}},
    ),
    "heat3d": (
        "hot spots in an insulated block even out and keep their heat",
        {
            "grid": {"shape": [96, 96, 96], "lengths": [1.0, 1.0, 1.0]},
            "start": {"count": 20, "radius": 0.08},
        },
    ),
    "heat_mode": (
        "one wave in a periodic square decays at its own rate",
        {
            "grid": {"shape": [128, 128], "lengths": [1.0, 1.0], "periodic": ["y", "x"]},
            "start": {"kind": "sine", "modes": [2, 3]},
        },
    ),
}
