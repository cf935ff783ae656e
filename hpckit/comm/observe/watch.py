"""The watch: every rank records its calls in shared memory, and a stall report names the rank that holds up the others.

It listens to the observer of its communicator, to which all operations report (`hpckit.comm.observe.observer`).
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import _getframe
from typing import Any, Protocol

from mpi4py import MPI

from hpckit.comm.agree import ClosedTogether, broadcast_bytes, require_same
from hpckit.comm.observe.check import Checker, Comparison
from hpckit.comm.observe.observer import Listener, Operation, observer_of
from hpckit.comm.observe.sites import INNER, CallSite, Sites, communicates
from hpckit.comm.observe.table import (
    CALL,
    ENDED,
    GROUPS,
    HEAD,
    LEFT,
    MOST_GROUPS,
    RING,
    RUNNING,
    SLOTS,
    is_ending,
    place,
    place_and_root,
    set_listening,
    table_of,
)
from hpckit.errors import InputError, SetupError

MEMORY = Path("/dev/shm")
STACK_SIGNAL = signal.SIGUSR2
NO_ROOT = -1
START_WATCHER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from hpckit.comm.observe.watcher import main; main(sys.argv[1:])"
)
PACKAGE = Path(__file__).parents[2]

__communicates__ = True  # its frames are not call sites


class Enter(Protocol):
    """Begins a blocking operation: `operation` (a text, or a tuple of texts), the elements `count` of `dtype` and
    `root` must be the same on all ranks of `comm`; -1 stands for a count that may differ.

    Raises `MismatchError` or `StallError` if the watch checks.
    """

    def __call__(self, comm: MPI.Comm, operation: Hashable, dtype: Hashable, count: int, root: int = -1) -> object:
        """Record it, and compare it over the ranks if the watch checks."""


Recorder = tuple[Callable[..., CallSite], Callable[["InFlight"], None], Callable[..., None], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class InFlight:
    """A nonblocking operation between its start and its wait."""

    site: CallSite
    number: int
    count: int
    root: int
    check: Comparison | None


class Watch(ClosedTogether, Listener):
    """Watches the ranks of `comm` from now on: `with hp.Watch(hp.world(), limit=30, check=True): …`.

    A stall: a rank stays in an operation for `limit` s, and a rank that it waits for makes no progress for as long. The
    report on standard error, and `stall.json` in `folder` if given, names the late rank, its place in the source, the
    operation it is due in, and the ranks that wait and where. A rank that makes progress, reads or writes files, or
    calls `beat` is slow, but not a culprit. `end`: s after which a stalled job is ended by killing its ranks; None
    never ends it. `spare_computing`: do not end it while a late rank computes, as in a serial part of a program.
    `gives_way`: the next watch replaces this one.

    `check`: every operation first compares operation, dtype, count and root over its ranks. If they differ, each rank
    raises `MismatchError` with all call sites; an operation that can never end raises `StallError`. The check costs
    some microseconds per call and makes every operation wait for all its ranks.

    Collective over `comm`, which must hold all ranks that report to its observer: all ranks of the world, or of a mesh
    with an observer of its own. An observer has one watch at a time; `close` ends it. Raises `InputError` for a second
    watch, or for limits that are not numbers of seconds.
    """

    order = 2  # after the other listeners: it may raise, and their work at the end is still part of the operation

    def __init__(
        self,
        comm: MPI.Intracomm,
        *,
        limit: float = 60.0,
        check: bool = False,
        end: float | None = None,
        folder: Path | str | None = None,
        spare_computing: bool = False,
        gives_way: bool = False,
    ) -> None:
        self._observer = observer_of(comm)
        before = self._observer.listening(Watch)
        if before is not None and before.gives_way:
            before.close()
            before = None
        said = {"limit": repr(limit), "check": repr(check), "end": repr(end), "open": repr(before is not None)}
        said["spare_computing"] = repr(spare_computing)
        require_same(comm, said, "the options of a watch are the same on every rank")
        _check_limits(limit, end)
        if before is not None:
            raise InputError("this process is watched already", do="close the first watch before making another")
        self._comm = MPI.Intracomm(comm.Dup())
        self._rank = self._comm.rank  # MPI may be over when the process leaves
        self._node = MPI.Intracomm(comm.Split_type(MPI.COMM_TYPE_SHARED))
        self._beats = self._allowed_until = 0
        self.gives_way: bool = gives_way
        self.compares = check
        self._watcher: subprocess.Popen | None = None
        slot = self._node.rank
        self._folder = self._share_folder()
        self._held = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(self._held, fcntl.LOCK_SH)  # in use: hpckit.launch.leftovers removes what nobody locks
        if slot == 0:
            table_of(self._folder, self._node.size, create=True)
        self._node.Barrier()
        self._table = table_of(self._folder, self._node.size)
        self._words = memoryview(self._table).cast("Q")
        self._start = place(slot)
        self._sites = Sites(self._comm, self._folder / f"sites-{slot}")
        self._record, self._record_again, self._record_message, self.leave = self._recorder()
        self.enter: Enter = self._enter_checked if check else self._record
        self._stack = open(self._folder / f"stack-{slot}", "w", encoding="utf-8")  # noqa: SIM115
        # The handler that faulthandler restores at the end: a late signal must not kill the process.
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)
        faulthandler.register(STACK_SIGNAL, self._stack, all_threads=False)
        HEAD.pack_into(self._table, self._start, os.getpid(), RUNNING, comm.rank, 0, 0)
        self._checker = Checker(self._comm, self._table, self._folder) if check else None
        self._node.Barrier()
        if slot == 0:
            keep = "" if folder is None else str(Path(folder).absolute() / f"node-{comm.rank:05d}")
            self._watcher = self._start_watcher(limit, end, keep, spare_computing)
        self._closed = False
        self._observer.listen(self)
        atexit.register(self._leave)

    def _enter_checked(self, comm: MPI.Comm, operation: Hashable, dtype: Hashable, count: int, root: int = -1) -> None:
        """`enter` of a watch that checks."""
        site = self._record(comm, operation, dtype, count, root)
        self._wait_for(self._compare(site, count, root))

    def begun(self, operation: Operation) -> Any:
        """Record a nonblocking operation, and begin to compare it if the watch checks; never waits."""
        if operation.blocks:
            return None
        return self._begin(operation.comm, operation.name, operation.dtype, operation.count, operation.root)

    def agreed(self, operation: Operation, note: Any) -> bool:
        """Whether the ranks make the same call, as far as is known."""
        if note is None or note.check is None or self._checker is None:
            return True
        return self._checker.test(note.check)

    def waits(self, operation: Operation, note: Any) -> None:
        """The rank blocks from now on. An exchange with neighbors and a message wait for only some ranks of `comm`, so
        they are never compared. Raises like `enter`.
        """
        comm, name, dtype = operation.comm, operation.name, operation.dtype
        if note is not None:
            self._record_again(note)
            self._wait_for(note.check)
        elif operation.is_exchange:
            self._record(comm, name, dtype, -1, -1)
        elif operation.peer is not None:
            self._record_message(comm, name, dtype, operation.count, operation.peer)
        else:
            self.enter(comm, name, dtype, operation.count, operation.root)

    def ended(self, operation: Operation, note: Any, result: Any, waited: float | None) -> None:
        """The rank goes on."""
        if operation.waiting:
            self.leave()

    def _begin(self, comm: MPI.Comm, operation: Hashable, dtype: Hashable, count: int, root: int) -> InFlight:
        site = self._record(comm, operation, dtype, count, root)
        self.leave()
        return InFlight(site, site.group.number, count, root, self._compare(site, count, root))

    def listen_for_end(self) -> None:
        """Declare that this rank checks `is_ending` now and then and ends by itself; the watcher gives it time to."""
        set_listening(self._table)

    def is_ending(self) -> bool:
        """Whether the watcher of this node ends the job."""
        return is_ending(self._table)

    @property
    def closed(self) -> bool:
        """Whether the watch of this rank has ended."""
        return self._closed

    @property
    def calls(self) -> int:
        """The number of calls of this rank that have ended."""
        return int(self._words[(self._start + ENDED) // 8])

    def beat(self) -> None:
        """Report that this rank is alive, in long stretches without communication."""
        self._beats += 1
        self._words[self._start // 8 + 3] = self._beats

    @contextlib.contextmanager
    def allow(self, seconds: float) -> Iterator[None]:
        """Do not count this rank as a culprit for `seconds` s within the block: for compiling, or a file of many GB."""
        before, place = self._allowed_until, self._start // 8 + 4
        self._words[place] = self._allowed_until = max(before, math.ceil(time.monotonic() + seconds))
        try:
            yield
        finally:
            if not self._closed:
                self._beats += 1
                self._allowed_until = before
                self._words[place - 1], self._words[place] = self._beats, before

    def close(self) -> None:
        """End the watch. Collective; a second call does nothing."""
        if self._closed:
            return
        self._leave()
        atexit.unregister(self._leave)
        self._observer.forget(self)
        if self._checker is not None:
            self._checker.close()
        self._node.Barrier()
        if self._watcher is not None:
            self._watcher.wait()
        self._node.Free()
        self._comm.Free()

    def _recorder(self) -> Recorder:
        """Four functions: they record a call, record it again while the rank waits for it, record a message, and record
        the end of the last call.

        They are closures, since variables of this function are faster than attributes of an object.
        """
        words, sites = self._words, self._sites
        places_of, know, find = sites.places, sites.know, sites.find
        first = (self._start + GROUPS) // 8
        numbers, ended, pack = words[first : first + MOST_GROUPS], (self._start + ENDED) // 8, CALL.pack_into
        slots = [self._start + RING + 64 * slot for slot in range(SLOTS)]
        sequence, last = 0, SLOTS - 1
        inner, identity, frame_of = INNER, id, _getframe

        def record(comm: MPI.Comm, operation: Hashable, dtype: Hashable, count: int, root: int = -1) -> CallSite:
            nonlocal sequence
            frame = frame_of(1)
            while True:  # to the first frame outside the modules that communicate
                try:  # subscripts are quicker than `get`
                    places = places_of[identity(frame.f_code)]
                except KeyError:
                    places = know(frame)
                if places is not inner or frame.f_back is None:
                    break
                frame = frame.f_back
            try:
                site = places[frame.f_lasti]
                group = site.group
                if (
                    site.operation is not operation
                    or site.dtype is not dtype
                    or site.root != root
                    or group.comm is not comm
                ):  # fmt: skip
                    raise KeyError
            except KeyError:
                site = find(frame, comm, operation, dtype, root)
                group = site.group
                if places is not inner:
                    places[frame.f_lasti] = site
            group.number = number = group.number + 1
            # A digest of the operations and their order; both factors stay below 2^32.
            group.digest = digest = group.digest ^ number * site.signature
            numbers[group.index] = number
            sequence += 1
            pack(words, slots[sequence & last], sequence, site.place, number, count, digest)
            return site

        def note(site: CallSite, number: int, count: int, root: int) -> None:
            """Record a call under a given number."""
            nonlocal sequence
            sequence += 1
            pack(words, slots[sequence & last], sequence, place_and_root(site.index, root), number, count, 0)

        def record_again(begun: InFlight) -> None:
            note(begun.site, begun.number, begun.count, begun.root)

        def record_message(comm: MPI.Comm, operation: Hashable, dtype: Hashable, count: int, peer: int) -> None:
            frame = frame_of(1)
            while communicates(frame) and frame.f_back is not None:
                frame = frame.f_back
            site = find(frame, comm, operation, dtype, NO_ROOT)
            note(site, 0, count, site.group.members[peer] if peer >= 0 else peer)

        def leave() -> None:
            """Record the end of the last call."""
            words[ended] = sequence

        return record, record_again, record_message, leave

    def _compare(self, site: CallSite, count: int, root: int) -> Comparison | None:
        """Begin to compare an operation over its ranks, if the watch checks."""
        group, number = site.group, site.group.number
        if self._checker is None or len(group.members) == 1:
            return None
        told = {**site.told(), "axis": group.axis, "count": count, "root": root, "number": number}
        return self._checker.start(group.members, group.key, number, told)

    def _wait_for(self, check: Comparison | None) -> None:
        if check is None or self._checker is None:
            return
        try:
            self._checker.finish(check)
        except BaseException:
            self.leave()
            raise

    def _share_folder(self) -> Path:
        """The folder of this node's table, in memory, made by its first rank; the same path on all its ranks."""
        said = b""
        if self._node.rank == 0:
            try:
                made = tempfile.mkdtemp(prefix="hpckit-watch-", dir=MEMORY if MEMORY.is_dir() else None)
                said = json.dumps({"path": made}).encode()
            except OSError as error:
                said = json.dumps({"problem": f"{error.filename}: {error.strerror}"}).encode()
        answer = json.loads(broadcast_bytes(self._node, said, 0))
        if "problem" in answer:
            raise SetupError(
                f"the watch cannot make a folder for its records: {answer['problem']}",
                do="free space there, or set TMPDIR",
            )
        return Path(answer["path"])

    def _start_watcher(self, limit: float, end: float | None, keep: str, spare: bool) -> subprocess.Popen:
        """Start the process that reads the table, in a session of its own, so that it outlives the job."""
        words = [self._folder, self._node.size, limit, end or 0.0, keep, int(spare)]
        return subprocess.Popen(
            [sys.executable, "-ISc", START_WATCHER, str(PACKAGE.parent), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(self._held,),
        )

    def _leave(self) -> None:
        """Record that this rank has left. Its table stays until the watcher removes it."""
        if self._closed:
            return
        self._closed = True
        HEAD.pack_into(self._table, self._start, os.getpid(), LEFT, self._rank, self._beats, 0)
        faulthandler.unregister(STACK_SIGNAL)
        self._sites.close()
        self._stack.close()
        os.close(self._held)
        if self._watcher is not None and self._watcher.stdin is not None:
            with contextlib.suppress(OSError):
                self._watcher.stdin.close()


def _check_limits(limit: float, end: float | None) -> None:
    for name, value in (("limit", limit), ("end", end)):
        if value is not None and not (isinstance(value, int | float) and 0.01 <= value < 1e9):
            raise InputError(f"the {name} of a watch is a number of seconds, 0.01 or more, not {value!r}")
    if end is not None and end < limit:
        raise InputError(f"a watch cannot end a stall after {end:g} s that it reports after {limit:g} s")
