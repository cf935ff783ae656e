"""The lock of a run directory: of two processes, one runs in it, and the other learns who holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from hpckit.errors import InUseError, SetupError
from hpckit.run.context import utc_now
from hpckit.run.directory import RunDirectory

LOCK_FILE = "lock"
PATIENCE = 10.0  # s that orphaned ranks get to end
_MOST_BYTES = 4096


@contextlib.contextmanager
def locked(directory: RunDirectory, verb: str) -> Iterator[int]:
    """Hold the lock; yields its descriptor. Ranks that inherit it hold the lock too, until the last one ends.

    Raises `InUseError` that names the holder, `SetupError` if the folder cannot be written.
    """
    path = directory.path / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetupError(
            f"the run directory cannot be locked: {error.strerror}",
            where=str(path),
            likely="the file system is read-only or full, or its permissions have changed",
            do="make it writable; its checkpoints are unchanged",
        ) from None
    try:
        _take(descriptor, directory)
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "verb": verb, "since": utc_now()}
        with contextlib.suppress(OSError):  # a full disk: the lock holds without a name on it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, directory: RunDirectory) -> None:
    """Take the lock; wait a little if its holder has ended and only its ranks have not yet."""
    patience = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                print(
                    f"warning: this file system has no locks ({error.strerror}): a second run is not kept out",
                    file=sys.stderr,
                    flush=True,
                )
                return
        holder = _holder(descriptor)
        if not _is_gone(holder) or time.monotonic() > patience:
            raise InUseError(
                f"{directory.path} is in use by {_text(holder)}",
                where=str(directory.path / LOCK_FILE),
                do="wait for its end, or stop it (Ctrl-C there, or SIGTERM to that process), then resume",
            )
        time.sleep(0.1)


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _is_gone(holder: dict[str, Any]) -> bool:
    """The process that took the lock was on this host and has ended."""
    if holder.get("host") != socket.gethostname() or not isinstance(holder.get("pid"), int):
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _text(holder: dict[str, Any]) -> str:
    if not holder:
        return "an unknown process"
    verb, process, host, since = (holder.get(name) for name in ("verb", "pid", "host", "since"))
    return f"`hpckit {verb}`, process {process} on {host}, since {since}"
