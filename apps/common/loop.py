"""The time loop of all apps: from the start, or from a checkpoint, to the end or to an early stop."""

from __future__ import annotations

import time as clock
from abc import ABC, abstractmethod
from dataclasses import dataclass

from hpckit.io.checkpoint.state import Restored, State
from hpckit.run.context import Run


@dataclass(frozen=True)
class Due:
    """The actions due after a step: a look at the state (checks and metrics), a frame of the output."""

    look: bool
    frame: bool = False


@dataclass(frozen=True)
class Ran:
    """The outcome of a loop: steps of this attempt, wall seconds (above 0), whether it reached its end."""

    steps: int
    seconds: float
    complete: bool


class Evolution(ABC):
    """The model, output and reports of an app, as the loop drives them, on all ranks alike.

    step, time: steps done and time simulated so far; end: the time at the end. waits_in: the timer phase that
    contains the waits for other ranks, which are subtracted from it; "" if `close` does so.
    """

    waits_in = "halo"
    end: float

    def __init__(self, run: Run) -> None:
        self.run, self.step, self.time = run, 0, 0.0

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether no step is left."""

    @property
    def wait_seconds(self) -> float:
        """Seconds this rank has waited for others so far."""
        return 0.0

    @abstractmethod
    def begin(self) -> None:
        """Collective: check and write the initial state of a new run."""

    @abstractmethod
    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint."""

    @abstractmethod
    def saved(self) -> State:
        """Collective: the content of a checkpoint."""

    @abstractmethod
    def advance(self) -> Due:
        """Collective: do the next step, or several, by `run.advance`; `step` and `time` follow."""

    @abstractmethod
    def look(self) -> None:
        """Collective: check the state and report its metrics. Raises `BlowUpError` on every rank alike."""

    @abstractmethod
    def rate(self, steps: int, seconds: float) -> str:
        """The speed of that many steps, as text."""

    def write(self) -> None:
        """Collective: write a frame."""
        raise NotImplementedError

    def stop(self, due: Due) -> None:
        """Collective: finish a run that stops early, after its checkpoint; `due` was done after the last step."""
        return

    def close(self) -> None:
        """Collective: finish the loop while its clock still runs."""
        return


def time_loop(it: Evolution) -> Ran:
    """Take `it` to its end, or to an early stop. Raises `BlowUpError` on all ranks alike."""
    run, timer = it.run, it.run.timer
    if run.restored is None:
        it.begin()
    else:
        it.restore(run.restored)
    timer.reset()
    waited, done, begin = it.wait_seconds, it.step, clock.perf_counter()
    while not it.is_over:
        due = it.advance()
        if due.look:
            it.look()
            run.progress(it.step, it.time, it.end, it.rate(it.step - done, clock.perf_counter() - begin))
        if due.frame:
            with timer("output"):
                it.write()
        if not it.is_over and run.edge(it.step, it.saved):
            it.stop(due)
            break
    it.close()
    seconds = max(clock.perf_counter() - begin, 1e-9)
    if it.waits_in:
        timer.seconds["wait"] = it.wait_seconds - waited
        timer.seconds[it.waits_in] = max(0.0, timer.seconds.get(it.waits_in, 0.0) - timer.seconds["wait"])
    return Ran(it.step - done, seconds, it.is_over)


def conserved(**pairs: tuple[float, float]) -> dict[str, dict[str, float]]:
    """Conserved quantities for the summary: initial and final value of each, and the relative change."""
    return {
        name: {"initial": first, "final": last, "relative_change": (last - first) / abs(first)}
        for name, (first, last) in pairs.items()
        if first
    }
