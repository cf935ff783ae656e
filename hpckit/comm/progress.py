"""What this process has begun and not finished: it goes on while the rank waits, and is settled before MPI ends.

Memory that messages enter must outlive them. A collective under way is kept alive here until it is done; other objects
(`Begun`) keep themselves alive. When the program ends, or calls MPI.Finalize, what nobody has waited for is completed
if all ranks have begun it, else its receives are cancelled, and a line names the call.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from sys import _getframe
from time import perf_counter
from types import CodeType
from typing import Any, NamedTuple, Protocol

from mpi4py import MPI

__communicates__ = True  # its frames are not call sites

GRACE = 1.0  # s for which what was not waited for goes on at the end of the program
CANCELLED = 0.05  # s for which a receive may still arrive once it is cancelled
LISTEN = 1e-3  # s between two looks, of a rank that waits, for what other ranks say about their calls
QUICK_LOOKS, NAP = 200, 2e-5  # looks in vain before a waiting rank sleeps, and for how long, s
MOST_TOLD = 8  # ranks that tell what they did not wait for

Site = tuple[CodeType, int]  # the code and the line of a call


def give_way(looks: int) -> None:
    """Let other processes have the core, after so many looks in vain.

    Where processes outnumber cores, a core that is only yielded comes back at once, and the rank that is waited for
    does not run: the waiting one has to sleep.
    """
    if looks > QUICK_LOOKS:
        time.sleep(NAP)
    else:
        os.sched_yield()


class UnderWay(Protocol):
    """An operation under way that goes on when it is asked to. order: of the calls of its axis, if it has one."""

    order: Any

    def advance(self) -> bool:
        """Go on as far as possible without waiting; whether anything moved."""

    def listen(self) -> None:
        """The rank waits in vain: hear what the others say about their calls."""

    def unfinished(self) -> Unfinished:
        """What it is."""

    def abandon(self, error: Exception | None = None) -> None:
        """Cancel it, or keep its memory alive; `error` is what a wait for it raises."""


class Unfinished(NamedTuple):
    """An operation that was begun and not waited for: its name, its call, and its requests."""

    what: str
    site: Site | None
    requests: Iterable[MPI.Request] = ()

    def text(self) -> str:
        """The operation and the place of its call."""
        where = f" at {place(self.site)}" if self.site else ""
        return f"{self.what}, begun{where}, was never waited for"


def call_site() -> Site:
    """The line that calls: of the first frame outside the modules that communicate."""
    frame = _getframe(1)
    while "__communicates__" in frame.f_globals and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


def place(site: Site) -> str:
    """`file:line (function)`."""
    code, line = site
    return f"{os.path.basename(code.co_filename)}:{line} ({code.co_name})"


def told(what: tuple[Any, ...]) -> str:
    """An operation in words, from what an observer is told of it: communicator, name, dtype, elements, root."""
    comm, name, dtype, count, root = (*what, *("", -1, -1)[len(what) - 2 :])[:5]
    words = " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
    amount = f" of {count} {dtype}" if count >= 0 else f" of {dtype}" if str(dtype) else ""
    where = "" if comm == MPI.COMM_NULL else f" on {comm.Get_name() or 'a communicator'}"
    return f"{words}{amount}{f' with root {root}' if root >= 0 else ''}{where}"


class Begun:
    """An object with an operation that may be under way when it is dropped, or when the program ends. It calls
    `_outlive` when it is made.
    """

    def unfinished(self) -> Unfinished | None:
        """What is under way."""
        raise NotImplementedError

    def _outlive(self) -> None:
        """Have the end of the program look at it."""
        progress().begun.add(self)

    def __del__(self) -> None:
        try:  # not `suppress`: names of modules, that one too, are None when Python is about to end
            if self.unfinished() is not None:
                progress().keep(self)  # MPI still reads and writes its memory
        except (AttributeError, TypeError):  # it was never made, or Python ends
            return


class PendingOperations:
    """All that this rank has started and not finished, in the order of starting. There is one a process, as of MPI: a
    rank that waits for one collective must go on with the others, which other ranks may wait for first.
    """

    def __init__(self) -> None:
        self.runs: list[UnderWay] = []
        self.begun: weakref.WeakSet[Any] = weakref.WeakSet()
        self._kept: list[Any] = []
        self._freeing: list[list[Any]] = []  # steps that free something, and the request that each waits for
        self._heard = 0.0  # when the rank last listened
        atexit.register(self.settle)

    def advance(self) -> bool:
        """Let all that is under way go on; whether anything moved."""
        return any([run.advance() for run in tuple(self.runs)])

    def listen(self) -> None:
        """To be called now and then by a rank that waits: it hears of calls that differ from its own."""
        now = perf_counter()
        if now - self._heard > LISTEN:
            self._heard = now
            oldest: dict[int, Any] = {}  # of each axis
            for run in self.runs:
                if run.order is not None:
                    oldest.setdefault(id(run.order), run)
            for run in oldest.values():
                run.listen()

    def free(self, steps: Iterator[MPI.Request] | None = None) -> None:
        """Go on with all steps that free something, and with these; never waits for another rank."""
        if steps is not None:
            self._freeing.append([steps, MPI.REQUEST_NULL])
        for each in self._freeing:
            while each[1] is not None and each[1].Test():
                each[1] = next(each[0], None)
        self._freeing = [each for each in self._freeing if each[1] is not None]

    def keep(self, memory: Any) -> None:
        """Keep something alive that MPI may still use, until the process ends."""
        self._kept.append(memory)

    def settle(self) -> None:
        """Complete or cancel what nobody has waited for, and tell it. MPI calls it when it ends."""
        if MPI.Is_finalized():
            return
        alive = {id(each): each for each in (*self.begun, *self._kept) if isinstance(each, Begun)}
        begun = [(each, found) for each in alive.values() if (found := each.unfinished()) is not None]
        left = [run.unfinished() for run in self.runs] + [found for _, found in begun]
        if not left:
            return
        failed = getattr(sys, "last_value", None) is not None  # the traceback says more
        until = perf_counter() + (0.0 if failed else GRACE)
        while self.runs and perf_counter() < until:
            if not self.advance():
                time.sleep(1e-4)
        for run in tuple(self.runs):
            run.abandon()
        for each, found in begun:
            self.keep(each)
            call_off(found.requests, self, max(0.0, until - perf_counter()))
        if not failed and MPI.COMM_WORLD.rank < MOST_TOLD:
            for text in dict.fromkeys(found.text() for found in left):
                print(f"hpckit: rank {MPI.COMM_WORLD.rank}: {text}", file=sys.stderr, flush=True)


def call_off(requests: Iterable[MPI.Request], progress: PendingOperations, patience: float = 0.0) -> None:
    """End requests: they get `patience` s, then receives are cancelled. Sends cannot be: they are kept."""
    left = [each for each in requests if each != MPI.REQUEST_NULL]
    if not left:
        return
    until = perf_counter() + patience
    while left and (left := [each for each in left if not each.Test()]) and perf_counter() < until:
        time.sleep(1e-4)
    for each in left:
        with suppress(MPI.Exception):  # a send
            each.Cancel()
    until = perf_counter() + CANCELLED * bool(left)
    while left and (left := [each for each in left if not each.Test()]) and perf_counter() < until:
        time.sleep(1e-4)
    if left:
        progress.keep(left)


@functools.cache
def _attribute() -> int:
    return MPI.Comm.Create_keyval(delete_fn=lambda comm, key, progress: progress.settle())


def progress() -> PendingOperations:
    """The progress of this process; it is kept on MPI's communicator of it, whose attributes go first when MPI ends."""
    found: Any = MPI.COMM_SELF.Get_attr(_attribute())
    if found is None:
        found = PendingOperations()
        MPI.COMM_SELF.Set_attr(_attribute(), found)
    return found
