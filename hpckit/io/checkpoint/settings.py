"""Sections of run files: what all of them are, spans of time in them, and the section `checkpoint`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NEVER = "never"
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(s|min|h|d)\b")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
LIMIT = 'elapsed time ("11 h 50 min") after which the run ends early with a checkpoint, exit code 75; none: no limit'


def _interval(every: int | str) -> int | str:
    if isinstance(every, int):
        if every < 1:
            raise ValueError("a number of steps is at least 1")
    elif every != NEVER:
        seconds_of(every)
    return every


class Section(BaseModel):
    """Settings that refuse names they do not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Checkpoint(Section):
    """When checkpoints are made, and how many stay. A run that is stopped makes one in any case."""

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


def seconds_of(text: str) -> float:
    """The seconds that a text means; a clock is h:mm:ss or, as Slurm has it, d-hh:mm:ss.

    Raises `ValueError` for anything else, and for nothing.
    """
    if clock := _CLOCK.fullmatch(text.strip()):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    else:
        parts = _PART.findall(text)
        if not parts or _PART.sub("", text).strip():
            raise ValueError(f'{text!r} is no span of time; give one like "90 s", "10 min", "11 h 50 min", "1:30:00"')
        total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if total <= 0:
        raise ValueError(f"{text!r} is no time at all; give more than 0 s")
    return total


def _span(text: str) -> str:
    seconds_of(text)
    return text


def _span_or_none(text: str) -> str:
    return "" if text in ("", "none") else _span(text)


Span = Annotated[str, AfterValidator(_span)]
OptionalSpan = Annotated[str, AfterValidator(_span_or_none)]  # empty or "none": none
