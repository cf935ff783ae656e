"""Settings common to all apps: how ranks are watched, and what is checked while the run goes on."""

from __future__ import annotations

from functools import cache
from typing import Any, Self

from pydantic import BaseModel, Field, create_model, model_validator

from hpckit.io.settings import Checkpoint, Section

WARN_SECONDS = 60.0  # longer than any step or message of an app; compiling and writing are excepted
ABORT_SECONDS = 600.0  # ten times WARN_SECONDS: file systems and swapping hosts recover within minutes


class WatchSettings(Section):
    """The watch over the ranks (docs/watch.md): when it reports a stall, and when it ends the run with exit code 6."""

    warn: float = Field(
        WARN_SECONDS, ge=0.01, le=1e8, description="report ranks that others have waited for this long, s"
    )
    abort: float = Field(ABORT_SECONDS, ge=0.01, le=1e8, description="end a run that has stalled for this long, s")
    off: bool = Field(False, description="true: no watcher")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.abort < self.warn:
            raise ValueError(f"abort is {self.abort:g} s, before warn at {self.warn:g} s")
        return self


class CheckSettings(Section):
    """Checks against silent data corruption (docs/reliability.md); both cost time, and are off by default."""

    replay: int = Field(0, ge=0, le=2**53, description="compute every N-th step twice and compare; 0: never")
    messages: bool = Field(False, description="true: halos, ghosts, pipelines and collectives carry checksums")


COMMON: dict[str, tuple[type[BaseModel], str]] = {
    "checkpoint": (Checkpoint, "when the state is saved for `hpckit resume` (docs/restart.md)"),
    "watch": (WatchSettings, "how the ranks are watched"),
    "checks": (CheckSettings, "whether a step is computed twice, and messages are checked"),
}


@cache
def with_common(config: type[BaseModel]) -> type[BaseModel]:
    """The schema of an app with the common sections added; a section that the app defines itself stays."""
    fields: dict[str, Any] = {
        name: (section, Field(default_factory=section, description=description))
        for name, (section, description) in COMMON.items()
        if name not in config.model_fields
    }
    return create_model(
        config.__name__, __base__=config, __doc__=config.__doc__, __module__=config.__module__, **fields
    )
