"""Tasks of a graph on the ranks of one MPI job, by mpi4py.futures: rank 0 drives, the other ranks execute.

The ranks exchange only the name of one function and JSON text.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from hpckit.errors import InputError
from hpckit.jobs.attempt import TIMED_OUT, finish, words_of
from hpckit.jobs.call_function import call, spec
from hpckit.jobs.graph.graph import TaskGraph
from hpckit.jobs.graph.state import LOG, GraphState

LAUNCHERS = ("PMI_", "PMIX_", "OMPI_", "MPI_", "HYDRA_", "HYDI_", "SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID")


def check_for_pool(graph: TaskGraph) -> None:
    """Raises `InputError` for tasks that cannot run on one rank of a job."""
    wide = [name for name, task in graph.tasks.items() if task.ranks > 1]
    if wide:
        raise InputError(
            f"inside an MPI job each task runs on one rank; {', '.join(wide)} want more",
            do="start hpckit graph run without mpiexec or srun: in an allocation it starts MPI jobs itself",
        )


class PooledAttempt:
    """An attempt on another rank."""

    def __init__(self, state: GraphState, name: str, key: str, host: str, pool: Executor) -> None:
        self.state, self.started = state, time.monotonic()
        self.work = state.begin(name, key, host)
        task = state.graph.tasks[name]
        text = {"folder": str(self.work), "timeout": task.timeout}
        text |= {"function": spec(task)} if task.function else {"words": words_of(name, task, lambda ranks: [])}
        self._future: Future[int] = pool.submit(work, json.dumps(text))

    @property
    def seconds(self) -> float:
        """The time since its submission, s."""
        return time.monotonic() - self.started

    def poll(self) -> int | None:
        """The exit code, None while the attempt runs; see `Attempt.poll`."""
        if not self._future.done():
            return None
        if self._future.cancelled():
            return TIMED_OUT
        return finish(self.state, self.work, self._future.result(), self.seconds)

    def kill(self) -> None:
        """Cancel it if no rank has begun it; else the rank goes on, and its outputs are discarded."""
        self._future.cancel()


def work(text: str) -> int:
    """On a rank of the pool: run the task in its folder, with its output in its log; returns its exit code."""
    what: dict[str, Any] = json.loads(text)
    folder = Path(what["folder"])
    with open(folder / LOG, "a", encoding="utf-8") as log:
        if "function" not in what:
            try:
                return subprocess.run(
                    what["words"],
                    cwd=folder,
                    env=without_launcher(os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=what["timeout"] or None,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return TIMED_OUT
            except OSError as error:
                log.write(f"{error}\n")
                return 1
        try:
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                call(what["function"], folder)
        except Exception:
            traceback.print_exc(file=log)
            return 1
    return 0


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that make a process a rank of the surrounding job."""
    return {name: value for name, value in environment.items() if not name.startswith(LAUNCHERS)}
