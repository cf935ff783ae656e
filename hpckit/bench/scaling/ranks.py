"""What each rank of `hpckit bench scaling` runs: an app on more and more of the ranks, some steps at a time in turn.

All runs live in one job from its start to its end and take turns of about a second, while ranks that have no part in a
turn sleep: what else the machine does for a while slows every number of ranks, and cancels in their ratios.
"""

from __future__ import annotations

import contextvars
import importlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.measure import CALM, core_wait, disturbance
from hpckit.bench.ranks import alone_in_turn, answer, slowest, wait_asleep
from hpckit.comm.agree import gather_json
from hpckit.comm.device import Device
from hpckit.comm.gpu import find_gpu
from hpckit.comm.observe.observer import Observer, set_observer
from hpckit.errors import HpckitError, SetupError
from hpckit.io.checkpoint.state import MakeState
from hpckit.run.context import Run
from hpckit.run.settings import with_common

NAP = 0.005  # s between two looks of a rank that has no part in a turn
ALONE = 4  # so many ranks at the most make the run on one rank, one after the other
Record = dict[str, Any]


@dataclass
class TimedSteps:
    """Steps that are made in one go: `skipped` ones, then those that are timed, which the ranks of `gate` begin
    together; `seconds`: what one of these took on this rank, `waited`: the share of it without its core.
    """

    gate: MPI.Intracomm
    skipped: int
    steps: int
    made: int = 0
    first: int | None = None  # steps made when the clock began
    begun: float = 0.0
    before: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0

    def step(self, device: Device, many: int) -> bool:
        """So many more steps have ended, though maybe not on `device`; whether they were the last of the turn.

        Apps may take several at once: then a few more are made than were asked for.
        """
        self.made += many
        if self.first is None:
            if self.made >= self.skipped:
                device.wait()
                self.gate.Barrier()
                self.first, self.before, self.begun = self.made, core_wait(), time.perf_counter()
            return False
        if self.made < self.first + self.steps:
            return False
        device.wait()
        spent = time.perf_counter() - self.begun
        # What a hypervisor took is counted in ticks, of which one may be longer than the turn.
        self.seconds, self.waited = spent / (self.made - self.first), min((core_wait() - self.before) / spent, 1.0)
        return True


class Stepped(Run):
    """A run whose app is `held` at the end of every turn; it prints nothing and stops for no other reason."""

    held: InTurn

    def say(self, text: str) -> None:
        """Print nothing."""

    def edge(self, step: int, state: MakeState) -> bool:
        """The step has ended."""
        return self.held.edge(step)


class InTurn:
    """An app that makes some of its steps at a time, in a thread of its own that sleeps between its turns.

    One thread runs at any moment: the app's, or the one that waits in `go` or `end` until the app is held.
    """

    def __init__(self, case: Record, values: Record, comm: MPI.Intracomm, folder: Path) -> None:
        self._case, self._values, self._comm, self._folder = case, values, comm, folder
        set_observer(comm, Observer())  # this app's own, whichever app has its turn
        self._app_goes, self._app_holds = threading.Semaphore(0), threading.Semaphore(0)
        self._turn: TimedSteps | None = None  # None: the app is to come to its end
        self._error: BaseException | None = None
        self._run: Stepped | None = None
        self._step = 0  # of the run, that ended last
        self._phases: tuple[str, ...] = ()  # that belong to steps
        # A context of its own holds NumPy's handling of errors.
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(self._whole,), daemon=True)
        self._thread.start()

    def go(self, gate: MPI.Intracomm, skipped: int, steps: int) -> tuple[float, float]:
        """Make so many steps, `skipped` ones before: seconds a step on the slowest rank of `gate`, and the largest
        share of them that a rank waited for its core. The first turn makes the app ready, too. Raises what the app
        raises, and `SetupError` for one that ended.
        """
        self._turn = TimedSteps(gate, skipped, steps)
        self._let_go()
        if not self._turn.seconds:
            raise SetupError(
                f"the app {self._case['app']} made too few steps to be timed, or does not tell where they end",
                do="give fewer --steps or --repeats; an app calls run.edge(step, …) after every step but the last",
            )
        return slowest(gate, self._turn.seconds), slowest(gate, self._turn.waited)

    def end(self) -> dict[str, float]:
        """Collective: end the run early and remove its files; seconds of each phase in a step, on this rank."""
        self._turn = None
        self._let_go()
        assert self._run is not None
        self._comm.Barrier()  # the summary is written
        directory = self._run.directory
        summary = directory.read_json("summary.json") or {}
        self._comm.Barrier()
        if self._comm.rank == 0:
            shutil.rmtree(directory.path)
        # Phases that began after the last step belong to no step: the last frame, the weights, the validation.
        kept = (*self._phases, "wait")
        phases = summary["phases"].items()
        return {name: seconds[self._comm.rank] / summary["steps"] for name, seconds in phases if name in kept}

    def edge(self, step: int) -> bool:
        """In the app's thread, at the end of a step: hold where the turn is over; whether the run is to end."""
        assert self._turn is not None
        assert self._run is not None
        many, self._step = step - self._step, step
        if self._turn.step(self._run.device, many):
            self._phases = tuple(self._run.timer.seconds)
            self._app_holds.release()
            self._app_goes.acquire()
        return self._turn is None

    def _let_go(self) -> None:
        self._app_goes.release()
        self._app_holds.acquire()
        if self._error is not None:
            raise self._error

    def _whole(self) -> None:
        self._app_goes.acquire()
        try:
            self._app()
        except BaseException as error:  # it is raised again in the thread that waits
            self._error = error
        self._app_holds.release()

    def _app(self) -> None:
        package, name = self._case["package"], self._case["app"]
        config_type = with_common(importlib.import_module(f"{package}.config").Config)
        config = config_type.model_validate_json(json.dumps(self._values), strict=True)
        device = find_gpu(self._comm, "auto") if self._case["gpu"] else None
        self._run = Stepped(self._comm, self._folder, app=name, title="scaling", lines=False, device=device)
        self._run.held = self
        importlib.import_module(f"{package}.run").run(config, self._run)


