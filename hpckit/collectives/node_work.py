"""Collectives in shared memory: started now, run in one compiled call once all ranks are there.

A rank that waited inside the compiled call would leave its messages to others unattended, and a rank that needs them to
come here would wait for ever. So the call is attempted: it says that this rank is there, looks for the others a while,
and returns if some are missing; between attempts the rank looks after its messages.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bound import Call
from hpckit.collectives import work
from hpckit.collectives.buffers import Buffer
from hpckit.collectives.choice import Choice
from hpckit.collectives.work import Work, flying
from hpckit.device import HOST
from hpckit.node import NodeGroup


def bind(group: NodeGroup, choice: Choice, given: Buffer, out: np.ndarray | None = None, **options: Any) -> Call:
    """A collective in shared memory as a call, which does not keep its arrays alive."""
    if out is not None:
        options["out"] = HOST.borrowed(out)
    return group.bind(choice.operation, HOST.borrowed(given.array), algorithm=choice.algorithm, **options)


class Bound:
    """An all-reduce that is kept for the next time its buffer comes; the buffer is known weakly."""

    __slots__ = ("algorithm", "axis", "buffer", "call", "group", "nbytes", "op")

    def __init__(self, group: NodeGroup, call: Call, buffer: Any, axis: Any, op: str, algorithm: str) -> None:
        self.group, self.call, self.axis, self.op, self.algorithm = group, call, axis, op, algorithm
        self.nbytes = buffer.nbytes
        self.buffer: Any = weakref.ref(buffer)


class NodeWork(Work):
    """A collective on the ranks of a node; `array` is its result, and must not be collected before."""

    __slots__ = ("_array", "_call", "_group", "_kept")

    def __init__(self, group: NodeGroup, call: Call, array: Any, kept: Any = None) -> None:
        self._group = group
        self._call = call
        self._array = array
        self._kept = kept
        self.done = False
        flying.append(self)

    def wait(self) -> Any:
        """Its result, once it is done."""
        while not self.done:
            if not (self._attempt() if len(flying) == 1 else work.advance_all()):
                # Let MPI and other processes go on.
                self._group.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
                os.sched_yield()
        return self._array

    def advance(self) -> bool:
        """Run it if all ranks are there, and nothing started before it waits for the same."""
        return next(each for each in flying if isinstance(each, NodeWork)) is self and self._attempt()

    def _attempt(self) -> bool:
        try:
            self.done = self._call.attempt()
        except BaseException:
            self.done = True
            flying.remove(self)
            raise
        if self.done:
            flying.remove(self)
        return self.done
