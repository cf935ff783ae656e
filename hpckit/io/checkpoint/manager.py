"""The checkpoints of a run: when they are due, writing them, and the one that the run goes on from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.reader import Generation
from hpckit.io.checkpoint.state import State
from hpckit.io.checkpoint.writer import Writer
from hpckit.io.settings import Checkpoint


class Keeper:
    """What `Run.edge` asks and tells about checkpoints below `root`.

    With `resume` (collective) `restored` is the newest whole generation, None where there is none yet, and `notes` say
    why newer ones are not used. `facts` stand in every manifest. Raises what `choose` raises.
    """

    def __init__(
        self, comm: Any, root: Path, settings: Checkpoint, facts: Mapping[str, Any], resume: bool = False
    ) -> None:
        self.settings, self.resumed = settings, resume
        self.restored: Generation | None = None
        self.notes: list[str] = []
        if resume:
            self.restored, self.notes = choose(comm, root)
        self.writer = Writer(comm, root, settings.keep, facts)
        self._since = time.monotonic()

    def is_due_after(self, step: int) -> bool:
        """A checkpoint belongs after this step, by its number: the same on every rank."""
        return self.settings.steps is not None and step % self.settings.steps == 0

    def is_due_now(self) -> bool:
        """A checkpoint is due by the time since the last one was begun, as this rank sees it."""
        seconds = self.settings.seconds
        return seconds is not None and time.monotonic() - self._since >= seconds

    @property
    def is_written(self) -> bool:
        """The part of this rank is on disk."""
        return self.writer.is_written

    @property
    def is_pending(self) -> bool:
        """A checkpoint was begun and does not count yet; the same on every rank."""
        return self.writer.is_pending

    @property
    def seconds(self) -> float:
        """How long a checkpoint has taken so far, on the average."""
        return self.writer.seconds / max(self.writer.count, 1)

    def save(self, step: int, state: State, outputs: Mapping[str, Any], now: bool = False) -> None:
        """Collective: write the state; with `now` it counts when this returns. Waits for the one before."""
        self._since = time.monotonic()
        if now or not self.settings.asynchronous:
            self.writer.save(step, state, outputs)
        else:
            self.writer.start(step, state, outputs)

    def finish(self) -> None:
        """Collective: let the checkpoint that was begun count."""
        self.writer.finish()

    def close(self) -> None:
        """Collective: finish, and let nothing run on."""
        self.writer.close()

    def summary(self) -> dict[str, Any]:
        """What was written, for `summary.json`."""
        return self.writer.summary()
