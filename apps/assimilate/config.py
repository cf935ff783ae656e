"""Settings of data assimilation, and its presets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.apps.common.settings import CheckedTogether
from hpckit.io.settings import LIMIT, OptionalSpan, Section
from hpckit.report.settings import Report

SUMMARY = "data assimilation: a state, or a map of friction, from few and noisy observations, by 4D-Var or an ensemble"
METRICS = {
    "cost": "1",
    "cost_background": "1",
    "gradient": "1",
    "runs": "1",
    "error": "1",
    "error_end": "1",
    "error_h": "m",
    "error_u": "m/s",
    "error_n": "1",
    "spread": "1",
}


SLOWEST = 0.7  # Courant number of a flood's waves (Bates et al. 2010)
STEEPEST = 0.55  # Courant number of the waves: waves along both dims at 3^0.5 of Runge and Kutta


class Grid(Section):
    """The basin, periodic in both dims."""

    ny: int = Field(64, ge=16, description="cells along y")
    nx: int = Field(64, ge=16, description="cells along x")
    dx: float = Field(50e3, gt=0, description="edge of a cell (m)")


class Physics(Section):
    """A layer of water on a rotating plane."""

    gravity: float = Field(9.81, gt=0, description="gravity (m/s2); less for a layer above denser water")
    depth: float = Field(1000.0, gt=0, description="mean thickness (m)")
    f: float = Field(1e-4, gt=0, description="Coriolis parameter (1/s)")
    viscosity: float = Field(1e4, ge=0, description="viscosity (m2/s)")


class Truth(Section):
    """The state that the experiment knows, and the analysis has to find: eddies in geostrophic balance."""

    amplitude: float = Field(60.0, gt=0, description="root mean square of the surface's displacement (m)")
    scale: float = Field(10.0, ge=1, le=40, description="length of the eddies (cells)")
    spin_up: int = Field(100, ge=0, description="steps before the window")
    seed: int = Field(1, ge=0, description="random seed of truth, background and observations")


class Window(Section):
    """The time in which there are observations."""

    steps: int = Field(240, ge=1, description="time steps")
    dt: float = Field(250.0, gt=0, description="time step (s)")


class Observations(Section):
    """What is seen: h, u and v at some points."""

    share: float = Field(0.01, gt=0, le=1, description="share of the cells that are observed")
    every: int = Field(6, ge=1, description="steps between observations")
    error_h: float = Field(2.0, gt=0, description="error of h (m), standard deviation")
    error_u: float = Field(0.2, gt=0, description="error of u and v (m/s)")


class Valley(Section):
    """Of the flood: a valley that falls along x, and a reservoir at its upper end whose dam is gone at the start."""

    fall: float = Field(0.002, ge=0, lt=0.1, description="fall of the valley along x (1)")
    banks: float = Field(6.0, ge=0, description="height of its sides above its middle (m), a parabola across")
    reservoir: float = Field(5.0, gt=0, description="depth of the water at the dam (m)")
    dam: float = Field(0.25, gt=0, lt=0.9, description="place of the dam, share of the length from the upper end")
    dry: float = Field(1e-3, gt=0, le=0.1, description="depth below which no water passes from cell to cell (m)")


class Roughness(Section):
    """Of the flood: Manning's n, which is to be found. Its logarithm is normal, with a correlation in space."""

    manning: float = Field(0.04, gt=0, le=0.5, description="the first guess, the same everywhere (s/m^(1/3))")
    spread: float = Field(0.4, gt=0, le=2, description="standard deviation of the logarithm of n")
    scale: float = Field(5.0, ge=1, le=40, description="length of the patches (cells)")


class Gauges(Section):
    """Of the flood: cells where the depth is read."""

    count: int = Field(25, ge=1, description="how many")
    every: int = Field(10, ge=1, description="steps between readings")
    error: float = Field(0.02, gt=0, description="error of a reading (m), standard deviation")


class Background(Section):
    """The first guess: the truth, and errors that are correlated in space."""

    error: float = Field(20.0, gt=0, description="error of h (m), with a current in balance")
    unbalanced: float = Field(1.0, gt=0, description="error of u and v beside that (m/s)")
    scale: float = Field(10.0, ge=1, le=40, description="length of correlation (cells)")


class Method(Section):
    """How the analysis is found."""

    kind: Literal["4dvar", "4dvar_cg", "letkf"] = Field(
        "4dvar",
        description="4dvar: L-BFGS; 4dvar_cg: outer loops about a trajectory, in each conjugate gradients on"
        " its quadratic cost; letkf: an ensemble Kalman filter",
    )
    iterations: int = Field(30, ge=1, description="of 4dvar: steps of L-BFGS; of 4dvar_cg: outer loops")
    inner: int = Field(10, ge=1, description="iterations of conjugate gradients in an outer loop")
    memory: float = Field(1024.0, gt=0, description="MiB a rank for the states of the window; less costs time, no bits")
    members: int = Field(32, ge=2, le=1000, description="of letkf: runs of the ensemble")
    radius: float = Field(12.0, gt=0, description="of letkf: cells beyond which an observation has no weight")
    inflation: float = Field(1.05, ge=1, description="of letkf: factor of the spread after each analysis")


