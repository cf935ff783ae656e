"""`hpckit ls [DIR]`: the runs below a folder, at any depth, each with its state."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hpckit.cli.job import JOB, has_begun
from hpckit.errors import CorruptDataError, HpckitError, InputError, SetupError
from hpckit.jobs import slurm
from hpckit.jobs.slurm import JobState
from hpckit.launch.failure import failure_file
from hpckit.run.directory import RunDirectory
from hpckit.settings.table import Parser, print_table, rate_text

SILENT_SECONDS = 600.0  # a run without a sign of life for this long counts as lost
GONE = JobState("GONE", "Slurm does not know it any more")


def main(arguments: list[str]) -> int:
    """The verb `ls`."""
    it = Parser(prog="hpckit ls", description="List runs with their state.")
    it.add_argument("directory", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="where to look (runs)")
    options = it.parse_args(arguments)
    if not options.directory.is_dir():
        if options.directory == Path("runs"):
            print("no runs here yet; hpckit init lists what can be run")
            return 0
        raise InputError(f"{options.directory} is not a folder", do="give the folder that holds run directories")
    rows = []
    paths = run_directories(options.directory)
    jobs = job_states(_readable(paths))
    for path in paths:
        name = path.name if path == options.directory else str(path.relative_to(options.directory))
        try:
            with records_of(path):
                (path / "resolved.json").is_file()  # raises where the folder may not be entered
                directory = RunDirectory(path, foreign=True)
                rows.append((name, *describe(directory, jobs.get(job_of(directory)))))
        except HpckitError as error:
            rows.append((name, "", "", f"unreadable: {error.message}", "", "", "", ""))
    if rows:
        print_table(("run", "app", "ranks", "status", "progress", "rate", "job", "last sign (UTC)"), rows)
    else:
        print(f"no runs in {options.directory}")
    return 0


def describe(directory: RunDirectory, job: JobState | None = None) -> tuple[Any, ...]:
    """App, ranks, status, progress, rate, job and last sign of life of a run; `job` is what the batch system says."""
    # The process first, then its files: a process that has ended writes no more.
    gone = _front_end_gone(directory.read_json("provenance.json") or {})
    resolved = directory.read_json("resolved.json") or {}
    summary = directory.read_json("summary.json") or {}
    progress = directory.read_json("progress.json") or {}
    seen = max(path.lstat().st_mtime for path in (directory.path, *directory.path.glob("*.json*")))
    rate = progress.get("rate") or ""
    if summary.get("cell_steps_per_second"):
        rate = rate_text(summary["cell_steps_per_second"], "cell-steps/s")
    return (
        resolved.get("app", ""),
        resolved.get("ranks", ""),
        status_with_job(directory, _status(directory, summary, seen, gone), job),
        f"{100 * progress['fraction']:.0f} %" if "fraction" in progress else "",
        rate,
        job_of(directory),
        time.strftime("%Y-%m-%d %H:%M", time.gmtime(seen)),
    )


def status_of(directory: RunDirectory, job: JobState | None) -> str:
    """The state of a run in words, by its files and its job."""
    return str(describe(directory, job)[2])


def _readable(paths: list[Path]) -> Iterator[RunDirectory]:
    for path in paths:
        with contextlib.suppress(HpckitError):
            yield RunDirectory(path, foreign=True)


def _status(directory: RunDirectory, summary: dict[str, Any], seen: float, gone: bool) -> str:
    """The status in `summary.json`, else in the failure, else by the last sign of life."""
    failure = directory.read_json(failure_file(directory))
    if failure is not None:
        return f"failed ({failure['exit_code']}, {failure['error']['title']})"
    if "status" in summary:
        return str(summary["status"])
    return "lost?" if gone or time.time() - seen > SILENT_SECONDS else "running"


def _front_end_gone(provenance: dict[str, Any]) -> bool:
    """The process that started the run was on this host and has ended."""
    front_end = provenance.get("front_end") or {}
    if front_end.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(front_end["pid"]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def run_directories(folder: Path) -> list[Path]:
    """`folder` itself if it is a run, and all runs below it, but for links, hidden folders and the insides of runs.

    Also folders that may not be entered. Raises `SetupError` if `folder` may not be.
    """
    found: list[Path] = []

    def closed(error: OSError) -> None:  # that is said when it is read
        if Path(error.filename) == folder:
            raise SetupError(f"{folder}: {error.strerror}", do="look at its permissions") from None
        found.append(Path(error.filename))

    for place, names, files in os.walk(folder, onerror=closed):
        if "resolved.json" in files:
            found.append(Path(place))
            names.clear()
        names[:] = sorted(name for name in names if not name.startswith("."))
    return sorted(found)


@contextlib.contextmanager
def records_of(path: Path | str) -> Iterator[None]:
    """A context for reading a run's records: raises `CorruptDataError` for malformed ones."""
    try:
        yield
    except OSError as error:
        raise SetupError(f"{error.filename or path}: {error.strerror}", do="look at its permissions") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptDataError(
            f"the records of {path} are damaged, or not those of a run ({error})",
            do="look at its resolved.json, summary.json and progress.json, or move the folder away",
        ) from None


def job_of(directory: RunDirectory) -> str:
    """The number of the latest job of a run; empty without one, or if it cannot be read."""
    with contextlib.suppress(HpckitError):
        record = directory.read_json(JOB)
        return str(record.get("job", "")) if isinstance(record, dict) else ""
    return ""


def job_states(directories: Iterable[RunDirectory]) -> dict[str, JobState]:
    """Number of job -> its state, for all jobs of these runs in one query; empty if Slurm does not answer."""
    numbers = [number for directory in directories if (number := job_of(directory))]
    try:
        return {number: GONE for number in numbers} | slurm.states(numbers)
    except HpckitError:
        return {}


def status_with_job(directory: RunDirectory, status: str, job: JobState | None) -> str:
    """`status` from a run's files, corrected by its job's state (None: unknown)."""
    begun = has_begun(str(directory.path))
    if job is None:
        return status if begun or not job_of(directory) else "submitted"
    if job.state in slurm.WAITING:
        why = f" ({job.reason})" if job.reason else ""
        return f"queued{' again' if begun else ''}{why}"
    if job.state in slurm.ALIVE:
        return "starting" if not begun else "running" if status in ("stopped", "lost?") else status
    if not begun:
        return f"never started ({job.state.lower()})"
    return f"ended by Slurm ({job.state.lower()})" if status in ("running", "lost?") and job is not GONE else status
