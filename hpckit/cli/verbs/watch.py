"""`hpckit watch DIR`: state, progress, time left and last metrics of queued and running jobs, from their files."""

from __future__ import annotations

import calendar
import json
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpckit.cli.verbs.ls import job_of, job_states, records_of, run_directories, status_of
from hpckit.comm.observe.status_file import node_lines, read_nodes
from hpckit.errors import EXIT_STOPPED, HpckitError, InputError, visible
from hpckit.jobs.slurm import JobState
from hpckit.plan.inputs.text import parse_json
from hpckit.run.directory import METRICS, RunDirectory
from hpckit.run.progress import clock_text
from hpckit.settings.table import Parser

TAIL_BYTES = 8192  # of metrics.jsonl: the last line is in it
MOST_METRICS = 6
ENDED = ("done", "stopped", "missed", "failed", "lost?", "ended", "never started", "unreadable")
RECENT = 8  # samples that bound the time left


def main(arguments: list[str]) -> int:
    """The verb `watch`; returns 0 when all runs are done, 75 where one was stopped, 1 where one failed."""
    it = Parser(
        prog="hpckit watch",
        description="Follow runs, queued or running, from any machine that sees their folder. Starts no MPI.",
    )
    it.add_argument(
        "directory", type=Path, metavar="DIR", help="a run directory, an array of them, or a folder of runs"
    )
    it.add_argument("--once", action="store_true", help="print the state and leave")
    it.add_argument("--json", action="store_true", help="with --once: one JSON list")
    it.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="between two looks (2)")
    options = it.parse_args(arguments)
    if not options.directory.is_dir():
        raise InputError(f"no folder {options.directory}", do="hpckit ls lists the runs below runs/")
    if options.json and not options.once:
        raise InputError("--json is for one look", do="hpckit watch DIR --once --json")
    if not 0.1 <= options.every <= 3600:
        raise InputError(f"--every {options.every:g}: from 0.1 to 3600 seconds")
    watches = {}
    for path in run_directories(options.directory):
        watches[path] = RunWatch(RunDirectory(path))
    if not watches:
        raise InputError(f"no runs in {options.directory}", do="give a run directory, or a folder that holds some")
    if options.once:
        states = _look(watches.values())
        if options.json:
            print(json.dumps(states))
        else:
            print(visible("\n".join(line for state in states for line in lines(state))))
        return _exit_code(states)
    return _follow(list(watches.values()), options.every)


class RunWatch:
    """One run as seen from outside, with its recent speeds."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._samples: deque[tuple[float, float]] = deque(maxlen=RECENT)  # (time, fraction done)

    def state(self, job: JobState | None) -> dict[str, Any]:
        """State, job, progress, seconds left (and their range) and last metrics, as plain values."""
        status = status_of(self.directory, job)  # read first: an ended run wrote it last
        progress = self.directory.read_json("progress.json") or {}
        resolved = self.directory.read_json("resolved.json") or {}
        known = {
            "run": str(self.directory.path),
            "app": resolved.get("app", ""),
            "ranks": resolved.get("ranks"),
            "status": status,
            "job": job_of(self.directory),
            "job_state": job.state if job else "",
            "reason": job.reason if job else "",
            "starts": job.start if job else "",
            "limit_left": job.left if job else "",
            "metrics": last_metrics(self.directory),
            "nodes": [],
        }
        for name in ("step", "time", "end", "fraction", "rate", "steps_per_second"):
            known[name] = progress.get(name)
        known["left"] = None
        if known["status"] == "running":
            known["left"] = self._left(progress)
            known["nodes"] = read_nodes(self.directory.attempt / "watch")
        return known

    def _left(self, progress: dict[str, Any]) -> list[float] | None:
        """Seconds left: the run's own estimate, and the range of it and of recent rates."""
        own = progress.get("eta_seconds")
        if own is None:
            return None
        own = max(0.0, own - _age(progress))
        now, fraction = time.monotonic(), progress["fraction"]
        if not self._samples or fraction > self._samples[-1][1]:
            self._samples.append((now, fraction))
        estimates = [own]
        begin, first = self._samples[0]
        if fraction > first:
            estimates.append((1 - fraction) * (self._samples[-1][0] - begin) / (fraction - first))
        return [own, min(estimates), max(estimates)]


