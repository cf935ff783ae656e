"""A folder for the time of a job. Ranks that are being ended may write a last file while it is removed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 5.0  # s; a process that was sent SIGKILL is gone in milliseconds
PAUSE = 0.05  # s


@contextlib.contextmanager
def scratch(prefix: str = "hpckit-", patience: float = PATIENCE) -> Iterator[str]:
    """A new folder's path; the folder is removed after the block.

    Files that appear in it while it is removed are removed too, for up to `patience` seconds. What is left then is
    left: the job reports how it ended, never the state of its temporary files.
    """
    folder = tempfile.mkdtemp(prefix=prefix)
    try:
        yield folder
    finally:
        until = time.monotonic() + patience
        while Path(folder).exists():
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > until:
                break
            if Path(folder).exists():
                time.sleep(PAUSE)
