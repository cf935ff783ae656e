"""Places where tests break the writing of checkpoints: every operation on their files passes here by name."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpckit.errors import InputError

SITES = (
    "generation.mkdir",
    "shard.create",
    "shard.write",
    "shard.fsync",
    "manifest.write",
    "manifest.fsync",
    "commit.write",
    "commit.fsync",
    "commit.rename",
    "generation.fsync",
    "root.fsync",
    "latest.write",
    "latest.fsync",
    "latest.rename",
    "prune.unlink",
)
ACTIONS = ("kill", "ENOSPC", "EDQUOT", "EIO", "EROFS", "EINTR", "short")


@dataclass(frozen=True)
class FileOperation:
    """An operation that is about to happen: mkdir, create, write, fsync, fsync_directory, rename or unlink.

    target: the new name of a rename; offset and data: of a write.
    """

    site: str
    kind: str
    path: Path
    target: Path | None = None
    offset: int = 0
    data: memoryview | None = None


# The hook before each operation: it may raise OSError, end the process, or return the bytes a write may take.
Hook = Callable[[FileOperation], int | None]
_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Call `hook` before every operation from now on; None removes it."""
    global _hook
    _hook = hook


def reach(operation: FileOperation) -> int | None:
    """Tell the hook; returns how many bytes a write may take, None for all."""
    return None if _hook is None else _hook(operation)


def breaking(text: str) -> Hook:
    """The hook of a text SITE:ACTION[:N]: at the N-th operation (1) of that site do as the action says, once.

    Actions: kill (SIGKILL), an errno (ENOSPC, EDQUOT, EIO, EROFS: from then on every time; EINTR: once), short (a write
    takes one byte). Raises `InputError` for unknown ones.
    """
    site, _, rest = text.partition(":")
    action, _, count = rest.partition(":")
    if site not in SITES or action not in ACTIONS or not (count or "1").isdigit():
        raise InputError(
            f"no failpoint {text!r}: SITE:ACTION[:N]", do=f"sites: {', '.join(SITES)}; actions: {', '.join(ACTIONS)}"
        )
    left = int(count or 1)

    def hook(operation: FileOperation) -> int | None:
        nonlocal left
        if operation.site != site:
            return None
        left -= 1
        if left > 0 or (left < 0 and action in ("kill", "EINTR", "short")):
            return None
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "short":
            return 1
        number = getattr(errno, action)
        raise OSError(number, os.strerror(number), str(operation.path))

    return hook
