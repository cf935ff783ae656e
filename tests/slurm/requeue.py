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

from hpckit.cli.verbs.compare.fields import field_differences
from hpckit.cli.verbs.submit import main as submit
from tests.slurm.loopback import Cluster

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
SLOW = ("checkpoint.every=1", "checkpoint.asynchronous=false", "checkpoint.keep=1")
SITE = """
signal_seconds = {seconds}
[cpu]
ranks_per_node = {ranks}
[environment]
venv = "{venv}"
variables = {{ {variables} }}
[scratch]
node_local = ""
"""
# A run of a second may be over before anybody warns it, on a busy machine: every line of its metrics takes half a
# second until it is asked to stop. In the job of the last start nothing does.
SLOWED = """
import glob, os, sys, time

def slow(event, words):
    if event == "open" and words[0] == "metrics.jsonl" and words[2] & os.O_APPEND:
        if len(glob.glob({attempts!r})) < {limits} and not glob.glob({stop!r}):
            time.sleep(0.5)

sys.addaudithook(slow)
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
    (folder / "site.toml").write_text(site_text(variables=f'PYTHONPATH = "{_slowed(folder / "hook", broken, limits)}"'))
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


def limited(cluster: Cluster, folder: Path, ends: tuple[float, float] = (3000.0, 7000.0)) -> dict[str, Any]:
    """Two runs of more than a minute under a limit of one minute: one warned by Slurm itself, one ended by it.

    Slurm's own signal, which comes up to a minute early, leads to checkpoint and requeue until the first one is done.
    The second has no `--signal`: the limit itself does the same. Both write a checkpoint after every step, and are
    slow in their first start (`SLOWED`); they are compared to unbroken runs. Returns, for `warned` and `ended`: starts
    and exit code of the job, and the differences of the fields. `ends`: simulated seconds of both.
    """
    front_end = [sys.executable, "-m", "hpckit.cli.main"]
    warned, script, options = folder / "warned", folder / "ended.sh", dict[str, list[str]]()
    often = [word.replace("monitor=200", "monitor=20") for word in RUN]
    words = {name: [*often, f"time.end={end}"] for name, end in zip(("warned", "ended"), ends, strict=True)}
    for name, run in (("warned", warned), ("ended", folder / "runs" / "ended-*")):
        site, hook = folder / f"{name}.toml", _slowed(folder / f"{name}-hook", run, 2)
        site.write_text(site_text(seconds=10, ranks=1, variables=f'PYTHONPATH = "{hook}"'))
        options[name] = [*SLOW, "--time", "1", "--site", str(site)]
    with _slurm_here(cluster):
        first = _submit([*words["warned"], *options["warned"], "--directory", str(warned)])
        with contextlib.redirect_stdout(io.StringIO()):
            submit([*words["ended"], *options["ended"], "--name", "ended", "--script", str(script)])
    text = script.read_text().replace("#SBATCH --signal=B:USR1@10\n", "")
    assert "--signal" not in text
    script.write_text(text)
    second = cluster.run("sbatch", "--parsable", str(script), cwd=folder).strip()
    ended = folder / "runs" / f"ended-{second}"
    for name, some in words.items():
        _quietly([*front_end, "run", *some, "--directory", f"{name}-whole"], folder)
    return {
        name: {
            "starts": 1 + int((last := cluster.wait(number, 900))["Restarts"]),
            "exit": last["ExitCode"],
            "fields": field_differences(folder / f"{name}-whole", directory),
        }
        for name, number, directory in (("warned", first, warned), ("ended", second, ended))
    }


def outlived(cluster: Cluster, folder: Path, end: float = 100.0) -> dict[str, Any]:
    """A run whose node dies once it makes steps, with all that runs on it, and comes back with what ranks had in
    memory: starts and exit code of the job, and the differences of its fields to those of an unbroken run.
    """
    words = [word.replace("monitor=200", "monitor=10") for word in RUN]
    words += [f"time.end={end}", "checkpoint.every=20", "checkpoint.asynchronous=false"]
    broken = folder / "broken"
    _quietly([sys.executable, "-m", "hpckit.cli.main", "run", *words, "-n", "2", "--directory", "whole"], folder)
    site = site_text(variables=f'PYTHONPATH = "{_slowed(folder / "hook", broken, 2)}"')
    (folder / "site.toml").write_text(site)
    with _slurm_here(cluster):
        number = _submit([*words, "--directory", str(broken), "--time", "5", "--site", str(folder / "site.toml")])
    _wait_for_steps(cluster, number, broken, 0)
    cluster.kill_node()
    cluster.revive_node()
    last = cluster.wait(number, 300)
    fields = field_differences(folder / "whole", broken)
    return {"starts": 1 + int(last["Restarts"]), "exit": last["ExitCode"], "fields": fields}


def _slowed(hook: Path, run: Path, limits: int) -> Path:
    """Make a folder for PYTHONPATH that makes a run, a folder or a pattern of it, slow in all starts but the last
    (`SLOWED`).
    """
    hook.mkdir()
    places = {"attempts": str(run / "attempts" / "*"), "stop": str(run / "stop"), "limits": limits}
    (hook / "sitecustomize.py").write_text(SLOWED.format(**places))
    return hook


def site_text(seconds: int = 20, ranks: int = 2, variables: str = "") -> str:
    """A site file: seconds of warning, ranks of a node, variables of the environment."""
    return SITE.format(seconds=seconds, ranks=ranks, venv=sys.prefix, variables=variables)


def _quietly(words: list[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def same_bits(fields: list[dict[str, Any]]) -> bool:
    """Whether there are fields, all with the same bits."""
    return bool(fields) and all(row["verdict"] == "same bits" for row in fields)


def _submit(words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        submit(words)
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
