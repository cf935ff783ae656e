"""The section `checkpoint` of run files."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hpckit.io.checkpoint.durations import seconds_of

NEVER = "never"


def _interval(every: int | str) -> int | str:
    if isinstance(every, int):
        if every < 1:
            raise ValueError("a number of steps is at least 1")
    elif every != NEVER:
        seconds_of(every)
    return every


class Checkpoint(BaseModel):
    """When checkpoints are made, and how many stay. A run that is stopped makes one in any case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Annotated[int | str, AfterValidator(_interval)] = Field(
        "10 min", description='elapsed time between two checkpoints ("10 min", "1 h"), or a number of steps, or "never"'
    )
    keep: int = Field(2, ge=1, description="how many of them stay")
    asynchronous: bool = Field(
        True, description="write them beside the computation, from a copy of the state in memory"
    )

    @property
    def steps(self) -> int | None:
        """Steps between two checkpoints, None where time decides."""
        return self.every if isinstance(self.every, int) else None

    @property
    def seconds(self) -> float | None:
        """Seconds between two checkpoints, None where steps decide, or never."""
        return None if isinstance(self.every, int) or self.every == NEVER else seconds_of(self.every)
