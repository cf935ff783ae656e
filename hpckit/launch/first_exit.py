"""Which rank of this host ended first: launchers end the others at once and then name any of them, or nobody.

A rank says who it is by a file `RANK-PROCESS` in a folder that the front end watches, and goes on once it is seen;
`RANK-PROCESS.end` says that what it does from then on is over in a regular way. Ranks on other hosts do not see the
folder; theirs are told by the watcher of their node.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from hpckit.launch.launcher import joined
from hpckit.launch.process_ends import ProcessEnds

END, SEEN = ".end", ".seen"
LOOK_SECONDS = 0.01  # between two looks for ranks that have not come
SEEN_SECONDS = 15.0  # that a rank waits to be seen, at most: one that is not and ends has no name
SETTLE_SECONDS = 10.0  # at most, for the last ends to be looked at
TOGETHER_SECONDS = 0.25  # between the end of a rank and of those that the launcher ends because of it
BY_LAUNCHERS = "(signal 9)", "(signal 15)"  # how these end


def announce(folder: str, environment: Mapping[str, str]) -> None:
    """Say in `folder`, where this host has it, which rank this process is; its regular end is told at exit."""
    here = joined(environment)
    if here is None or not os.path.isdir(folder):
        return
    mark = Path(folder, f"{here.rank}-{os.getpid()}")
    with contextlib.suppress(OSError):
        mark.touch()
        atexit.register(_touch, mark.with_name(mark.name + END), os.getpid())
        until, seen = time.monotonic() + SEEN_SECONDS, mark.with_name(mark.name + SEEN)
        while not seen.exists() and time.monotonic() < until:
            time.sleep(0.002)


def _touch(mark: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a process that the program forked
        with contextlib.suppress(OSError):
            mark.touch()


class FirstExit:
    """Watches the processes of `ranks` ranks on this host, as they appear in `folder`.

    `rank` is the first that left without a regular end, None until then or where that is not known, `how` it did, ''
    where that is not known, and `when` the monotonic time of it. `watching`: a rank has appeared.
    """

    def __init__(self, folder: Path | None = None, ranks: int = 0) -> None:
        self.rank: int | None = None
        self.how = ""
        self.when: float | None = None
        self.watching = False
        self.host = socket.gethostname()
        self._ends: list[str] = []  # how each has ended, in order
        self._folder, self._ranks, self._over = folder, ranks, False
        self._names: list[str] = []  # of the marks seen
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if folder is not None:
            self._thread.start()

    @property
    def all_well(self) -> bool:
        """Every rank has ended with exit code 0, in whatever way."""
        return len(self._ends) == self._ranks and set(self._ends) == {"exit code 0"}

    def settle(self) -> None:
        """The job is over: look at what has ended, and watch no more."""
        self._over = True
        if self._thread.is_alive():
            self._thread.join(SETTLE_SECONDS)

    def _watch(self) -> None:
        ends = ProcessEnds()
        try:
            while True:
                over = self._over
                if len(self._names) < self._ranks:
                    self._look(ends)
                waits = LOOK_SECONDS if len(self._names) < self._ranks else 0.1
                while (found := ends.next(0.0 if over else waits)) is not None:
                    self._note(*found)
                if over:
                    return
        finally:
            ends.close()

    def _look(self, ends: ProcessEnds) -> None:
        """Watch the ranks that have come since; of two that have left before they were seen none is the culprit."""
        assert self._folder is not None
        with contextlib.suppress(OSError):
            there = {path.name for path in self._folder.iterdir()}
            new = [name for name in there.difference(self._names) if name.replace("-", "").isdigit()]
            first = len(self._names)
            self._names += new
            gone = []
            for number, name in enumerate(new, first):
                if not ends.add(int(name.split("-")[1]), number):
                    gone.append(number)
                (self._folder / f"{name}{SEEN}").touch()
            self.watching = bool(self._names)
            for number in gone:
                self._note(number, "", alone=len(gone) == 1)

    def _note(self, number: int, how: str, alone: bool = True) -> None:
        """A process has ended: whether it is the first that did so before its time."""
        assert self._folder is not None
        name = self._names[number]
        self._ends.append(how)
        if (self._folder / f"{name}{END}").exists():
            return
        if self.when is None or self._was_passed(how):
            self.rank, self.how = int(name.split("-")[0]) if alone else None, how
            self.when = self.when or time.monotonic()

    def _was_passed(self, how: str) -> bool:
        """Whether this end is the cause of the one that is known, though that came before it.

        A process that ends closes its files before it is gone. Launchers see that, and where it then has to wait for a
        core, those that they end may be gone first.
        """
        assert self.when is not None
        own = how not in ("", "exit code 0") and not how.endswith(BY_LAUNCHERS)
        return own and self.how.endswith(BY_LAUNCHERS) and time.monotonic() - self.when < TOGETHER_SECONDS
