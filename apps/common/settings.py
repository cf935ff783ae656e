"""Settings that apps on grids share: the output, and the precision of the state on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hpckit.io.settings import Section

PRECISION = "precision of the state; float32 halves memory and traffic (needs --gpu)"


class CheckedTogether(Section):
    """Settings of a run whose sections must go together: all problems are told at once."""

    def problems(self) -> Iterator[str]:
        """What does not go together."""
        yield from ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problems := list(self.problems()):
            raise ValueError("\n".join(problems))
        return self


class FieldFiles(Section):
    """The files of the fields."""

    single: bool = Field(True, description="write float32 instead of float64")
    compression: int = Field(1, ge=0, le=9, description="gzip level; 0: none")
    one_file: float = Field(
        4.0, ge=0, description="GB of frames that become one file at the end; 0: none (hpckit pack DIR does it later)"
    )
    driver: Literal["auto", "shards", "gather", "mpio"] = Field("auto", description="how the ranks write")


class Output(FieldFiles):
    """Output files."""

    every: float = Field(100.0, gt=0, description="simulated time between frames, s")


def outside(config: Any, used: Mapping[str, str], area: str) -> Iterator[str]:
    """Places beyond the sides of a grid of x and y. used: the coordinates that each section uses, as "xy"."""
    for section, axes in used.items():
        for axis in axes:
            place = getattr(getattr(config, section), axis)
            extent = config.grid.width if axis == "x" else config.grid.height
            if not 0 <= place <= extent:
                yield (
                    f"{section}.{axis} of {place:g} m lies outside the {area}, which is {extent:g} m in {axis}:"
                    " move it, or enlarge the grid"
                )


def device_problems(config: Any, gpu: bool) -> Iterator[str]:
    """Settings that a GPU, or a run without a GPU, does not support."""
    if config.precision != "float64" and not gpu:
        yield f"precision = {config.precision!r} is for runs on GPUs: add --gpu, or omit precision"
