"""Kills and failing operations: whether the run that goes on ends with the bits of one that was never broken."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from hpckit.io.failpoints import SITES, FileOperation, breaking
from hpckit.launch.scratch import scratch
from tests.faults.stepping import DONE, FAILED, INTERVAL, digest, forked, heard, values

STEPS = 12
ACTIONS = ("kill", "ENOSPC", "EIO", "short", "EINTR")


def kills(random: Random, count: int) -> Iterator[dict[str, Any]]:
    """SIGKILLs in turn at a random instant of the run and while a checkpoint is written; a row each."""
    whole = digest(values(STEPS))
    for number in range(count):
        with scratch("hpckit-faults-") as folder:
            root = Path(folder, "ckpt")
            begin = time.monotonic()
            if number % 2:
                case = _kill_in_save(root, random)
            else:
                delay = random.uniform(0.0, 0.15)
                child, reading = forked(root, STEPS)
                time.sleep(delay)
                os.kill(child, signal.SIGKILL)
                case = f"after {1e3 * delay:.0f} ms", *heard(child, reading)
            yield _resumed("kill", root, whole, begin, *case)


def failing(random: Random, count: int) -> Iterator[dict[str, Any]]:
    """`count` failing operations, every site by every action in turn; a row each."""
    whole = digest(values(STEPS))
    cases = [(site, action) for action in ACTIONS for site in SITES]
    random.shuffle(cases)
    for number in range(count):
        site, action = cases[number % len(cases)]
        with scratch("hpckit-faults-") as folder:
            begin = time.monotonic()
            point = f"{site}:{action}:{random.randint(1, 4)}"
            root = Path(folder, "ckpt")
            code, told = heard(*forked(root, STEPS, breaking(point)))
            if code not in (DONE, FAILED, -signal.SIGKILL):
                yield _row("failpoint", point, f"exit code {code}, told {told}", begin)
                continue
            yield _resumed("failpoint", root, whole, begin, point, code, told)


def _kill_in_save(root: Path, random: Random) -> tuple[str, int, dict[str, str]]:
    """Killed a moment after a random operation on the files of a checkpoint began."""
    left = random.randrange(8, 60)
    waiting, going = os.pipe()

    def hook(operation: FileOperation) -> int | None:
        nonlocal left
        left -= 1
        if left == 0:
            os.write(going, operation.site.encode())
        return None

    child, reading = forked(root, STEPS, hook)
    os.close(going)
    site = os.read(waiting, 100).decode()
    os.close(waiting)
    time.sleep(random.choice((0.0, random.uniform(0.0, 0.004))))
    os.kill(child, signal.SIGKILL)
    return f"in {site or 'nothing'}", *heard(child, reading)


def _resumed(
    what: str, root: Path, whole: str, begin: float, case: str, code: int, told: dict[str, str]
) -> dict[str, Any]:
    """Go on, and compare: nothing that counted is lost, and the end has the right bits."""
    saved = int(told.get("saved", 0))
    again, then = heard(*forked(root, STEPS))
    problem = ""
    if again != DONE:
        problem = f"after exit code {code} the run did not go on: {again}, {then}"
    elif int(then["begin"]) < saved:
        problem = f"{saved - int(then['begin'])} steps lost that had been saved, of intervals of {INTERVAL}"
    elif then["end"] != whole:
        problem = "the end differs from the unbroken run"
    return _row(what, case, problem, begin)


def _row(what: str, case: str, problem: str, begin: float) -> dict[str, Any]:
    seconds = round(time.monotonic() - begin, 2)
    return {"what": what, "case": case, "passed": not problem, "problem": problem, "seconds": seconds}
