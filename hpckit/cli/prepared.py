"""A run directory that `hpckit submit` prepared: the settings are in it, and the job's ranks start from it."""

from __future__ import annotations

import os
from pathlib import Path

from hpckit.errors import InputError
from hpckit.launch import mpiexec
from hpckit.launch.provenance import provenance
from hpckit.run.directory import RunDirectory

JOB = "job.json"  # which job of the batch system works on the run
BEGUN = ("progress.json", "summary.json", "ckpt", "attempts/000/failure.json")


def is_run(target: str) -> bool:
    """`target` is a run directory."""
    return os.path.isfile(Path(target, "resolved.json"))


def has_begun(target: str) -> bool:
    """`target` is the directory of a run that was started at least once."""
    return is_run(target) and any(os.path.lexists(Path(target, name)) for name in BEGUN)


def prepared(target: str, ranks: int) -> RunDirectory:
    """The run directory `target`, as `hpckit run` makes one, for a first start on `ranks` ranks.

    Raises `InputError` where the run was started before, or was prepared for another number of ranks.
    """
    directory = RunDirectory(target)
    if has_begun(target):
        raise InputError(
            f"the run in {directory.path} has been started before",
            do=f"hpckit resume {target}, or start it anew: hpckit run {Path(target) / 'run.toml'}",
        )
    meant = directory.read_json("resolved.json")["ranks"]
    if meant != ranks:
        raise InputError(
            f"{directory.path} was prepared for {meant} ranks, and here are {ranks}", do=f"start {meant} ranks"
        )
    before = directory.read_json("provenance.json") or {}
    now = provenance(["run", target], ranks, mpiexec.rank_environment(ranks))
    command = before.get("command", now["command"])
    directory.write_json("provenance.json", {**before, **now, "command": command})
    return directory
