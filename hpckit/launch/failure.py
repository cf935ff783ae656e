"""The record of a run's first failure: `failure.json`."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path

from hpckit.errors import HpckitError
from hpckit.run.context import utc_now
from hpckit.run.directory import RunDirectory


def failure_file(directory: RunDirectory) -> str:
    """The file with the failure of the last attempt, relative to the run directory."""
    return f"{directory.attempt_name}/failure.json"


def stalls_folder(directory: RunDirectory) -> Path:
    """The folder for the watch of the last attempt: a folder per node, with its last stall."""
    return directory.attempt / "watch"


def failure_record(
    error: BaseException, rank: int, size: int, step: int | None, traceback_file: Path
) -> dict[str, object]:
    """The content of `failure.json`: who failed, when and how, and the text to show."""
    place = f"rank {rank} of {size} on {socket.gethostname()}" + (f", step {step}" if step is not None else "")
    if isinstance(error, HpckitError):
        shown = error
        if not shown.where:
            shown.where = place
    else:
        frames = traceback.extract_tb(error.__traceback__)
        last = f", {os.path.basename(frames[-1].filename)} line {frames[-1].lineno}" if frames else ""
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, SystemExit):
            said = f"sys.exit({error.code!r}) was called before the run was over"
        shown = HpckitError(said, where=place + last, do=f"the traceback is in {traceback_file}")
    code = shown.exit_code
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 0:
        code = error.code
    return {
        "rank": rank,
        "ranks": size,
        "host": socket.gethostname(),
        "step": step,
        "time": utc_now(),
        "kind": type(error).__name__,
        "error": shown.to_dict(),
        "report": shown.report(),
        "exit_code": code,
        "traceback": traceback.format_exception(error),
    }
