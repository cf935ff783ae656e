"""The folder of one run: its files are replaced whole, named safely, and never written through links.

2026-11-21T0415-weather-thermal-p2-ab12cd/
  run.toml  resolved.json  provenance.json  progress.json  metrics.jsonl  summary.json
  ckpt/  output/  report/  attempts/000/{failure.json, launcher.log, ranks/00001.log}
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from hpckit.comm.json_bytes import plain
from hpckit.errors import CorruptDataError, InputError, SetupError

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FOLDERS = ("output", "report", "attempts", "attempts/000", "attempts/000/ranks")
STOP_FILE = "stop"
MOST_JSON = 1 << 28  # bytes of a file that is read whole
INPUT_FILE_FORMAT = "input-file"


def _existing_file(path: Path) -> Path:
    """`path` where it is a file that can be read; the sentence of the error goes into the list of mistakes."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:  # too long a name, a folder that is not to be entered, a null character
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a folder; give a file")
    if not stat.S_ISREG(mode):
        raise ValueError(f"there is no file {path}")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path} cannot be read by this user")
    return path


class RelativeToSource:
    """Mark of a path that is relative to the file that names it; the front end finds it by the schema's format and
    makes it absolute.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core_schema), "format": INPUT_FILE_FORMAT}


InputFile = Annotated[Path, RelativeToSource(), AfterValidator(_existing_file)]


def safe_name(text: str) -> str:
    """`text` with everything that has no place in a file name replaced by a dash."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._")[:60] or "run"


def run_name(app: str, title: str, ranks: int) -> str:
    """A name that sorts by time (UTC) and that no other run has: `2026-11-21T0415-weather-thermal-p2-ab12cd`."""
    parts = [safe_name(part) for part in dict.fromkeys((app, title)) if part]
    return "-".join([time.strftime("%Y-%m-%dT%H%M", time.gmtime()), *parts, f"p{ranks}", secrets.token_hex(3)])


