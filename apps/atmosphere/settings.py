"""Settings that the weather apps share: base state, output, waves."""

from __future__ import annotations

import itertools
from typing import Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.common import settings
from hpckit.io.settings import InputFile, Section


class Base(Section):
    """The base state: an atmosphere at rest, or in uniform flow."""

    kind: Literal["neutral", "stable", "isothermal", "standard", "sounding", "levels", "weisman_klemp", "saturated"] = (
        Field(
            "neutral",
            description="neutral: constant theta; stable: constant Brunt-Väisälä frequency; isothermal: constant T;"
            " standard: US Standard Atmosphere 1976; sounding: from base.file; levels: from base.levels;"
            " weisman_klemp: moist and convective; saturated: cloud everywhere, of constant theta_e",
        )
    )
    theta: float = Field(300.0, gt=100, le=1000, description="theta at the ground, K (neutral, stable)")
    frequency: float = Field(0.02, gt=0, le=0.1, description="Brunt-Väisälä frequency, 1/s (stable)")
    temperature: float = Field(250.0, gt=100, le=1000, description="temperature, K (isothermal)")
    u: float = Field(0.0, ge=-150, le=150, description="uniform wind along x, m/s")
    file: InputFile | None = Field(
        None,
        description="sounding: input_sounding of WRF and CM1, University of Wyoming listing or CSV, or ERA5 on pressure"
        " levels (netCDF); detected",
    )
    lat: float | None = Field(None, ge=-90, le=90, description="ERA5: latitude of the column, degrees")
    lon: float | None = Field(None, ge=-180, le=360, description="ERA5: longitude of the column, degrees")
    time: str | None = Field(None, description='ERA5: time of the column, "2011-05-24T20:00"; the closest is taken')
    ground: float = Field(0.0, ge=-500, le=6000, description="ERA5: height of the ground over the sea, m")
    levels: tuple[tuple[float, float, float, float, float], ...] = Field(
        (),
        description="levels: lines of [z (m), liquid water theta (K), vapor and cloud together (kg/kg), u, v (m/s)],"
        " linear between; what is over saturation is cloud",
    )
    pressure: float = Field(1e5, ge=3e4, le=1.1e5, description="pressure at the ground, Pa (levels)")
    wind: bool = Field(False, description="use the wind of the sounding or the levels (its eastward component)")
    virtual: bool = Field(False, description="use the virtual potential temperature of the sounding, not theta")
    extrapolate: bool = Field(False, description="continue a sounding isothermally above its last level")

    vapor: float = Field(0.014, ge=0, le=0.03, description="greatest mixing ratio of vapor, kg/kg (weisman_klemp)")
    equivalent: float = Field(320.0, gt=250, le=350, description="theta_e, K (saturated)")
    water: float = Field(0.02, gt=0, le=0.05, description="vapor and cloud together, kg/kg (saturated)")
    shear: float = Field(0.0, ge=-100, le=100, description="wind aloft less that at the ground, m/s (weisman_klemp)")
    shear_depth: float = Field(3000.0, gt=0, description="height over which it is reached, m (weisman_klemp)")
    shear_shape: Literal["tanh", "linear"] = Field(
        "tanh", description="how: as tanh, or linearly with a smooth kink (weisman_klemp)"
    )

    @model_validator(mode="after")
    def _sounding_has_a_file(self) -> Self:
        if self.kind == "sounding" and self.file is None:
            raise ValueError("kind = 'sounding' needs the sounding: set base.file to its path")
        heights = [line[0] for line in self.levels]
        if self.kind == "levels":
            if len(heights) < 2 or heights[0] != 0 or any(b <= a for a, b in itertools.pairwise(heights)):
                raise ValueError(
                    "kind = 'levels' needs base.levels, two lines or more from z = 0 up: [[0, 300, 0.01, 0, 0], …]"
                )
            if any(not (150 <= line[1] <= 5000 and 0 <= line[2] <= 0.06) for line in self.levels):
                raise ValueError("base.levels: theta must be 150 to 5000 K, water 0 to 0.06 kg/kg")
        elif heights:
            raise ValueError(f"base.levels belong to kind = 'levels', but kind is {self.kind!r}: set it, or leave them")
        if self.kind != "sounding":
            winds = self.wind and self.kind != "levels"
            netcdf = {name: getattr(self, name) is not None for name in ("lat", "lon", "time")}
            own = {"file": self.file is not None, "wind": winds, "virtual": self.virtual}
            for name, given in {**own, **netcdf, "ground": bool(self.ground)}.items():
                if given:
                    raise ValueError(
                        f"base.{name} belongs to a sounding, but kind is {self.kind!r}: set base.kind = 'sounding'"
                        f" or leave base.{name} out"
                    )
        return self


Points = tuple[tuple[float, float], ...]


