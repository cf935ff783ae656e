"""Which of some processes ended first, and how, though none of them is a child of this one. Standard library only.

Launchers end all ranks at the death of one. The kernel puts the handles of ended processes (pidfd) into the list of an
epoll object in the order of their ends, so that the first is known however late this process gets a core to look. How
a process ended is told by the handle itself from Linux 6.15 on (PIDFD_GET_INFO, linux/pidfd.h).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import time

GET_INFO, INFO_EXIT = 0xC040FF0B, 1 << 3  # _IOWR(0xFF, 11, struct pidfd_info) of 64 bytes; the mask of `exit_code`
INFO_BYTES, EXIT_CODE = 64, 60  # of the struct, and where the status is in it
REAPED_SECONDS = 0.5  # that a parent gets to take the status of its child, before which no handle tells it


class ProcessEnds:
    """The ends of the processes that were added, in their order."""

    def __init__(self) -> None:
        self.known = hasattr(os, "pidfd_open")  # Linux 5.3; elsewhere nothing is ever seen
        self._epoll = select.epoll()
        self._names: dict[int, int] = {}  # handle -> the number given

    def add(self, pid: int, name: int) -> bool:
        """Watch a process under a number of the caller's; False where it has ended already."""
        if not self.known:
            return True
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError:  # a kernel or a sandbox without them, or no more handles
            return True
        self._names[handle] = name
        self._epoll.register(handle, select.EPOLLIN)
        return True

    def fileno(self) -> int:
        """Readable when one has ended."""
        return self._epoll.fileno()

    def next(self, timeout: float = 0.0) -> tuple[int, str] | None:
        """The next one that has ended and how ('' where that is not known), None where none did within `timeout` s."""
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
        """Watch none of them any more."""
        for handle in self._names:
            os.close(handle)
        self._names.clear()
        self._epoll.close()


def _how(handle: int) -> str:
    """How the process of a handle ended, once its parent has taken note of it."""
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
    """What a process ended with, as `waitpid` has it, in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"{signal.strsignal(number) or 'unknown'} (signal {number})"
    return f"exit code {os.waitstatus_to_exitcode(status)}"
