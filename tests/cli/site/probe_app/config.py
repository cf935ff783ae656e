"""Settings of every kind that an app may have."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hpckit.io.settings import InputFile

SUMMARY = "counts steps, and fails where it is told to"
PRESETS = {
    "short": ("three steps", {"time": {"steps": 3}}),
    "with-table": ("reads the table that comes with the app", {"input": {"table": "table.txt"}}),
}


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Grid(Section):
    """The grid of cells."""

    nx: int = Field(40, ge=1, description="Cells in x.")
    nz: int = Field(20, ge=1, le=1000, description="Cells in z.")
    spacing: tuple[float, float] = Field((10.0, 10.0), description="Cell sizes [m].")


class Time(Section):
    steps: int = Field(5, ge=1, description="Steps to do.")
    seconds_per_step: float = Field(0.0, ge=0, description="Sleep in each step [s].")


class Failure(Section):
    """What goes wrong, and where."""

    kind: Literal[
        "none", "raise", "all", "everywhere", "kill", "exit", "blow-up", "leave", "vanish", "late", "stuck"
    ] = Field("none", description="How the run fails.")
    rank: int = Field(1, ge=0, description="Rank that fails.")
    step: int = Field(2, ge=1, description="Step in which it fails.")


class Input(Section):
    table: InputFile | None = Field(None, description="A table to read.")
    label: str = Field("", max_length=20, description="Any text.")


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")

    app: Literal["probe"] = Field("probe", description="The app.")
    repro: bool = Field(False, description="The same bits on any ranks.")
    grid: Grid = Field(default_factory=Grid)
    time: Time = Field(default_factory=Time)
    failure: Failure = Field(default_factory=Failure, description="What goes wrong, and where.")
    input: Input = Field(default_factory=Input)

    @model_validator(mode="after")
    def _steps_reach_the_failure(self) -> Config:
        if self.failure.kind != "none" and self.failure.step > self.time.steps:
            raise ValueError(f"failure.step {self.failure.step} is after the last step; set time.steps above it")
        return self


def table_path(config: Config) -> Path | None:
    return config.input.table
