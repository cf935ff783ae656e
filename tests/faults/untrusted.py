"""Settings and data files at random: each is taken or refused with a code, never a traceback, a crash or a hang.

Cases run in a child process with limits on memory and processor time: `python -m
tests.faults.untrusted KIND SEED FIRST END` prints a line of JSON a case, and a case that ends the child is
found by the line that is missing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from hpckit.launch.scratch import scratch
from tests.faults.jobs import AT_ONCE, at_once, job, with_tests

SECONDS = 5  # of processor time in a case
WAITING = 100  # s: a case that does not compute and does not end either
MEMORY = 8 << 30  # bytes of the child's address space
Case = Callable[[Random, Path], str]  # what was tried; raises what must not be raised


def untrusted(kind: str, seed: int, count: int) -> Iterator[dict[str, Any]]:
    """`count` cases of a kind ("config", "data file" or "hostile"), a row each."""
    ends = [count * part // AT_ONCE for part in range(AT_ONCE + 1)]
    for rows in at_once(partial(_part, kind, seed, *part) for part in pairwise(ends)):
        yield from rows


def _part(kind: str, seed: int, first: int, end: int) -> list[dict[str, Any]]:
    """The cases from `first` on to `end`."""
    rows = []
    while first < end:
        command = [sys.executable, "-m", "tests.faults.untrusted", kind, str(seed), str(first), str(end)]
        with job(command, env=with_tests(os.environ), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            with child.stdout as lines:
                found = [json.loads(line) for line in lines]
            code = child.wait()
        rows += found
        first += len(found)
        if first < end:
            problem = f"the process ended with {code}"
            rows.append({"what": kind, "case": f"number {first} of seed {seed}", "passed": False, "problem": problem})
            first += 1
    return rows


def main(kind: str, seed: int, first: int, end: int) -> None:
    """The cases from `first` on, each with a random stream of its own."""
    from tests.faults.hostile import random_hostile
    from tests.faults.random_inputs import random_config, random_file

    case: Case = {"config": random_config, "data file": random_file, "hostile": random_hostile}[kind]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _too_long)
    signal.signal(signal.SIGALRM, _too_long)
    os.environ["HPCKIT_CONFIG"] = os.devnull
    with scratch("hpckit-faults-") as folder:
        os.chdir(folder)
        warm = Random(0)
        with contextlib.suppress(Exception):  # imports and first uses are no part of a case's time
            for _ in range(20):
                _quietly(case, warm, Path(folder))
        for number in range(first, end):
            row: dict[str, Any] = {
                "what": kind,
                "case": f"number {number} of seed {seed}",
                "passed": True,
                "problem": "",
            }
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(WAITING)
            try:
                row["case"] += f": {_quietly(case, Random(f'{seed} {number}'), Path(folder))}"
            except Exception as error:
                row.update(passed=False, problem=f"{type(error).__name__}: {error}"[:300])
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
            print(json.dumps(row), flush=True)


def _quietly(case: Case, random: Random, folder: Path) -> str:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return case(random, folder)


def _too_long(number: int, frame: object) -> NoReturn:
    limit = f"{SECONDS} s of processor time" if number == signal.SIGPROF else f"{WAITING} s"
    raise RuntimeError(f"took more than {limit}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
