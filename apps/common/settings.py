"""Settings that apps on grids share: what is written, and in which precision a GPU holds the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.io.settings import Section

PRECISION = "of the state on a GPU: float32 halves memory and traffic (needs --gpu)"


class Output(Section):
    """What is written."""

    every: float = Field(100.0, gt=0, description="simulated time between two frames, s")
    single: bool = Field(True, description="write float32 instead of float64")
    compression: int = Field(1, ge=0, le=9, description="gzip level, 0 for none")
    driver: Literal["auto", "shards", "gather", "mpio"] = Field("auto", description="how the ranks write")


def device_problems(config: Any, gpu: bool) -> Iterator[str]:
    """What of the settings cannot be on a GPU, or not without one."""
    if config.precision != "float64" and not gpu:
        yield f"precision = {config.precision!r} is for runs on GPUs: add --gpu, or leave precision out"
