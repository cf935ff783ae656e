"""Observables measured during a run: the section `analysis` of a run file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpckit.io.settings import Section


class Analysis(Section):
    """Observables in situ; results are in output/analysis.json and in the report."""

    every: int = Field(0, ge=0, description="steps between samples of g(r), S(k), profile and speeds; 0: none")
    motion_every: int = Field(
        0, ge=0, description="steps between samples of displacement and velocity correlation; 0: none"
    )
    after: int = Field(0, ge=0, description="steps before the first sample, at least dynamics.equilibrate")
    reach: float = Field(0.0, ge=0, description="longest distance of g(r); 0: 4 diameters, at most half the box")
    bins: int = Field(200, ge=1, description="bins of g(r)")
    k_max: float = Field(0.0, ge=0, description="longest wave vector of S(k); 0: no S(k)")
    shells: int = Field(80, ge=1, description="shells of wave vectors over which S(k) is averaged")
    axis: Literal["", "x", "y", "z", "r"] = Field(
        "", description="axis of a density profile; r: distance from the center of the particles; empty: none"
    )
    slabs: int = Field(100, ge=1, description="slabs or shells of the density profile")
    lags: int = Field(200, ge=1, description="longest lag of displacement and velocity correlation, in samples")
    spacing: int = Field(5, ge=1, description="samples between time origins; lags / spacing origins are kept in memory")
    elastic: float = Field(
        0.0,
        ge=0,
        le=0.01,
        description="strain by which elastic constants are measured at the minimum that fire finds, 1e-4 or so, into"
        " output/elastic.json; 0: none",
    )

    @property
    def measures(self) -> bool:
        """Whether anything is measured."""
        return self.every > 0 or self.motion_every > 0
