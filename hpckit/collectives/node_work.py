"""Collectives in shared memory: started now, run in one compiled call once all ranks are there.

A rank that waited inside the compiled call would leave its messages to others unattended, and a rank that needs them to
come here would wait for ever. So the call is attempted: it says that this rank is there, looks for the others a while,
and returns if some are missing; between attempts the rank looks after its messages.
"""

from __future__ import annotations

import os
import weakref
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


def bind(group: NodeGroup, choice: Choice, given: Buffer, out: np.ndarray | None = None, **options: Any) -> Call:
    """A collective in shared memory as a call, which does not keep its arrays alive."""
    if out is not None:
        options["out"] = HOST.borrowed(out)
    return group.bind(choice.operation, HOST.borrowed(given.array), algorithm=choice.algorithm, **options)


class Bound:
    """A call and its result; an all-reduce is kept for the next time its buffer comes.

    A small buffer is then kept alive, a large one is known weakly. kept: what must live as long.
    """

    __slots__ = ("_finished", "algorithm", "attempt", "axis", "call", "is_small", "kept", "known", "nbytes", "op")

    def __init__(self, call: Call, kept: Any) -> None:
        self.call, self.kept = call, kept
        self.attempt = call.attempts()
        self.is_small = False

    def start(self, array: Any) -> Work:
        """A collective that is started now, with this result."""
        return NodeWork(self, array)

    def start_small(self, array: Any) -> Work:
        """The same, attempted at once: the others mostly are there, and it takes no longer than making a work."""
        if not flying:
            status = self.attempt()
            if status == 0:
                return self._finished
            self.call.came(status)
        return NodeWork(self, array)

    def keep(self, buffer: np.ndarray, axis: Any, op: str, algorithm: str) -> Self:
        """Note whose call it is; `axis` is kept alive: its identity is in the key."""
        self.axis, self.op, self.algorithm = axis, op, algorithm
        self.nbytes, self.is_small = buffer.nbytes, buffer.nbytes <= SMALL
        self.known: Any = weakref.ref(buffer)
        self.kept = buffer if self.is_small else None
        self._finished = Finished(self.kept)
        return self

    def fits(self, buffer: np.ndarray) -> bool:
        """Whether a buffer at the same address is the one that was bound."""
        return self.known() is buffer and buffer.nbytes == self.nbytes


class Finished(Work):
    """A work that is done; `array` is its result."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array, self.done = array, True

    def wait(self) -> Any:
        """Its result."""
        return self._array


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
