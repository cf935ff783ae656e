"""What the batch system says of runs, beside what their own files say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpckit.cli.prepared import JOB, has_begun
from hpckit.errors import CorruptDataError, HpckitError
from hpckit.jobs import slurm
from hpckit.jobs.slurm import JobState
from hpckit.run.directory import RunDirectory

GONE = JobState("GONE", "Slurm does not know it any more")


def run_directories(folder: Path) -> list[Path]:
    """`folder` itself where it is a run, and the runs in it and in the job arrays in it; links are left out."""
    found = []
    for path in [folder, *sorted(folder.iterdir())]:
        if path.is_symlink() or not path.is_dir():
            continue
        if (path / "resolved.json").is_file():
            found.append(path)
        elif path != folder and (path / "000" / "resolved.json").is_file():
            found += [task for task in sorted(path.iterdir()) if (task / "resolved.json").is_file()]
    return found


@contextlib.contextmanager
def records_of(path: Path | str) -> Iterator[None]:
    """Where the records of a run are read: raises `CorruptDataError` for those that are not what ours are."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptDataError(
            f"the records of {path} are damaged, or not those of a run ({error})",
            do="look at its resolved.json, summary.json and progress.json, or move the folder away",
        ) from None


def job_of(directory: RunDirectory) -> str:
    """The number of the job that works on a run, or did; empty for a run without one, or where that cannot be read."""
    with contextlib.suppress(HpckitError):
        record = directory.read_json(JOB)
        return str(record.get("job", "")) if isinstance(record, dict) else ""
    return ""


def job_states(directories: Iterable[RunDirectory]) -> dict[str, JobState]:
    """Number of job -> its state, for all jobs of these runs in one question; empty where no Slurm answers."""
    numbers = [number for directory in directories if (number := job_of(directory))]
    try:
        return {number: GONE for number in numbers} | slurm.states(numbers)
    except HpckitError:
        return {}


def status_with_job(directory: RunDirectory, status: str, job: JobState | None) -> str:
    """`status`, which the files of a run tell, in the light of its job's state (None: unknown)."""
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
