"""Collectives in shared memory: started now, run in one compiled call once all ranks are there.

A rank that waited inside the compiled call would leave its messages to others unattended, and a rank that needs them to
come here would wait for ever. So the call is attempted: it says that this rank is there, looks for the others a while,
and returns if some are missing; between attempts the rank looks after its messages.
"""

from __future__ import annotations

import os
import weakref
from sys import getrefcount
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from hpckit.bound import Call
from hpckit.collectives import work
from hpckit.collectives.buffers import Buffer
from hpckit.collectives.choice import Choice
from hpckit.collectives.work import Work, flying
from hpckit.device import HOST
from hpckit.node import NodeGroup

# Attempts, of some microseconds each, before MPI is looked after: the others are mostly just behind.
TRIES = 4
# Bytes of a buffer that is kept alive for the next call.
SMALL = 64 * 1024
# References to a work that only its call holds: that one, a local name, and the argument of `getrefcount`.
UNHELD = 3


def bind(group: NodeGroup, choice: Choice, given: Buffer, out: np.ndarray | None = None, **options: Any) -> Call:
    """A collective in shared memory as a call, which does not keep its arrays alive."""
    if out is not None:
        options["out"] = HOST.borrowed(out)
    return group.bind(choice.operation, HOST.borrowed(given.array), algorithm=choice.algorithm, **options)


class Bound:
    """A call and its result; an all-reduce is kept for the next time its buffer comes.

    A small buffer is then kept alive, a large one is known weakly. kept: what must live as long.
    """

    __slots__ = ("_work", "attempt", "axis", "call", "is_small", "kept", "known", "nbytes")

    def __init__(self, call: Call, kept: Any) -> None:
        self.call, self.kept = call, kept
        self.attempt = call.attempts()
        self._work: NodeWork | None = None
        self.is_small = False

    def start(self, array: Any) -> NodeWork:
        """A collective that is started now, with this result."""
        work = self._work
        # A small all-reduce takes no longer than making a work: one that nobody holds any more is used again.
        if work is not None and work.done and getrefcount(work) == UNHELD:
            work.done = False
            flying.append(work)
            return work
        work = NodeWork(self, array)
        if self.is_small:
            self._work = work
        return work

    def keep(self, buffer: np.ndarray, axis: Any) -> Self:
        """Note whose call it is; `axis` is kept alive: its identity is in the key."""
        self.axis, self.nbytes, self.is_small = axis, buffer.nbytes, buffer.nbytes <= SMALL
        self.known: Any = weakref.ref(buffer)
        self.kept = buffer if self.is_small else None
        return self

    def fits(self, buffer: np.ndarray) -> bool:
        """Whether a buffer at the same address is the one that was bound."""
        return self.known() is buffer and buffer.nbytes == self.nbytes


class NodeWork(Work):
    """A collective on the ranks of a node; `array` is its result. Made by `Bound.start`."""

    __slots__ = ("_array", "_bound")

    def __init__(self, bound: Bound, array: Any) -> None:
        self._bound = bound
        self._array = array
        self.done = False
        flying.append(self)

    def wait(self) -> Any:
        """Its result, once it is done."""
        tries = 0
        while not self.done:
            if len(flying) == 1 and self._bound.attempt() == 0:
                self.done = True
                flying.clear()
            elif not work.advance_all():
                tries += 1
                if tries > TRIES:  # let MPI and other processes go on
                    MPI.COMM_WORLD.Iprobe()
                    os.sched_yield()
        return self._array

    def advance(self) -> bool:
        """Run it if all ranks are there, and nothing started before it waits for the same."""
        if next(each for each in flying if isinstance(each, NodeWork)) is not self:
            return False
        try:
            self.done = self._bound.call.came(self._bound.attempt())
        except BaseException:
            self.done = True
            flying.remove(self)
            raise
        if self.done:
            flying.remove(self)
        return self.done
