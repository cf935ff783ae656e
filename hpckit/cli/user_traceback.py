"""What a user's program that ends by an exception prints: its own lines, once for all ranks that fail alike."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import mpi4py

import hpckit
from hpckit.errors import HpckitError
from hpckit.launch.launcher import joined

# What stands above and below the lines of a user: this package, mpi4py's runner, Python's.
FOREIGN = (os.path.dirname(os.path.abspath(hpckit.__file__)) + os.sep, os.path.dirname(mpi4py.__file__), "<frozen ")
SAID = "said"  # the folder for texts, in that of the front end


def tell_own_lines(program: str, folder: str = "") -> None:
    """Make this process tell exceptions so, by a file in the front end's `folder` where this host has it.

    A launcher may drop what a rank printed last when this rank's end ends the job; a file stays.
    """
    file, said = os.path.abspath(program), Path(folder, SAID)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = user_text(error, trace, file)
        here = joined(os.environ)
        whole = f"rank {here.rank} failed:\n{text}" if here and here.size > 1 else text
        code = error.exit_code if isinstance(error, HpckitError) else 1
        if not folder or not _leave(said, text, whole, code):
            sys.stderr.write(whole)  # all in one, so that lines of other ranks cannot come between
            sys.stderr.flush()

    sys.excepthook = hook


class OwnLines:
    """Reads what ranks have left in the front end's `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / SAID
        self._folder.mkdir()
        self._read: set[Path] = set()

    @property
    def code(self) -> int:
        """The exit code of the error that was left first, 0 where no rank has left one."""
        return int(_by_time(self._read)[0].stem.rpartition("-")[2]) if self._read else 0

    def new(self) -> list[str]:
        """The texts, each once, the first rank's first."""
        found = [path for path in self._folder.iterdir() if path.suffix and path not in self._read]
        self._read.update(found)
        return [path.read_text("utf-8") for path in _by_time(found)]


def user_text(error: BaseException, trace: TracebackType | None, file: str) -> str:
    """The exception with the lines from the program on; of an `HpckitError` without lines of hpckit, and its report."""
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename) != file:
        trace = trace.tb_next
    if not isinstance(error, HpckitError):
        return "".join(traceback.format_exception(type(error), error, trace))
    return user_lines(error, trace) + error.report() + "\n"


def user_lines(error: HpckitError, trace: TracebackType | None = None) -> str:
    """The lines of the program that led to an error of hpckit, those of packages left out."""
    frames = traceback.extract_tb(trace or error.__traceback__)
    return "".join(traceback.format_list([frame for frame in frames if not frame.filename.startswith(FOREIGN)]))


def _by_time(paths: Iterable[Path]) -> list[Path]:
    """Files in the order in which they were written."""
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def _leave(folder: Path, text: str, whole: str, code: int) -> bool:
    """Leave the text, its exit code in the name, unless a rank that failed alike has done so; False where it cannot.

    It is there whole or not at all.
    """
    own = folder / str(os.getpid())
    try:
        own.write_text(whole, "utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(own, folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}-{code}.txt")
        own.unlink()
    except OSError:
        return False
    return True