def lines(state: dict[str, Any]) -> list[str]:
    """A run's state as text: one line, one for its metrics, and those of its nodes."""
    parts = [Path(state["run"]).name, state["status"]]
    if state["job"]:
        parts.append(f"job {state['job']}")
    if state["status"].startswith("queued") and state["starts"]:
        parts.append(f"starts {state['starts']}")
    if state["fraction"] is not None:
        parts.append(f"{100 * state['fraction']:.1f} %")
        parts.append(f"step {state['step']}")
    if state["rate"]:
        parts.append(state["rate"])
    if state["left"]:
        middle, least, most = state["left"]
        band = f" ({clock_text(least)} to {clock_text(most)})" if most - least > max(1.0, 0.05 * middle) else ""
        parts.append(f"{clock_text(middle)} left{band}")
    if state["status"] == "running" and state["limit_left"]:
        parts.append(f"time limit in {state['limit_left']}")
    shown = ["  ".join(parts)]
    if state["metrics"]:
        values = [f"{name} {_number(value)}" for name, value in state["metrics"].items() if value is not None]
        shown.append("    " + "  ".join(values[: 2 + MOST_METRICS]))
    shown += [f"    {line}" for node in state["nodes"] for line in node_lines(node, time.time())]
    return shown


def last_metrics(directory: RunDirectory) -> dict[str, Any]:
    """The last whole line of `metrics.jsonl`; empty if there is none yet."""
    try:
        whole = directory.read(METRICS, TAIL_BYTES, last=True).split(b"\n")[:-1]
    except OSError:
        return {}
    for line in reversed(whole):
        try:
            values = parse_json(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            return values
    return {}


def _follow(watches: list[RunWatch], every: float) -> int:
    """Show every change until all runs have ended: a picture that stays on a terminal, lines elsewhere."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    shown: list[list[str]] = [[] for _ in watches]
    with Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else _Nothing() as live:
        while True:
            states = _look(watches)
            texts = [[visible(line) for line in lines(state)] for state in states]
            if isinstance(live, Live):
                live.update(Text("\n".join(line for text in texts for line in text)), refresh=True)
            else:
                for before, text in zip(shown, texts, strict=True):
                    if text != before:
                        print("\n".join(text), flush=True)
            shown = texts
            if all(state["status"].startswith(ENDED) for state in states):
                return _exit_code(states)
            time.sleep(every)


class _Nothing:
    """A stand-in for the live picture."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *unused: object) -> None:
        pass


def _look(watches: Iterable[RunWatch]) -> list[dict[str, Any]]:
    watches = list(watches)
    jobs = job_states(watch.directory for watch in watches)
    return [_state(watch, jobs) for watch in watches]


def _state(watch: RunWatch, jobs: dict[str, JobState]) -> dict[str, Any]:
    """The state of a run; its status is "unreadable: …" if its records cannot be read."""
    path = watch.directory.path
    try:
        with records_of(path):
            return watch.state(jobs.get(job_of(watch.directory)))
    except HpckitError as error:
        unknown = dict.fromkeys(("ranks", "step", "time", "end", "fraction", "rate", "steps_per_second", "left"))
        empty = dict.fromkeys(("app", "job", "job_state", "reason", "starts", "limit_left"), "")
        status = f"unreadable: {error.message}"
        return {"run": str(path), **unknown, **empty, "status": status, "metrics": {}, "nodes": []}


def _exit_code(states: list[dict[str, Any]]) -> int:
    """0 unless a run has failed (1) or was stopped (75)."""
    ends = [state["status"] for state in states]
    if any(end.startswith(ENDED) and not end.startswith(("done", "stopped")) for end in ends):
        return 1
    return EXIT_STOPPED if any(end == "stopped" for end in ends) else 0


def _age(progress: dict[str, Any]) -> float:
    """Seconds since `progress.json` was written, by the clocks of the two machines; 0 where they do not agree."""
    try:
        written = time.strptime(progress["updated"], "%Y-%m-%dT%H:%M:%SZ")
    except (KeyError, ValueError):
        return 0.0
    age = time.time() - calendar.timegm(written)
    return age if 0 <= age < 60 else 0.0


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
