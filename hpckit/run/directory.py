"""The folder of one run.

2026-11-21T0415-weather-thermal-p2-ab12cd/
  run.toml  resolved.json  provenance.json  progress.json  metrics.jsonl  summary.json
  ckpt/  output/  report/  attempts/000/{failure.json, launcher.log, ranks/00001.log}
"""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

from hpckit.errors import InputError, SetupError
from hpckit.io.files import utc_now
from hpckit.io.folder import Folder, require_own

FOLDERS = ("output", "report", "attempts", "attempts/000", "attempts/000/ranks")
# Folders of a run, where it has them.
OWN = ("ckpt", "output", "output/frames", "report", "attempts", "attempts/000/ranks", "attempts/000/watch", "cases")
DEEP = ("output", "attempts", "cases")  # those with folders of any name
STOP_FILE, METRICS = "stop", "metrics.jsonl"


def safe_name(text: str) -> str:
    """`text` with every character that is unsafe in a file name replaced by a dash."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._")[:60] or "run"


def run_name(app: str, title: str, ranks: int) -> str:
    """A unique name that sorts by time (UTC): `2026-11-21T0415-weather-thermal-p2-ab12cd`."""
    parts = [safe_name(part) for part in dict.fromkeys((app, title)) if part]
    return "-".join([time.strftime("%Y-%m-%dT%H%M", time.gmtime()), *parts, f"p{ranks}", secrets.token_hex(3)])


class RunDirectory(Folder):
    """The folder of an existing run: its parts, its attempts, and its progress.

    Raises `InputError` if it, or a folder in it that a run writes to or deletes from, is a link or another user's.
    """

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        do = "a run keeps its files in folders of its own: put the folder itself here, or move the whole run"
        for name in OWN:
            if require_own(self.path / name, do) and name in DEEP:
                for entry in os.scandir(self.path / name):
                    if entry.is_symlink() and entry.is_dir():
                        raise InputError(f"{entry.path} is a link to a folder", do=do)

    @classmethod
    def create(cls, path: Path | str) -> RunDirectory:
        """Make the folder `path` (mode 0700; an empty one may exist) and the folders in it.

        Raises `InputError` if it exists and is not empty, `SetupError` if it cannot be made.
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
        """The number of the last start, from 0: how often the run was resumed."""
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
        """Make the folder of another start, and move away what the last one left: its summary, its progress and its
        stop request.

        Raises `SetupError` if the directory cannot be written. Returns the number of the attempt.
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
                do="make it writable; its checkpoints are unchanged",
            ) from None
        return number

    def is_done(self) -> bool:
        """Whether the run has ended by itself, whatever its numbers are."""
        return (self.read_json("summary.json") or {}).get("status") in ("done", "missed")

    def request_stop(self) -> None:
        """Ask the run for an early, complete end (see `Run.stop_requested`)."""
        self.create_json(STOP_FILE, {"asked": utc_now()})

    def stop_requested(self) -> bool:
        """Whether an early end was requested."""
        return os.path.lexists(self.path / STOP_FILE)
