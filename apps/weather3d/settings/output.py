"""Settings of the output: files, stations, parcels, and the duration."""

from __future__ import annotations

from pydantic import Field

from hpckit.apps.atmosphere import settings
from hpckit.io.settings import LIMIT, OptionalSpan, Seconds, Section

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
