"""A benchmark's ranks: a job that is started, and the rows that it found."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.cli.launch import command, require_room
from hpckit.errors import SetupError
from hpckit.scratch import scratch


def run_ranks(module: str, ranks: int, cases: tuple) -> list[dict[str, Any]]:
    """Run `module` on that many ranks with the JSON object {"cases", "result"} as its argument; what rank 0 wrote to
    the file `result`. Raises `SetupError` where the job fails, `InputError` for more ranks than there is room for.
    """
    require_room(ranks)
    with scratch() as folder:
        result = Path(folder, "rows.json")
        request = json.dumps({"cases": cases, "result": str(result)})
        # One thread a rank: a BLAS or Numba pool would take the other rank's core.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        done = subprocess.run(
            command(ranks, ["-m", module, request]),
            env={**os.environ, **threads},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not result.exists():
            raise SetupError(
                f"the benchmark's {ranks} ranks ended with {done.returncode}: {done.stderr.strip()[-500:]}",
                do="run `hpckit doctor` to see whether MPI starts here",
            )
        return json.loads(result.read_text(encoding="utf-8"))


def answer(arguments: list[str], case: Callable[..., dict[str, Any]]) -> None:
    """What the module of `run_ranks` does with its argument: each case in turn; rank 0 writes the rows."""
    from mpi4py import MPI

    request = json.loads(arguments[0])
    rows = [case(*one) for one in request["cases"]]
    if MPI.COMM_WORLD.rank == 0:
        Path(request["result"]).write_text(json.dumps(rows), encoding="utf-8")


def seconds_a_call(
    comm: Any, call: Callable[[], object], calls: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one of so many calls on the slowest rank, by a clock. Collective."""
    for _ in range(calls // 10):
        call()
    comm.Barrier()
    begin = clock()
    for _ in range(calls):
        call()
    return slowest(comm, (clock() - begin) / calls)


def wait_asleep(comm: Any, nap: float = 0.002) -> None:
    """A barrier that leaves the core to those that are waited for, with looks `nap` seconds apart: MPI's own spins."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(nap)


def alone_in_turn(
    comm: Any, seconds_of: Callable[[], float], ranks: Sequence[int] | None = None, nap: float = 0.002
) -> float:
    """What `seconds_of` returns on some ranks (all) in turn, the others asleep: the mean. Collective.

    Cores that a host shares out differ in speed, and ranks together are as fast as the slowest: beside one core's time
    alone, the fastest's or the slowest's, a speed-up would tell of the cores and not of the program.
    """
    chosen = list(range(comm.size) if ranks is None else ranks)
    own, every = np.zeros(1), np.empty(comm.size)
    for rank in chosen:
        if comm.rank == rank:
            own[0] = seconds_of()
        wait_asleep(comm, nap)
    comm.Allgather(own, every)
    return float(every[chosen].mean())


def slowest(comm: Any, seconds: float) -> float:
    """The largest of the ranks' times. Collective."""
    every = np.empty(comm.size)
    comm.Allgather(np.array([seconds]), every)
    return float(every.max())
