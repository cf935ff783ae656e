"""A run that needs several time limits, on a real Slurm: stopped with a checkpoint, queued again, gone on."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpckit.bench.loopback_slurm import Cluster
from hpckit.cli.compare import field_differences

# Some seconds of work, in small steps; two frames of double precision.
RUN = (
    "diffusion/heat",
    "grid.shape=[61,67]",
    "time.monitor=200",
    "output.frames=2",
    "output.single=false",
    "report.roofline=false",
    "--no-report",
)
SITE = """
signal_seconds = 20
[cpu]
ranks_per_node = 2
[environment]
venv = "{venv}"
[scratch]
node_local = ""
"""


def requeued(cluster: Cluster, folder: Path, limits: int, end: float = 5000.0) -> dict[str, Any]:
    """Submit the run, send Slurm's warning of the time limit to its job `limits` - 1 times, compare to an unbroken one.

    Slurm's own warning comes up to a minute early or late, so the same signal is sent by hand once the job has made
    steps. Returns the number of starts, of bits that differ in any field, and Slurm's last word on the job.
    """
    words = [*RUN, f"time.end={end}"]
    whole, broken = folder / "whole", folder / "broken"
    front_end = [sys.executable, "-m", "hpckit.cli.main"]
    subprocess.run([*front_end, "run", *words, "-n", "2", "--directory", whole], check=True, cwd=folder)
    (folder / "site.toml").write_text(SITE.format(venv=sys.prefix))
    with _slurm_here(cluster):
        number = _submit([*words, "--directory", str(broken), "--time", "5", "--site", str(folder / "site.toml")])
    for start in range(limits - 1):
        _wait_for_steps(cluster, number, broken, start)
        cluster.run("scancel", "--signal=USR1", "--batch", number)
        _wait_for_requeue(cluster, number, broken, start)
    ended = cluster.wait(number, 200)
    return {
        "starts": 1 + int(ended["Restarts"]),
        "exit": ended["ExitCode"],
        "steps": _step(broken),
        "fields": field_differences(whole, broken),
    }


def _submit(words: list[str]) -> str:
    from hpckit.cli.submit import main

    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(words)
    return said.getvalue().split()[1].rstrip(":")


@contextlib.contextmanager
def _slurm_here(cluster: Cluster) -> Iterator[None]:
    """Slurm's commands of this process go to the cluster."""
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = cluster.environment["SLURM_CONF"]
    try:
        yield
    finally:
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


def _wait_for_steps(cluster: Cluster, number: str, directory: Path, start: int) -> None:
    """Until this start of the job has made steps that no earlier one had made."""
    before = _step(directory)

    def moving() -> bool:
        known = cluster.job(number)
        assert known["JobState"] not in ("COMPLETED", "FAILED"), f"job {number} ended early: {_output(directory)}"
        return known["JobState"] == "RUNNING" and int(known["Restarts"]) == start and _step(directory) > before

    _wait(moving, f"start {start + 1} of job {number} makes no steps", directory)


def _wait_for_requeue(cluster: Cluster, number: str, directory: Path, start: int) -> None:
    def requeued() -> bool:
        return int(cluster.job(number)["Restarts"]) > start

    _wait(requeued, f"job {number} is not put back into the queue", directory)


def _wait(done: Any, said: str, directory: Path, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"{said}: {_output(directory)}")
        time.sleep(0.1)


def _step(directory: Path) -> int:
    try:
        return int(json.loads((directory / "progress.json").read_text())["step"])
    except (OSError, ValueError, KeyError):
        return 0


def _output(directory: Path) -> str:
    return "".join(path.read_text() for path in sorted(directory.glob("attempts/*/job-*.out")))
