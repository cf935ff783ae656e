"""One process per machine compiles a kernel; the others wait and load it from disk.

Otherwise a job with 64 ranks per node would compile every kernel 64 times at once. Of processes that come to the next
kernel together, the one that compiled the last goes first: it has at hand what kernels call. The lock is a file beside
the kernel's in the cache, released when its holder exits in any way. If the file system has no locks, or the holder
takes too long, a process compiles for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

PATIENCE = 300.0  # s that another process may take for a kernel
POLL = 0.02  # s
HEAD_START = 0.05  # s, of the process that compiled the last kernel


class CompileLock:
    """The lock of one kernel; repeated calls of `take` and `release` are harmless."""

    follows = False  # whether another process compiled the last kernel that this one needed

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self, patience: float = PATIENCE) -> bool:
        """Wait until no other process compiles this kernel; False without a lock, or on a timeout."""
        if self._file is not None:
            return True
        if CompileLock.follows:
            time.sleep(HEAD_START)
        CompileLock.follows = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            deadline = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    CompileLock.follows = True
                    if time.monotonic() > deadline:
                        break
                    time.sleep(POLL)
        except OSError:
            pass
        self.release()
        return False

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
