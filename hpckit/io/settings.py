"""Sections of run files: their base class, time spans and file names in them, and the section `checkpoint`."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

NEVER = "never"
INPUT_FILE_FORMAT = "input-file"
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
    """Settings that refuse names they do not know, and numbers that are not finite unless a field allows them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    """The seconds of a time span in text; a clock is h:mm:ss or, as in Slurm, d-hh:mm:ss.

    Raises `ValueError` for anything else and for 0 s.
    """
    if len(text) > 100:
        raise ValueError(f"{text[:20]!r}… is not a time span")
    if clock := _CLOCK.fullmatch(text.strip()):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    else:
        parts = _PART.findall(text)
        if not parts or _PART.sub("", text).strip():
            raise ValueError(f'{text!r} is not a time span; give one like "90 s", "10 min", "11 h 50 min", "1:30:00"')
        total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if total <= 0:
        raise ValueError(f"{text!r} is not a positive time; give more than 0 s")
    return total


def _number_of(value: Any) -> Any:
    """The seconds of a span in text; any other value as it is."""
    return seconds_of(value) if isinstance(value, str) else value


def _span(text: str) -> str:
    seconds_of(text)
    return text


def _span_or_none(text: str) -> str:
    return "" if text in ("", "none") else _span(text)


Span = Annotated[str, AfterValidator(_span)]
Seconds = Annotated[float, BeforeValidator(_number_of)]  # a number of seconds, or a span in text
OptionalSpan = Annotated[str, AfterValidator(_span_or_none)]  # empty or "none": none


def _existing_file(path: Path) -> Path:
    """Return `path` if it is a readable file; else the message goes into the list of mistakes."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"there is no file {path}") from None
    except (
        OSError,
        ValueError,
    ) as error:  # the name is too long or has a null character, or a folder cannot be entered
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a folder; give a file")
    if not stat.S_ISREG(mode):
        raise ValueError(f"there is no file {path}")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path} cannot be read by this user")
    return path


class RelativeToSource:
    """Mark of a path that is relative to the file that names it; the front end finds it by the schema's format and
    makes it absolute.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core_schema), "format": INPUT_FILE_FORMAT}


InputFile = Annotated[Path, RelativeToSource(), AfterValidator(_existing_file)]
