"""Collectives as requests: started, tested, waited for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol, Self

from mpi4py import MPI

from hpckit.comm.call_order import CallOrder, Lane
from hpckit.comm.observe.observer import Observer, Operation
from hpckit.comm.progress import PendingOperations, Unfinished, call_site, give_way, progress, told
from hpckit.errors import InputError, MismatchError

__communicates__ = True  # its frames are not call sites

# Steps of a collective under way: an iterator that yields each request that must complete before it goes on.
Steps = Iterator[MPI.Request]
# Rounds of fruitless tests before the core is offered to other processes: ranks may share it.
PATIENCE = 50


class CollectiveRun(Protocol):
    """One run of a collective."""

    @property
    def done(self) -> bool:
        """Whether it is done, or has failed."""

    @property
    def error(self) -> Exception | None:
        """What it raises."""

    def wait(self) -> Any:
        """Its result, once it is done."""

    def abandon(self, error: Exception | None = None) -> None:
        """Give it up."""

    def test(self) -> bool:
        """Whether it is done; goes on as far as possible without waiting."""


class MessageRun:
    """A run of steps that send and receive messages. `finish` makes its result; what: as an observer is told of it.

    order, key, anew, lane: as of `CallOrder.begin`. An error is raised where the
    program waits for this run, not for another.
    """

    def __init__(
        self,
        progress: PendingOperations,
        steps: Steps,
        finish: Callable[[], Any],
        what: tuple[Any, ...] = (MPI.COMM_NULL, "a collective"),
        order: CallOrder | None = None,
        key: Hashable = None,
        anew: bool = False,
        lane: Lane | None = None,
    ) -> None:
        self._progress, self._finish, self._what, self.order = progress, finish, what, order
        self._site = call_site()
        self._call = None
        if order is not None:
            self._call, steps = order.begin(key, what, self._site, steps, anew, lane)
        self._steps = steps
        self._request: MPI.Request | None = None
        self._result: Any = None
        self.error: Exception | None = None
        self.done = False
        progress.runs.append(self)
        self.advance()  # the first messages leave

    def test(self) -> bool:
        """Whether it is done; lets it and all others go on as far as they can without waiting."""
        if not self.done:
            self._progress.advance()
        return self.done

    def wait(self) -> Any:
        """Its result, once it is done."""
        idle, progress = 0, self._progress
        while not self.done:
            if self.advance() if len(progress.runs) == 1 else progress.advance():
                idle = 0
            else:
                idle += 1
                if idle > PATIENCE:
                    give_way(idle)
                    progress.listen()
        if self.error is not None:
            raise self.error
        return self._result

    def advance(self) -> bool:
        """Go on as far as possible without waiting; whether anything moved."""
        moved = False
        if self.done:  # another one has just abandoned it
            return False
        try:
            while self._request is None or self._request.Test():
                moved = True
                self._request = next(self._steps, None)
                if self._request is None:
                    self._result = self._finish()
                    self._end()
                    break
        except MismatchError as error:  # calls that were begun after the first that differs come to nothing
            runs, lost = self._progress.runs, self.order is not None and self.order.lost
            for run in runs[0 if lost else runs.index(self) :]:
                if run.order is self.order and run is not self:
                    run.abandon(error)
            self._end(error)
        except Exception as error:
            self._end(error)
        return moved

    def listen(self) -> None:
        """The rank waits in vain: hear whether others make another call, and compare with them then."""
        if self.order is None or self._call is None:
            return
        comparison = self.order.listen(self._call)
        if comparison is not None:
            self._call_off()
            self._steps, self._request = comparison, None

    def unfinished(self) -> Unfinished:
        """What it is."""
        return Unfinished(told(self._what), self._site)

    def abandon(self, error: Exception | None = None) -> None:
        """Cancel what can be, and keep the memory of the rest."""
        self._call_off()
        self._end(error)

    def _call_off(self) -> None:
        self._steps.close()  # type: ignore[attr-defined]
        if self._request is not None and not self._request.Test():  # the library's own
            self._progress.keep(self._request)  # which holds its buffers

    def _end(self, error: Exception | None = None) -> None:
        self.error, self.done = error, True
        self._progress.runs.remove(self)


class Compared:
    """A run that begins once the listeners of its operation have found that all ranks make this call. Those of one
    communicator begin in the order of their starts.
    """

    order = None

    def __init__(self, progress: PendingOperations, operation: Operation, begin: Callable[[], CollectiveRun]) -> None:
        self._progress, self._operation, self._begin, self._comm = progress, operation, begin, operation.comm
        self._run: CollectiveRun | None = None
        self.error: Exception | None = None
        progress.runs.append(self)

    @property
    def done(self) -> bool:
        """Whether it is done."""
        return self.error is not None or (self._run is not None and self._run.done)

    def test(self) -> bool:
        """Whether it is done; goes on as far as possible without waiting."""
        if self._run is None and self.error is None:
            self._progress.advance()
        return self.done if self._run is None else self._run.test()

    def wait(self) -> Any:
        """Its result, once it is done."""
        idle = 0
        while self._run is None and self.error is None:
            idle = 0 if self._progress.advance() else idle + 1
            if idle:
                give_way(idle)
        if self._run is None:
            raise self.error or AssertionError
        return self._run.wait()

    def advance(self) -> bool:
        """Begin, if all ranks agree and none of the same communicator was started before."""
        runs = self._progress.runs
        if next(run for run in runs if isinstance(run, Compared) and run._comm is self._comm) is not self:
            return False
        try:
            if not self._operation.agreed():
                return False
            runs.remove(self)
            self._run = self._begin()
        except Exception as error:
            self.abandon(error)
        return True

    def listen(self) -> None:
        """Nothing to hear: its listeners compare."""

    def unfinished(self) -> Unfinished:
        """What it is."""
        it = self._operation
        return Unfinished(told((it.comm, it.name, it.dtype, it.count, it.root)), None)

    def abandon(self, error: Exception | None = None) -> None:
        """Give it up."""
        self.error = error
        if self in self._progress.runs:
            self._progress.runs.remove(self)
        elif self._run is not None:
            self._run.abandon(error)


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

    def __init__(
        self, observer: Observer | None, what: tuple[Any, ...], begin: Callable[[], CollectiveRun] | None
    ) -> None:
        self._observer, self._what, self._begin = observer, what, begin
        self._run: CollectiveRun | None = None
        self._operation: Any = None
        self._waited = self.done = False

    @classmethod
    def of(cls, run: CollectiveRun) -> Self:
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
        self._run = None
        observer = self._observer
        if observer is None or not observer.on:
            self._run = self._begin()
            self.done = self._run.done and self._run.error is None
            return self
        self._operation = observer.begin(*self._what)
        try:
            if observer.compares:  # before any message leaves
                self._run = Compared(progress(), self._operation, self._begin)
            else:
                self._run = self._begin()
        except BaseException:
            self._operation.end()
            raise
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
            try:
                operation.wait()
            except Exception as error:
                run.abandon(error)
                raise
            try:
                result = run.wait()
            finally:
                operation.end(result)
        self.done = run.done
        return result

    def _started(self) -> CollectiveRun:
        if self._run is None:
            raise InputError("the request was not started", do="call start first")
        return self._run


class Finished(Request):
    """A request that was done at once."""

    __slots__ = ("_result",)
    error = None

    def __init__(self, result: Any) -> None:
        self._result, self.done = result, True
        self._begin = None

    def wait(self) -> Any:
        """The result."""
        return self._result

    def abandon(self, error: Exception | None = None) -> None:
        """Nothing to give up."""
