"""Settings of the box: cells, sides, lid, and the atmosphere at rest."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from hpckit.apps.atmosphere import settings
from hpckit.io.settings import Section

Side = Literal["periodic", "walls", "open"]


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
