"""Runs a rank's program of a collective plan by MPI's point-to-point messages.

Receives are posted ahead of their sends, a few at a time, and what has arrived is added while the next messages fly.
That this cannot deadlock follows from the proof of the plan: a rank waits at one step only for messages of earlier
steps, so the earliest message that is not over always has both its sides posted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives.axis import Axis
from hpckit.collectives.buffers import PairedSlots, Slots
from hpckit.collectives.rank_program import RankProgram, RankStep
from hpckit.collectives.request import Steps
from hpckit.comm.progress import call_off
from hpckit.plan.protocol import NOBODY

__communicates__ = True  # its frames are not call sites

# Messages of a segmented plan that a rank may be ahead of what it has taken.
MOST_AHEAD = 4
Combine = Callable[[Any, Any], None]


def nothing_added(target: Any, incoming: Any) -> None:
    """What a plan without reductions combines with: it is never called."""
    raise AssertionError("a plan that moves data adds nothing")


class Runner:
    """One run of a program on the slots of some arrays; `steps` is the run.

    tag: of this collective; runs of it that follow each other share it. combine: target = target (op) incoming, for
    reductions.
    """

    def __init__(
        self, axis: Axis, tag: int, program: RankProgram, slots: Slots | PairedSlots, combine: Combine = nothing_added
    ) -> None:
        self._axis, self._tag, self._moves, self._slots, self._combine = axis, tag, program.moves, slots, combine
        self._memory = axis.memory_for(slots.kind)
        self._window = min(program.lag, MOST_AHEAD)
        self._sends: list[MPI.Request | None] = []
        self._receives: list[tuple[MPI.Request | None, Any]] = []  # with the scratch memory, None for a store
        self._left = 0  # sends that are over, counted from the first
        self._taken = 0  # receives that are over

    def steps(self) -> Steps:
        """The run; see `request.Steps`."""
        try:
            yield from self._run()
        finally:
            self._end()

    def _run(self) -> Steps:
        moves = self._moves
        for number, move in enumerate(moves):
            while len(self._receives) <= min(number + self._window, len(moves) - 1):
                ahead = moves[len(self._receives)]
                if len(self._receives) > number and not self._may_post(ahead):
                    break
                yield from self._take_until(len(self._receives) - self._window)
                yield from self._post(ahead)
            yield from self._take_until(move.send_after)
            self._sends.append(self._send(move))
        yield from self._take_until(len(moves))
        yield from self._leave_until(len(moves))

    def _end(self) -> None:
        """Cancel what is under way where the run ends early: an error, or calls of ranks that differ."""
        left = [request for request, _ in self._receives[self._taken :]] + self._sends[self._left :]
        call_off([request for request in left if request is not None], self._axis.progress)

    def _may_post(self, move: RankStep) -> bool:
        """Whether a receive can be posted before its turn."""
        if move.reduce:
            return True
        return move.take_after <= self._left and move.receives_before <= self._taken

    def _post(self, move: RankStep) -> Steps:
        view = self._slots.view(*move.recv)
        if move.recv_from in (NOBODY, self._axis.rank) or not view.size:
            self._receives.append((None, None))
            return
        scratch = None
        if move.reduce:
            scratch = self._memory.borrow(view.nbytes)
            message = scratch[: view.nbytes]
        else:
            yield from self._take_until(move.receives_before)
            yield from self._leave_until(move.take_after)
            message = view.view(np.uint8)
        self._receives.append((self._axis.comm.Irecv((message, MPI.BYTE), move.recv_from, self._tag), scratch))

    def _send(self, move: RankStep) -> MPI.Request | None:
        view = self._slots.view(*move.send)
        if move.send_to == NOBODY or not view.size:
            return None
        if move.send_to == self._axis.rank:
            target = self._slots.view(*move.recv)
            if move.reduce:
                self._combine(target, view)
            else:
                target[...] = view
            return None
        self._memory.settle()
        return self._axis.comm.Isend((view.view(np.uint8), MPI.BYTE), move.send_to, self._tag)

    def _take_until(self, count: int) -> Steps:
        """Complete the receives of the first `count` moves."""
        while self._taken < count:
            request, scratch = self._receives[self._taken]
            if request is not None:
                yield request
            if scratch is not None:
                move = self._moves[self._taken]
                yield from self._leave_until(move.take_after)
                view = self._slots.view(*move.recv)
                self._combine(view, scratch[: view.nbytes].view(view.dtype))
                self._memory.give_back(scratch)
            self._receives[self._taken] = (None, None)
            self._taken += 1

    def _leave_until(self, count: int) -> Steps:
        """Complete the sends of the first `count` moves."""
        while self._left < count:
            request = self._sends[self._left]
            if request is not None:
                yield request
                self._sends[self._left] = None
            self._left += 1
