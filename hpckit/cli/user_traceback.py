"""What a user's program that ends by an exception prints: its own lines, once for all ranks that fail alike."""

from __future__ import annotations

import hashlib
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import mpi4py

import hpckit
from hpckit.cli.joined import joined
from hpckit.errors import HpckitError

# What stands above and below the lines of a user: this package, mpi4py's runner, Python's.
FOREIGN = (os.path.dirname(os.path.abspath(hpckit.__file__)) + os.sep, os.path.dirname(mpi4py.__file__), "<frozen ")
READ_SECONDS = 0.1  # for the launcher to read the text: it may drop what it has not when this rank's end ends the job
TOLD_SECONDS = 2.0  # that a rank waits for another one's text to be out, before its own end ends the job


def tell_own_lines(program: str, folder: str = "") -> None:
    """Make this process print exceptions so; ranks tell each other in `folder`, where this host has it."""
    file = os.path.abspath(program)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = user_text(error, trace, file)
        here = joined(os.environ)
        said = f"rank {here.rank} failed:\n{text}" if here and here.size > 1 else text
        mark = Path(folder, "failed-" + hashlib.sha256(text.encode()).hexdigest()[:16])
        if not folder or not _is_told(mark, said):
            _print(said)
        time.sleep(READ_SECONDS)

    sys.excepthook = hook


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


def _is_told(mark: Path, text: str) -> bool:
    """Whether a rank of this host has told this, or this one just did."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        # This rank's end ends the job: first let the other one print.
        return any(mark.stat().st_size for _ in _until(TOLD_SECONDS))
    except OSError:
        return False
    _print(text)
    mark.write_text("told")
    return True


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.01)


def _print(text: str) -> None:
    """All in one, so that lines of other ranks cannot come between."""
    sys.stderr.write(text)
    sys.stderr.flush()
