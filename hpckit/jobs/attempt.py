"""One attempt at a task: its process, in its own folder, and the publication of its outputs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hpckit.jobs.graph.graph import Task
from hpckit.jobs.graph.state import LOG, GraphState
from hpckit.jobs.process import with_parent

NO_OUTPUT = 65  # the exit code of a task that succeeded without all of its outputs
TIMED_OUT = 124
NOT_STARTED = 127
KILL_SECONDS = 2.0
Launcher = Callable[[int], list[str]]  # number of ranks -> the words before a command that start it on them


def words_of(name: str, task: Task, launcher: Launcher) -> list[str]:
    """The command line of a task. `python` is this interpreter."""
    if task.run:
        front_end = [sys.executable, "-P", "-m", "hpckit.cli.main", "run"]
        return [*front_end, *task.run, "-n", str(task.ranks or 1), "--directory", name]
    if task.function:
        from hpckit.jobs.call_function import spec

        return [sys.executable, "-m", "hpckit.jobs.call_function", spec(task)]
    words = [sys.executable if task.command[0] == "python" else task.command[0], *task.command[1:]]
    return [*launcher(task.ranks), *words] if task.ranks else words


class Attempt:
    """A running attempt. Ends with this process, and holds the lock of the graph as long as it lives."""

    def __init__(
        self,
        state: GraphState,
        name: str,
        key: str,
        words: list[str],
        environment: Mapping[str, str],
        lock: int | None = None,
    ) -> None:
        self.state, self.name, self.key = state, name, key
        self.work = state.begin(name, key)
        self.started = time.monotonic()
        self._process: subprocess.Popen | None = None
        self._limit = state.graph.tasks[name].timeout
        program = shutil.which(words[0], path=environment.get("PATH")) if "/" not in words[0] else words[0]
        with open(self.work / LOG, "ab") as log:
            if program is None:
                log.write(f"no program {words[0]}\n".encode())
                return
            self._process = subprocess.Popen(
                with_parent(program, words[1:]),
                cwd=self.work,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=() if lock is None else (lock,),
            )

    @property
    def seconds(self) -> float:
        """Its running time so far, s."""
        return time.monotonic() - self.started

    def poll(self) -> int | None:
        """None while it runs; 0 once its outputs are published; else the exit code of its failure."""
        if self._process is None:
            return NOT_STARTED
        code = self._process.poll()
        if code is None:
            if self._limit and self.seconds > self._limit:
                self.kill()
                return TIMED_OUT
            return None
        return finish(self.state, self.work, code, self.seconds)

    def kill(self) -> None:
        """End it: SIGTERM, then SIGKILL."""
        if self._process is None or self._process.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_SECONDS)
                return


def finish(state: GraphState, work: Path, code: int, seconds: float) -> int:
    """The exit code of an attempt whose process has ended with `code`: 0 once its outputs are published."""
    if code:
        return code if code > 0 else 128 - code
    missing = state.complete(work, seconds)
    if missing:
        with open(work / LOG, "a", encoding="utf-8") as log:
            log.write(f"ended with 0, but did not make {', '.join(missing)}\n")
        return NO_OUTPUT
    state.publish(work)
    return 0
