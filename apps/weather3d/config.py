"""Settings of the weather3d app, and its presets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpckit.apps.atmosphere import output, settings
from hpckit.apps.atmosphere.stability import outruns_sound
from hpckit.apps.common.settings import PRECISION
from hpckit.apps.common.settings import device_problems as device_problems
from hpckit.apps.weather3d.presets import PRESETS as PRESETS
from hpckit.io.settings import LIMIT, OptionalSpan, Seconds, Section
from hpckit.report.settings import Report

SUMMARY = "compressible, non-hydrostatic atmosphere in a box: thermals, storms, clouds, terrain, jets, soundings"
SOUND = 350.0  # m/s: air of 305 K
# Condensation slows sound, but acts after a large step: waves that turn by half a circle in one gain from that (von
# Neumann's analysis: by 9 % a step with two substeps, if it takes a tenth of the pressure). Substeps and damping as
# here keep them down.
MOIST_SUBSTEPS, MOIST_DAMPING = 4, 0.05
METRICS = {
    "mass": "kg",
    "energy": "J",
    "w_max": "m/s",
    "theta_min": "K",
    "theta_max": "K",
    "mass_through_sides": "kg",
    "mass_relaxed": "kg",
    "eddy_viscosity_max": "m2/s",
    "rain_on_ground": "kg",
    "snow_on_ground": "kg",
    "graupel_on_ground": "kg",
    "cloud_cover": "1",
    "liquid_water_path": "kg/m2",
    "ice_water_path": "kg/m2",
    "air_heated": "J",
    "water_heat": "J",
}
GPU = True  # supports `hpckit run --gpu`


class Grid(Section):
    """The box: cells and extent."""

    nx: int = Field(128, ge=6, description="cells in x; each rank gets at least 6")
    ny: int = Field(128, ge=6, description="cells in y; each rank gets at least 6")
    nz: int = Field(64, ge=4, description="cells in z")
    width: float = Field(20_000.0, gt=0, description="extent in x, m")
    length: float = Field(20_000.0, gt=0, description="extent in y, m")
    height: float = Field(10_000.0, gt=0, description="extent in z, m (rigid free-slip walls below and above)")

    lowest: float = Field(
        0.0, ge=0, description="thickness of the lowest cells, m; those above grow by one factor; 0: all alike"
    )

    @property
    def edges(self) -> np.ndarray:
        """Heights of the faces between levels (m), float64[nz + 1]."""
        if not self.lowest:
            return np.arange(self.nz + 1) * self.dz
        growth = stretching(self.lowest, self.height, self.nz)
        edges = self.lowest * np.concatenate([[0.0], np.cumsum(growth ** np.arange(self.nz))])
        return edges * (self.height / edges[-1])

    @property
    def dx(self) -> float:
        """Cell extent in x, m."""
        return self.width / self.nx

    @property
    def dy(self) -> float:
        """Cell extent in y, m."""
        return self.length / self.ny

    @property
    def dz(self) -> float:
        """Cell extent in z, m."""
        return self.height / self.nz


def stretching(lowest: float, height: float, nz: int) -> float:
    """The factor by which the thickness of levels grows, if nz of them from `lowest` (m) on fill `height` (m)."""
    low, high = 0.0, 4.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if lowest * sum(middle**k for k in range(nz)) > height else (middle, high)
    return 0.5 * (low + high)


class Dynamics(Section):
    """The scheme of the dynamics: the explicit one of steps of sound, or the split one of steps of the flow.

    "hevi" takes large steps (Runge and Kutta's three stages, Wicker and Skamarock 2002) and within them acoustic
    substeps, explicit in the horizontal and implicit in the vertical, on Arakawa's C grid.
    """

    kind: Literal["explicit", "hevi"] = Field("explicit", description="explicit, or split (hevi)")
    step: float = Field(0.0, ge=0, description="hevi: large step, s; 0: 6 s per km of the finer of dx and dy")
    substeps: int = Field(0, ge=0, le=100, description="hevi: acoustic substeps of a step; 0: by acoustic_cfl")
    acoustic_cfl: float = Field(
        0.83, gt=0, le=0.9, description="hevi: greatest Courant number of sound (350 m/s) in x and y together"
    )
    order: Literal[3, 5, 6] = Field(5, description="hevi: order of advection: upwind 3 or 5, centered 6")
    weno: bool = Field(
        False, description="hevi: WENO-Z instead of upwind 5: hardly new extremes at jumps; a step takes longer"
    )
    implicit: float = Field(0.55, ge=0.5, le=1, description="hevi: share of the new level in the vertical")
    damping: float = Field(0.1, ge=0, le=0.25, description="hevi: damping of the divergence")


MOST_PARCELS = 10_000
WATER = ("vapor", "cloud", "rain", "ice", "snow", "graupel")
WARM, AT_GROUND = WATER[:3], ("rain", "snow", "graupel")
FIELD_NAMES = (
    *WATER,
    *(f"{kind}_at_ground" for kind in AT_GROUND),
    *output.DEVIATIONS,
    *output.FULL,
    "theta_base",
    "rho_base",
    "pressure_base",
    "altitude",
    "surface_altitude",
    "x",
    "y",
    "z",
    "time",
)
STATISTICS = ("_variance", "_flux")  # how their names end
Side = Literal["periodic", "walls", "open"]


class Sides(Section):
    """The four sides. Periodic, free-slip walls, or open: air and waves leave, and inflow is base-state air.

    Within `width` of an open side the state is relaxed toward the base state and its wind.
    """

    x: Side = Field("periodic", description="sides normal to x")
    y: Side = Field("periodic", description="sides normal to y")
    width: float = Field(4_000.0, ge=0, description="depth of the relaxation zone inside an open side, m; 0: none")
    time: float = Field(60.0, gt=0, description="relaxation time at an open side, s; the relaxation fades inward")


class Lid(Section):
    """A Rayleigh sponge below the lid, which relaxes u, v, w and theta toward the base state; depth 0: none."""

    depth: float = Field(0.0, ge=0, description="depth of the sponge, m")
    time: float = Field(300.0, gt=0, description="relaxation time at the lid, s; the relaxation fades downward")


class Base(settings.Base):
    """The base state: an atmosphere at rest, or in a flow that depends on z alone."""

    v: float = Field(0.0, ge=-150, le=150, description="uniform wind along y, m/s; ignored with base.wind")
    wind: bool = Field(False, description="use the wind of the sounding (east is x, north is y)")


class Bubble(Section):
    """An initial patch of warm or cold air: amplitude cos(pi d / 2)**2 within the ellipsoid d < 1."""

    amplitude: float = Field(3.0, ge=-100, le=100, description="theta perturbation at the center, K")
    x: float = Field(10_000.0, description="center, m")
    y: float = Field(10_000.0, description="center, m")
    z: float = Field(2_000.0, description="center, m")
    radius_x: float = Field(2_000.0, gt=0, description="semi-axis, m")
    radius_y: float = Field(2_000.0, gt=0, description="semi-axis, m")
    radius_z: float = Field(2_000.0, gt=0, description="semi-axis, m")
    keeps: Literal["density", "pressure"] = Field(
        "density", description="undisturbed variable: density (sudden heating), or pressure (after sound has left)"
    )


class Band(Section):
    """A band of warm air across the box that sends out inertia-gravity waves (Skamarock and Klemp 1994).

    theta' = amplitude sin(pi z / height) / (1 + ((x - x0) / half_width)**2); amplitude 0: none.
    """

    amplitude: float = Field(0.0, ge=-10, le=10, description="theta perturbation at the center, K")
    x: float = Field(100_000.0, description="center, m")
    half_width: float = Field(5_000.0, gt=0, description="distance at which half of the amplitude is left, m")


class Wave(settings.Wave):
    """A band of warm air that sends out linear inertia-gravity waves (Baldauf and Brdar 2013); amplitude 0: none."""

    along: Literal["x", "y"] = Field("x", description="direction of travel, along which x and half_width are measured")


class Jet(Section):
    """An initial jet along x, speed / (cosh(dy / half_width) cosh(dz / half_height))**2; speed 0: none.

    A small v of the same shape, a wave along x, makes it meander. A balanced jet starts with the pressure and density
    that balance the Coriolis force exactly in the discrete operators, and stays.
    """

    speed: float = Field(0.0, ge=-150, le=150, description="u at the center, m/s")
    y: float = Field(10_000.0, description="center, m")
    z: float = Field(5_000.0, description="center, m")
    half_width: float = Field(1_500.0, gt=0, description="half width in y, m")
    half_height: float = Field(3_000.0, gt=0, description="half height in z, m")
    wobble: float = Field(1.0, ge=-50, le=50, description="amplitude of v, m/s")
    waves: int = Field(2, ge=1, description="wavelengths of v along x")
    balanced: bool = Field(False, description="start in geostrophic and hydrostatic balance")


class Smagorinsky(Section):
    """Diffusion by unresolved turbulence with Smagorinsky's and Lilly's eddy viscosity; coefficient 0: none."""

    coefficient: float = Field(0.0, ge=0, le=1, description="Cs of K = (Cs Delta)^2 |D|; usually 0.18 to 0.25")
    prandtl: float = Field(1 / 3, gt=0, le=10, description="turbulent Prandtl number: theta and tracers get K / Pr")


class Moisture(Section):
    """Water in the air, with split dynamics: vapor and cloud that turn into each other, Kessler's rain, or ice too."""

    kind: Literal["none", "reversible", "kessler", "ice"] = Field(
        "none", description="none; reversible: vapor and cloud; kessler: rain too; ice: and cloud ice, snow, graupel"
    )
    equations: Literal["dry_heat", "complete"] = Field(
        "dry_heat",
        description="dry_heat: air has the heat capacity of its dry part; complete: water has its own (reversible)",
    )
    transport: Literal["monotone", "linear"] = Field(
        "monotone",
        description="monotone: water and tracers get no new extremes; linear: fifth order, as theta, for cloud that"
        " fills the box",
    )

    @property
    def water(self) -> tuple[str, ...]:
        """The kinds of water in the air."""
        return () if self.kind == "none" else WATER if self.kind == "ice" else WARM

    @property
    def falls(self) -> tuple[str, ...]:
        """The kinds of water that reach the ground."""
        return AT_GROUND if self.kind == "ice" else AT_GROUND[: self.kind != "none"]


class Tracer(Section):
    """A tracer that the air carries, in kg per kg of air: `background`, plus `amount` within a shape.

    A blob is an ellipsoid, a layer lies between z - radius_z and z + radius_z; inside, it adds
    amount cos(pi d / 2)**2, where d is 1 at the edge, or a constant amount if sharp.
    """

    name: str = Field(pattern="^[a-z][a-z0-9_]*$", description="name of the field in the output: a-z, 0-9, _")
    shape: Literal["blob", "layer", "uniform"] = Field("blob", description="initial shape")
    amount: float = Field(1.0, description="excess over the background at the center")
    background: float = Field(0.0, description="mixing ratio everywhere else")
    sharp: bool = Field(False, description="constant amount up to the edge")
    x: float = Field(10_000.0, description="center, m (blob)")
    y: float = Field(10_000.0, description="center, m (blob)")
    z: float = Field(2_000.0, description="center, m")
    radius_x: float = Field(2_000.0, gt=0, description="semi-axis, m (blob)")
    radius_y: float = Field(2_000.0, gt=0, description="semi-axis, m (blob)")
    radius_z: float = Field(2_000.0, gt=0, description="semi-axis, or half the thickness of a layer, m")


Row = tuple[float, float, int]


class Parcels(Section):
    """Parcels whose trajectories are written each `output.series`: a lattice at the start; 0 of them in a dim: none."""

    x: Row = Field((0.0, 0.0, 0), description="first and last place along x (m), and how many")
    y: Row = Field((0.0, 0.0, 0), description="first and last place along y (m), and how many")
    z: Row = Field((500.0, 500.0, 1), description="first and last height (m), and how many")

    @property
    def count(self) -> int:
        """The number of parcels."""
        return self.x[2] * self.y[2] * self.z[2]


class Station(Section):
    """A station, whose cell has a time series."""

    name: str = Field(pattern="^[A-Za-z0-9_.-]+$", description="name: letters, digits, _ . -")
    x: float = Field(description="place, m")
    y: float = Field(description="place, m")


class Output(settings.Output):
    """Output files."""

    statistics: float = Field(
        0.0, ge=0, description="simulated time between column statistics (means, variances, fluxes), s; 0: none"
    )
    stations: tuple[Station, ...] = Field((), description="places whose lowest cell has a time series")
    series: float = Field(60.0, gt=0, description="simulated time between values at stations and of parcels, s")
    maps: bool = Field(
        False, description="maps of rain, updraft and its helicity since the last frame, with each frame"
    )


class Time(Section):
    """Duration and time step."""

    end: Seconds = Field(1_000.0, ge=0, description="simulated time, s (or a span, '15 min')")
    cfl: float = Field(1.25, gt=0, description="dt = cfl min(dx, dy, dz) / max_speed")
    max_speed: float = Field(400.0, gt=0, description="maximum speed of sound plus wind assumed for dt, m/s")
    monitor: int = Field(20, ge=1, description="steps between metric lines and checks of the solution")
    limit: OptionalSpan = Field("", description=LIMIT)


class Config(Section):
    """All settings of a run."""

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
    noise: settings.Noise = Field(default_factory=settings.Noise, description="random theta' at the start")
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

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._misplaced(), *self._wrong_sides(), *self._wrong_names(), *self._unstable(), *self._unsplit()]
        problems += self._over_terrain()
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _misplaced(self) -> Iterator[str]:
        """Positions outside the box."""
        grid, jet = self.grid, self.jet
        box = f"the box of {grid.width:g} m by {grid.length:g} m by {grid.height:g} m"
        for i, bubble in enumerate(self.bubbles):
            above, below = bubble.z + bubble.radius_z <= 0, bubble.z - bubble.radius_z >= grid.height
            if above or below or not (0 <= bubble.x <= grid.width and 0 <= bubble.y <= grid.length):
                yield (
                    f"bubbles.{i} at x {bubble.x:g} m, y {bubble.y:g} m, z {bubble.z:g} m lies outside {box}: move it,"
                    " or enlarge the grid"
                )
        if jet.speed and not (0 <= jet.y <= grid.length and 0 <= jet.z <= grid.height):
            yield f"the jet at y {jet.y:g} m, z {jet.z:g} m lies outside {box}: move jet.y or jet.z"
        if self.band.amplitude and not 0 <= self.band.x <= grid.width:
            yield f"band.x of {self.band.x:g} m lies outside {box}: move it"
        extent = grid.width if self.wave.along == "x" else grid.length
        if self.wave.amplitude and not 0 <= self.wave.x <= extent:
            yield f"wave.x of {self.wave.x:g} m lies outside {box}, along {self.wave.along}: move it"
        for i, tracer in enumerate(self.tracers):
            above, below = tracer.z + tracer.radius_z <= 0, tracer.z - tracer.radius_z >= grid.height
            beside = tracer.shape == "blob" and not (0 <= tracer.x <= grid.width and 0 <= tracer.y <= grid.length)
            if tracer.shape != "uniform" and (above or below or beside):
                yield (
                    f"tracers.{i} at x {tracer.x:g} m, y {tracer.y:g} m, z {tracer.z:g} m lies outside {box}: move it,"
                    " or enlarge the grid"
                )
        for axis, extent in (("x", grid.width), ("y", grid.length), ("z", grid.height)):
            low, high, count = getattr(self.parcels, axis)
            inside = 0 <= low <= high <= extent or not self.parcels.count  # where none are asked for, in any box
            if not (0 <= count <= MOST_PARCELS and inside):
                yield f"parcels.{axis}: give first and last place from 0 to {extent:g} m and a number of parcels"
        if self.parcels.count > MOST_PARCELS:
            yield f"{self.parcels.count} parcels are too many: at most {MOST_PARCELS}"
        for i, station in enumerate(self.output.stations):
            if not (0 <= station.x <= grid.width and 0 <= station.y <= grid.length):
                yield f"output.stations.{i} at x {station.x:g} m, y {station.y:g} m lies outside {box}: move it"
            if station.name in [each.name for each in self.output.stations[:i]]:
                yield f"output.stations.{i}.name = {station.name!r} is taken: give each station its own"
        if self.wave.amplitude and self.base.kind != "isothermal":
            yield f"the wave needs an isothermal base state: base.kind is {self.base.kind!r}, set it to 'isothermal'"
        if self.lid.depth >= grid.height:
            yield f"lid.depth of {self.lid.depth:g} m fills the box of {grid.height:g} m: lower it"

    def _wrong_sides(self) -> Iterator[str]:
        """Sides that contradict the wind, and relaxation zones that fill the box."""
        grid, base, sides = self.grid, self.base, self.sides
        for axis, wind, extent in (("x", base.u, grid.width), ("y", base.v, grid.length)):
            kind = getattr(sides, axis)
            if kind == "walls" and (wind or base.wind):
                name = "base.wind" if base.wind else "base.u" if axis == "x" else "base.v"
                yield f"sides.{axis} are walls, and the wind of {name} blows through them: drop one of the two"
            if kind == "open" and 2 * sides.width >= extent:
                yield f"sides.width of {sides.width:g} m leaves no interior in {axis}, which is {extent:g} m: lower it"

        if self.jet.speed and self.jet.balanced and not (self.coriolis and sides.y == "walls"):
            yield "jet.balanced needs a Coriolis force and walls beside the jet: set coriolis and sides.y = 'walls'"

    def _wrong_names(self) -> Iterator[str]:
        """Tracers whose names are taken."""
        names = [tracer.name for tracer in self.tracers]
        for i, name in enumerate(names):
            if name in FIELD_NAMES:
                yield f"tracers.{i}.name = {name!r} is taken: {', '.join(FIELD_NAMES)} are other fields of the output"
            elif self.output.statistics and name.endswith(STATISTICS):
                yield f"tracers.{i}.name = {name!r} may not end in {' or '.join(STATISTICS)}: statistics are called so"
            elif name in names[:i]:
                yield f"tracers.{i}.name = {name!r} is taken by tracers.{names.index(name)}"

    def _unstable(self) -> Iterator[str]:
        grid, dt = self.grid, self.full_step
        if self.dynamics.kind == "explicit":
            yield from outruns_sound(self.base, self.time.cfl, self.time.max_speed, self.beta)
        thinnest = float(np.diff(grid.edges).min())
        most = 0.5 / (dt * (grid.dx**-2 + grid.dy**-2 + thinnest**-2))
        if self.diffusion / min(self.prandtl, 1.0) > most:
            yield (
                f"diffusion = {self.diffusion:g} m2/s is unstable with steps of {dt:.4g} s: at most {most:.4g} m2/s on"
                f" this grid, or lower {'time.cfl' if self.dynamics.kind == 'explicit' else 'dynamics.step'}"
            )

    def _unsplit(self) -> Iterator[str]:
        """Settings that one of the two dynamics does not have."""
        grid, dynamics = self.grid, self.dynamics
        if dynamics.kind == "explicit":
            if grid.lowest:
                yield "grid.lowest (stretched levels) needs the split dynamics: set dynamics.kind = 'hevi'"
            for name, is_on in (("output.maps", self.output.maps), ("parcels", self.parcels.count)):
                if is_on:
                    yield f"{name} needs the split dynamics: set dynamics.kind = 'hevi'"
            if self.prandtl != 1:
                yield "prandtl needs the split dynamics: set dynamics.kind = 'hevi'"
            for name in ("surface", "forcing", "radiation"):
                if getattr(self, name) != type(getattr(self, name))():
                    yield f"{name} needs the split dynamics: set dynamics.kind = 'hevi'"
            if self.terrain.kind != "flat":
                yield f"terrain.kind = {self.terrain.kind!r} needs the split dynamics: set dynamics.kind = 'hevi'"
            if self.moisture.kind != "none":
                yield f"moisture.kind = {self.moisture.kind!r} needs the split dynamics: set dynamics.kind = 'hevi'"
            if self.moisture.transport != "monotone":
                yield "moisture.transport = 'linear' needs the split dynamics: set dynamics.kind = 'hevi'"
            if self.base.kind == "saturated":
                yield "base.kind = 'saturated' is moist: set dynamics.kind = 'hevi' and moisture.kind = 'reversible'"
            if self.base.kind == "weisman_klemp":
                yield "base.kind = 'weisman_klemp' is moist: set dynamics.kind = 'hevi' and moisture.kind = 'kessler'"
            return
        moisture = self.moisture
        if moisture.equations == "complete" and moisture.kind != "reversible":
            yield f"moisture.equations = 'complete' needs moisture.kind = 'reversible', not {moisture.kind!r}: no rain"
        if moisture.transport == "linear" and moisture.kind in ("kessler", "ice"):
            yield (
                "moisture.transport = 'linear' may leave less than no rain, which cannot fall: set it to 'monotone'"
                f" with moisture.kind = {moisture.kind!r}"
            )
        if self.base.kind == "saturated" and moisture.equations != "complete":
            yield "base.kind = 'saturated' needs moisture.kind = 'reversible' and moisture.equations = 'complete'"
        if self.base.kind == "weisman_klemp" and self.moisture.kind == "none":
            yield "base.kind = 'weisman_klemp' is moist: set moisture.kind = 'kessler', 'ice' or 'reversible'"
        if self.jet.speed and self.moisture.kind != "none":
            yield "a jet has no moisture: leave jet.speed out, or set moisture.kind = 'none'"
        if grid.lowest * grid.nz > grid.height:
            yield f"grid.lowest of {grid.lowest:g} m times {grid.nz} levels is above grid.height: lower it"
        if self.parcels.count and "open" in (self.sides.x, self.sides.y):
            yield "parcels would leave the box: leave them out, or set sides.x and sides.y to 'periodic' or 'walls'"
        wet = any((self.surface.vapor, self.surface.humidity, self.forcing.drying))
        if wet and moisture.kind == "none":
            yield "surface.vapor, surface.humidity and forcing.drying need moist air: set moisture.kind"
        if self.radiation.top and moisture.kind == "none":
            yield "radiation needs clouds: set moisture.kind"
        for name, points in self.forcing:
            if any(high[0] <= low[0] for low, high in itertools.pairwise(points)):
                yield f"forcing.{name}: the heights of its points must grow"
        if any(wind > 0 for _, wind in self.forcing.subsidence):
            yield "forcing.subsidence must not be above 0: air that sinks has a wind below 0"
        if self.jet.speed and self.jet.balanced:
            yield "jet.balanced is balanced for the explicit scheme: set dynamics.kind = 'explicit'"
        if dynamics.weno and dynamics.order != 5:
            yield f"dynamics.weno is of fifth order: leave out dynamics.order = {dynamics.order}"
        if moisture.kind != "none" and self.substeps[-1] < MOIST_SUBSTEPS:
            yield (
                f"dynamics.substeps = {dynamics.substeps} is unstable in cloud, which slows sound after each step: take"
                f" at least {MOIST_SUBSTEPS}, or leave it out"
            )
        if moisture.kind != "none" and dynamics.damping < MOIST_DAMPING:
            yield (
                f"dynamics.damping = {dynamics.damping:g} is unstable in cloud, which slows sound after each step: take"
                f" at least {MOIST_DAMPING:g}"
            )
        most = 1 / math.sqrt(1 + 2 * dynamics.damping)  # forward-backward, with the damping of the divergence
        each = max(share / count for share, count in zip((1 / 3, 1 / 2, 1.0), self.substeps, strict=True))
        passed = SOUND * math.hypot(1 / grid.dx, 1 / grid.dy) * self.full_step * each
        if passed > most:
            yield (
                f"sound passes {passed:.2f} cells in a substep of {self.full_step * each:.3g} s, at most {most:.2f}"
                f" with dynamics.damping = {dynamics.damping:g}: raise dynamics.substeps or lower dynamics.acoustic_cfl"
            )

    def _over_terrain(self) -> Iterator[str]:
        """What terrain does not have."""
        terrain, grid = self.terrain, self.grid
        if (terrain.kind == "file") != (terrain.file is not None):
            yield "terrain.file goes with terrain.kind = 'file': give both or neither"
        if terrain.kind == "flat":
            return
        if terrain.kind != "file":
            if not (0 <= terrain.x <= grid.width and (terrain.ridge or 0 <= terrain.y <= grid.length)):
                yield f"the terrain at x {terrain.x:g} m, y {terrain.y:g} m lies outside the box: move it"
            if terrain.height >= 0.5 * grid.height:
                yield f"terrain.height of {terrain.height:g} m is half of grid.height or more: lower it"
        missing = {
            "moisture.equations = 'complete'": self.moisture.equations == "complete",
            **{
                f"forcing.{name}": getattr(self.forcing, name)
                for name in ("subsidence", "geostrophic_u", "geostrophic_v")
            },
            "radiation": self.radiation != settings.Radiation(),
            "jet.speed": self.jet.speed,
            "parcels": self.parcels.count,
        }
        given = [name for name, is_on in missing.items() if is_on]
        if given:
            yield (
                f"there is no {', '.join(given)} over terrain: leave {'it' if len(given) == 1 else 'them'} out, or set"
                " terrain.kind = 'flat'"
            )
