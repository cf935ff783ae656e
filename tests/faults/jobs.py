"""Jobs that fault cases start: some at once, and none of them outlives the benchmark."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

from hpckit.launch import mpiexec

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
