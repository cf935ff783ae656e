"""Steps of apps on 2 ranks: what they take, how many records of the watch they leave, and what checks add to them."""

from __future__ import annotations

import importlib
import io
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hpckit.bench.ranks import answer, slowest
from hpckit.comm.agree import share_json
from hpckit.comm.checksums import Checksums
from hpckit.comm.observe.observer import observer_of
from hpckit.comm.observe.watch import Watch
from hpckit.comm.observe.watched_comm import WatchedComm
from hpckit.run.context import Run
from hpckit.settings.config import load

# Presets that the README shows, with their sizes; the last setting keeps files out of the steps that are timed.
PRESETS = {
    "thermal": ["output.every=1e9"],
    "thermal3d": ["grid.nx=64", "grid.ny=64", "grid.nz=40", "output.every=1e9"],
    "double_gyre": ["output.every=1e12"],
    "melt": ["repro=true", "output.every=1000000"],
}
CHECKED = ("thermal", "melt")
COMMON = ("thermal", "double_gyre")  # of which a few steps are timed beside faults
FIRST, STEPS = 5, 60  # steps before those that are timed, and these
WAYS: dict[str, dict[str, Any]] = {"plain": {}, "replay": {"replay": 1}, "messages": {"messages": True}}


class TimedRun(Run):
    """A run that ends after some steps and keeps, at the end of each, the time and how many records there are."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.ends: list[tuple[int, float, int]] = []

    def advance(self, step: int, once: Any, state: Any, restore: Any) -> Any:
        """Count one step; a stand-in for `Run.advance`."""
        result = super().advance(step, once, state, restore)
        self.ends.append((step, time.perf_counter(), 0 if self._watch is None else self._watch.calls))
        return result

    def edge(self, step: int, state: Any) -> bool:
        """Whether to stop: `Run.edge` says so, or the last step has ended."""
        return super().edge(step, state) or step >= FIRST + STEPS


def case(preset: str, ways: list[str], rounds: int) -> dict[str, Any]:
    """Seconds a step of each way, the slowest rank, `rounds` times in turn; records of the watch a plain step."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    records = 0.0
    for _ in range(rounds):
        for way in ways:
            taken, count = _steps(comm, preset, **WAYS[way])
            seconds[way].append(slowest(comm, taken))
            records = slowest(comm, count) if way == "plain" else records
    return {"preset": preset, "seconds": seconds, "records": records}


def _steps(comm: Any, preset: str, replay: int = 0, messages: bool = False) -> tuple[float, float]:
    """Seconds and records a step of a run of this preset."""
    config = load(preset, PRESETS[preset], {})
    checksums = Checksums()
    if messages:
        observer_of(comm).listen(checksums)
    folder = tempfile.mkdtemp(prefix="hpckit-bench-") if comm.rank == 0 else None
    with Watch(comm) as watch:
        seen = WatchedComm(comm)
        run = TimedRun(seen, _shared(comm, folder), app=config.app.name, lines=False, watch=watch, replay=replay)
        with redirect_stdout(io.StringIO()):
            importlib.import_module(f"{config.app.package}.run").run(config.config, run)
    observer_of(comm).forget(checksums)
    comm.Barrier()  # ranks write files of their own
    if folder is not None:
        shutil.rmtree(folder)
    (begun, begin, before), (ended, end, after) = next(it for it in run.ends if it[0] >= FIRST), run.ends[-1]
    return (end - begin) / (ended - begun), (after - before) / (ended - begun)


def _shared(comm: Any, folder: str | None) -> Path:
    return Path(share_json(comm, None if folder is None else str(Path(folder, "run"))))


if __name__ == "__main__":
    answer(sys.argv[1:], case)
