"""Slurm's own commands: submit, ask for states, cancel. Argument lists only, no shell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpckit.errors import SetupError

PATIENCE = 60.0  # s for a command of Slurm to answer
# States of jobs that have not ended (squeue(1), JOB STATE CODES).
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED", "STOPPED"}
ALIVE = WAITING | {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"}
_SUBMITTED = re.compile(r"(\d+)(?:;[\w.-]+)?")


@dataclass(frozen=True)
class JobState:
    """Slurm's record of a job: state, reason to wait or nodes, start time (ISO, local time; maybe empty)."""

    state: str
    reason: str = ""
    start: str = ""
    left: str = ""


def submit(script: Path, options: Sequence[str] = (), folder: Path | None = None) -> int:
    """Submit the script, from `folder`; returns the job's number.

    Raises `SetupError` if there is no Slurm or it refuses the job.
    """
    said = _call(["sbatch", "--parsable", *options, str(script)], folder)
    found = _SUBMITTED.fullmatch(said.strip().splitlines()[-1] if said.strip() else "")
    if not found:
        raise SetupError(f"sbatch says {said!r}, and no job number")
    return int(found[1])


def states(jobs: Iterable[str]) -> dict[str, JobState]:
    """The states of jobs and array tasks ("12", "12_3"); jobs that Slurm no longer knows are left out.

    Raises `SetupError` where Slurm does not answer.
    """
    wanted = list(jobs)
    if not wanted:
        return {}
    # All of the user's jobs: with --jobs a single forgotten one is an error. Array tasks that wait, one a line.
    said = _call(["squeue", "--me", "--array", "--noheader", "--states=all", "--format=%i|%A|%T|%r|%N|%S|%L"])
    found = {}
    for line in said.splitlines():
        fields = line.split("|")
        if len(fields) != 7:
            continue
        name, number, state, reason, nodes, start, left = fields
        known = JobState(
            state,
            nodes if state == "RUNNING" else "" if reason == "None" else reason,
            "" if start == "N/A" else start,
            left if state == "RUNNING" else "",
        )
        for job in {name, number} & set(wanted):
            found[job] = known
    return found


def jobs_with_comment(comment: str) -> dict[str, str]:
    """Name -> number of the user's jobs with this comment that have not ended.

    Raises `SetupError` where Slurm does not answer.
    """
    said = _call(["squeue", "--me", "--noheader", "--format=%A|%j|%T|%k"])
    rows = [line.split("|", 3) for line in said.splitlines()]
    return {row[1]: row[0] for row in rows if len(row) == 4 and row[3] == comment and row[2] in ALIVE}


def cancel(jobs: Iterable[int]) -> None:
    """Cancel jobs; ended jobs are not affected."""
    words = [str(job) for job in jobs]
    if words:
        _call(["scancel", *words])


def _call(words: list[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, cwd=folder, check=False)
    except FileNotFoundError:
        raise SetupError(
            f"no {words[0]} here",
            likely="this machine is not a login node of a Slurm cluster, or Slurm's module is not loaded",
            do="--dry-run prints the script; hpckit run FILE -n RANKS runs without Slurm",
        ) from None
    except subprocess.TimeoutExpired:
        raise SetupError(f"{words[0]} does not answer within {PATIENCE:g} s", do="ask the administrator") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise SetupError(f"{words[0]}: {lines[-1]}", where="\n".join(lines[:-1]), do="hpckit doctor")
    return done.stdout
