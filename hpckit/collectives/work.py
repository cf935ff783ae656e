"""Collectives under way: what was started, and the progress that `test` and `wait` make."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpi4py import MPI

from hpckit.collectives.buffers import Buffer
from hpckit.comm import checksums
from hpckit.comm.observe import waits, watch

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


class Watched(Work):
    """A work whose wait a watch is told of, or the waits of a run."""

    __slots__ = ("_inner", "_noted", "_told")

    def __init__(
        self, inner: Work, told: tuple[watch.Watch, watch.Begun] | None, noted: tuple[waits.Channel, waits.Row] | None
    ) -> None:
        self._inner, self._told, self._noted = inner, told, noted
        self.done = False

    def test(self) -> bool:
        """As of the work; where the watch checks, the last one waits until all ranks have begun it."""
        if self._inner.test():
            self.wait()
        return self.done

    def wait(self) -> Any:
        """As of the work. Raises `MismatchError` where the watch checks and the ranks called different things."""
        if self.done:
            return self._inner.wait()
        entered = time.perf_counter()
        if self._told is not None:
            seen, begun = self._told
            seen.resume(begun)
        try:
            self.done = True
            return self._inner.wait()
        finally:
            if self._told is not None:
                self._told[0].leave()
            if self._noted is not None:
                channel, row = self._noted
                channel.close(row, entered, time.perf_counter())


def watched(
    begin: Callable[[], Work],
    comm: MPI.Comm,
    operation: tuple[str, ...],
    buffer: Buffer,
    count: int | None = None,
    root: int = -1,
    peers: Sequence[int] | None = None,
) -> Work:
    """Begin a work; the watch, where there is one, is told what it is (count: -1 where ranks may differ). peers: whom
    this rank waits for, where the operation does not say it.
    """
    if checksums.on and operation[0] in checksums.SAME_RESULT:
        return Sealed(_told(begin, comm, operation, buffer, count, root, peers), comm, operation[0])
    return _told(begin, comm, operation, buffer, count, root, peers)


class Sealed(Work):
    """A work whose result is compared over its ranks (`hpckit.comm.checksums`): they wait for works in one order."""

    __slots__ = ("_comm", "_inner", "_operation")

    def __init__(self, inner: Work, comm: MPI.Comm, operation: str) -> None:
        self._inner, self._comm, self._operation = inner, comm, operation
        self.done = False

    def test(self) -> bool:
        """As of the work; the last one compares."""
        if self._inner.test():
            self.wait()
        return self.done

    def wait(self) -> Any:
        """As of the work. Raises `SilentCorruptionError` on every rank where results differ."""
        result = self._inner.wait()
        if not self.done:
            self.done = True
            checksums.check_result(self._comm, self._operation, result)
        return result


def _told(
    begin: Callable[[], Work],
    comm: MPI.Comm,
    operation: tuple[str, ...],
    buffer: Buffer,
    count: int | None,
    root: int,
    peers: Sequence[int] | None,
) -> Work:
    """Begin a work that the watch and the waits of a run, where there are any, are told of."""
    seen, kept = watch.current, waits.current
    if seen is None and kept is None:
        return begin()
    told = noted = None
    if seen is not None:
        elements = buffer.size if count is None else count
        told = seen, seen.begin(comm, operation, buffer.array.dtype, elements, root)
    before = time.perf_counter()
    work = begin()
    if kept is not None:
        channel = kept.collective(comm, " ".join(operation), root, peers)
        noted = channel, channel.open(before, time.perf_counter())
    return Watched(work, told, noted)


def advance_all() -> bool:
    """Let all that is under way go on; whether anything moved."""
    return any([work.advance() for work in tuple(flying)])
