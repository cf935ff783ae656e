"""Collectives in shared memory: started now, run in one compiled call once all ranks are there.

A rank that waited inside the compiled call would leave its messages to others unattended, and a rank that needs them to
come here would wait for ever. So the call is attempted: it says that this rank is there, looks for the others a while,
and returns if some are missing; between attempts the rank looks after its messages.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from hpckit.collectives import work
from hpckit.collectives.buffers import Buffer
from hpckit.collectives.choice import Choice
from hpckit.collectives.work import Work, flying
from hpckit.comm.device import HOST
from hpckit.comm.observe.observer import observer_of
from hpckit.comm.shared.bound import Call
from hpckit.comm.shared.group import NodeGroup
from hpckit.kernels.device_array import address
from hpckit.kernels.shared_memory import constants as c

__communicates__ = True  # its frames are not call sites

# Attempts, of some microseconds each, before MPI is looked after: the others are mostly just behind.
TRIES = 4
# Bytes of a buffer that is kept alive for the next call.
SMALL = 64 * 1024


def bind(group: NodeGroup, choice: Choice, given: Buffer, out: np.ndarray | None = None, **options: Any) -> Call:
    """A collective in shared memory as a call, which does not keep its arrays alive. A broadcast moves bytes, whatever
    the ranks take them for.
    """
    buffer = HOST.borrowed(given.array)
    if choice.operation == "broadcast":
        buffer = buffer.view(np.uint8)
    if out is not None:
        options["out"] = HOST.borrowed(out)
    return group.bind(choice.operation, buffer, algorithm=choice.algorithm, **options)


def sent(given: Buffer, out: np.ndarray, begin: int) -> Buffer:
    """What is sent: a copy of it where `out` lies over it and not, as one of them may, in the place of this rank's
    block of the other, which begins at an element.
    """
    array = given.array
    long, short = (out, array) if out.size > array.size else (array, out)
    if not np.may_share_memory(array, out) or address(long) + begin * long.itemsize == address(short):
        return given
    return Buffer(array.copy(), "the buffer")


class Bound:
    """A call, and what it is kept by for the next time its buffers come: see `hpckit.collectives.kept`.

    axis: what the caller gave, kept alive, since its identity is in the key; how: what else tells calls apart that have
    the same buffer, axis and algorithm. Small buffers are kept alive, others are known weakly; none of them can be
    resized in place meanwhile: NumPy refuses.
    """

    __slots__ = (
        "_finished", "_known", "_out", "_own", "_result", "algorithm", "attempt", "axis", "buffer", "call", "group",
        "how", "is_small", "observer", "small_dtype",
    )  # fmt: skip

    def __init__(self, call: Call) -> None:
        self.call, self.group = call, call.group
        self.attempt = call.attempts()

    def known_by(
        self, buffer: np.ndarray, out: np.ndarray | None, axis: Any, how: Any, algorithm: str, own: slice | None = None
    ) -> Self:
        """Note whose call it is. own: the part of the flat buffer that is the result, where there is no `out`."""
        self.observer = observer_of(getattr(axis, "comm", axis))
        self.axis, self.how, self.algorithm, self._own = axis, how, algorithm, own
        self._known = _what_may_change(buffer, out)
        self.buffer: Callable[[], Any] = weakref.ref(buffer)
        self._out: Callable[[], Any] = _nothing if out is None else weakref.ref(out)
        self.is_small = _is_small(buffer) and (out is None or _is_small(out))
        self.small_dtype = buffer.dtype if self.is_small else None
        if self.is_small:
            self._result = self._result_of(buffer, out)
            self._finished = Finished(self._result, (buffer, out))
        return self

    def fits(self, buffer: np.ndarray, out: np.ndarray | None) -> bool:
        """Whether arrays of these identities are those that were bound, and still what they were."""
        return self.buffer() is buffer and self._out() is out and self._known == _what_may_change(buffer, out)

    def start(self, result: Any, buffer: Any) -> Work:
        """A collective that is started now, with this result; `buffer` lives until it is done."""
        return NodeWork(self, result, buffer)

    def start_small(self) -> Work:
        """The same, attempted at once: the others mostly are there, and it takes no longer than making a work."""
        if not flying:
            status = self.attempt()
            if status == 0:
                return self._finished
            self.call.came(status)
        return NodeWork(self, self._result, None)

    def start_again(self, buffer: Any, out: Any) -> Work:
        """A kept call, started with the buffers that it was bound to."""
        return self.start_small() if self.is_small else NodeWork(self, self._result_of(buffer, out), buffer)

    def _result_of(self, buffer: Any, out: Any) -> Any:
        if out is not None:
            return out
        return buffer if self._own is None else buffer.reshape(-1)[self._own]


def _what_may_change(buffer: np.ndarray, out: np.ndarray | None) -> tuple:
    """What an array may be given while it is the same array; of that what a call is bound to."""
    if out is None:
        return buffer.dtype, buffer.flags.writeable, buffer.strides
    return buffer.dtype, buffer.strides, out.dtype, out.flags.writeable, out.strides


def _is_small(array: np.ndarray) -> bool:
    """Whether an array may be kept alive: a small one that keeps no large one alive."""
    base = array.base
    return array.nbytes <= SMALL and (not isinstance(base, np.ndarray) or base.nbytes <= SMALL)


def _nothing() -> None:
    """The array that is not there."""


class Finished(Work):
    """A work that is done; `array` is its result. alive: what must live as long."""

    __slots__ = ("_alive", "_array")

    def __init__(self, array: Any, alive: Any) -> None:
        self._array, self._alive, self.done = array, alive, True

    def wait(self) -> Any:
        """Its result."""
        return self._array


class NodeWork(Work):
    """A collective on the ranks of a node; `array` is its result, `buffer` lives as long. Made by `Bound`."""

    __slots__ = ("_array", "_bound", "_buffer")

    def __init__(self, bound: Bound, array: Any, buffer: Any) -> None:
        self._bound = bound
        self._array, self._buffer = array, buffer
        self.done = False
        flying.append(self)

    def wait(self) -> Any:
        """Its result, once it is done."""
        tries = 0
        while not self.done:
            moved = False
            if len(flying) == 1:
                status = self._bound.attempt()
                if status != c.NOT_YET:
                    self.done = True
                    flying.clear()
                    self._bound.call.came(status)
                    break
            else:
                moved = work.advance_all()
            if not moved:
                tries += 1
                if tries > TRIES:  # let MPI and other processes go on
                    MPI.COMM_WORLD.Iprobe()
                    os.sched_yield()
        return self._array

    def advance(self) -> bool:
        """Run it if all ranks are there, and nothing that was started before it waits for the same ranks."""
        group = self._bound.group
        if next(each for each in flying if isinstance(each, NodeWork) and each._bound.group is group) is not self:
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
