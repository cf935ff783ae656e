"""Collectives in shared memory: started now, run in one compiled call once all ranks are there.

A rank that waited inside the compiled call would leave its messages to others unattended, and its part in collectives
of other groups, and a rank that needs them to come here would wait for ever. So the call is attempted: it says that the
rank is there, looks for the others a while, and returns if some are missing, also in the midst of it; between attempts
the rank looks after all else.

A call is made for an operation, a dtype and a size, and takes all such buffers. An axis keeps some of its calls: to
make one takes longer than to run a small one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives.request import CollectiveRun, Finished, MessageRun, Request
from hpckit.comm.call_order import CallOrder
from hpckit.comm.observe.observer import Observer
from hpckit.comm.progress import PendingOperations, Unfinished, call_site, give_way, told
from hpckit.comm.shared.calls import GroupCall, prepare
from hpckit.comm.shared.compiled import constants as c
from hpckit.comm.shared.group import NodeGroup
from hpckit.kernels.device_array import address

__communicates__ = True  # its frames are not call sites

# Attempts, of some microseconds each, before MPI is looked after: the others are mostly just behind.
TRIES = 4
# Calls of an axis that are kept; then the oldest goes.
MOST = 64
# Bytes of a buffer that may be kept alive until the next call.
SMALL = 64 * 1024


class PreparedCall:
    """A call, its report to observers, and its last request, which is used again for the same small buffers.

    what: the report to observers. own: the part of the flat buffer that is the result, where there is no array that
    receives. copies: the buffer is copied, since what is received lies over it.
    """

    __slots__ = ("_last", "call", "copies", "observer", "order", "own", "progress", "run", "small", "what")

    def __init__(
        self,
        call: GroupCall,
        observer: Observer,
        progress: PendingOperations,
        order: CallOrder,
        what: tuple,
        own: slice | None,
        copies: bool,
    ) -> None:
        self.order = order
        self.call, self.run, self.observer, self.progress = call, call.run, observer, progress
        self.what, self.own, self.copies = what, own, copies
        sizes = call.record[c.SENT + c.BYTES], call.record[c.TAKEN + c.BYTES]
        self.small = max(sizes) <= SMALL
        self._last: tuple[Any, Any, Finished | None] = (None, None, None)

    def result_of(self, buffer: Any, out: Any) -> Any:
        """The array that holds the result."""
        if out is not None:
            return out
        return buffer if self.own is None else buffer.reshape(-1)[self.own]

    def request(self, buffer: Any, out: Any) -> Request:
        """A request for some buffers, to be started."""
        return Request(self.observer, self.what, lambda: self.begin(buffer, out))

    def begin(self, buffer: Any, out: Any) -> CollectiveRun:
        """Start it. What is small is attempted at once: the others mostly are there. Not where somebody listens: a
        watch may compare what the ranks called, before any data moves.
        """
        if self.copies:
            buffer = buffer.copy()
        if self.small and not self.progress.runs and not self.observer.on:
            status = self.run(buffer, out)
            if status == c.GOOD:
                return self.finished(buffer, out)
            self.call.came(status)
        elif status := self.call.fits(buffer, out):
            self.call.came(status)  # raises now, not on this rank alone in `wait`
        return NodeRun(self, buffer, out)

    def finished(self, buffer: Any, out: Any) -> Finished:
        """A request that is done."""
        last, last_out, request = self._last
        if request is not None and last is buffer and last_out is out:
            return request
        request = Finished(self.result_of(buffer, out))
        if _may_be_kept(buffer) and (out is None or _may_be_kept(out)):
            self._last = (buffer, out, request)
        return request


def _may_be_kept(array: np.ndarray) -> bool:
    """Whether an array is small and keeps no large one alive."""
    base = array.base
    return array.nbytes <= SMALL and (not isinstance(base, np.ndarray) or base.nbytes <= SMALL)


class Calls:
    """The calls that an axis keeps, by what is asked for: names, dtypes and sizes. There are several for one such key
    where buffers are symmetric.
    """

    def __init__(
        self, group: NodeGroup | None, observer: Observer, progress: PendingOperations, order: CallOrder
    ) -> None:
        self._group, self._observer, self._order = group, observer, order
        self._progress, self._runs = progress, progress.runs
        self._latest: dict[Hashable, PreparedCall] = {}  # by the names alone: looked up in half the time
        self._kept: dict[Hashable, list[PreparedCall]] = {}

    def start(self, how: Hashable, buffer: Any, out: Any) -> Request | None:
        """Start a collective by a call that is kept, None where none takes the buffers. Small ones are attempted at
        once: the others mostly are there.
        """
        prepared = self._latest.get(how)
        if prepared is None:
            return None
        if self._runs or not prepared.small or (status := prepared.run(buffer, out)) == c.UNFIT:
            prepared = self.find(how, buffer, out)
            if prepared is None:
                return None
            if self._runs or not prepared.small:
                return Request.of(NodeRun(prepared, buffer, out))
            status = prepared.run(buffer, out)
        if status == c.GOOD:
            return prepared.finished(buffer, out)
        prepared.call.came(status)
        return Request.of(NodeRun(prepared, buffer, out))

    def find(self, how: Hashable | None, buffer: Any, out: Any) -> PreparedCall | None:
        """The call that is kept for such buffers."""
        if how is not None and isinstance(buffer, np.ndarray) and (out is None or isinstance(out, np.ndarray)):
            for prepared in self._kept.get(_key(how, buffer, out), ()):
                if prepared.call.fits(buffer, out) == c.GOOD:
                    self._latest[how] = prepared
                    return prepared
        return None

    def make(
        self,
        operation: str,
        algorithm: str,
        what: tuple,
        how: Hashable | None,
        buffer: Any,
        out: Any,
        own: slice | None = None,
        **options: Any,
    ) -> PreparedCall:
        """A call for such buffers, of an algorithm in shared memory. It is kept unless `how` is None. own: the part of
        the flat buffer that is the result where there is no `out`; options: as of `prepare`.
        """
        assert self._group is not None
        copies = out is not None and _lies_over(self._group, operation, buffer, out, options.get("counts"))
        source = buffer.copy() if copies else buffer
        call = prepare(self._group, operation, source, out=out, algorithm=algorithm, **options)
        made = PreparedCall(call, self._observer, self._progress, self._order, what, own, copies)
        if how is not None and not copies:
            self._keep(how, made, buffer, out)
        return made

    def _keep(self, how: Hashable, made: PreparedCall, buffer: Any, out: Any) -> None:
        if len(self._kept) >= MOST:
            gone = self._kept.pop(next(iter(self._kept)))
            self._latest = {name: one for name, one in self._latest.items() if one not in gone}
        same = self._kept.setdefault(_key(how, buffer, out), [])
        same.insert(0, made)
        del same[MOST:]
        self._latest[how] = made

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))


def _key(how: Hashable, buffer: np.ndarray, out: np.ndarray | None) -> Hashable:
    """What tells calls apart: names, dtypes and sizes."""
    return how, buffer.dtype, buffer.size, None if out is None else (out.dtype, out.size)


def _lies_over(group: NodeGroup, operation: str, buffer: np.ndarray, out: np.ndarray, counts: Any) -> bool:
    """Whether `out` lies over what is sent, and not in the place of this rank's block of the other, as it may."""
    if not np.may_share_memory(buffer, out):
        return False
    long, short = (out, buffer) if operation == "all_gather" else (buffer, out)
    begin = int(np.sum(counts[: group.rank]))
    return address(long) + begin * long.itemsize != address(short)


