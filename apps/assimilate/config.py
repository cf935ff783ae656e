"""Settings of data assimilation, and its presets."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hpckit.io.settings import LIMIT, OptionalSpan, Section
from hpckit.report.settings import Report

SUMMARY = "data assimilation: the state of shallow water from few and noisy observations, by 4D-Var or an ensemble"
METRICS = {
    "cost": "1",
    "cost_background": "1",
    "gradient": "1",
    "runs": "1",
    "error": "1",
    "error_end": "1",
    "error_h": "m",
    "error_u": "m/s",
    "spread": "1",
}


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


class Config(Section):
    """All settings of a run."""

    app: Literal["assimilate"] = "assimilate"
    grid: Grid = Field(default_factory=Grid, description="the basin")
    physics: Physics = Field(default_factory=Physics, description="the water")
    truth: Truth = Field(default_factory=Truth, description="the state to be found")
    window: Window = Field(default_factory=Window, description="the time with observations")
    observations: Observations = Field(default_factory=Observations, description="what is seen")
    background: Background = Field(default_factory=Background, description="the first guess")
    output: Output = Field(default_factory=Output, description="output files")
    method: Method = Field(default_factory=Method, description="how the analysis is found")
    time: Time = Field(default_factory=Time, description="limits of the run")
    report: Report = Field(default_factory=Report, description="contents of the report")

    @property
    def times(self) -> range:
        """The steps at which there are observations."""
        every = self.observations.every
        return range(every, self.window.steps + 1, every)

    @property
    def observed(self) -> int:
        """How many cells are observed."""
        return max(1, round(self.observations.share * self.grid.ny * self.grid.nx))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        speed = (self.physics.gravity * self.physics.depth) ** 0.5
        courant = speed * self.window.dt / self.grid.dx
        wrong = []
        if not self.times:
            every = self.observations.every
            wrong.append(f"observations.every is {every}, and the window has {self.window.steps} steps")
        if courant > STEEPEST:
            most = STEEPEST * self.grid.dx / speed
            wrong.append(f"window.dt is {self.window.dt:g} s, and waves of {speed:.3g} m/s need at most {most:.4g} s")
        if self.truth.amplitude > 0.25 * self.physics.depth:
            wrong.append(f"truth.amplitude is {self.truth.amplitude:g} m: at most a quarter of physics.depth")
        shortest = min(self.grid.ny, self.grid.nx)
        for name, scale in (("truth.scale", self.truth.scale), ("background.scale", self.background.scale)):
            if scale > shortest / 4:
                wrong.append(f"{name} is {scale:g} cells, at most a quarter of the basin, {shortest / 4:g}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "shallow_water": ("a layer on a rotating plane, seen at 1 % of the points: 30 iterations of 4D-Var", {}),
    "shallow_water_cg": (
        "the same with outer loops and conjugate gradients",
        {"method": {"kind": "4dvar_cg", "iterations": 4, "inner": 10}},
    ),
    "shallow_water_letkf": ("the same by an ensemble Kalman filter of 32 members", {"method": {"kind": "letkf"}}),
}
