"""The edge between two steps: ranks agree there on early stops and checkpoints, a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpckit.io.checkpoint.state import MakeState, Restored, State
from hpckit.run.nan_guard import require_finite

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites

LOOK_SECONDS = 0.25  # between two agreements
MOST_STEPS = 1 << 20  # between two agreements, however short the steps


class Keeper(Protocol):
    """Checkpoints as a run sees them (`hpckit.io.checkpoint.manager`)."""

    resumed: bool
    notes: list[str]

    @property
    def restored(self) -> Restored | None:
        """What the run goes on from."""

    @property
    def is_pending(self) -> bool:
        """A checkpoint was begun and does not count yet."""

    @property
    def is_written(self) -> bool:
        """The part of this rank is on disk."""

    @property
    def seconds(self) -> float:
        """How long a checkpoint takes."""

    def is_due_after(self, step: int) -> bool:
        """By the number of the step, the same on every rank."""

    def is_due_now(self) -> bool:
        """By this rank's clock."""

    def save(self, step: int, state: State, outputs: Mapping[str, Any], now: bool = False) -> None:
        """Collective: write the state; with `now` it counts when this returns."""

    def finish(self) -> None:
        """Collective: let the checkpoint that was begun count."""

    def close(self) -> None:
        """Collective: finish, and let nothing run on."""

    def summary(self) -> dict[str, Any]:
        """What was written."""


class StepEdge:
    """`come` after each step, on all ranks alike. It costs a comparison; an all-reduce of 32 bytes every
    `LOOK_SECONDS`, and where a checkpoint is due by the number of the step.

    asked: whether this rank knows of a wish to stop; outputs: how far the output files are (rank 0's counts).
    """

    def __init__(
        self, comm: MPI.Intracomm, keeper: Keeper | None, asked: Callable[[], bool], outputs: Callable[[], dict]
    ) -> None:
        self._comm, self._keeper, self._asked, self._outputs = comm, keeper, asked, outputs
        self._next = 0  # the step of the next agreement
        self._last = (0, time.monotonic())
        self._wait = 1

    def come(self, step: int, make: MakeState) -> bool:
        """Collective: save where it is time to; returns True where the run is to stop, with its checkpoint made.

        Raises `BlowUpError` on every rank where the state is not finite: it is not saved, those before stay.
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
        from mpi4py import MPI

        keeper, root = self._keeper, self._comm.rank == 0
        due = keeper is not None and root and keeper.is_due_now()
        busy = keeper is not None and not keeper.is_written
        flags = np.array([self._asked(), due, busy, self._steps_to_next(step) if root else 0], np.int64)
        self._comm.Allreduce(MPI.IN_PLACE, flags, op=MPI.MAX)
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
