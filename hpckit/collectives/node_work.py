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
from hpckit.collectives.work import PATIENCE, Work
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
        self.started = 0

    def is_open(self, number: int) -> bool:
        """Say that this rank is ready for the collective, and whether all are."""
        if self._own[0] < number:
            self._own[0] = number
        return all(line[0] >= number for line in self._others)


class NodeWork(Work):
    """A collective on the ranks of a node."""

    __slots__ = ("_call", "_gate", "_late", "_number")

    def __init__(self, gate: Gate, call: Callable[[], None], result: Callable[[], Any]) -> None:
        self._gate, self._call, self._finish = gate, call, result
        self._result, self.done, self._late = None, False, 0.0
        gate.started += 1
        self._number = gate.started

    def advance(self) -> bool:
        """Run it if all ranks are ready, and nothing started before it waits for the same."""
        if next(each for each in work.flying if isinstance(each, NodeWork)) is not self:
            return False
        if not self._gate.is_open(self._number):
            return False
        self._run()
        return True

    def wait(self) -> Any:
        """Its result, once it is done."""
        idle = 0
        while not self.done:
            idle = 0 if work.advance_all() else idle + 1
            if idle > PATIENCE:
                self._look_around()
        return self._result

    def _look_around(self) -> None:
        """Let MPI and other processes go on; after the deadline go in, where the missing rank is found out."""
        self._gate.group.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
        os.sched_yield()
        now = time.monotonic()
        if not self._late:
            self._late = now + self._gate.group.deadline
        if now > self._late:
            self._gate.group.deadline = 0.1
            self._run()

    def _run(self) -> None:
        work.flying.remove(self)
        self.done = True
        self._call()
        self._result = self._finish()


class Bound:
    """A call on a buffer, kept for the next time: the buffer is known weakly, by its identity and size."""

    __slots__ = ("_buffer", "_call", "_gate", "nbytes")

    def __init__(self, gate: Gate, call: Callable[[], None], buffer: Any) -> None:
        self._gate, self._call, self.nbytes = gate, call, buffer.nbytes
        self._buffer = weakref.ref(buffer)

    def start(self, buffer: Any) -> Work | None:
        """The work, None where the buffer is not the one that was bound."""
        if self._buffer() is not buffer or buffer is None or buffer.nbytes != self.nbytes:
            return None
        return start(self._gate, self._call, lambda: buffer)


def start(gate: Gate, call: Callable[[], None], result: Callable[[], Any]) -> Work:
    """Start a collective on the ranks of a node."""
    begun = NodeWork(gate, call, result)
    work.flying.append(begun)
    return begun
