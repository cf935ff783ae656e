"""The context of one run of an app: communicator, run directory, phase timer, progress, early stop."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hpckit.comm.agree import gather_json, max_of_ranks, share_json
from hpckit.comm.observe.clocks import clock_offset
from hpckit.comm.observe.observer import observer_of
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.comm.observe.waits import Waits, collect, split
from hpckit.errors import EXIT_MISSED, EXIT_STOPPED, SetupError
from hpckit.io.checkpoint.state import MakeState, Restored
from hpckit.io.files import utc_now
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.run import trace
from hpckit.run.directory import RunDirectory
from hpckit.run.metrics import Metrics
from hpckit.run.progress import Progress
from hpckit.run.redundant_step import Replay
from hpckit.run.step_boundary import StepEdge, Stops

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpckit.comm.device import Device
    from hpckit.comm.observe.watch import Watch
    from hpckit.io.checkpoint.manager import Keeper

__communicates__ = True  # its frames are not call sites
Result = TypeVar("Result")
COMPILE_SECONDS = 2.0  # of preparation before a line says what takes so long
COMPILE_ALLOWANCE = 900.0  # s that compiling may take on a busy machine until it is a stall
STATUS_EXIT = {"done": 0, "stopped": EXIT_STOPPED, "missed": EXIT_MISSED}


@dataclass(frozen=True)
class DryRun:
    """What a run would need, computed without MPI.

    `decomposition`: lines to print; `halo_bytes`: sent per step by the rank that sends most (`moved`: the name of this
    traffic); `memory_per_rank`: bytes; `output_bytes`: of all `frames` frames; `notes`: what the user should know
    before the start.
    """

    ranks: int
    decomposition: list[str]
    halo_bytes: int
    memory_per_rank: int
    output_bytes: int
    frames: int
    steps: int
    notes: list[str] = field(default_factory=list)
    moved: str = "halo"


class Run:
    """One run as each of its ranks sees it; made by `hpckit run`, or by hand: `Run(comm, "folder")`.

    `comm` is used directly, not duplicated, for collective calls in program order. Without `directory` rank 0 makes a
    new folder below `runs/`. `lines` is False if the front end draws a bar from `progress.json` instead.
    `device` is where this rank's fields should live: the host by default, or a GPU (`hpckit run --gpu`). `start` runs
    another app for `nested`; an early stop of `parent` also stops this run; `watch` is notified of every step.
    `traced` keeps a timeline of phases, waits and messages, and `finish` writes it (`hpckit run --trace`).
    `keeper` makes the checkpoints, and knows the one that the run restarts from; `limit`: elapsed seconds after
    which the run ends early; `replay`: compute every so-many-th step twice (`hpckit.run.redundant_step`).
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        directory: RunDirectory | Path | str | None = None,
        *,
        app: str = "",
        title: str = "",
        lines: bool = True,
        device: Device | None = None,
        parent: Run | None = None,
        start: Start | None = None,
        watch: Watch | None = None,
        traced: bool = False,
        keeper: Keeper | None = None,
        limit: float | None = None,
        replay: int = 0,
    ) -> None:
        from hpckit.comm.device import HOST

        self.comm = comm
        self.device = device or HOST
        self.rank = comm.rank
        self.size = comm.size
        self.app = app
        self.title = title or app
        self.directory = directory if isinstance(directory, RunDirectory) else _open(comm, directory, app, title)
        events = trace.events_of_a_rank(comm.size) if traced else 0
        self.observer = observer_of(comm)
        before = self.observer.listening(Waits)  # of the run around this one: its waits are those of its own operations
        if before is not None:
            self.observer.forget(before)
        waits = Waits(comm, events)
        self.observer.listen(waits)
        self.timer = PhaseTimer(waits, events)
        self.step: int | None = None  # the last step given to `progress`
        self.status = "running"
        self._parent, self._start_app, self._watch = parent, start, watch
        self._keeper = keeper
        self.stops: Stops = Stops(self.directory, comm.rank, limit, keeper, None if parent is None else parent.stops)
        self._progress = Progress(self.directory, self.say if lines else None)
        self._metrics = Metrics(self.directory)
        self._outputs: dict[str, Callable[[], Any]] = {"metrics": self._metrics.kept}
        kept = self.kept("metrics")
        mended = self._metrics.go_on(kept) if kept is not None and comm.rank == 0 else ""
        self.notes = [mended] if mended else []  # on rank 0: what was changed in the directory, and is mended
        self._edge: StepEdge | None = None
        self.replay = replay
        self._replay = Replay(comm, replay) if replay else None
        self._marked = -1  # the last step whose end is in the timeline
        self.is_stopped = False  # by an early stop that the checkpoints of a program have agreed on

    def say(self, text: str) -> None:
        """Print a line, from rank 0; a nested run is silent."""
        if self.rank == 0 and self._parent is None:
            # One write, so that other ranks' output cannot come between text and line end.
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """A context for compiling or loading kernels: if it takes long, a line says so, and the watch waits."""
        with contextlib.ExitStack() as stack:
            if self._watch is not None:
                stack.enter_context(self._watch.allow(COMPILE_ALLOWANCE))
            if self.rank == 0:
                stack.enter_context(self._telling())
            yield

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Print what takes so long."""
        root = self
        while root._parent is not None:
            root = root._parent
        text = f"compiling the kernels of {self.app or 'this program'}: once per machine, up to a minute or two …"
        timer = threading.Timer(COMPILE_SECONDS, root.say, (text,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def progress(self, step: int, time: float, end: float, rate: str = "") -> None:
        """Report progress; cheap enough for every step.

        Prints a line early, then one every few seconds and one at `time` >= `end`; `progress.json` is written more
        often. `rate` is the app's own figure with its unit.
        """
        self.step = step
        self._mark(step)
        if self._watch is not None:
            self._watch.beat()
        if self.rank == 0:
            self._progress.tell(step, time, end, rate)

    def _mark(self, step: int) -> None:
        """Mark the end of a step in the timeline, once: `progress` and `edge` may both report it."""
        if self.timer.traced and step != self._marked:
            self._marked = step
            self.timer.mark(step)

    def metric(self, **values: Any) -> None:
        """Append the values to `metrics.jsonl`, from rank 0; give `step` and `time` first."""
        if self.rank == 0:
            self._metrics.append(values)

    @property
    def restored(self) -> Restored | None:
        """The state that the run restarts from, None for a run from the beginning."""
        return None if self._keeper is None else self._keeper.restored

    def kept(self, name: str) -> Any:
        """The extent of the output file `name` when the state was saved (see `keep`); None in a new run, {} in one
        resumed without a state: its files then start anew.
        """
        if self._keeper is None or not self._keeper.resumed:
            return None
        return {} if self.restored is None else self.restored.outputs.get(name, {})

    def keep(self, name: str, tell: Callable[[], Any]) -> None:
        """Save with every checkpoint what `tell()` returns on rank 0 (plain values): the extent of an output file."""
        self._outputs[name] = tell

    def adopt(self, keeper: Keeper) -> None:
        """Use the checkpoints of a program's own `hp.Checkpoints`: metrics and output go on from the restored one."""
        self._keeper = keeper
        kept = self.kept("metrics")
        if kept is not None and self.rank == 0 and (mended := self._metrics.go_on(kept)):
            self.say(mended)

    def saves_after(self, step: int) -> bool:
        """Whether a checkpoint is due after this step by its number; `edge` must then be called for it."""
        return self._keeper is not None and self._keeper.is_due_after(step)

    def advance(
        self, step: int, once: Callable[[], Result], state: MakeState, restore: Callable[[Restored], None]
    ) -> Result:
        """Collective: call `once()`, which advances the model to `step`, and return its result.

        If `[checks] replay` asks for it, compute the step twice, the second time from `state()` restored as after a
        checkpoint, and raise `SilentCorruptionError` on every rank if the two results differ in a bit.
        """
        if self._replay is None or not self._replay.is_due(step):
            return once()
        return self._replay.twice(step, once, state, restore)

    def edge(self, step: int, state: MakeState) -> bool:
        """Collective, after every step but the last: whether the run must stop early; the same on every rank.

        Saves `state()` when a checkpoint is due and when the run stops: on a signal (SIGTERM, SIGINT, SIGUSR1) to any
        rank, on the stop file, or when the elapsed time is over. Write the step's own output (metrics, frames) before
        this call, and output that is due only to the stop after it.
        """
        self._mark(step)
        if self._edge is None:
            self._edge = StepEdge(self.comm, self._keeper, self.stops.asked, self.told_outputs)
        return self._edge.come(step, state)

    def told_outputs(self) -> dict[str, Any]:
        """On rank 0 the extents of the output files, as a checkpoint saves them."""
        return {name: tell() for name, tell in self._outputs.items()} if self.rank == 0 else {}

    def stop_requested(self) -> bool:
        """Collective: whether the user (stop file in the run directory) or the batch system (signal to any rank) asks
        for an early, complete end. The answer is the same on every rank.
        """
        return bool(max_of_ranks(self.comm, np.array([self.stops.asked()], np.int32))[0])

    def nested(self, target: str, settings: Mapping[str, Any], name: str) -> RunDirectory:
        """Collective: run another app to its end in the folder `cases/NAME` of this run; returns that run's directory.

        `target` is an app or APP/PRESET, `settings` are nested tables laid over it. A program of
        runs thus knows other apps only by their settings and output. Raises what that run raises, and `SetupError` in
        a run made by hand without `start`.
        """
        if self._start_app is None:
            raise SetupError(
                "this run cannot start another app",
                likely="it was made by hand, without `start`",
                do="start it with hpckit run",
            )
        return self._start_app(self, target, settings, name)

    def finish(self, summary: Mapping[str, Any], status: str = "done") -> None:
        """Collective: gather the timers of all ranks and write `summary.json`; `status` is "done", "stopped" or
        "missed" (a validation whose numbers are out of range).

        `summary` holds the app's figures; its "decomposition" may be a `Decomposition`, which is written out with the
        block and host of each rank.
        """
        if status not in STATUS_EXIT:
            raise ValueError(f"status {status!r}; allowed: {', '.join(STATUS_EXIT)}")
        self.status = status
        checkpoints = {}
        if self._keeper is not None:
            self._keeper.close()
            checkpoints = {"checkpoints": self._keeper.summary(), "attempt": self.directory.attempt_number}
        own = {"phases": self.timer.seconds, "host": socket.gethostname()}
        ranks = gather_json(self.comm, own)
        waited = self._finish_timing()
        if ranks is not None:
            hosts = [entry["host"] for entry in ranks]
            names = dict.fromkeys(name for entry in ranks for name in entry["phases"])
            record = {
                "status": status,
                "app": self.app,
                "title": self.title,
                "ranks": self.size,
                **({"steps_replayed": self._replay.count} if self._replay else {}),
                **({"stopped_by": "time.limit"} if status == "stopped" and self.stops.by_limit else {}),
                **({"device": self.device.facts()} if self.device.is_gpu else {}),
                **checkpoints,
                **summary,
                "phases": {name: [entry["phases"].get(name, 0.0) for entry in ranks] for name in names},
                **({"waits": waited} if waited else {}),
                "exit_code": STATUS_EXIT[status],
            }
            if "decomposition" in record:
                record["decomposition"] = _decomposition_record(record["decomposition"], hosts)
            self.directory.write_json("summary.json", record)
            progress = self.directory.read_json("progress.json") or {}
            self.directory.write_json("progress.json", {**progress, "status": status, "updated": utc_now()})

    def _finish_timing(self) -> dict[str, Any] | None:
        """Collective: write the timeline, and return on rank 0 what the ranks waited for."""
        timer = self.timer
        assert timer.waits is not None
        self.observer.forget(timer.waits)
        if self._parent is not None and self._parent.timer.waits is not None:
            self.observer.listen(self._parent.timer.waits)
        offset = clock_offset(self.comm)
        logs = collect(self.comm, timer.waits.channels, offset)
        timelines = trace.gather_timelines(self.comm, timer, offset) if timer.traced else None
        if logs is None:
            return None
        if timelines is not None:
            self.directory.write_text(trace.FILE, trace.text(trace.merge(timelines, logs, self.title)))
        return split(logs)


