"""Collectives in shared memory: started now, run in one compiled call once all ranks are there.

A rank that waited inside the compiled call would leave its messages to others unattended, and a rank that needs them to
come here would wait for ever. So each rank first says on a line of its own that it is ready, and goes in when all are;
until then it looks after its messages.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives import work
from hpckit.collectives.work import PATIENCE, Work, flying
from hpckit.node import NodeGroup
from hpckit.segments import make_segment

LINE = 64  # bytes of a cache line


class Gate:
    """How far the ranks of a node are: each writes the number of the last collective that it is ready for."""

    def __init__(self, group: NodeGroup) -> None:
        self.group = group
        self._segment = make_segment(group.comm, LINE)
        memory, size = self._segment.memory, group.size
        part = memory.nbytes // size
        lines: list[Any] = [memory[rank * part : rank * part + 8].view(np.int64) for rank in range(size)]
        self._own = memoryview(lines[group.rank])
        self._others = [memoryview(line) for rank, line in enumerate(lines) if rank != group.rank]
        self._next = 1

    def attempt(self, call: Callable[[], None]) -> bool:
        """Say that this rank is ready, and run the call if all are; whether it ran."""
        number = self._next
        self._own[0] = number
        for line in self._others:
            if line[0] < number:
                return False
        self._next = number + 1
        call()
        return True


class Bound:
    """An all-reduce that is kept for the next time its buffer comes; the buffer is known weakly."""

    __slots__ = ("algorithm", "axis", "buffer", "call", "gate", "nbytes", "op")

    def __init__(self, gate: Gate, call: Callable[[], None], buffer: Any, axis: Any, op: str, algorithm: str) -> None:
        self.gate, self.call, self.axis, self.op, self.algorithm = gate, call, axis, op, algorithm
        self.nbytes = buffer.nbytes
        self.buffer: Any = weakref.ref(buffer)


class NodeWork(Work):
    """A collective on the ranks of a node; `array` is its buffer and its result."""

    __slots__ = ("_array", "_call", "_gate")

    def __init__(self, gate: Gate, call: Callable[[], None], array: Any) -> None:
        self._gate = gate
        self._call = call
        self._array = array
        self.done = False
        flying.append(self)

    def wait(self) -> Any:
        """Its result, once it is done."""
        idle, late = 0, 0.0
        while not self.done:
            moved = self._attempt() if len(flying) == 1 else work.advance_all()
            if not moved:
                idle += 1
                if idle > PATIENCE:
                    late = self._look_around(late)
        return self._array

    def advance(self) -> bool:
        """Run it if all ranks are ready, and nothing started before it waits for the same."""
        return next(each for each in flying if isinstance(each, NodeWork)) is self and self._attempt()

    def _attempt(self) -> bool:
        try:
            self.done = self._gate.attempt(self._call)
        except BaseException:
            self.done = True
            flying.remove(self)
            raise
        if self.done:
            flying.remove(self)
        return self.done

    def _look_around(self, late: float) -> float:
        """Let MPI and other processes go on; past the deadline go in, where the missing rank is found out."""
        group = self._gate.group
        group.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
        os.sched_yield()
        now = time.monotonic()
        if late and now > late:
            group.deadline = 0.1
            self._call()
        return late or now + group.deadline