class Surface(Section):
    """What passes the ground: prescribed fluxes, bulk fluxes toward a surface, and a stress on the wind.

    The fluxes add up: heat + exchange |V| (theta - theta of the lowest level), vapor alike.
    """

    heat: float = Field(0.0, ge=-1, le=1, description="upward flux of theta, K m/s")
    vapor: float = Field(0.0, ge=-1e-2, le=1e-2, description="upward flux of vapor, kg/kg m/s")
    friction: float = Field(0.0, ge=0, le=5, description="friction velocity, m/s: a stress of rho times its square")
    exchange: float = Field(0.0, ge=0, le=1, description="coefficient of the bulk fluxes of heat and vapor; 0: none")
    theta: float = Field(300.0, gt=100, le=1000, description="theta of the surface, K (exchange)")
    humidity: float = Field(0.0, ge=0, le=0.1, description="mixing ratio of vapor at the surface, kg/kg (exchange)")


class Forcing(Section):
    """What large scales and radiation do, by height: points [z (m), value], linear between, constant beyond."""

    cooling: Points = Field((), description="tendency of theta, K/s: points [z, value]")
    drying: Points = Field((), description="tendency of the mixing ratio of vapor, 1/s: points [z, value]")
    subsidence: Points = Field((), description="vertical wind of large scales, m/s, not above 0: points [z, value]")
    geostrophic_u: Points = Field((), description="geostrophic u, m/s: points [z, value]; none: that of the base state")
    geostrophic_v: Points = Field((), description="geostrophic v, m/s: points [z, value]; none: that of the base state")


class Radiation(Section):
    """Longwave radiation by the path of liquid water (Stevens et al. 2005): it cools the top of clouds."""

    top: float = Field(0.0, ge=0, le=500, description="flux that clouds send up, W/m2; 70 in DYCOMS-II RF01; 0: none")
    base: float = Field(22.0, ge=0, le=500, description="flux that the ground adds below clouds, W/m2")
    absorption: float = Field(85.0, ge=0, le=500, description="of liquid water, m2/kg")
    free: float = Field(1.0, ge=0, le=10, description="cooling of the free troposphere, m^(-4/3); 0: none")
    divergence: float = Field(3.75e-6, ge=0, le=1e-3, description="divergence of large scales that it balances, 1/s")
    water: float = Field(0.008, gt=0, le=0.05, description="mixing ratio of all water at the inversion, kg/kg")


class Noise(Section):
    """Random theta' and vapor in the lowest air at the start: turbulence grows from them, alike on any ranks."""

    amplitude: float = Field(0.0, ge=0, le=5, description="greatest theta', K; 0: none")
    vapor: float = Field(0.0, ge=0, le=0.005, description="greatest deviation of vapor, kg/kg; 0: none")
    height: float = Field(200.0, gt=0, description="below this height, m")
    seed: int = Field(1, ge=0, description="of the random numbers")


class Terrain(Section):
    """The ground's height, and levels that follow it and are flat at the lid."""

    kind: Literal["flat", "bell", "schaer", "file"] = Field(
        "flat",
        description="flat; bell: h / (1 + (r / a)**2), as a hill to the power 3/2; schaer: h exp(-(r / a)**2)"
        " cos(pi x / wavelength)**2; file: heights from terrain.file",
    )
    height: float = Field(250.0, gt=0, le=10_000, description="h, m")
    half_width: float = Field(5_000.0, gt=0, description="a, m")
    wavelength: float = Field(4_000.0, gt=0, description="of the ridges (schaer), m")
    x: float = Field(10_000.0, description="center, m")
    y: float = Field(10_000.0, description="center of a hill, m")
    ridge: bool = Field(True, description="a ridge along y; false: a hill")
    file: InputFile | None = Field(None, description="a NumPy file (.npy) of float64[ny, nx], m, not below 0")
    levels: Literal["sleve", "linear"] = Field(
        "sleve", description="how the ground fades with height: smooth part and rest by scales, or linearly to the lid"
    )
    scale: float = Field(8_000.0, gt=0, description="sleve: height over which the smooth part fades, m")
    fine: float = Field(3_000.0, gt=0, description="sleve: height over which the rest fades, m")
    smoothings: int = Field(
        50, ge=0, le=1000, description="sleve: passes of the filter 1-2-1 that make the smooth part"
    )


class Output(settings.Output):
    """Output files."""

    fields: tuple[Literal["theta_total", "temperature", "pressure"], ...] = Field(
        (), description="full fields to write beside the deviations from the base state"
    )


class Wave(Section):
    """A band of warm air that sends out linear inertia-gravity waves (Baldauf and Brdar 2013); amplitude 0: none.

    T' = amplitude exp(z / (2 S)) sin(pi z / height) exp(-((x - x0) / half_width)**2) at undisturbed pressure, with the
    scale height S = R T / g of the isothermal base state.
    """

    amplitude: float = Field(
        0.0, ge=-10, le=10, description="temperature perturbation, K, before the growth with height"
    )
    x: float = Field(100_000.0, description="center, m")
    half_width: float = Field(5_000.0, gt=0, description="distance at which the perturbation falls to 1/e, m")
