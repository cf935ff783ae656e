"""Collectives under way: what was started, and the progress that `test` and `wait` make."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpi4py import MPI

from hpckit.collectives.buffers import Buffer
from hpckit.comm.observe.observer import Observer, Operation, Unheard

__communicates__ = True  # its frames are not call sites

# Steps of a collective under way: an iterator that yields each request that must complete before it goes on.
Steps = Iterator[MPI.Request]
# Rounds of fruitless tests before the core is offered to other processes: ranks may share it.
PATIENCE = 50


class Work:
    """A collective operation under way: `wait` for it, or `test` it now and then.

    Nothing happens between calls: `test` and `wait`, of this or of any other work, drive all that this rank has
    started, so works may be waited for in any order. The buffers belong to the operation until it is done. `wait`
    returns the result: the buffer of an operation in place, else the array that received (None where this rank gets
    nothing).
    """

    __slots__ = ("_finish", "_request", "_result", "_steps", "done")

    def __init__(self, steps: Steps, result: Callable[[], Any]) -> None:
        self._steps, self._finish = steps, result
        self._result: Any = None
        self._request: MPI.Request | None = None
        self.done = False

    def test(self) -> bool:
        """Whether it is done; lets it and all others go on as far as they can without waiting."""
        if not self.done:
            advance_all()
        return self.done

    def wait(self) -> Any:
        """Its result, once it is done."""
        idle = 0
        while not self.done:
            if len(flying) == 1 and self._request is not None:
                self._request.Wait()
            idle = 0 if advance_all() else idle + 1
            if idle > PATIENCE:
                os.sched_yield()
        return self._result

    def advance(self) -> bool:
        """Go on as far as possible without waiting; whether anything moved."""
        moved = False
        while self._request is None or self._request.Test():
            moved = True
            self._request = next(self._steps, None)
            if self._request is None:
                self._result, self.done = self._finish(), True
                flying.remove(self)
                break
        return moved


# All that this rank has started and not finished, in the order of starting.
flying: list[Work] = []


def start(steps: Steps, result: Callable[[], Any]) -> Work:
    """Start an operation: its first messages leave."""
    work = Work(steps, result)
    flying.append(work)
    try:
        work.advance()
    except BaseException:
        if work in flying:
            flying.remove(work)
        raise
    return work


class Reported(Work):
    """A work whose wait and end are reported: the ranks wait for works in one order where results are compared."""

    __slots__ = ("_inner", "_operation")

    def __init__(self, inner: Work, operation: Operation | Unheard) -> None:
        self._inner, self._operation = inner, operation
        self.done = False

    def test(self) -> bool:
        """As of the work; where the watch checks, the last one waits until all ranks have begun it."""
        if self._inner.test():
            self.wait()
        return self.done

    def wait(self) -> Any:
        """As of the work. Raises `MismatchError` where a watch checks and the ranks called different things, and
        `SilentCorruptionError` on every rank where checksums of results differ.
        """
        if self.done:
            return self._inner.wait()
        result = None
        self._operation.wait()
        try:
            self.done = True
            result = self._inner.wait()
        finally:
            self._operation.end(result)
        return result


def reported(
    observer: Observer,
    begin: Callable[[], Work],
    comm: MPI.Comm,
    operation: tuple[str, ...],
    buffer: Buffer,
    count: int | None = None,
    root: int = -1,
    peers: Sequence[int] | None = None,
) -> Work:
    """Begin a work and report it (count: -1 where ranks may differ). peers: whom this rank waits for, where the
    operation does not say it.
    """
    if not observer.on:
        return begin()
    elements = buffer.size if count is None else count
    told = observer.begin(comm, operation, buffer.array.dtype, elements, root, peers)
    work = begin()
    told.posted()
    return Reported(work, told)


def advance_all() -> bool:
    """Let all that is under way go on; whether anything moved."""
    return any([work.advance() for work in tuple(flying)])
