"""Means over time in files of their own: the section `output.averages` of a run file."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, model_validator

from hpckit.io.settings import Section

ENERGIES = ("potential", "kinetic", "energy", "enthalpy", "bonded", "coulomb", "long_range")
KNOWN = (
    *("temperature", "pressure", *(f"pressure_{name}" for name in ("xx", "yy", "zz", "xy", "xz", "yz"))),
    *(*ENERGIES, *(f"{name}_per_particle" for name in ENERGIES)),
    *("volume", "mass_density", "length_x", "length_y", "length_z"),
)


class Average(Section):
    """Rows of a file in output/: a step, and the means of some values over steps up to it."""

    file: str = Field(description="its name in output/")
    values: tuple[str, ...] = Field(min_length=1, description=f"what is averaged: {', '.join(KNOWN)}")
    every: int = Field(1, ge=1, description="steps between two values of a mean")
    repeat: int = Field(1, ge=1, description="values in a mean")
    steps: int = Field(100, ge=1, description="steps between rows")
    running: bool = Field(False, description="each row is the mean of all rows so far")
    label: str = Field("", description="what the head of the file calls it")
    columns: tuple[str, ...] = Field((), description="what the head of the file calls the values")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not re.fullmatch(r"[\w.-]*\w[\w.-]*", self.file):
            raise ValueError(f"output.averages.file is the name of a file in output/, not {self.file!r}")
        unknown = [name for name in self.values if name not in KNOWN]
        if unknown:
            raise ValueError(f"output.averages.values has {', '.join(unknown)}: known are {', '.join(KNOWN)}")
        if self.steps % self.every or self.every * self.repeat > self.steps:
            raise ValueError(
                f"output.averages of {self.file}: steps must be a multiple of every, and at least every times repeat"
            )
        if self.columns and len(self.columns) != len(self.values):
            raise ValueError(f"output.averages.columns of {self.file} has a name for each of the values")
        return self

    def is_due(self, step: int, first: int) -> bool:
        """Whether the value of this step is in a mean; first: from which on there are values."""
        row = -(-step // self.steps) * self.steps
        back = row - step
        return (
            back % self.every == 0 and back < self.repeat * self.every and row - (self.repeat - 1) * self.every >= first
        )
