"""A benchmark's ranks: a job that is started, the rows that it found, and how its ranks time what they do."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.bench.measure import CALM, MOST, Times, calmest, core_wait
from hpckit.errors import SetupError
from hpckit.launch import mpiexec
from hpckit.launch.one_node import without_network
from hpckit.launch.scratch import scratch

WAKE = 0.02  # s that a core works before a timing: it wakes up slowly
# One thread a rank: a BLAS or Numba pool would take the other rank's core.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def run_ranks(module: str, ranks: int, cases: Sequence[Any]) -> list[dict[str, Any]]:
    """Run `module`, which hands its arguments to `answer`, on that many ranks; the rows that rank 0 wrote, one a case.

    Raises `SetupError` where the job fails, `InputError` for more ranks than there is room for.
    """
    mpiexec.require_room(ranks)
    with scratch() as folder:
        return started(module, ranks, cases, folder, {**os.environ, **without_network(os.environ), **ONE_THREAD})


def started(
    module: str, ranks: int, cases: Sequence[Any], folder: str, environment: Mapping[str, str], launcher: str = ""
) -> list[dict[str, Any]]:
    """As `run_ranks`, with a folder that all ranks see, and by `launcher` ("srun --mpi=pmix") where one is given."""
    result = Path(folder, "rows.json")
    request = json.dumps({"cases": cases, "result": str(result)})
    command = mpiexec.command(ranks, ["-m", module, request], "-P")  # files in the current folder must not be imported
    if launcher:
        command = [*shlex.split(launcher), "-n", str(ranks), *command[command.index(sys.executable) :]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not result.exists():
        said = [line for line in done.stderr.splitlines() if line and not mpiexec.NOISE.match(line)]
        raise SetupError(
            f"the benchmark's {ranks} ranks ended with {done.returncode}",
            likely="\n".join(said[-6:]),
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
    """Seconds of one of so many calls on the slowest rank, by a clock; a tenth as many go before. Collective."""
    for _ in range(calls // 10):
        call()
    comm.Barrier()
    begin = clock()
    for _ in range(calls):
        call()
    return slowest(comm, (clock() - begin) / calls)


def slowest(comm: Any, seconds: float) -> float:
    """The largest of the ranks' times. Collective."""
    every = np.empty(comm.size)
    comm.Allgather(np.array([seconds]), every)
    return float(every.max())


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


class Stopwatch:
    """Times steps, and keeps the largest share of a timing that this rank waited for its core."""

    def __init__(self) -> None:
        self.waited = 0.0

    def seconds(
        self, step: Callable[[], object], steps: int, comm: Any, first: Callable[[], object] | None = None
    ) -> float:
        """Wall time of some steps, of the slowest rank of `comm`; `first` goes before them, untimed. Collective."""
        if first is not None:
            first()
        begin = time.perf_counter()
        while time.perf_counter() - begin < WAKE:
            pass
        comm.Barrier()
        before, begin = core_wait(), time.perf_counter()
        for _ in range(steps):
            step()
        seconds = time.perf_counter() - begin
        self.waited = max(self.waited, (core_wait() - before) / seconds)
        return slowest(comm, seconds)


def against_one(
    comm: Any,
    together: Callable[[], object],
    alone: Callable[[], object],
    steps: int,
    rounds: int,
    before: tuple[Callable[[], object] | None, Callable[[], object] | None] = (None, None),
) -> dict[str, Any]:
    """`times` of some steps on all ranks, on every rank alone in turn (the mean), and on every rank alone at once: what
    cores that share memory and cache give at best; `rounds` of each. Where sweeps go in two orders `steps` is even, so
    that each has both. before: what goes before those of `together` and of `alone`, untimed. Collective.

    Rounds are those of `in_calm_rounds`.
    """
    from mpi4py import MPI

    def times_of(watch: Stopwatch) -> dict[str, float]:
        return {
            "all ranks": watch.seconds(together, steps, comm, before[0]),
            "1 rank": alone_in_turn(comm, partial(watch.seconds, alone, steps, MPI.COMM_SELF, before[1])),
            "1 rank each": watch.seconds(alone, steps, comm, before[1]),
        }

    return in_calm_rounds(comm, times_of, rounds)


def in_calm_rounds(comm: Any, times_of: Callable[[Stopwatch], dict[str, float]], rounds: int) -> dict[str, Any]:
    """`times` by name, of so many rounds; `times_of` times each name once, by the watch that it is given. Collective.

    Rounds in which a rank waited for its core, as another program had it, are made again, up to MOST times as many;
    those in which ranks waited least count. `rounds_made` says how many there were, `rounds_disturbed` how many of
    those that count were disturbed all the same.
    """
    found: list[dict[str, Any]] = []
    calm = 0
    for turn in range(-1, MOST * rounds):
        watch = Stopwatch()
        times = times_of(watch)
        waited = slowest(comm, watch.waited)
        if turn < 0:
            continue  # it compiled the kernels and touched the memory
        found.append({"turn": turn, "ranks": comm.size, "waited": waited, "times": times})
        calm += waited <= CALM
        if calm == rounds:
            break
    kept = calmest(found, rounds)
    by_name: Times = {name: [found[turn]["times"][name] for turn in kept] for name in found[0]["times"]}
    disturbed = sum(share > CALM for share in kept.values())
    return {"times": by_name, "rounds_made": len(found), "rounds_disturbed": disturbed}
