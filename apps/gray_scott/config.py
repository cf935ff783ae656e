"""Settings of gray_scott, and its presets."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hpckit.io.settings import LIMIT, OptionalSpan, Section

SUMMARY = "two substances react and diffuse in a periodic box: spots, stripes and waves (Pearson 1993)"
METRICS = {"v_mean": "1", "v_max": "1", "covered": "1"}  # units, for the report


class Grid(Section):
    """The box, in cells of edge 1."""

    ny: int = Field(128, ge=8, description="cells along y")
    nx: int = Field(128, ge=8, description="cells along x")


class Reaction(Section):
    """u + 2 v -> 3 v, while u is fed and v decays; a step is a second."""

    feed: float = Field(0.037, ge=0, le=0.1, description="feed rate of u, per step")
    kill: float = Field(0.060, ge=0, le=0.1, description="decay rate of v beyond the feed rate, per step")
    du: float = Field(0.16, ge=0, le=0.25, description="diffusivity of u, cells² per step")
    dv: float = Field(0.08, ge=0, le=0.25, description="diffusivity of v, cells² per step")


class Time(Section):
    """Duration."""

    steps: int = Field(5000, ge=1, description="steps")
    monitor: int = Field(100, ge=1, description="steps between metric lines")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(Section):
    """Output files."""

    every: int = Field(1000, ge=1, description="steps between frames")


class Config(Section):
    """All settings of a run."""

    app: Literal["gray_scott"] = "gray_scott"
    grid: Grid = Field(default_factory=Grid, description="the box")
    reaction: Reaction = Field(default_factory=Reaction, description="reaction and diffusion")
    time: Time = Field(default_factory=Time, description="duration")
    output: Output = Field(default_factory=Output, description="output files")


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "stripes": ("stripes that fill the box", {}),
    "solitons": ("spots that divide until they fill the box", {"reaction": {"feed": 0.030, "kill": 0.062}}),
    "spirals": ("waves that never come to rest", {"reaction": {"feed": 0.014, "kill": 0.045}}),
}
