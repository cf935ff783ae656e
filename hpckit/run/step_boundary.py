"""The edge between two steps: ranks agree there on early stops and checkpoints, a few times a second."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hpckit.comm.agree import max_of_ranks
from hpckit.io.checkpoint.state import MakeState
from hpckit.run.nan_guard import require_finite

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpckit.io.checkpoint.manager import Keeper
    from hpckit.run.directory import RunDirectory

__communicates__ = True  # its frames are not call sites

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
LOOK_SECONDS = 0.25  # between two agreements
MOST_STEPS = 1 << 20  # between two agreements, however short the steps


class Stops:
    """Requests for an early end of a run that this rank knows of: a signal, the stop file in `directory`, the elapsed
    time limit `limit` (s), a request to the run around it.
    """

    def __init__(
        self, directory: RunDirectory, rank: int, limit: float | None, keeper: Keeper | None, outer: Stops | None
    ) -> None:
        self._directory, self._rank, self._limit, self._keeper, self._outer = directory, rank, limit, keeper, outer
        self._began = time.monotonic()
        self._asked_here = False
        self.by_limit = False  # on rank 0: only the elapsed time has asked

    def listen(self) -> None:
        """Take SIGTERM, SIGINT and SIGUSR1 as a request to stop early; the handler only sets a flag."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def ask(self) -> None:
        """Ask for an early end, as a signal does."""
        self._asked_here = True

    def asked(self) -> bool:
        """Whether this rank knows of a request to stop this run or the run around it."""
        asked = self._asked_here or (self._rank == 0 and self._directory.stop_requested())
        if not asked and self._rank == 0 and self._time_is_up():
            self.by_limit = asked = True
        return asked or (self._outer is not None and self._outer.asked())

    def _time_is_up(self) -> bool:
        """Whether a checkpoint begun now would end at about the time limit."""
        if self._limit is None:
            return False
        need = 1.5 * self._keeper.seconds if self._keeper is not None else 0.0
        return time.monotonic() - self._began + need >= self._limit

    def _on_signal(self, number: int, frame: object) -> None:
        self.ask()


class StepEdge:
    """Call `come` after each step on all ranks. It costs a comparison, and an all-reduce of 32 bytes every
    `LOOK_SECONDS` and when a checkpoint is due by the step's number.

    asked: whether this rank knows of a request to stop; outputs: the extent of the output files (rank 0's counts).
    """

    def __init__(
        self, comm: MPI.Intracomm, keeper: Keeper | None, asked: Callable[[], bool], outputs: Callable[[], dict]
    ) -> None:
        self._comm, self._keeper, self._asked, self._outputs = comm, keeper, asked, outputs
        self._next = 0  # the step of the next agreement
        self._last = (0, time.monotonic())
        self._wait = 1

    def come(self, step: int, make: MakeState) -> bool:
        """Collective: save if a checkpoint is due; returns True if the run must stop, after saving its checkpoint.

        Raises `BlowUpError` on every rank if the state is not finite: it is not saved, and earlier ones stay.
        """
        keeper = self._keeper
        by_step = keeper is not None and keeper.is_due_after(step)
        if step < self._next and not by_step:
            return False
        asked, due, busy = self._agree(step)
        if keeper is None:
            return asked
        if keeper.is_pending and not busy:
            keeper.finish()
        if asked or by_step or (due and not keeper.is_pending):
            state = make()
            require_finite(self._comm, step, state)
            keeper.save(step, state, self._outputs(), now=asked)
        return asked

    def _agree(self, step: int) -> tuple[bool, bool, bool]:
        """Collective: any rank was asked to stop; a checkpoint is due on rank 0's clock; any rank is still writing."""
        keeper, root = self._keeper, self._comm.rank == 0
        due = keeper is not None and root and keeper.is_due_now()
        busy = keeper is not None and not keeper.is_written
        flags = np.array([self._asked(), due, busy, self._steps_to_next(step) if root else 0], np.int64)
        max_of_ranks(self._comm, flags)
        self._next = step + int(flags[3])
        return bool(flags[0]), bool(flags[1]), bool(flags[2])

    def _steps_to_next(self, step: int) -> int:
        """Rank 0: how many steps take about `LOOK_SECONDS`, at most twice as many as the last time."""
        (before, begin), now = self._last, time.monotonic()
        self._last = (step, now)
        if step > before:
            fitting = LOOK_SECONDS * (step - before) / max(now - begin, 1e-9)
            self._wait = int(max(1, min(fitting, 2 * self._wait, MOST_STEPS)))
        return self._wait
