"""Ranks that die: whether all of the job is gone within 5 s, and the first cause is told with its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hpckit.comm.observe.watcher import process_state
from hpckit.errors import SetupError
from hpckit.launch.scratch import scratch
from tests.faults.jobs import at_once, job

PROGRAM = Path(__file__).with_name("programs") / "dying.py"
GONE_SECONDS = 5.0
START_SECONDS = 300.0  # for the ranks to appear, and for what takes a few seconds to count as not ended
SLOW = "gone after"
# What a rank of the program does -> (exit code, words that must be in what the user sees).
OWN_ENDS = {
    "raise": (1, ("Traceback", "a mistake of rank {who}")),
    "code": (2, ("HPK-200", "bad on rank {who}")),
    "exit": (7, ("HPK-700", "rank {who} on {host} ended without an answer: exit code 5")),
    "memory": (1, ("MemoryError",)),
    "segmentation": (7, ("HPK-700", "rank {who} on {host} ended without an answer: Segmentation fault", "in die")),
    "abort": (7, ("HPK-700", "rank {who} on {host} ended without an answer: Aborted", "in die")),
}
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)


def deaths(random: Random, count: int) -> Iterator[dict[str, Any]]:
    """`count` deaths in turn of the program's own doing and by a signal at a random instant; a row each."""
    tasks: list[Callable[[], dict[str, Any]]] = []
    for number in range(count):
        ranks = random.choice((2, 3, 4))
        who = random.randrange(ranks)
        if number % 2:
            tasks.append(partial(_own_end, list(OWN_ENDS)[number // 2 % len(OWN_ENDS)], ranks, who))
        else:
            delay = random.uniform(0.0, 1.5)
            tasks.append(partial(_killed, SIGNALS[number // 2 % len(SIGNALS)], ranks, who, delay))
    yield from at_once(partial(again_if_slow, task) for task in tasks)


def again_if_slow(task: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A row; where all was right but slow a second one: the machine may have stood still for a moment."""
    row = task()
    return task() if row["problem"].startswith(SLOW) else row


def _own_end(kind: str, ranks: int, who: int) -> dict[str, Any]:
    code, words = OWN_ENDS[kind]
    with scratch("hpckit-faults-") as folder:
        with _started(["run", str(PROGRAM), "-n", str(ranks), kind, str(who), folder], folder) as started:
            said, seconds = _end(started)
        marks = [Path(folder, f"pid-{rank}") for rank in range(ranks)]
        pids = [int(mark.read_text(encoding="ascii")) for mark in marks if mark.exists()]
        wanted = [word.format(who=who, host=socket.gethostname()) for word in words]
        return _judged(f"{kind}, {ranks} ranks, rank {who}", started.returncode, said, seconds, pids, code, wanted)


def _killed(number: signal.Signals, ranks: int, who: int, delay: float) -> dict[str, Any]:
    with scratch("hpckit-faults-") as folder:
        words = ["run", "heat", "-n", str(ranks), "--directory", "run", "--no-report", "grid.shape=[64,64]"]
        with _started([*words, "time.end=1e9", "time.monitor=5", "output.frames=1"], folder) as started:
            pids = _placed(Path(folder, "run"), ranks)
            time.sleep(delay)
            os.kill(pids[who], number)
            said, seconds = _end(started)
        case = f"{number.name}, {ranks} ranks, rank {who}, after {delay:.1f} s"
        wanted = ["HPK-700", f"rank {who} on {socket.gethostname()} ended without an answer", f"(signal {number:d})"]
        return _judged(case, started.returncode, said, seconds, pids, 7, wanted)


def _started(words: list[str], folder: str) -> contextlib.AbstractContextManager[subprocess.Popen]:
    command = [sys.executable, "-m", "hpckit.cli.main", *words]
    return job(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _placed(directory: Path, ranks: int) -> list[int]:
    """The processes of the ranks, once all of them go through their steps."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, KeyError):
            placement = json.loads((directory / "provenance.json").read_text(encoding="utf-8"))["placement"]
            if (directory / "progress.json").exists() and len(placement) == ranks:
                return [place["pid"] for place in placement]
        time.sleep(0.02)
    raise SetupError(f"no {ranks} ranks within {START_SECONDS:g} s", do="hpckit doctor")


def _end(process: subprocess.Popen) -> tuple[str, float]:
    """What the front end says on standard error, and the seconds until its end from now."""
    begin = time.monotonic()
    try:
        said = process.communicate(timeout=START_SECONDS)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[1] + "\n(did not end)"
    return said, time.monotonic() - begin


def _judged(
    case: str, ended: int, said: str, seconds: float, pids: list[int], code: int, wanted: list[str]
) -> dict[str, Any]:
    """A row: the exit code, the words that the user must see, and no process left."""
    left = _left(pids)
    missing = [word for word in wanted if word not in said]
    problem = ""
    if "(did not end)" in said:
        problem = "the job did not end"
    elif left:
        problem = f"{len(left)} of {len(pids)} ranks live on"
    elif ended != code or missing:
        problem = f"exit code {ended}, not {code}; not told: {missing}; told: {said.strip()[-300:]}"
    elif case.startswith("SIG") and seconds > GONE_SECONDS:
        problem = f"{SLOW} {seconds:.1f} s"
    return {"what": "death", "case": case, "passed": not problem, "problem": problem, "seconds": round(seconds, 1)}


def _left(pids: list[int]) -> list[int]:
    """Those that live on: a process that was ended may need a moment until it is gone."""
    end = time.monotonic() + GONE_SECONDS
    while (left := [pid for pid in pids if process_state(pid)[0]]) and time.monotonic() < end:
        time.sleep(0.02)
    return left
