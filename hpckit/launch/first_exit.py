"""Which rank of this host ended first: launchers kill the others at once, and then name any rank or none.

A rank announces itself by a file `RANK-PROCESS` in a folder that the front end watches, and continues once it is seen;
`RANK-PROCESS.end` says that it ends regularly. Ranks on other hosts do not see the folder; the watcher of their node
reports their ends.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from hpckit.launch.launcher import joined

END, SEEN = ".end", ".seen"
LOOK_SECONDS = 0.01  # between two looks for ranks not yet seen
SEEN_SECONDS = 15.0  # a rank waits at most so long to be seen: if it ends unseen, it cannot be named
SETTLE_SECONDS = 10.0  # at most, to collect the last ends
TOGETHER_SECONDS = 0.25  # between the end of a rank and the ends of the ranks that the launcher then kills
BY_LAUNCHERS = "(signal 9)", "(signal 15)"  # the ends of ranks that launchers kill
GET_INFO, INFO_EXIT = 0xC040FF0B, 1 << 3  # _IOWR(0xFF, 11, struct pidfd_info) of 64 bytes; the mask of `exit_code`
INFO_BYTES, EXIT_CODE = 64, 60  # of the struct, and where the status is in it
REAPED_SECONDS = 0.5  # for the parent to reap its child: a handle has no status before


def announce(folder: str, environment: Mapping[str, str]) -> None:
    """Say in `folder`, where this host has it, which rank this process is; a regular end is recorded at exit."""
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

    `rank` is the first that left without a regular end (None until then, or if unknown), `how` its end in words ('' if
    unknown), and `when` its monotonic time. `watching`: a rank has appeared.
    """

    def __init__(self, folder: Path | None = None, ranks: int = 0) -> None:
        self.rank: int | None = None
        self.how = ""
        self.when: float | None = None
        self.watching = False
        self.host = socket.gethostname()
        self.irregular: list[tuple[int | None, str]] = []  # rank (None: unknown) and end in words, in their order
        self._ends: list[str] = []  # how each has ended, in order
        self._folder, self._ranks, self._over = folder, ranks, False
        self._names: list[str] = []  # of the marks seen
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if folder is not None:
            self._thread.start()

    @property
    def all_well(self) -> bool:
        """Whether every rank has ended with exit code 0, announced or not."""
        return len(self._ends) == self._ranks and set(self._ends) == {"exit code 0"}

    def settle(self) -> None:
        """The job is over: collect the last ends, and stop watching."""
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
        """Watch newly announced ranks; if two have left before they were seen, neither is the culprit."""
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
        """Record the end of a process, and whether it is the first irregular one."""
        assert self._folder is not None
        name = self._names[number]
        self._ends.append(how)
        if (self._folder / f"{name}{END}").exists():
            return
        rank = int(name.split("-")[0]) if alone else None
        self.irregular.append((rank, how))
        if self.when is None or self._was_passed(how):
            self.rank, self.how = rank, how
            self.when = self.when or time.monotonic()

    def _was_passed(self, how: str) -> bool:
        """Whether this end caused the recorded one, though that was seen before it.

        A dying process closes its files before it is gone. Launchers see that, and if it then has to wait for a core,
        the ranks that they kill may be gone first. Exit code 0 without the mark of a regular end is `os._exit(0)`.
        """
        assert self.when is not None
        own = how != "" and not how.endswith(BY_LAUNCHERS)
        return own and self.how.endswith(BY_LAUNCHERS) and time.monotonic() - self.when < TOGETHER_SECONDS


class ProcessEnds:
    """The ends of watched processes in their order, though none of them is a child of this process.

    The kernel puts the handles of ended processes (pidfd) into the list of an epoll object in the order of their ends,
    so that the first is known however late this process gets a core to look. From Linux 6.15 on the handle itself
    reports how a process ended (PIDFD_GET_INFO, linux/pidfd.h).
    """

    def __init__(self) -> None:
        self.known = hasattr(os, "pidfd_open")  # Linux 5.3; elsewhere nothing is ever seen
        self._epoll = select.epoll()
        self._names: dict[int, int] = {}  # handle -> the caller's number

    def add(self, pid: int, name: int) -> bool:
        """Watch a process under a number of the caller's; False where it has ended already."""
        if not self.known:
            return True
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError:  # the kernel or a sandbox refuses pidfds, or there are no more handles
            return True
        self._names[handle] = name
        self._epoll.register(handle, select.EPOLLIN)
        return True

    def fileno(self) -> int:
        """Readable when one has ended."""
        return self._epoll.fileno()

    def next(self, timeout: float = 0.0) -> tuple[int, str] | None:
        """The next process to end and how ('' if unknown), None if none does within `timeout` s."""
        with contextlib.suppress(InterruptedError):
            for handle, _ in self._epoll.poll(timeout, 1):  # one: the head of the list
                name = self._names.pop(handle)
                self._epoll.unregister(handle)
                try:
                    return name, _how(handle)
                finally:
                    os.close(handle)
        return None

    def close(self) -> None:
        """Stop watching."""
        for handle in self._names:
            os.close(handle)
        self._names.clear()
        self._epoll.close()


def _how(handle: int) -> str:
    """How the process of a handle ended, once its parent has reaped it."""
    until = time.monotonic() + REAPED_SECONDS
    while True:
        info = bytearray(struct.pack("<Q", INFO_EXIT).ljust(INFO_BYTES, b"\0"))
        try:
            fcntl.ioctl(handle, GET_INFO, info)
            if struct.unpack_from("<Q", info)[0] & INFO_EXIT:
                return status_text(struct.unpack_from("<i", info, EXIT_CODE)[0])
        except ProcessLookupError:  # before 6.15: it is gone, and its status with it
            return ""
        except OSError:
            return ""
        if time.monotonic() > until:
            return ""
        time.sleep(0.002)


def status_text(status: int) -> str:
    """A `waitpid` status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"{signal.strsignal(number) or 'unknown'} (signal {number})"
    return f"exit code {os.waitstatus_to_exitcode(status)}"
