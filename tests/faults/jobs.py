"""Jobs that fault cases start, some of them MPI programs of `programs`; none of them outlives the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hpckit.launch import mpiexec
from hpckit.launch.scratch import scratch

ROOT = Path(__file__).parents[2]
ROWS = "rows.json"
START_SECONDS, CASE_SECONDS = 300.0, 120.0  # a start and a case take a few, where nothing is held up or compiled
AT_ONCE = 2  # jobs: they wait for one another, and for limits of time, more than they compute
Result = TypeVar("Result")
_running: set[subprocess.Popen] = set()
_ended = False


@contextlib.contextmanager
def job(command: list[str], **options: Any) -> Iterator[subprocess.Popen]:
    """A process of ours in a session of its own, which is ended with the block."""
    if _ended:
        raise SystemExit
    process = subprocess.Popen(command, start_new_session=True, text=True, **options)
    _running.add(process)
    try:
        if _ended:  # the signal came while the process was being made, and found it not among those that run
            raise SystemExit
        yield process
    finally:
        mpiexec.kill(process)
        _running.discard(process)


def at_once(tasks: Iterable[Callable[[], Result]], most: int = AT_ONCE) -> Iterator[Result]:
    """What the tasks return, in their order; each starts jobs and waits for them."""
    with ThreadPoolExecutor(most) as pool:
        waiting = [pool.submit(task) for task in tasks]
        try:
            for each in waiting:
                yield each.result()
        finally:
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """On SIGTERM and SIGINT the jobs that run are ended: their sessions are not that of the terminal."""

    def end(number: int, frame: object) -> NoReturn:
        global _ended
        _ended = True
        for process in list(_running):
            mpiexec.kill(process)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def with_tests(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `tests` can be imported, whatever the current folder is."""
    path = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH", ""))))
    return {**environment, "PYTHONPATH": path}


def rows_of(
    program: str, what: str, ranks: int, seed: str, names: Sequence[str], without: str = "-"
) -> Iterator[dict[str, Any]]:
    """`python -m tests.faults.programs.PROGRAM FOLDER SEED WITHOUT NAMES` on MPI ranks: the rows that it wrote to
    FOLDER/rows.json, and one that tells how it ended for each name that has none.
    """
    with scratch("hpckit-faults-") as folder:
        with job(
            mpiexec.command(ranks, ["-m", f"tests.faults.programs.{program}", folder, seed, without, *names]),
            env=with_tests(mpiexec.rank_environment(ranks)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as started:
            try:
                said = started.communicate(timeout=START_SECONDS + CASE_SECONDS * len(names))[1]
            except subprocess.TimeoutExpired:
                said = "it did not end"
        path = Path(folder, ROWS)
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for row in rows:
        yield {"what": what, "passed": not row["problem"], **row}
    told = {row["app"] for row in rows}
    lines = [line for line in said.strip().splitlines() if "Error" in line] or said.strip().splitlines()[-1:]
    problem = f"the job ended with {started.returncode}: {' '.join(lines[:1])[:300]}"
    for name in names:
        if name not in told:
            yield {"what": what, "app": name, "case": name, "passed": False, "problem": problem}
