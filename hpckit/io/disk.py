"""The operations that durable files are made of; each is announced to `hpckit.io.failpoints` before it happens."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from hpckit.io.failpoints import FileOperation, reach

PRIVATE = 0o600
# Not posix_fallocate, which writes zeros where the file system has no such operation.
_fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def make_directory(path: Path, site: str) -> None:
    """Make a folder that only its owner may enter. Raises `OSError`, as all functions here."""
    _told(FileOperation(site, "mkdir", path))
    os.mkdir(path, 0o700)


def create(path: Path, site: str) -> int:
    """Open a new file for writing, never through a link; returns the descriptor."""
    _told(FileOperation(site, "create", path))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)


def allocate(descriptor: int, size: int) -> None:
    """Reserve `size` bytes for a file if the file system can: writes that do not make the file longer can then run at
    several places at once. A full disk shows as an error of the writes, not here.
    """
    if _fallocate is not None:
        _fallocate(descriptor, 0, 0, size)


def write(descriptor: int, data: memoryview | bytes, offset: int, path: Path, site: str) -> None:
    """Write all of `data` at a place in the file; interrupted and short writes are continued."""
    left = memoryview(data)
    while left:
        try:
            most = reach(FileOperation(site, "write", path, offset=offset, data=left))
            taken = os.pwrite(descriptor, left if most is None else left[:most], offset)
        except InterruptedError:
            continue
        left, offset = left[taken:], offset + taken


def sync(descriptor: int, path: Path, site: str) -> None:
    """Force the file's bytes to disk."""
    _told(FileOperation(site, "fsync", path))
    os.fsync(descriptor)


def sync_names(path: Path, site: str) -> None:
    """Force the names in a folder to disk."""
    _told(FileOperation(site, "fsync_directory", path))
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(path: Path, target: Path, site: str) -> None:
    """Put a file in the place of another one."""
    _told(FileOperation(site, "rename", path, target=target))
    os.replace(path, target)


def unlink(path: Path, site: str) -> None:
    """Remove a file."""
    _told(FileOperation(site, "unlink", path))
    os.unlink(path)


def write_whole(path: Path, content: bytes, write_site: str, sync_site: str) -> None:
    """A new file with this content, on disk when this returns."""
    descriptor = create(path, write_site)
    try:
        write(descriptor, content, 0, path, write_site)
        sync(descriptor, path, sync_site)
    finally:
        os.close(descriptor)


def read_whole(path: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes, never through a link; raises `OSError` for a longer one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"{path} has more than {limit} bytes")
    return content


def _told(operation: FileOperation) -> None:
    """Announce an operation, again if it is interrupted."""
    while True:
        try:
            reach(operation)
        except InterruptedError:
            continue
        return
