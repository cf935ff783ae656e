"""Whether all ranks of an axis make the same collective calls: compared at the first use of each, before it sends.

A call by messages that is new here (another operation, dtype, size, root, algorithm, or other blocks) takes part in a
reduction of its digest over the ranks before its messages leave; a call that was compared before sends at once. As long
as all ranks make the same calls, they agree on which are new. When they do not, some rank waits in vain, and says so in
a note: which call it is in, and how many calls by messages and in shared memory it began before. A rank whose own
calls contradict the note joins the reduction, which then fails on all ranks: each raises `MismatchError`.

Tags of messages come from the digest, too, so a call never takes the messages of another one. The library's own
algorithms have no tags: each such call has a communicator of its own (`Lanes`). Not found without a watch that checks:
ranks that wait outside of hpckit, or never again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from hashlib import blake2b
from time import perf_counter
from typing import Any, NamedTuple, NoReturn

import numpy as np
from mpi4py import MPI

from hpckit.comm.observe.diagnosis import ranks_text
from hpckit.comm.progress import Site, place, progress, told
from hpckit.errors import MismatchError

__communicates__ = True  # its frames are not call sites

NOTE, TOLD_TAG = 1, 2  # the tags of notes, and of what ranks tell once they differ
# s that a rank waits in a call before it writes a note; twice as long after each, where ranks often are late.
LEAST_IDLE, LONGEST_IDLE = 0.1, 8.0
REMEMBERED = 256  # calls
MOST_SEEN = 4096  # calls that were compared; all ranks forget them at the same call
MOST_LANES = 8  # calls of the library in turn that are not compared again
TEXT = 256  # bytes of a call in words
TOLD = np.dtype([("number", np.int64), ("past", np.int64), ("words", f"S{TEXT}")])
MESSAGES, MEMORY = 0, 1  # how a call runs


class OrderedCall(NamedTuple):
    """A call of this rank: by messages (number `number` of those) or in shared memory (number `entered`), after
    `entered` or `number` calls of the other kind. compared: reductions before its own.
    """

    way: int
    number: int
    entered: int
    compared: int
    digest: int
    what: tuple[Any, ...] = ()
    site: Site | None = None

    def words(self) -> str:
        """The call and its place."""
        return told(self.what) + (f" at {place(self.site)}" if self.site else "")


class CallOrder:
    """The calls of this rank on an axis. Its messages go by a communicator of its own. Collective to make.

    entered: how many calls in shared memory the rank has begun. lost: whether the ranks made other calls before the one
    at which they were last found to differ, too. renew: takes a duplicate of the communicator after a
    mismatch, when messages of the calls that differ are still on their way on the old one.
    """

    def __init__(self, comm: MPI.Intracomm, entered: Callable[[], int], renew: Callable[[MPI.Intracomm], None]) -> None:
        self._progress = progress()
        self._progress.free()
        self._comm, self._entered, self._renew = comm.Dup(), entered, renew
        self._rank, self._size = self._comm.rank, self._comm.size
        self._digests: dict[Hashable, int] = {}
        self._calls: deque[OrderedCall] = deque(maxlen=REMEMBERED)
        self._turns: deque[object] = deque()  # calls that have not sent their first messages
        self._notes: list[np.ndarray] = []  # of calls that this rank has not come to
        self._sent: list[tuple[MPI.Request, np.ndarray]] = []
        self._waiting: OrderedCall | None = None
        self._told: OrderedCall | None = None  # of which all ranks have a note
        self._due, self._patience = 0.0, LEAST_IDLE  # when this rank writes a note; s that it waits before
        self._compared = self.number = 0
        self.lost = self._failing = False
        self._written, self._heard = np.zeros(self._size, np.int64), 0  # notes to each rank; notes of all ranks

    def free(self) -> None:
        """Free the communicator once its last notes are there: MPI gives its number to the next communicator, which
        would take them for messages of its own.
        """
        if self._comm != MPI.COMM_NULL and not MPI.Is_finalized():
            self._progress.free(self._last_notes())

    def _last_notes(self) -> Iterator[MPI.Request]:
        """Take the notes that nobody has heard; then the communicator goes."""
        if self._size > 1:
            written = np.array([self._written.sum()])
            yield self._comm.Iallreduce(MPI.IN_PLACE, written)
            if written[0]:
                coming = np.zeros(1, np.int64)
                yield self._comm.Ireduce_scatter_block(self._written, coming)
                for _ in range(self._heard, int(coming[0])):
                    note = np.empty(5, np.int64)
                    yield self._comm.Irecv(note, MPI.ANY_SOURCE, NOTE)
                for request, _ in self._sent:
                    yield request
        self._comm.Free()

    def digest(self, key: Hashable) -> int:
        """A number of a call's key, the same on all ranks."""
        known = self._digests.get(key)
        return _digest(key) if known is None else known

    def begin(
        self, key: Hashable, what: tuple, site: Site, steps: Iterator[Any], anew: bool, lane: Lane | None = None
    ) -> tuple[OrderedCall, Iterator[Any]]:
        """A call by messages, and its steps, after those of its comparison if it is new, or if it is to be compared
        `anew`. key: what must be the same on all ranks, of plain values. lane: of a call of the library.
        """
        anew = anew or (lane is not None and lane.new)
        self.number += 1
        known = None if anew else self._digests.get(key)
        digest = self.digest(key)
        call = OrderedCall(MESSAGES, self.number, self._entered(), self._compared, digest, what, site)
        self._calls.append(call)
        if self.number % REMEMBERED == 0:  # of a rank that never waits
            self._hear()
        if self._size == 1 or (known is not None and not self._turns):
            return call, steps
        if known is None:
            if len(self._digests) >= MOST_SEEN:
                self._digests.clear()
            self._digests[key] = digest
        return call, self._in_turn(self._comparison(call) if known is None else None, steps, lane)

    def in_memory(self, what: tuple, site: Site) -> OrderedCall:
        """A call in shared memory that has been begun and waits for the others."""
        return OrderedCall(MEMORY, self.number, self._entered(), self._compared, 0, what, site)

    def _in_turn(
        self, comparison: Iterator[Any] | None, steps: Iterator[Any], lane: Lane | None = None
    ) -> Iterator[Any]:
        """The steps after the comparison. Calls send in the order in which they were begun: the MPI library is called
        in one order on all ranks.
        """
        turn = _Turn(self._turns)
        return self._started(turn, comparison, steps, lane)

    def _started(
        self, turn: _Turn, comparison: Iterator[Any] | None, steps: Iterator[Any], lane: Lane | None
    ) -> Iterator[Any]:
        try:
            if comparison is not None:
                yield from comparison
            yield turn
            if lane is not None and not lane.own:
                lane.own = True
                lane.comm, made = lane.comm.Idup()
                yield made
            first = next(steps, None)
        finally:
            turn.leave()
        if first is not None:
            yield first
            yield from steps

    def _comparison(self, call: OrderedCall) -> Iterator[Any]:
        """Compare a call over the ranks: the reduction begins now. Raises `MismatchError` on every rank."""
        said = np.array([call.digest, -call.digest], np.int64)
        self._compared += 1
        return self._compare(call, said, self._comm.Iallreduce(MPI.IN_PLACE, said, MPI.MIN))

    def _compare(self, call: OrderedCall, said: np.ndarray, request: MPI.Request) -> Iterator[Any]:
        yield request
        if said[0] == -said[1]:
            return
        while self._failing:  # by another comparison under way, which ends this one
            yield _Never
        self._failing = True
        try:
            every = np.empty(self._size, TOLD)
            yield from self._tell_all(call, every)
            self._start_anew(every)
        finally:
            self._failing = False
        _refuse([words.decode(errors="replace") for words in every["words"].tolist()])

    def _tell_all(self, call: OrderedCall, every: np.ndarray) -> Iterator[Any]:
        """The calls of all ranks, by messages from and to rank 0: ranks may have begun unequal numbers of reductions on
        the communicator, so none of the library's collectives would pair.
        """
        comm, own = self._comm, np.zeros(1, TOLD)
        past = [(each.number, each.digest) for each in self._calls if each.number < call.number]
        own["number"], own["past"], own["words"] = self.number, _digest(tuple(past)), call.words().encode()[-TEXT:]
        if self._rank:
            yield comm.Isend(own.view(np.uint8), 0, TOLD_TAG)
            yield comm.Irecv(every.view(np.uint8), 0, TOLD_TAG)
            return
        every[0] = own[0]
        others = range(1, self._size)
        yield from [comm.Irecv(every[rank : rank + 1].view(np.uint8), rank, TOLD_TAG) for rank in others]
        yield from [comm.Isend(every.view(np.uint8), rank, TOLD_TAG) for rank in others]

    def _start_anew(self, every: np.ndarray) -> None:
        """After a mismatch: other communicators, and the same numbers on all ranks. The old one is never freed: what is
        on its way there would come to the next one of its number.
        """
        self._progress.keep([self._comm, self._sent])
        group = self._comm.Get_group()
        self._renew(self._comm.Create_group(group))
        self._comm = self._comm.Create_group(group)
        group.Free()
        self.lost = bool((every["past"] != every["past"][0]).any())
        self.number = int(every["number"].max())
        self._compared, self._patience = 0, LEAST_IDLE
        self._told = self._waiting = None
        self._digests.clear()  # on all ranks: some have not seen what others have
        self._calls.clear()
        self._notes, self._sent, self._heard = [], [], 0
        self._written[:] = 0

    def listen(self, call: OrderedCall) -> Iterator[Any] | None:
        """The rank waits in this call, and not for the first time: its own note, and those of others. Returns the steps
        of a comparison that takes the place of the call, where another rank has made another one.
        """
        if self._size == 1:
            return None
        now = perf_counter()
        if self._waiting is not call:
            self._waiting, self._due = call, now + self._patience
        elif now > self._due:
            self._due, self._patience = now + LONGEST_IDLE, min(2 * self._patience, LONGEST_IDLE)
            self._tell(call, [(self._rank + 1) % self._size])
        self._hear()
        for note in tuple(self._notes):
            other = OrderedCall(*note.tolist())
            judged = self._contradicts(other)
            if judged is None:
                continue
            self._notes = [each for each in self._notes if each is not note]
            if not judged or call.compared != other.compared:
                continue
            if self._told is not call:
                self._told = call
                self._tell(call, [rank for rank in range(self._size) if rank != self._rank])
            if self._compared == call.compared:
                return self._comparison(call._replace(digest=_digest((call.digest, self._rank, "differs"))))
        return None

    def _tell(self, call: OrderedCall, ranks: list[int]) -> None:
        note = np.array(call[:5], np.int64)
        self._sent = [each for each in self._sent if not each[0].Test()]
        self._sent += [(self._comm.Isend(note, rank, NOTE), note) for rank in ranks]
        np.add.at(self._written, ranks, 1)

    def _hear(self) -> None:
        """Take the notes of others that have come."""
        while self._comm.Iprobe(MPI.ANY_SOURCE, NOTE):
            note = np.empty(5, np.int64)
            self._comm.Recv(note, MPI.ANY_SOURCE, NOTE)
            self._heard += 1
            self._notes.append(note)

    def _contradicts(self, other: OrderedCall) -> bool | None:
        """Whether the calls of this rank cannot go with that of another; None where this rank has not come to it."""
        entered = self._entered()
        if other.way == MESSAGES:
            if self.number < other.number:
                return True if entered > other.entered else None
            own = self._call(other.number)
            return own is not None and (own.entered, own.digest) != (other.entered, other.digest)
        if self.number > other.number:
            own = self._call(other.number + 1)
            return own is not None and own.entered < other.entered
        if entered < other.entered:
            return None
        return self.number < other.number

    def _call(self, number: int) -> OrderedCall | None:
        """The call by messages of this number, if it is remembered."""
        back = self.number - number + 1
        return self._calls[-back] if back <= len(self._calls) else None


