"""A folder from an untrusted source: files are replaced atomically, named safely, and never reached through links."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any

from hpckit.comm.agree import plain
from hpckit.errors import CorruptDataError, InputError, did_you_mean

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MOST_RUNS = 1000  # that are looked at for a name like the one given
MOST_JSON = 64 << 20  # bytes of a record: the manifest of a large job has some MiB


def _runs_near(path: Path) -> list[str]:
    """The run directories beside a missing one and in runs/, as the user would name them."""
    here = Path.cwd()
    found = [*_beside(path.parent), *_beside(here / "runs")]
    return [str(one.relative_to(here)) if one.is_relative_to(here) else str(one) for one in found]


def _beside(folder: Path) -> list[Path]:
    try:
        return [one.parent for one in sorted(folder.glob("*/resolved.json"))[:MOST_RUNS]]
    except OSError:
        return []


class Folder:
    """An existing folder. File names are relative to it, and may lead only through its own folders.

    Raises `InputError` if `path` is not a folder, is a link, or belongs to another user; `foreign`: one of another user
    may be read.
    """

    def __init__(self, path: Path | str, foreign: bool = False) -> None:
        self.path = Path(path).absolute()
        if not require_own(self.path, "give the run directory itself", foreign):
            raise InputError(
                f"no run directory {self.path} (No such file or directory)",
                likely=did_you_mean(str(path), _runs_near(self.path)),
                do="hpckit ls lists the runs below runs/, hpckit ls FOLDER those below another folder",
            )

    def write_text(self, name: str, text: str) -> None:
        """Replace the file `name` by `text`, atomically."""
        folder, last = self._folder_of(name)
        temporary = f".{last}.{secrets.token_hex(4)}.tmp"
        try:
            try:
                _write_new(folder, temporary, text)
                os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _remove(folder, temporary)
                raise
            os.fsync(folder)
        finally:
            os.close(folder)

    def write_json(self, name: str, value: Any) -> None:
        """Replace the file `name` by `value` as JSON (see `plain`)."""
        self.write_text(name, json.dumps(plain(value), indent=1) + "\n")

    def create_json(self, name: str, value: Any) -> bool:
        """Write `name` only if it does not exist: True for the first caller of all ranks, else False.

        The file appears with all of its content (written beside it, then linked to its name).
        """
        folder, last = self._folder_of(name)
        temporary = f".{last}.{secrets.token_hex(4)}.tmp"
        text = json.dumps(plain(value), indent=1) + "\n"
        try:
            _write_new(folder, temporary, text)
            try:
                os.link(temporary, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except PermissionError:  # a file system without hard links
                _write_new(folder, last, text)
            return True
        except FileExistsError:
            return False
        finally:
            _remove(folder, temporary)
            os.close(folder)

    def read_json(self, name: str) -> Any:
        """The record in the file `name`; None if the file does not exist or is empty.

        Raises `CorruptDataError` if it is a link or not a regular file, holds no JSON object, or cannot be read.
        """
        try:
            content = self.read(name, MOST_JSON + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptDataError(f"{self.path / name} cannot be read: {error.strerror}") from None
        if len(content) > MOST_JSON:
            raise CorruptDataError(f"{self.path / name} has more than {MOST_JSON >> 20} MiB, which no record has")
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise CorruptDataError(f"{self.path / name} is not JSON: {error}") from None
        if isinstance(record, dict) or not record:
            return record or None
        raise CorruptDataError(f"{self.path / name} is not a JSON object: {str(record)[:40]}")

    def _folder_of(self, name: str) -> tuple[int, str]:
        """The open folder that holds `name`, reached without following any link below the run directory."""
        parts = name.split("/")
        if not all(SAFE_NAME.fullmatch(part) for part in parts):
            raise ValueError(
                f"{name!r} is not a safe file name: letters, digits, dots, dashes, within the run directory"
            )
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(self.path, flags)
        for part in parts[:-1]:
            try:
                inner = os.open(part, flags, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
        return folder, parts[-1]

    def read(self, name: str, most: int, last: bool = False) -> bytes:
        """The first (or the last) `most` bytes of the file `name`.

        Raises `OSError`, also if it is a link or not a regular file.
        """
        with open(self._open(name, os.O_RDONLY), "rb") as file:
            if last:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read(most)

    def append(self, name: str, content: bytes) -> None:
        """Add `content` to the file `name`. Raises `OSError`."""
        with open(self._open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            file.write(content)

    def cut(self, name: str, size: int) -> None:
        """Truncate the file `name` to its first `size` bytes, if it exists."""
        with contextlib.suppress(FileNotFoundError), open(self._open(name, os.O_WRONLY), "ab") as file:
            os.ftruncate(file.fileno(), min(size, os.fstat(file.fileno()).st_size))

    def _open(self, name: str, flags: int) -> int:
        """The descriptor of the regular file `name`, reached without following any link."""
        folder, last = self._folder_of(name)
        try:
            # A pipe would wait for its other end.
            file = os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "it is not a regular file", str(self.path / name))
        return file


def require_own(path: Path, do: str, foreign: bool = False) -> bool:
    """Whether the folder `path` is there. Raises `InputError` if it is a link, no folder, or another user's.

    do: the advice in the error.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", do=do) from None
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is not a folder, or is a link to one", do=do)
    if status.st_uid != os.geteuid() and not foreign:
        raise InputError(f"{path} belongs to another user", do="copy it, or give a directory of your own")
    return True


def _write_new(folder: int, name: str, text: str) -> None:
    """Create `name` in the open folder, with all of `text` on disk when this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=folder), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