class RunDirectory:
    """The folder of a run that exists. Names of files are relative to it and may go through its own folders only.

    Raises `InputError` where `path` is no folder, is a link, or belongs to another user.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        try:
            status = self.path.lstat()
        except OSError as error:
            raise InputError(f"no run directory {self.path} ({error.strerror})", do="hpckit ls") from None
        if not stat.S_ISDIR(status.st_mode):
            raise InputError(f"{self.path} is not a folder, or is a link to one", do="give the run directory itself")
        if status.st_uid != os.geteuid():
            raise InputError(f"{self.path} belongs to another user", do="copy it, or give a directory of your own")

    @classmethod
    def create(cls, path: Path | str) -> RunDirectory:
        """Make the folder `path` (mode 0700; it may exist when it is empty) and the folders in it.

        Raises `InputError` where something is there already, `SetupError` where it cannot be made.
        """
        path = Path(path).absolute()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                if path.is_symlink() or not path.is_dir() or any(path.iterdir()):
                    raise InputError(
                        f"{path} exists and is not an empty folder", do="give another --directory"
                    ) from None
            directory = cls(path)
            for folder in FOLDERS:
                (path / folder).mkdir(mode=0o700)
        except OSError as error:
            raise SetupError(
                f"the run directory {path} cannot be made: {error.strerror}",
                likely="the folder is not writable, or the disk is full",
                do="hpckit run … --directory DIR with a folder of your own",
            ) from None
        return directory

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    @property
    def output(self) -> Path:
        """The folder of field files."""
        return self.path / "output"

    @property
    def report(self) -> Path:
        """The folder of the report."""
        return self.path / "report"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "ckpt"

    @property
    def attempt_number(self) -> int:
        """How often the run was resumed: the number of its last start."""
        names = os.listdir(self.path / "attempts") if (self.path / "attempts").is_dir() else []
        return max((int(name) for name in names if re.fullmatch(r"\d{3,6}", name)), default=0)

    @property
    def attempt_name(self) -> str:
        """The folder of the last start, relative to the run directory."""
        return f"attempts/{self.attempt_number:03d}"

    @property
    def attempt(self) -> Path:
        """The folder of the last start of the run: its logs and its failure."""
        return self.path / self.attempt_name

    def begin_attempt(self) -> int:
        """Make the folder of another start, and put aside what the one before left: its summary, how far it was,
        a wish to stop.

        Raises `SetupError` where that cannot be written. Returns the number of the attempt.
        """
        before, number = self.attempt_name, self.attempt_number + 1
        try:
            for name in ("summary.json", "progress.json"):
                if os.path.lexists(self.path / name):
                    os.replace(self.path / name, self.path / before / name)
            if self.stop_requested():
                os.unlink(self.path / STOP_FILE)
            folder = self.path / "attempts" / f"{number:03d}"
            for path in (folder, folder / "ranks"):
                path.mkdir(mode=0o700)
        except OSError as error:
            raise SetupError(
                f"the run directory cannot be written: {error.strerror}",
                where=str(error.filename or self.path),
                likely="the file system is read-only or full, or its permissions have changed",
                do="make it writable; the checkpoints there are as they were",
            ) from None
        return number

    def cut_metrics(self, size: int) -> None:
        """Forget the lines of `metrics.jsonl` that were written after it had `size` bytes."""
        folder, last = self._folder_of("metrics.jsonl")
        try:
            descriptor = os.open(last, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return
        finally:
            os.close(folder)
        try:
            os.ftruncate(descriptor, min(size, os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)

    def metrics_size(self) -> int:
        """Bytes in `metrics.jsonl`."""
        path = self.path / "metrics.jsonl"
        return path.lstat().st_size if path.exists() else 0

    def write_text(self, name: str, text: str) -> None:
        """Replace the file `name` by `text`, or leave the old one: never half of it."""
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
        """Write `name` only where it does not exist: True for the one caller, of all ranks, that was first.

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

    def is_done(self) -> bool:
        """The run has come to its end, whatever its numbers are."""
        return (self.read_json("summary.json") or {}).get("status") in ("done", "missed")

    def read_json(self, name: str) -> Any:
        """The record in the file `name`; None where there is no such file, or nothing in it.

        Raises `CorruptDataError` where it is no file, a link or no JSON object, or cannot be read.
        """
        try:
            folder, last = self._folder_of(name)
        except FileNotFoundError:
            return None
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would wait for a writer
            with open(os.open(last, flags, dir_fd=folder), "rb") as file:
                record = json.loads(file.read(MOST_JSON) or b"")
            if isinstance(record, dict) or not record:
                return record or None
            raise CorruptDataError(f"{self.path / name} is no JSON object: {str(record)[:40]}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptDataError(f"{self.path / name} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise CorruptDataError(f"{self.path / name} is not JSON: {error}") from None
        finally:
            os.close(folder)

    def append_metrics(self, values: Mapping[str, Any]) -> None:
        """Add one line to `metrics.jsonl`."""
        folder, last = self._folder_of("metrics.jsonl")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(last, flags, 0o600, dir_fd=folder), "ab") as file:
                file.write(json.dumps(plain(values)).encode() + b"\n")
        finally:
            os.close(folder)

    def request_stop(self) -> None:
        """Ask the run for an early, complete end (see `Run.stop_requested`)."""
        self.create_json(STOP_FILE, {"asked": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})

    def stop_requested(self) -> bool:
        """Somebody asked for an early end."""
        return os.path.lexists(self.path / STOP_FILE)

    def _folder_of(self, name: str) -> tuple[int, str]:
        """The open folder that holds `name`, reached without following any link below the run directory."""
        parts = name.split("/")
        if not all(SAFE_NAME.fullmatch(part) for part in parts):
            raise ValueError(f"{name!r} is no safe file name: letters, digits, dots, dashes, within the run directory")
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(self.path, flags)
        for part in parts[:-1]:
            try:
                inner = os.open(part, flags, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
        return folder, parts[-1]


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
