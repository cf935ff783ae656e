"""A temporary folder of a job, which first removes what killed jobs left.

Dying ranks may still write a file into it while it is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hpckit.launch.leftovers import sweep

PATIENCE = 5.0  # s; a process that was sent SIGKILL is gone in milliseconds
PAUSE = 0.05  # s


@contextlib.contextmanager
def scratch(prefix: str = "hpckit-scratch-", patience: float = PATIENCE) -> Iterator[str]:
    """The path of a new folder that is removed after the block, or after a kill by the next job (`leftovers`).

    Files that appear during the removal are removed too, for up to `patience` seconds. Anything left then stays: the
    job reports how it ended, never the state of its temporary files.
    """
    sweep()
    folder = tempfile.mkdtemp(prefix=prefix)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_SH)  # in use
        yield folder
    finally:
        os.close(held)
        until = time.monotonic() + patience
        while Path(folder).exists():
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > until:
                break
            if Path(folder).exists():
                time.sleep(PAUSE)
