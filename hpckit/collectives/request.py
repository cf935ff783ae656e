"""Collectives as requests: started, tested, waited for; and the progress of all that a rank has under way."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

from mpi4py import MPI

from hpckit.comm.observe.observer import Observer
from hpckit.errors import InputError

__communicates__ = True  # its frames are not call sites

# Steps of a collective under way: an iterator that yields each request that must complete before it goes on.
Steps = Iterator[MPI.Request]
# Rounds of fruitless tests before the core is offered to other processes: ranks may share it.
PATIENCE = 50


class Run(Protocol):
    """One run of a collective."""

    done: bool

    def wait(self) -> Any:
        """Its result, once it is done."""

    def test(self) -> bool:
        """Whether it is done; goes on as far as possible without waiting."""


class Progress:
    """All that this rank has started and not finished, in the order of starting. There is one a process, as of MPI: a
    rank that waits for one collective must go on with the others, which other ranks may wait for first.
    """

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def advance(self) -> bool:
        """Let all that is under way go on; whether anything moved."""
        return any([run.advance() for run in tuple(self.runs)])


@functools.cache
def _attribute() -> int:
    return MPI.Comm.Create_keyval()


def progress() -> Progress:
    """The progress of this process; it is kept on MPI's communicator of it."""
    found: Any = MPI.COMM_SELF.Get_attr(_attribute())
    if found is None:
        found = Progress()
        MPI.COMM_SELF.Set_attr(_attribute(), found)
    return found


class MessageRun:
    """A run of steps that send and receive messages. `finish` makes its result."""

    def __init__(self, progress: Progress, steps: Steps, finish: Callable[[], Any]) -> None:
        self._progress, self._steps, self._finish = progress, steps, finish
        self._request: MPI.Request | None = None
        self._result: Any = None
        self.done = False
        progress.runs.append(self)
        try:
            self.advance()  # the first messages leave
        except BaseException:
            if self in progress.runs:
                progress.runs.remove(self)
            raise

    def test(self) -> bool:
        """Whether it is done; lets it and all others go on as far as they can without waiting."""
        if not self.done:
            self._progress.advance()
        return self.done

    def wait(self) -> Any:
        """Its result, once it is done."""
        idle = 0
        while not self.done:
            if len(self._progress.runs) == 1 and self._request is not None:
                self._request.Wait()
            idle = 0 if self._progress.advance() else idle + 1
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
                self._progress.runs.remove(self)
                break
        return moved


class Request:
    """A collective operation: `wait` for it, or `test` it now and then.

    Nothing happens between calls: `test` and `wait`, of this or of any other request, drive all that this rank has
    started, so requests may be waited for in any order. The buffers belong to the operation until it is done. `wait`
    returns the result: the buffer of an operation in place, else the array that received (None where this rank gets
    nothing).

    A request that is kept can be started again and again, as MPI's persistent ones: `r = all_reduce_init(buffer,
    axis)`, then `r.start()` and `r.wait()` each time. It keeps its buffers alive.
    """

    __slots__ = ("_begin", "_observer", "_operation", "_run", "_waited", "_what", "done")

    def __init__(self, observer: Observer | None, what: tuple[Any, ...], begin: Callable[[], Run] | None) -> None:
        self._observer, self._what, self._begin = observer, what, begin
        self._run: Run | None = None
        self._operation: Any = None
        self._waited = self.done = False

    @classmethod
    def of(cls, run: Run) -> Self:
        """A request of a run that nobody observes."""
        request = cls(None, (), None)
        request._run = run
        return request

    def start(self) -> Self:
        """Start it, in the same order on all ranks as all else on the axis.

        Raises `InputError` while it is under way.
        """
        if self._begin is None:
            raise InputError(
                "the request cannot be started again", do="keep one that is made for it: all_reduce_init and its like"
            )
        if self._run is not None and not (self.done or self._waited):
            raise InputError("the request is under way", do="wait for it before it is started again")
        self._waited = self.done = False
        observer = self._observer
        self._operation = observer.begin(*self._what) if observer is not None and observer.on else None
        try:
            self._run = self._begin()
        except BaseException:
            if self._operation is not None:
                self._operation.end()
            raise
        if self._operation is None:
            self.done = self._run.done
        else:
            self._operation.posted()
        return self

    def test(self) -> bool:
        """Whether it is done; lets it and all others go on as far as they can without waiting. Where somebody watches,
        the last test waits until all ranks have begun it.
        """
        if not self.done and self._started().test():
            self.wait()
        return self.done

    def wait(self) -> Any:
        """Its result, once it is done. Raises what a listener of the observer finds wrong (`hpckit.Watch`)."""
        run = self._started()
        operation, self._operation = self._operation, None
        self._waited = True
        if operation is None:
            result = run.wait()
        else:
            result = None
            operation.wait()
            try:
                result = run.wait()
            finally:
                operation.end(result)
        self.done = run.done
        return result

    def _started(self) -> Run:
        if self._run is None:
            raise InputError("the request was not started", do="call start first")
        return self._run


class Finished(Request):
    """A request that was done at once."""

    __slots__ = ("_result",)

    def __init__(self, result: Any) -> None:
        self._result, self.done = result, True
        self._begin = None

    def wait(self) -> Any:
        """The result."""
        return self._result
