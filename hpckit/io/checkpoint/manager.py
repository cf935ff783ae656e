"""The checkpoints of a run: when they are due, how they are written, and the one that the run restarts from."""

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
    """The checkpoints below `root`, as `Run.edge` uses them.

    With `resume` (collective) `restored` is the newest intact generation, None without one, and `notes` say why newer
    ones are not used. `facts` go into every manifest. Raises what `choose` raises.
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
        """Whether a checkpoint is due after this step by its number; the same on every rank."""
        return self.settings.steps is not None and step % self.settings.steps == 0

    def is_due_now(self) -> bool:
        """Whether a checkpoint is due by this rank's clock, counted from the start of the last one."""
        seconds = self.settings.seconds
        return seconds is not None and time.monotonic() - self._since >= seconds

    @property
    def is_written(self) -> bool:
        """Whether this rank's part is on disk."""
        return self.writer.is_written

    @property
    def is_pending(self) -> bool:
        """Whether a checkpoint was begun and is not committed yet; the same on every rank."""
        return self.writer.is_pending

    @property
    def seconds(self) -> float:
        """The mean time of a checkpoint so far, s."""
        return self.writer.seconds / max(self.writer.count, 1)

    def save(self, step: int, state: State, outputs: Mapping[str, Any], now: bool = False) -> None:
        """Collective: write the state; with `now` it is committed on return. Waits for the previous one."""
        self._since = time.monotonic()
        if now or not self.settings.asynchronous:
            self.writer.save(step, state, outputs)
        else:
            self.writer.start(step, state, outputs)

    def finish(self) -> None:
        """Collective: commit the checkpoint that was begun."""
        self.writer.finish()

    def close(self) -> None:
        """Collective: finish, and end all threads."""
        self.writer.close()

    def summary(self) -> dict[str, Any]:
        """A summary of the written checkpoints, for `summary.json`."""
        return self.writer.summary()
