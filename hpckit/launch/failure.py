"""The record of a run's first failure: `failure.json`."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path

from hpckit.errors import HpckitError, RankLostError
from hpckit.run.context import utc_now
from hpckit.run.directory import RunDirectory


def failure_file(directory: RunDirectory) -> str:
    """The file with the failure of the last attempt, relative to the run directory."""
    return f"{directory.attempt_name}/failure.json"


def stalls_folder(directory: RunDirectory) -> Path:
    """The folder for the watch of the last attempt: a folder per node, with its last stall."""
    return directory.attempt / "watch"


def is_of_a_peer(error: BaseException) -> bool:
    """Whether it is MPI's error for a message whose other end is gone, and for nothing that a program can do wrong."""
    if type(error).__module__ != "mpi4py.MPI" or not hasattr(error, "Get_error_class"):
        return False
    from mpi4py import MPI

    names = ("ERR_OTHER", "ERR_INTERN", "ERR_UNKNOWN", "ERR_PROC_FAILED", "ERR_PROC_ABORTED", "ERR_REVOKED")
    return error.Get_error_class() in {getattr(MPI, name) for name in names if hasattr(MPI, name)}


def failure_record(
    error: BaseException, rank: int, size: int, step: int | None, traceback_file: Path
) -> dict[str, object]:
    """The content of `failure.json`: who failed, when and how, and the text to show."""
    place = f"rank {rank} of {size} on {socket.gethostname()}" + (f", step {step}" if step is not None else "")
    if isinstance(error, HpckitError):
        shown = error
    elif is_of_a_peer(error):
        shown = RankLostError(
            f"a message of rank {rank} failed: {error}",
            where=place,
            likely="another rank, to which the message was to go or from which it was to come, had ended",
            do=f"look for the rank that ended first, in its node's log; the traceback is in {traceback_file}",
        )
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
        "by_peer": is_of_a_peer(error),
        "error": shown.to_dict(),
        "report": shown.report(),
        "exit_code": code,
        "traceback": traceback.format_exception(error),
    }