def key_of(counts: Any) -> tuple | None:
    """What stands for the sizes of blocks: the same for the same numbers."""
    if counts is None:
        return None
    sizes = np.asarray(counts)
    return sizes.dtype.char, sizes.shape, sizes.tobytes()


def entered(group: NodeGroup | None, progress: PendingOperations) -> int:
    """How many collectives of a group in shared memory this rank has begun."""
    if group is None:
        return 0
    waiting = [run for run in progress.runs if isinstance(run, NodeRun) and run._prepared.call.group is group]
    return int(group.record[c.SEQUENCE]) + len(waiting) - bool(group.record[c.AT])  # in the midst of one: both count it


class NodeRun:
    """A run of a call on two arrays, which live as long. Those of the same ranks run in the order of their starts."""

    __slots__ = ("_arrays", "_call", "_instead", "_prepared", "_site", "done", "error", "order")

    def __init__(self, prepared: PreparedCall, buffer: Any, out: Any) -> None:
        self._prepared, self._arrays, self.order = prepared, (buffer, out), prepared.order
        self._site = call_site()
        self.done = False
        self.error: Exception | None = None
        self._instead: MessageRun | None = None  # the comparison with ranks that make another call
        prepared.progress.runs.append(self)
        self._call = prepared.order.in_memory(prepared.what, self._site)

    def test(self) -> bool:
        """Whether it is done; lets it and all others go on as far as they can without waiting."""
        if not self.done:
            self._prepared.progress.advance()
        return self.done or (self._instead is not None and self._instead.done)

    def wait(self) -> Any:
        """Its result, once it is done."""
        tries, progress = 0, self._prepared.progress
        while not self.done:
            if self._instead is not None:
                return self._instead.wait()
            if not (self.advance() if len(progress.runs) == 1 else progress.advance()):
                tries += 1
                if tries > TRIES:  # let MPI and other processes go on
                    MPI.COMM_WORLD.Iprobe()
                    give_way(tries)
                    progress.listen()
        if self.error is not None:
            raise self.error
        return self._prepared.result_of(*self._arrays)

    def advance(self) -> bool:
        """Run it if all ranks are there, and nothing that was started before it waits for the same ranks."""
        call, runs = self._prepared.call, self._prepared.progress.runs
        if not self._first():
            return False
        try:
            self.done = call.came(call.run(*self._arrays))
        except Exception as error:  # raised where the program waits for this run
            self.error, self.done = error, True
        if self.done:
            runs.remove(self)
        return self.done

    def listen(self) -> None:
        """The rank waits in vain: hear whether others make another call, and compare with them then."""
        if self._first() and self._prepared.call.group.record[c.AT]:
            return  # in the midst of it: all have made this call
        comparison = self.order.listen(self._call)
        if comparison is not None:
            self._leave()
            self._instead = MessageRun(self._prepared.progress, comparison, lambda: None, self._prepared.what)

    def unfinished(self) -> Unfinished:
        """What it is."""
        return Unfinished(told(self._prepared.what), self._site)

    def abandon(self, error: Exception | None = None) -> None:
        """Take back that this rank has come to it."""
        if self._instead is not None:
            self._instead.abandon(error)
        elif not self.done:
            self._leave()
            self.error, self.done = error, True

    def _first(self) -> bool:
        """Whether no other run waits for the same ranks before it."""
        runs, group = self._prepared.progress.runs, self._prepared.call.group
        return next(run for run in runs if isinstance(run, NodeRun) and run._prepared.call.group is group) is self

    def _leave(self) -> None:
        if self._first():
            self._prepared.call.group.step_back()
        self._prepared.progress.runs.remove(self)
