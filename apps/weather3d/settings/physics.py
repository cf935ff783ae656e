"""Settings of the dynamics, of unresolved turbulence, of water and of tracers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpckit.io.settings import Section

WATER = ("vapor", "cloud", "rain", "ice", "snow", "graupel")
WARM, AT_GROUND = WATER[:3], ("rain", "snow", "graupel")


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