Start = Callable[[Run, str, Mapping[str, Any], str], RunDirectory]


def _open(comm: MPI.Intracomm, path: Path | str | None, app: str, title: str) -> RunDirectory:
    """The directory at `path`; rank 0 makes it if it does not exist."""
    from hpckit.run.directory import run_name

    made = None
    if comm.rank == 0:
        path = Path(path) if path is not None else Path("runs", run_name(app or "run", title, comm.size))
        made = str((RunDirectory(path) if (path / "attempts").is_dir() else RunDirectory.create(path)).path)
    return RunDirectory(share_json(comm, made))


def _decomposition_record(decomposition: Any, hosts: list[str]) -> dict[str, Any]:
    """Axes, sizes, shape, and the block and host of each rank."""
    if not isinstance(decomposition, Decomposition):
        record = dict(decomposition)
        record["blocks"] = [{"host": hosts[block["rank"]], **block} for block in record.get("blocks", [])]
        return record
    topology = decomposition.topology
    return {
        "axes": list(topology.names),
        "sizes": list(topology.sizes),
        "shape": list(decomposition.global_shape),
        "periodic": list(topology.periodic),
        "blocks": [
            {
                "rank": rank,
                "host": host,
                "start": list(decomposition.start(rank)),
                "shape": list(decomposition.owned(rank)),
            }
            for rank, host in enumerate(hosts)
        ],
    }