def case(case: Record) -> Record:
    """All runs of a study, `rounds` turns each: on each number of ranks together, and on one rank each at once, as many
    as `apart` says. Those also make the run on one rank in turn, of which the mean counts: cores that a host shares out
    differ in speed, and ranks together are as fast as the slowest. Before the first round all make their first steps,
    untimed. Rounds in which a rank waited for its core, as another program had it, are made again, up to `most` rounds
    in all; turns on the numbers of ranks in `crowded`, whose ranks take each other's cores, do not tell.

    Returns where the ranks are, a record a turn, and the phases of a step by the number of ranks, a value a rank. Every
    second round goes through the numbers backward: a machine that becomes slower all the time favors none of them.
    """
    comm = MPI.COMM_WORLD
    parts: dict[int, Any] = {ranks: comm.Split(int(comm.rank >= ranks)) for ranks in case["counts"]}
    places = gather_json(comm, {"host": socket.gethostname(), "cores": sorted(os.sched_getaffinity(0))})
    runs = _made(case, parts)
    turns = [("together", ranks) for ranks in case["counts"]] + [("apart", ranks) for ranks in case["apart"]]
    most = max(case["apart"], default=1)
    alone = sorted({place * (most - 1) // max(1, min(most, ALONE) - 1) for place in range(min(most, ALONE))})
    found: list[Record] = []
    number, wanted = -1, case["rounds"]
    while wanted and number < case["most"]:
        here = []
        steps = case["steps"], case["steps"] if number >= 0 else 1
        for kind, ranks in turns[:: -1 if number % 2 else 1]:
            seconds = waited = 0.0
            if ranks == 1:
                seconds, waited = _alone(comm, runs.get(1), alone, steps)
            elif comm.rank < ranks:
                seconds, waited = runs[1 if kind == "apart" else ranks].go(parts[ranks], *steps)
            if comm.rank < ranks:
                here.append({"kind": kind, "ranks": ranks, "turn": number, "seconds": seconds, "waited": waited})
            wait_asleep(comm, NAP)
        if number >= 0:
            found += here
            wanted -= _agreed(comm, disturbance(here, case["crowded"]) <= CALM)
        number += 1
    phases = {}
    for ranks in case["counts"]:
        own = runs[ranks].end() if ranks in runs else None
        every = gather_json(parts[ranks], own) if comm.rank < ranks else None
        if every is not None:
            names = dict.fromkeys(name for each in every for name in each)
            phases[ranks] = {name: [each.get(name, 0.0) for each in every] for name in names}
        wait_asleep(comm, NAP)
    for part in parts.values():
        part.Free()
    return {"places": places, "runs": [{**each, "steps": case["steps"]} for each in found], "phases": phases}


def _made(case: Record, parts: dict[int, MPI.Intracomm]) -> dict[int, InTurn]:
    """The runs that this rank has a part in, by their numbers of ranks."""
    rank, runs = MPI.COMM_WORLD.rank, {}
    for ranks in case["counts"]:
        # The run on one rank is made by as many ranks as ever make it at once.
        if rank < max(ranks, *case["apart"] if ranks == 1 else (), 1):
            group = MPI.COMM_SELF if ranks == 1 else parts[ranks]
            folder = Path(case["folder"], f"{ranks}-{rank if ranks == 1 else 0}")
            runs[ranks] = InTurn(case, case["values"][str(ranks)], group, folder)
    return runs


def _alone(comm: MPI.Intracomm, run: InTurn | None, ranks: list[int], steps: tuple[int, int]) -> tuple[float, float]:
    """What `InTurn.go` says of the run on one rank, made by some ranks one after the other: the mean, and the most that
    one of them waited. Collective.
    """
    waited = 0.0

    def seconds() -> float:
        nonlocal waited
        assert run is not None
        taken, waited = run.go(MPI.COMM_SELF, *steps)
        return taken

    mean = alone_in_turn(comm, seconds, ranks, NAP)
    return mean, slowest(comm, waited)


def _agreed(comm: MPI.Intracomm, yes: bool) -> bool:
    """What the first rank says, which has a part in all turns."""
    answer = np.array([yes], np.int8)
    comm.Bcast(answer)
    return bool(answer[0])


if __name__ == "__main__":
    np.seterr(all="ignore")
    try:
        answer(sys.argv[1:], case)
    except HpckitError as error:
        print(error.report(), file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(error.exit_code)
