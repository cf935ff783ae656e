"""Settings that apps on grids share: the output, and the precision of the state on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.io.settings import Section

PRECISION = "precision of the state; float32 halves memory and traffic (needs --gpu)"


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


def device_problems(config: Any, gpu: bool) -> Iterator[str]:
    """Settings that a GPU, or a run without a GPU, does not support."""
    if config.precision != "float64" and not gpu:
        yield f"precision = {config.precision!r} is for runs on GPUs: add --gpu, or omit precision"