class Output(Section):
    """Output files: h, u, v of truth, background and analysis at the start and the end of the window."""

    single: bool = Field(True, description="write fields in single precision")


class Time(Section):
    """Limits of a run."""

    limit: OptionalSpan = Field("", description=LIMIT)


class Config(CheckedTogether):
    """All settings of a run."""

    app: Literal["assimilate"] = "assimilate"
    case: Literal["water", "flood"] = Field(
        "water",
        description="water: the state of a layer on a rotating plane; flood: a map of Manning's n from gauges in a"
        " valley (4dvar alone), with [valley], [roughness], [gauges] in place of [observations] and [background]",
    )
    grid: Grid = Field(default_factory=Grid, description="the basin")
    physics: Physics = Field(default_factory=Physics, description="the water")
    truth: Truth = Field(default_factory=Truth, description="the state to be found")
    window: Window = Field(default_factory=Window, description="the time with observations")
    observations: Observations = Field(default_factory=Observations, description="what is seen")
    background: Background = Field(default_factory=Background, description="the first guess")
    valley: Valley = Field(default_factory=Valley, description="the valley of the flood, and its water")
    roughness: Roughness = Field(default_factory=Roughness, description="the roughness of the valley")
    gauges: Gauges = Field(default_factory=Gauges, description="where the depth of the flood is read")
    output: Output = Field(default_factory=Output, description="output files")
    method: Method = Field(default_factory=Method, description="how the analysis is found")
    time: Time = Field(default_factory=Time, description="limits of the run")
    report: Report = Field(default_factory=Report, description="contents of the report")

    @property
    def times(self) -> range:
        """The steps at which there are observations."""
        every = self.gauges.every if self.case == "flood" else self.observations.every
        return range(every, self.window.steps + 1, every)

    @property
    def observed(self) -> int:
        """How many cells are observed."""
        if self.case == "flood":
            return self.gauges.count
        return max(1, round(self.observations.share * self.grid.ny * self.grid.nx))

    @property
    def readings(self) -> int:
        """How many numbers are observed: depths at gauges, or h, u and v at stations."""
        return self.observed * len(self.times) * (1 if self.case == "flood" else 3)

    def problems(self) -> Iterator[str]:
        """Settings that contradict each other."""
        return self._wrong_flood() if self.case == "flood" else self._wrong_water()

    def _wrong_water(self) -> Iterator[str]:
        speed = (self.physics.gravity * self.physics.depth) ** 0.5
        if not self.times:
            yield f"observations.every is {self.observations.every}, and the window has {self.window.steps} steps"
        yield from self._too_fast(speed, STEEPEST)
        if self.truth.amplitude > 0.25 * self.physics.depth:
            yield f"truth.amplitude is {self.truth.amplitude:g} m: at most a quarter of physics.depth"
        yield from self._too_long({"truth.scale": self.truth.scale, "background.scale": self.background.scale})

    def _wrong_flood(self) -> Iterator[str]:
        if self.method.kind != "4dvar":
            yield f"method.kind is {self.method.kind}: the case flood has 4dvar alone"
        if not self.times:
            yield f"gauges.every is {self.gauges.every}, and the window has {self.window.steps} steps"
        # At the upper end the water of the reservoir is less deep by what the valley rises to there.
        yield from self._too_fast((self.physics.gravity * self.valley.reservoir) ** 0.5, SLOWEST)
        yield from self._too_long({"roughness.scale": self.roughness.scale})

    def _too_fast(self, speed: float, most: float) -> Iterator[str]:
        longest = most * self.grid.dx / speed
        if self.window.dt > longest:
            yield f"window.dt is {self.window.dt:g} s, and waves of {speed:.3g} m/s need at most {longest:.4g} s"

    def _too_long(self, scales: dict[str, float]) -> Iterator[str]:
        shortest = min(self.grid.ny, self.grid.nx)
        for name, scale in scales.items():
            if scale > shortest / 4:
                yield f"{name} is {scale:g} cells, at most a quarter of the basin, {shortest / 4:g}"


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "shallow_water": ("a layer on a rotating plane, seen at 1 % of the points: 30 iterations of 4D-Var", {}),
    "shallow_water_cg": (
        "the same with outer loops and conjugate gradients",
        {"method": {"kind": "4dvar_cg", "iterations": 4, "inner": 10}},
    ),
    "flood_friction": (
        "a map of Manning's n in a valley from the depth at 25 gauges: 30 iterations of 4D-Var",
        {
            "case": "flood",
            "grid": {"ny": 32, "nx": 80, "dx": 25.0},
            "window": {"steps": 400, "dt": 1.5},
            "method": {"iterations": 30},
        },
    ),
    "shallow_water_letkf": ("the same by an ensemble Kalman filter of 32 members", {"method": {"kind": "letkf"}}),
}