class Lane:
    """A communicator for one call of the MPI library's own algorithms, which have no tags: ranks that make another call
    wait in vain on another communicator, and are heard. own: whether `comm` is one, or still that of the axis. new: the
    lane was another call's before, or nobody's, so this one is compared again.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.own, self.new = comm, False, True


class Lanes:
    """The lanes of an axis: few, because communicators are. The one that was used longest ago is given to a call that
    has none; all ranks make the same calls, so they agree on it.
    """

    def __init__(self) -> None:
        self._lanes: dict[Hashable, Lane] = {}

    def of(self, key: Hashable, comm: MPI.Intracomm) -> Lane:
        """The lane of a call, whose communicator is made from that of the axis when it is the call's turn."""
        lane = self._lanes.pop(key, None)
        if lane is not None:
            lane.new = False
        elif len(self._lanes) < MOST_LANES:
            lane = Lane(comm)
        else:
            lane = self._lanes.pop(next(iter(self._lanes)))
            lane.new = True
        self._lanes[key] = lane
        return lane

    def drop(self) -> list[MPI.Intracomm]:
        """Their communicators; the next calls get new ones."""
        made = [lane.comm for lane in self._lanes.values() if lane.own]
        self._lanes.clear()
        return made


class _Never:
    """Of a step that waits until its run is abandoned."""

    @staticmethod
    def Test() -> bool:
        """Whether it is over."""
        return False


class _Turn:
    """The turn of a call among those of its axis, where steps have MPI's requests."""

    def __init__(self, queue: deque[object]) -> None:
        self._queue = queue
        queue.append(self)

    def Test(self) -> bool:
        """Whether all that were begun before have sent."""
        return self._queue[0] is self

    def leave(self) -> None:
        """It has sent, or failed."""
        self._queue.remove(self)


def _digest(key: Hashable) -> int:
    """62 bits, the same on all ranks."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest()) >> 2


def _refuse(texts: list[str]) -> NoReturn:
    """Raise the error that names the calls of all ranks."""
    places: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        places.setdefault(text, []).append(rank)
    raise MismatchError(
        "ranks called different operations on one axis: "
        + "; ".join(f"{ranks_text(who)} {what}" for what, who in places.items()),
        likely="a branch, a loop count or a shape that depends on the rank",
        do="let all ranks of the axis call the same operations in the same order, with as many elements",
    )
