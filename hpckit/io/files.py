"""Atomic file writes: under another name, forced to disk, then renamed in one step."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hpckit.errors import InputError, write_error


def sync_directory(directory: Path) -> None:
    """Force the names in a directory to disk, so that a file moved there stays after a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes | memoryview, *, sync_parent: bool = True) -> None:
    """Replace `path` by a file with this content; a reader sees the old file or the new one.

    A process killed at any instant leaves at most a `.tmp` file beside it. Raises `OSError` (see `write_error`).
    """
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]  # short writes are legal
        os.fsync(descriptor)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    if sync_parent:
        sync_directory(path.parent)


def write_file(path: Path, content: bytes | memoryview) -> None:
    """`replace_file` for files that a user asked for: raises `SetupError` if the file cannot be written."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise write_error(error, path) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path for a file that then replaces `path`, forced to disk; on an error it is removed.

    Raises `SetupError` if that fails.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise write_error(error, path) from error


def utc_now() -> str:
    """The present moment in ISO 8601, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_svg(path: Path, text: str) -> None:
    """Write an SVG picture, whole or not at all.

    Raises `InputError` for another file name extension, `SetupError` if it cannot be written.
    """
    if path.suffix.lower() != ".svg":
        raise InputError(f"{str(path)!r} is not the name of an SVG picture", do="use a name that ends in .svg")
    write_file(path, text.encode())
