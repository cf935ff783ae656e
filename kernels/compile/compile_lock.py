"""One process of a machine compiles a kernel, the others wait and load what it kept on disk.

A job of 64 ranks a node would else compile every kernel 64 times at once. The lock is a file beside the kernel's in the
cache; it is free when its holder leaves, however that ends. Where the file system has no locks, or the holder takes too
long, a process compiles for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

PATIENCE = 300.0  # s that another process may take for a kernel
POLL = 0.02  # s


class CompileLock:
    """The lock of one kernel; `take` and `release` as often as you like, it is held once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self, patience: float = PATIENCE) -> bool:
        """Wait until no other process compiles this kernel; False where there can be no lock, or not in time."""
        if self._file is not None:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            deadline = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(POLL)
        except OSError:
            pass
        self.release()
        return False

    def release(self) -> None:
        """Let others go on."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
