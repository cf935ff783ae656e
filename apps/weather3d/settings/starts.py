"""Settings of what the air starts with: patches and bands of warm air, waves, a jet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpckit.apps.atmosphere import settings
from hpckit.io.settings import Section


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
