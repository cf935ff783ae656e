"""A rank of the user's own program: `python -m hpckit.cli.guest FOLDER WATCH PROGRAM.py …`, with marks of its ends.

The marks are files that only the front end of the same host reads: `0-12345` for rank 0 in process 12345, and
`0-12345.end` once the program is over in a regular way. A rank on another host does not see the folder.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from hpckit.cli.first_exit import FirstExit
from hpckit.cli.joined import joined

END = ".end"
TELL_SECONDS = 30.0  # after the end of one rank's program, until the user is told that others go on


def main(arguments: list[str]) -> None:
    """Leave the marks and run the program under mpi4py's hook, which ends the job at an exception."""
    folder, watch, *words = arguments
    here = joined(os.environ)
    if here is not None and os.path.isdir(folder):
        mark = Path(folder, f"{here.rank}-{os.getpid()}")
        with contextlib.suppress(OSError):
            mark.touch()
            atexit.register(_touch, mark.with_name(mark.name + END), os.getpid())
    start_watch(json.loads(watch))
    run_words(words)


def start_watch(options: dict[str, Any] | None) -> None:
    """Watch the ranks of the program, where that was asked for: `options` are the arguments of `hpckit.Watch`."""
    if options is not None:
        from mpi4py import MPI

        from hpckit.watch import Watch
        from hpckit.watched_comm import WatchedComm

        setattr(MPI, "COMM_WORLD", WatchedComm(MPI.COMM_WORLD))  # noqa: B010  (final for mypy; the program's calls are seen)
        MPI.COMM_WORLD.Set_name("world")
        Watch(MPI.COMM_WORLD, **options)


def run_words(words: list[str]) -> None:
    """Run a program and its arguments in this process; its folder takes the place of the first one of `sys.path`."""
    from mpi4py import run

    sys.argv = ["mpi4py", *words]
    run.main()


def _touch(mark: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a process that the program forked
        with contextlib.suppress(OSError):
            mark.touch()


def _lives(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


class Guests:
    """What the marks in `folder` say of the ranks on this host; `first` is the one that left without an end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = FirstExit()
        self.told_at: float | None = None

    def look(self) -> None:
        """Note in `first` a process that is gone before its program was over; of two at once none is the culprit."""
        if self.first.when is not None:
            return
        names = {path.name for path in self.folder.iterdir()}
        started = [name.split("-") for name in names if not name.endswith(END) and name + END not in names]
        gone = [int(rank) for rank, pid in started if not _lives(int(pid))]
        if gone:
            self.first.when = time.monotonic()
            self.first.rank = gone[0] if len(gone) == 1 else None

    def watch(self) -> str:
        """Look at the marks; returns what the user should know now, '' for nothing."""
        self.look()
        ended = [path for path in self.folder.iterdir() if path.name.endswith(END)]
        if not ended or self.told_at == 0.0:
            return ""
        if self.told_at is None:
            self.told_at = time.monotonic()
        if time.monotonic() - self.told_at < TELL_SECONDS:
            return ""
        self.told_at = 0.0
        ranks = ", ".join(sorted((path.name.split("-")[0] for path in ended), key=int)[:8])
        return f"the program is over on rank {ranks} and goes on on others; Ctrl-C twice ends them"


if __name__ == "__main__":
    main(sys.argv[1:])
