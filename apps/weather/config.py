"""Settings of the weather app, and its presets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.atmosphere.settings import Base, Output, Wave
from hpckit.apps.atmosphere.stability import outruns_sound
from hpckit.apps.common.settings import PRECISION, CheckedTogether
from hpckit.apps.common.settings import device_problems as device_problems
from hpckit.io.settings import LIMIT, OptionalSpan, Seconds, Section
from hpckit.report.settings import Report

SUMMARY = "compressible, non-hydrostatic atmosphere in a vertical slab: thermals, density currents, mountain waves"
METRICS = {"mass": "kg/m", "energy": "J/m", "w_max": "m/s", "theta_min": "K", "theta_max": "K"}  # per meter of depth

JET_CFL = 1.35
GPU = True  # supports `hpckit run --gpu`


class Grid(Section):
    """The slab: cells and extent."""

    nx: int = Field(400, ge=6, description="cells in x; each rank gets at least 6")
    nz: int = Field(200, ge=4, description="cells in z")
    width: float = Field(20_000.0, gt=0, description="extent in x, m (periodic)")
    height: float = Field(10_000.0, gt=0, description="extent in z, m (rigid free-slip walls below and above)")

    @property
    def dx(self) -> float:
        """Cell width, m."""
        return self.width / self.nx

    @property
    def dz(self) -> float:
        """Cell height, m."""
        return self.height / self.nz


class Bubble(Section):
    """An initial patch of warm or cold air: amplitude cos(pi d / 2)**2 within the ellipse d < 1."""

    amplitude: float = Field(3.0, ge=-100, le=100, description="perturbation at the center, K")
    x: float = Field(10_000.0, description="center, m")
    z: float = Field(2_000.0, description="center, m")
    radius_x: float = Field(2_000.0, gt=0, description="semi-axis, m")
    radius_z: float = Field(2_000.0, gt=0, description="semi-axis, m")
    of: Literal["theta", "temperature"] = Field("theta", description="variable that amplitude perturbs")
    keeps: Literal["density", "pressure"] = Field(
        "density", description="undisturbed variable: density (sudden heating), or pressure (after sound has left)"
    )


class Source(Section):
    """A steady vertical force that raises mountain waves, shaped like a bubble; 0: none."""

    amplitude: float = Field(0.0, description="acceleration at the center, m/s2")
    x: float = Field(2_500.0, description="center, m")
    z: float = Field(1_000.0, description="center, m")
    radius_x: float = Field(500.0, gt=0, description="semi-axis, m")
    radius_z: float = Field(500.0, gt=0, description="semi-axis, m")


class Inflow(Section):
    """A jet that enters at the left edge; speed 0: none."""

    speed: float = Field(0.0, ge=0, le=150, description="u of the inflow, m/s")
    theta: float = Field(298.0, gt=100, le=1000, description="theta of the inflow, K")
    z: float = Field(7_500.0, description="height of the jet axis, m")
    half_height: float = Field(625.0, gt=0, description="half the jet's thickness, m")


class Time(Section):
    """Duration and time step."""

    end: Seconds = Field(1_000.0, ge=0, description="simulated time, s (or a span, '15 min')")
    cfl: float = Field(
        1.5,
        gt=0,
        description="dt = cfl min(dx, dz) / max_speed; omitted: 1.35 for a jet without `compat`, else 1.5",
    )
    max_speed: float = Field(450.0, gt=0, description="maximum speed of sound plus wind assumed for dt, m/s")
    monitor: int = Field(20, ge=1, description="steps between metric lines and checks of the solution")
    limit: OptionalSpan = Field("", description=LIMIT)


class Config(CheckedTogether):
    """All settings of a run."""

    app: Literal["weather"] = "weather"
    grid: Grid = Field(default_factory=Grid, description="cells and extent")
    base: Base = Field(default_factory=Base, description="the atmosphere at rest")
    bubbles: tuple[Bubble, ...] = Field((Bubble(),), description="initial patches of warm and cold air")
    wave: Wave = Field(default_factory=Wave, description="a band of warm air that sends out linear waves")
    source: Source = Field(default_factory=Source, description="vertical force of the mountain-wave setup")
    inflow: Inflow = Field(default_factory=Inflow, description="jet of the injection setup")
    time: Time = Field(default_factory=Time, description="duration and time step")
    output: Output = Field(default_factory=Output, description="output files")
    report: Report = Field(default_factory=Report, description="contents of the report")
    diffusion: float = Field(
        0.0, ge=0, description="diffusivity of u, w and theta (deviations from the base state), m2/s"
    )
    beta: float = Field(0.05, ge=0, le=1, description="strength of the hyperviscosity")
    precision: Literal["float64", "float32"] = Field("float64", description=PRECISION)
    compat: bool = Field(
        False,
        description="like the miniWeather mini-app: energy without potential energy and without the factor 1/2, the"
        " source counted three times and in both sweeps, hyperviscosity on the base wind too, densities at cell"
        " centers, cfl 1.5 with a jet too",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.inflow.speed and not self.compat and "cfl" not in self.time.model_fields_set:
            # A cold jet needs shorter steps than air at rest; the mini-app takes the same for both.
            object.__setattr__(self, "time", self.time.model_copy(update={"cfl": JET_CFL}))
        return super()._fits_together()

    def problems(self) -> Iterator[str]:
        """Misplaced and contradictory settings."""
        yield from self._misplaced()
        yield from self._contradictions()

    def _misplaced(self) -> Iterator[str]:
        """Positions outside the slab."""
        grid = self.grid
        slab = f"the slab of {grid.width:g} m by {grid.height:g} m"
        shapes: list[tuple[str, Bubble | Source]] = [(f"bubbles.{i}", bubble) for i, bubble in enumerate(self.bubbles)]
        if self.source.amplitude:
            shapes.append(("source", self.source))
        for name, shape in shapes:
            above, below = shape.z + shape.radius_z <= 0, shape.z - shape.radius_z >= grid.height
            if above or below or not 0 <= shape.x <= grid.width:
                yield (
                    f"{name} at x {shape.x:g} m, z {shape.z:g} m lies outside {slab}: move {name}.x or {name}.z, or"
                    " enlarge the grid"
                )
        if self.inflow.speed and not 0 <= self.inflow.z <= grid.height:
            yield f"inflow.z of {self.inflow.z:g} m is not between the ground and {grid.height:g} m"
        if self.base.kind in ("levels", "weisman_klemp", "saturated"):
            yield f"base.kind = {self.base.kind!r} is moist, and the slab is dry: take weather3d"
        if self.wave.amplitude and not 0 <= self.wave.x <= grid.width:
            yield f"wave.x of {self.wave.x:g} m lies outside {slab}: move it, or enlarge the grid"

    def _contradictions(self) -> Iterator[str]:
        """Settings that contradict each other."""
        grid = self.grid
        if self.wave.amplitude and self.base.kind != "isothermal":
            yield f"the wave needs an isothermal base state: base.kind is {self.base.kind!r}, set it to 'isothermal'"
        yield from outruns_sound(self.base, self.time.cfl, self.time.max_speed, self.beta)
        dt = min(grid.dx, grid.dz) / self.time.max_speed * self.time.cfl
        most = 0.5 / (dt * (grid.dx**-2 + grid.dz**-2))
        if self.diffusion > most:
            yield (
                f"diffusion = {self.diffusion:g} m2/s is unstable with steps of {dt:.4g} s: at most {most:.4g} m2/s on"
                " this grid, or lower time.cfl"
            )


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "thermal": (
        "a warm bubble rises in a neutral atmosphere and rolls up",
        {
            "bubbles": [{"amplitude": 3.0}],
            "time": {"end": 1000.0},
            "output": {"every": 100.0},
        },
    ),
    "collision": (
        "a warm bubble from below meets a cold one from above",
        {
            "bubbles": [{"amplitude": 20.0, "z": 2000.0}, {"amplitude": -20.0, "z": 8000.0}],
            "time": {"end": 700.0},
            "output": {"every": 70.0},
        },
    ),
    "density_current": (
        "cold air falls to the ground and spreads in both directions",
        {
            "bubbles": [{"amplitude": -20.0, "z": 5000.0, "radius_x": 4000.0, "radius_z": 2000.0}],
            "time": {"end": 600.0},
            "output": {"every": 60.0},
        },
    ),
    "straka": (
        "the benchmark density current of Straka et al. (1993) on 100 m, with its diffusion",
        {
            "grid": {"nx": 512, "nz": 64, "width": 51_200.0, "height": 6_400.0},
            "bubbles": [
                {
                    "amplitude": -15.0,
                    "x": 25_600.0,
                    "z": 3000.0,
                    "radius_x": 4000.0,
                    "radius_z": 2000.0,
                    "of": "temperature",
                    "keeps": "pressure",
                }
            ],
            "diffusion": 75.0,
            "time": {"end": 900.0},
            "output": {"every": 90.0},
        },
    ),
    "rising_bubble": (
        "a small warm bubble in a box of 1 km (Robert 1993; the smooth one of Giraldo and Restelli 2008) on 5 m",
        {
            "grid": {"nx": 200, "nz": 200, "width": 1000.0, "height": 1000.0},
            "bubbles": [
                {
                    "amplitude": 0.5,
                    "x": 500.0,
                    "z": 350.0,
                    "radius_x": 250.0,
                    "radius_z": 250.0,
                    "keeps": "pressure",
                }
            ],
            "time": {"end": 700.0, "monitor": 500},
            "output": {"every": 70.0},
        },
    ),
    "linear_waves": (
        "a faint warm band in an isothermal channel sends out inertia-gravity waves (Baldauf and Brdar 2013)",
        {
            "grid": {"nx": 600, "nz": 20, "width": 300_000.0, "height": 10_000.0},
            "base": {"kind": "isothermal", "temperature": 250.0, "u": 20.0},
            "bubbles": [],
            "wave": {"amplitude": 0.01},
            "time": {"end": 1800.0},
            "output": {"every": 180.0},
        },
    ),
    "gravity_waves": (
        "stable air flows over a small obstacle and waves form above it (`compat` for the mini-app's stronger force)",
        {
            "base": {"kind": "stable", "frequency": 0.02, "u": 15.0},
            "bubbles": [],
            "source": {"amplitude": 0.01},
            "time": {"end": 1500.0},
            "output": {"every": 150.0},
        },
    ),
    "injection": (
        "a cold jet enters at the left and sinks",
        {
            "bubbles": [],
            "inflow": {"speed": 50.0, "theta": 298.0},
            "time": {"end": 800.0},
            "output": {"every": 80.0},
        },
    ),
    "sounding": (
        "a thermal in an observed atmosphere: give base.file=… (WRF input_sounding or Wyoming listing)",
        {
            "grid": {"nx": 400, "nz": 180, "height": 9000.0},
            "base": {"kind": "sounding"},
            "bubbles": [{"amplitude": 6.0, "z": 1500.0, "radius_x": 2000.0, "radius_z": 1500.0}],
            "time": {"end": 1000.0},
            "output": {"every": 100.0},
        },
    ),
}
