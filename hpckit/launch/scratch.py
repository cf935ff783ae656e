"""A temporary folder of a job. Dying ranks may still write a file into it while it is removed."""

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
    """The path of a new folder that is removed after the block.

    Files that appear during the removal are removed too, for up to `patience` seconds. Anything left then stays: the
    job reports how it ended, never the state of its temporary files.
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
