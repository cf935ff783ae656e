"""Run by hand, without the command line: directory, metrics, progress, early stop and summary on any ranks."""

import itertools
import json
import signal
import sys
import threading
import time

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import gather_json, share_json
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run import context, progress
from hpckit.run.context import Run

comm = MPI.COMM_WORLD
values = gather_json(comm, {"rank": comm.rank, "text": "é" * comm.rank})
if comm.rank == 0:
    assert values == [{"rank": rank, "text": "é" * rank} for rank in range(comm.size)]
else:
    assert values is None
assert share_json(comm, {"from": comm.rank}) == {"from": 0}

ticks = itertools.count()
progress.monotonic = lambda: 0.01 * next(ticks)  # quick steps, however busy this machine is
context.COMPILE_SECONDS = 3600.0
run = Run(comm, sys.argv[1], app="diffusion", title="by hand")
run.stops.listen()
for step in range(1, 4):
    with run.timer("compute"):
        time.sleep(0.01)
    run.progress(step, time=0.1 * step, end=0.3, rate="2 cells/s")
    run.metric(step=step, time=0.1 * step, w_max=np.float64(step), bad=float("nan"))
with run.compiling():
    pass
context.COMPILE_SECONDS = 0.01
said, say = threading.Event(), run.say
run.say = lambda text: (say(text), said.set())
with run.compiling():
    assert comm.rank or said.wait(60)
del run.say
if comm.rank == comm.size - 1:
    with run.timer("only last"):
        pass

assert not run.stop_requested()
if comm.rank == comm.size - 1:
    signal.raise_signal(signal.SIGUSR1)
assert run.stop_requested(), "a signal to one rank is known to all"

decomposition = Decomposition((11, 13), Topology(("z", "x"), (1, comm.size)), halo=1)
run.finish({"steps": 3, "decomposition": decomposition}, status="stopped")

other = Run(comm, run.directory)
comm.Barrier()
assert not other.stop_requested()
comm.Barrier()
other.directory.request_stop()
other.directory.request_stop()
assert other.stop_requested(), "the stop file is seen"

if comm.rank == 0:
    summary = json.loads((run.directory.path / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert summary["exit_code"] == 75
    assert len(summary["phases"]["compute"]) == comm.size
    assert summary["phases"]["only last"][:-1] == [0.0] * (comm.size - 1)
    blocks = summary["decomposition"]["blocks"]
    assert [block["rank"] for block in blocks] == list(range(comm.size))
    assert sum(block["shape"][1] for block in blocks) == 13
    assert all(block["host"] for block in blocks)
