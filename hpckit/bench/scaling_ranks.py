"""What each rank of `hpckit bench scaling` runs: an app on more and more of the ranks, in turn, while the others sleep.

All runs are made in one job, so that a shared machine that is slow for a minute is slow for every number of ranks.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.job import answer
from hpckit.checkpoint_state import MakeState
from hpckit.errors import SetupError
from hpckit.gpu_choice import find_gpu
from hpckit.json_bytes import gather_json
from hpckit.run_context import Run
from hpckit.run_settings import with_common

NAP = 0.005  # s between two looks of a rank that has no part in a run
Record = dict[str, Any]


class Stepped(Run):
    """A run that keeps the time from the end of step `warm` to the end of the last step but one; `gate`: the ranks that
    begin together then. It tells nothing and stops for nobody.
    """

    warm: int
    gate: MPI.Intracomm
    begun: tuple[int, float] | None = None
    last: tuple[int, float] = (0, 0.0)
    seen: tuple[str, ...] = ()

    def say(self, text: str) -> None:
        """Nobody listens."""

    def edge(self, step: int, state: MakeState) -> bool:
        """The step has ended."""
        if self.begun is None and step >= self.warm:
            self.gate.Barrier()
            self.begun = (step, time.perf_counter())
        self.last = (step, time.perf_counter())
        self.seen = tuple(self.timer.seconds)
        return False


def one_run(case: Record, values: Record, comm: MPI.Intracomm, gate: MPI.Intracomm, folder: Path) -> Record | None:
    """Run the app on `comm`: seconds a step and seconds of each phase in a step, of each rank of `gate`, on its rank 0.

    Raises `SetupError` for an app that does not tell the ends of its steps.
    """
    config_type = with_common(importlib.import_module(f"{case['package']}.config").Config)
    config = config_type.model_validate_json(json.dumps(values), strict=True)
    device = find_gpu(comm, "auto") if case["gpu"] else None
    run = Stepped(comm, folder, app=case["app"], title="scaling", lines=False, device=device)
    run.warm, run.gate = case["warm"], gate
    importlib.import_module(f"{case['package']}.run").run(config, run)
    if run.begun is None or run.last[0] <= run.begun[0]:
        raise SetupError(
            f"the app {case['app']} made too few steps to be timed, or does not tell where they end",
            do="give more --steps; an app calls run.edge(step, …) after every step but the last",
        )
    steps = run.last[0] - run.begun[0]
    own: Record = {"seconds": (run.last[1] - run.begun[1]) / steps, "steps": steps}
    comm.Barrier()  # the summary is written
    summary = run.directory.read_json("summary.json") or {}
    # Phases that began after the last step belong to no step: the last frame, the weights, the validation.
    own["phases"] = {
        name: seconds[comm.rank] / summary["steps"]
        for name, seconds in summary["phases"].items()
        if name in run.seen or name == "wait"
    }
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(run.directory.path)
    every = gather_json(gate, own)
    if every is None:
        return None
    names = dict.fromkeys(name for each in every for name in each["phases"])
    return {
        "seconds": max(each["seconds"] for each in every),
        "steps": every[0]["steps"],
        "phases": {name: [each["phases"].get(name, 0.0) for each in every] for name in names},
    }


def wait_asleep(comm: MPI.Comm) -> None:
    """A barrier that leaves the core to those that are waited for."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(NAP)


def case(case: Record) -> Record:
    """All runs of a study: `rounds` times each number of ranks together, and as many runs on one rank each at once.

    Returns where the ranks are, and a record a run. Every second round goes through the numbers backward: a machine
    that becomes slower all the time favors none of them.
    """
    comm = MPI.COMM_WORLD
    parts: dict[int, Any] = {ranks: comm.Split(int(comm.rank >= ranks)) for ranks in case["counts"]}
    places = gather_json(comm, {"host": socket.gethostname(), "cores": sorted(os.sched_getaffinity(0))})
    runs = [("together", ranks) for ranks in case["counts"]] + [("apart", ranks) for ranks in case["apart"]]
    found = []
    for turn in range(case["rounds"]):
        for kind, ranks in runs[:: -1 if turn % 2 else 1]:
            if comm.rank < ranks:
                group = parts[ranks]
                values = case["values"]["1" if kind == "apart" else str(ranks)]
                folder = Path(case["folder"], f"{kind}-{ranks}-{turn}")
                if kind == "apart":
                    folder = folder.with_name(f"{folder.name}-{comm.rank}")
                record = one_run(case, values, MPI.COMM_SELF if kind == "apart" else group, group, folder)
                if record is not None:
                    found.append({"kind": kind, "ranks": ranks, "turn": turn, **record})
                gc.collect()
            wait_asleep(comm)
    for part in parts.values():
        part.Free()
    return {"places": places, "runs": found}


if __name__ == "__main__":
    np.seterr(all="ignore")
    answer(sys.argv[1:], case)
