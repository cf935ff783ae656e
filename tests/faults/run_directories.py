"""Whole runs killed at random instants and resumed on other ranks, and run directories with a changed file."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import h5py

from hpckit.launch.scratch import scratch
from tests.faults.jobs import at_once, job

STEPS = 600
WORDS = ["grid.shape=[23,17]", f"time.steps={STEPS}", "time.monitor=20", "output.frames=7", "output.single=false"]
CHECKPOINTS = ["checkpoint.every=40", "checkpoint.keep=2"]
PATIENCE = 240.0  # s until a command counts as not ended
# A launcher's variables for one rank: the ranks are then in the process of the front end, and no mpiexec is needed.
ALONE = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}
KINDS = ("bit", "bit", "bit", "cut", "empty", "zeros", "gone", "longer", "link", "pipe", "digit")


def run_kills(random: Random, count: int) -> Iterator[dict[str, Any]]:
    """`count` runs whose front end or one of whose ranks is killed at a random instant, once or twice, each resumed on
    another number of ranks; a row each.
    """
    with scratch("hpckit-faults-") as folder:
        whole = _ended(Path(folder, "whole"))
        draws = [Random(random.random()) for _ in range(count)]
        yield from at_once(
            partial(_killed_and_resumed, Path(folder, f"run{number}"), draw, whole) for number, draw in enumerate(draws)
        )


def _killed_and_resumed(path: Path, random: Random, whole: tuple[bytes, str]) -> dict[str, Any]:
    """The row of one run."""
    begin = time.monotonic()
    ranks = random.choice((1, 2, 3))
    case, words = "", ["run", "heat", *WORDS, *CHECKPOINTS, "--directory", str(path), "--no-report"]
    for _ in range(random.choice((1, 1, 2))):
        delay, victim = random.uniform(0.0, 2.5), random.choice(("front end", "rank", "rank", "all ranks"))
        killed = _killed([*words, "-n", str(ranks)], path, victim, delay, random)
        case += f"{killed} of {ranks} after {delay:.2f} s; "
        ranks = random.choice([other for other in (1, 2, 3) if other != ranks])
        words = ["resume", str(path), "--no-report"]
        if not (path / "resolved.json").exists():  # killed before there was a run
            words = ["run", "heat", *WORDS, *CHECKPOINTS, "--directory", str(path), "--no-report"]
            shutil.rmtree(path, ignore_errors=True)
    code, said = _hpckit([*words, "-n", str(ranks)])
    problem = f"exit code {code}: {said[-300:]}" if code else _difference(path, whole)
    shutil.rmtree(path, ignore_errors=True)
    return _row("run kill", f"{case}resumed on {ranks}", problem, begin)


def run_files(random: Random, count: int) -> Iterator[dict[str, Any]]:
    """`count` changes of files of a stopped run in turn, each then resumed to its end: the right bits, or a refusal; a
    row each.
    """
    with scratch("hpckit-faults-") as folder:
        whole, good = _ended(Path(folder, "whole")), Path(folder, "good")
        checkpoints = ["checkpoint.every=1", "checkpoint.keep=2"]
        run = ["run", "heat", *WORDS, *checkpoints, "--directory", str(good), "--no-report"]
        for words in ([*run, "time.limit=0.2 s"], ["resume", str(good), "--no-report", "time.limit=0.25 s"]):
            code, said = _hpckit(words, **ALONE)
            assert code == 75, said
        files = sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file())
        yield from at_once(
            partial(_changed_and_resumed, good, files[number % len(files)], Random(random.random()), whole)
            for number in range(count)
        )


def _changed_and_resumed(good: Path, name: Path, random: Random, whole: tuple[bytes, str]) -> dict[str, Any]:
    """The row of one change."""
    begin = time.monotonic()
    with scratch("hpckit-faults-") as folder:
        path = Path(folder, "changed")
        shutil.copytree(good, path)
        case = _change(random, path, name)
        code, said = _hpckit(["resume", str(path), "--no-report", "time.limit=none", "checkpoint.every=never"], **ALONE)
        problem = ""
        if "Traceback" in said:
            problem = f"a traceback: {said[-400:]}"
        elif code == 0:
            problem = _difference(path, whole)
        elif code not in (2, 3, 5) or "HPK-" not in said:
            problem = f"exit code {code}: {said[-300:]}"
    return _row("run file", f"{case}: {'went on' if code == 0 else f'refused with {code}'}", problem, begin)


def _change(random: Random, run: Path, name: Path) -> str:
    """Change a file of a run; what was done."""
    path, kind = run / name, random.choice(KINDS)
    data = path.read_bytes() or b"\n"
    at = random.randrange(len(data))
    digits = [found.start() for found in re.finditer(rb"[0-9]", data)]
    if kind == "digit" and digits:
        at = random.choice(digits)
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif kind in ("bit", "digit"):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :])
    elif kind in ("cut", "empty"):
        path.write_bytes(data[:at] if kind == "cut" else b"")
    elif kind == "zeros":
        path.write_bytes(data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :])
    elif kind == "longer":
        path.write_bytes(data + random.randbytes(random.randint(1, 4096)))
    else:
        path.unlink()
        if kind == "link":
            path.symlink_to("/etc/hostname")
        elif kind == "pipe":
            os.mkfifo(path)
    return f"{kind} of {name}"


def _ended(path: Path) -> tuple[bytes, str]:
    """What a run that nobody disturbs leaves."""
    code, said = _hpckit(["run", "heat", *WORDS, "--directory", str(path), "--no-report"], **ALONE)
    assert code == 0, said
    return _left(path)


def _left(path: Path) -> tuple[bytes, str]:
    """The bits of all frames, and the lines of metrics."""
    with h5py.File(path / "output/fields.h5") as file:
        values = file["time"][...].tobytes() + file["temperature"][...].tobytes()
    return values, (path / "metrics.jsonl").read_text(encoding="utf-8")


def _difference(path: Path, whole: tuple[bytes, str]) -> str:
    try:
        values, lines = _left(path)
    except (OSError, KeyError) as error:
        return f"ended with 0 over an output that cannot be read: {error}"
    status = json.loads((path / "summary.json").read_text(encoding="utf-8"))["status"]
    return "" if (values, lines, status) == (*whole, "done") else f"{status} with other fields or metrics"


def _hpckit(words: list[str], **more: str) -> tuple[int, str]:
    """Exit code of a command, and what it prints on standard error; -1 if it does not end."""
    command = [sys.executable, "-m", "hpckit.cli.main", *words]
    environment = {**os.environ, "HPCKIT_CONFIG": os.devnull, **more}
    with job(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as started:
        try:
            said = started.communicate(timeout=PATIENCE)[1]
        except subprocess.TimeoutExpired:
            return -1, "did not end"
    return started.returncode, said


def _killed(words: list[str], path: Path, victim: str, delay: float, random: Random) -> str:
    """Start a run, and kill what of it once so much time has passed since its ranks appeared; what was killed."""
    command = [sys.executable, "-m", "hpckit.cli.main", *words]
    environment = {**os.environ, "HPCKIT_CONFIG": os.devnull}
    provenance = path / "provenance.json"
    before = provenance.stat().st_mtime_ns if provenance.exists() else 0
    with job(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        pids: list[int] = []
        end = time.monotonic() + PATIENCE
        while not pids and started.poll() is None and time.monotonic() < end:
            if provenance.exists() and provenance.stat().st_mtime_ns != before:
                record = json.loads(provenance.read_text(encoding="utf-8"))
                pids = [place["pid"] for place in record.get("placement", [])]
            time.sleep(0.01)
        time.sleep(delay)
        if victim == "front end" and started.poll() is None:
            os.kill(started.pid, signal.SIGKILL)
        for pid in (
            pids if victim == "all ranks" else random.sample(pids, min(1, len(pids))) if victim == "rank" else []
        ):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                victim = "nothing any more"
        try:
            started.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return f"{victim} (which did not end it)"
    return victim


def _row(what: str, case: str, problem: str, begin: float) -> dict[str, Any]:
    seconds = round(time.monotonic() - begin, 2)
    return {"what": what, "case": case, "passed": not problem, "problem": problem, "seconds": seconds}
