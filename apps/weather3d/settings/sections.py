"""All sections together, and the steps that follow from them; `together` has the rules between them."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from hpckit.apps.atmosphere import settings
from hpckit.apps.common.settings import PRECISION
from hpckit.apps.weather3d.settings.box import Base, Grid, Lid, Sides
from hpckit.apps.weather3d.settings.output import Output, Parcels, Time
from hpckit.apps.weather3d.settings.physics import Dynamics, Moisture, Smagorinsky, Tracer
from hpckit.apps.weather3d.settings.starts import Band, Bubble, Jet, Wave
from hpckit.io.settings import Section
from hpckit.report.settings import Report

SOUND = 350.0  # m/s: air of 305 K
# Condensation slows sound, but acts after a large step: waves that turn by half a circle in one gain from that (von
# Neumann's analysis: by 9 % a step with two substeps, if it takes a tenth of the pressure). Substeps and damping as
# here keep them down.
MOIST_SUBSTEPS, MOIST_DAMPING = 4, 0.05


class Settings(Section):
    """All sections of a run file."""

    app: Literal["weather3d"] = "weather3d"
    grid: Grid = Field(default_factory=Grid, description="cells and extent")
    sides: Sides = Field(default_factory=Sides, description="periodic, walls or open")
    dynamics: Dynamics = Field(default_factory=Dynamics, description="scheme of the dynamics")
    lid: Lid = Field(default_factory=Lid, description="sponge below the lid")
    terrain: settings.Terrain = Field(default_factory=settings.Terrain, description="height of the ground")
    base: Base = Field(default_factory=Base, description="the atmosphere at rest")
    bubbles: tuple[Bubble, ...] = Field((Bubble(),), description="initial patches of warm and cold air")
    band: Band = Field(default_factory=Band, description="initial band of warm air")
    wave: Wave = Field(default_factory=Wave, description="a band of warm air that sends out linear waves")
    jet: Jet = Field(default_factory=Jet, description="initial jet")
    surface: settings.Surface = Field(default_factory=settings.Surface, description="fluxes at the ground")
    forcing: settings.Forcing = Field(default_factory=settings.Forcing, description="large scales and radiation")
    radiation: settings.Radiation = Field(default_factory=settings.Radiation, description="longwave, of clouds")
    noise: settings.Noise = Field(default_factory=settings.Noise, description="random theta' and vapor at the start")
    moisture: Moisture = Field(default_factory=Moisture, description="water in the air")
    tracers: tuple[Tracer, ...] = Field((), description="tracers that the air carries")
    parcels: Parcels = Field(default_factory=Parcels, description="parcels that the wind carries")
    time: Time = Field(default_factory=Time, description="duration and time step")
    output: Output = Field(default_factory=Output, description="output files")
    precision: Literal["float64", "float32"] = Field("float64", description=PRECISION)
    report: Report = Field(default_factory=Report, description="contents of the report")
    coriolis: float = Field(
        0.0, ge=-1e-2, le=1e-2, description="Coriolis parameter f, 1/s; acts on deviations from the base wind"
    )
    diffusion: float = Field(
        0.0, ge=0, description="diffusivity of u, v, w and theta (deviations from the base state), m2/s"
    )
    prandtl: float = Field(1.0, gt=0, le=10, description="hevi: theta, water and tracers get diffusion / prandtl")
    smagorinsky: Smagorinsky = Field(default_factory=Smagorinsky, description="eddy viscosity")
    drag: float = Field(0.0, ge=0, le=1, description="drag coefficient of the ground, Cd of rho Cd |V| V")
    beta: float = Field(0.05, ge=0, le=1, description="strength of the hyperviscosity")

    @property
    def full_step(self) -> float:
        """The full time step, s."""
        grid = self.grid
        if self.dynamics.kind == "hevi":
            return self.dynamics.step or 6e-3 * min(grid.dx, grid.dy)
        return min(grid.dx, grid.dy, grid.dz) / self.time.max_speed * self.time.cfl

    @property
    def substeps(self) -> tuple[int, int, int]:
        """Acoustic substeps of the three stages, which are a third, half and all of a step (hevi)."""
        passed = SOUND * math.hypot(1 / self.grid.dx, 1 / self.grid.dy) * self.full_step  # cells in a step
        moist = self.moisture.kind != "none"
        least = self.dynamics.substeps or max(passed / self.dynamics.acoustic_cfl, MOIST_SUBSTEPS if moist else 0)
        one, two, three = (max(1, math.ceil(least * share - 1e-9)) for share in (1 / 3, 1 / 2, 1.0))
        return one, two, three
