"""A rank of the user's own program: `python -m hpckit.cli.user_rank FOLDER WATCH PROGRAM.py …`, announced in FOLDER."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from hpckit.cli.user_traceback import tell_own_lines
from hpckit.launch.first_exit import END, FirstExit, announce

TELL_SECONDS = 30.0  # after the end of one rank's program, until the user is told that others go on


def main(arguments: list[str]) -> None:
    """Announce this rank and run the program under mpi4py's hook, which ends the job at an exception."""
    folder, watch, *words = arguments
    faulthandler.enable()  # a crash in compiled code says in which line of the program
    announce(folder, os.environ)
    start_watch(json.loads(watch))
    tell_own_lines(words[0], folder)
    run_words(words)


def start_watch(options: dict[str, Any] | None) -> None:
    """Watch the ranks of the program, where that was asked for: `options` are the arguments of `hpckit.Watch`."""
    if options is not None:
        from mpi4py import MPI

        from hpckit.comm.observe.watch import Watch
        from hpckit.comm.observe.watched_comm import WatchedComm

        setattr(MPI, "COMM_WORLD", WatchedComm(MPI.COMM_WORLD))  # noqa: B010  (final for mypy; the program's calls are seen)
        MPI.COMM_WORLD.Set_name("world")
        Watch(MPI.COMM_WORLD, **options)


def run_words(words: list[str]) -> None:
    """Run a program and its arguments in this process; its folder takes the place of the first one of `sys.path`."""
    from mpi4py import run

    sys.argv = ["mpi4py", *words]
    run.main()


class Guests:
    """What the ranks on this host said in `folder`; `first` is the one that left without an end."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.folder = folder
        self.first = FirstExit(folder, ranks)
        self.told_at: float | None = None

    def watch(self) -> str:
        """What the user should know now, '' for nothing."""
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
