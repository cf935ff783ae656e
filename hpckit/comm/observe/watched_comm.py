"""An mpi4py communicator that reports its blocking calls, and the waits for its requests:
`comm = WatchedComm(MPI.COMM_WORLD)`.

hpckit's own exchanges and collectives report themselves; MPI calls inside them count as theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import _getframe
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.checksums import SAME_RESULT_OF_MPI
from hpckit.comm.observe.observer import ANYBODY, NOBODY, UNHEARD, observer_of, set_observer
from hpckit.comm.observe.sites import communicates

__communicates__ = True  # its frames are not call sites
# Name -> (position of the buffer whose elements all ranks must agree on, position of the root); None for none.
COLLECTIVE: dict[str, tuple[int | None, int | None]] = {
    "Barrier": (None, None),
    "Bcast": (0, 1),
    "Reduce": (0, 3),
    "Allreduce": (1, None),
    "Reduce_scatter": (None, None),
    "Reduce_scatter_block": (None, None),
    "Scan": (1, None),
    "Exscan": (1, None),
    "Gather": (None, 2),
    "Gatherv": (None, 2),
    "Scatter": (None, 2),
    "Scatterv": (None, 2),
    "Allgather": (None, None),
    "Allgatherv": (None, None),
    "Alltoall": (None, None),
    "Alltoallv": (None, None),
    "Alltoallw": (None, None),
    "barrier": (None, None),
    "bcast": (None, 1),
    "reduce": (None, 2),
    "allreduce": (None, None),
    "scan": (None, None),
    "exscan": (None, None),
    "gather": (None, 1),
    "scatter": (None, 1),
    "allgather": (None, None),
    "alltoall": (None, None),
}
# Name -> (position of the buffer, position and name of the peer that is waited for, whether no peer means any).
MESSAGES: dict[str, tuple[int | None, int, str, bool]] = {
    "Send": (0, 1, "dest", False),
    "Ssend": (0, 1, "dest", False),
    "Recv": (0, 1, "source", True),
    "Sendrecv": (3, 4, "source", True),
    "Sendrecv_replace": (0, 3, "source", True),
    "Probe": (None, 0, "source", True),
    "send": (None, 1, "dest", False),
    "ssend": (None, 1, "dest", False),
    "recv": (None, 1, "source", True),
    "sendrecv": (None, 4, "source", True),
    "probe": (None, 0, "source", True),
}
BUFFERS = {"Sendrecv": "recvbuf"}  # names of buffers passed by keyword
# Name -> (position and name of the peer) of messages whose request is waited for later.
LATER: dict[str, tuple[int, str]] = {
    "Irecv": (1, "source"),
    "irecv": (1, "source"),
    "Isend": (1, "dest"),
    "Issend": (1, "dest"),
    "isend": (1, "dest"),
    "issend": (1, "dest"),
}
POLLS = 1000  # tests in vain after which a rank counts as one that waits
REQUEST = MPI.Request
MAKERS = ("Dup", "Dup_with_info", "Clone", "Split", "Split_type", "Create")  # by all ranks together


class WatchedComm(MPI.Intracomm):
    """The same communicator, with its handle; communicators made from it by Dup, Split and Create are watched too.

    These get a name by which reports tell them apart, the same on all ranks: `Dup 2 of world`.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.observer = observer_of(comm)
        self.made = 0


class _AnyRequest(type(MPI.Request)):  # type: ignore[misc]
    """Takes every request of MPI for one of its class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, REQUEST)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, REQUEST)


class Requests(MPI.Request, metaclass=_AnyRequest):
    """`MPI.Request` of a watched program: the waits for several requests at once are reported, too."""


class WatchedRequest(Requests):
    """The same request, whose wait is reported as that for its message."""

    def __new__(cls, request: MPI.Request, *_: Any) -> WatchedRequest:
        """A handle of the same request."""
        return super().__new__(cls, request)

    def __init__(self, request: MPI.Request, comm: WatchedComm, *message: Any) -> None:
        self.comm, self.message = comm, message
        self.polls, self._polled = 0, UNHEARD  # tests in vain; the report of them

    @property
    def reports(self) -> bool:
        """Whether somebody listens now."""
        observer = self.comm.observer
        return observer.on and not observer.inside

    def report(self) -> Any:
        """The report of its message."""
        return self.comm.observer.message(self.comm, *self.message)

    def progress(self) -> None:
        """It is done, or others that were tested with it: the rank goes on."""
        self.polls = 0
        self._polled.end()
        self._polled = UNHEARD

    def tested_in_vain(self, others: Sequence[WatchedRequest] = ()) -> None:
        """A rank that does nothing but test, again and again, waits: for the first of the messages that is not done."""
        self.polls += 1
        if self.polls == POLLS and self.reports:
            late = next((each for each in others if not each.Get_status()), self)
            self._polled = late.report()
            self._polled.wait()
            self.comm.observer.inside = False  # what it calls between its tests is reported


def _waits(name: str) -> Callable[..., Any]:
    """`Wait` or `wait`, reported."""
    original = getattr(MPI.Request, name)

    def wait(self: WatchedRequest, status: MPI.Status | None = None) -> Any:
        self.progress()
        if not self.reports:
            return original(self, status)
        with self.report():
            return original(self, status)

    return wait


def _waits_for_all(name: str, one: str) -> Callable[..., Any]:
    """`Waitall` or `waitall`: a wait for each in turn, so that a report names the message that does not come."""
    original = getattr(MPI.Request, name)

    def wait_for_all(requests: Sequence[MPI.Request], statuses: list[MPI.Status] | None = None) -> Any:
        if not any(isinstance(each, WatchedRequest) for each in _own(requests)):
            return original(requests, statuses)
        if statuses is not None:
            statuses += [MPI.Status() for _ in range(len(requests) - len(statuses))]
        told: Sequence[MPI.Status | None] = statuses or [None] * len(requests)
        found = [getattr(request, one)(status) for request, status in zip(requests, told, strict=False)]
        return found if one == "wait" else True

    return wait_for_all


def _waits_for_any(name: str) -> Callable[..., Any]:
    """`Waitany`, `Waitsome` and the like: a wait for the rank that all the messages are with, or for any."""
    original = getattr(MPI.Request, name)

    def wait_for_any(requests: Sequence[MPI.Request], *more: Any, **named: Any) -> Any:
        own = [each for each in _own(requests) if each]
        if not own or not own[0].reports:
            return original(requests, *more, **named)
        peers = {each.message[-1] for each in own}
        peer = peers.pop() if len(peers) == 1 and len(own) == len(requests) else ANYBODY
        with own[0].comm.observer.message(own[0].comm, f"{name} of {len(requests)} requests", "", -1, peer):
            return original(requests, *more, **named)

    return wait_for_any


def _tests(name: str) -> Callable[..., Any]:
    """`Test` or `test`."""
    original = getattr(MPI.Request, name)

    def test(self: WatchedRequest, status: MPI.Status | None = None) -> Any:
        under_way = bool(self)
        answer = original(self, status)
        if self:
            self.tested_in_vain()
        elif under_way:
            self.progress()
        return answer

    return test


def _tests_several(name: str) -> Callable[..., Any]:
    """`Testall` and the like."""
    original = getattr(MPI.Request, name)

    def test_several(requests: Sequence[MPI.Request], *more: Any, **named: Any) -> Any:
        own = [each for each in _own(requests) if each]
        answer = original(requests, *more, **named)
        if all(own):
            for each in own[:1]:
                each.tested_in_vain(own)
        else:
            for each in own:
                each.progress()
        return answer

    return test_several


def _own(requests: Sequence[MPI.Request]) -> list[WatchedRequest]:
    """Those that report, of some requests."""
    return [each for each in requests if type(each) is WatchedRequest]


def _described(buffer: Any) -> tuple[Any, int]:
    """The dtype and the number of elements of a buffer; unknown if it is not an array."""
    return (buffer.dtype, buffer.size) if isinstance(buffer, np.ndarray) else ("", -1)


def _collective(name: str, buffer_at: int | None, root_at: int | None) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    def call(self: WatchedComm, *given: Any, **named: Any) -> Any:
        observer = self.observer
        if not observer.on or observer.inside:
            return original(self, *given, **named)
        dtype, count = "", -1
        if buffer_at is not None:
            buffer = given[buffer_at] if len(given) > buffer_at else None
            if buffer is MPI.IN_PLACE:  # the root of a reduction has its values in the result buffer
                buffer = given[1] if len(given) > 1 else None
            dtype, count = _described(buffer)
        root = -1
        if root_at is not None:
            root = given[root_at] if len(given) > root_at else named.get("root", 0)
        operation = observer.begin(self, name, dtype, count, root, blocks=True)
        operation.wait()
        result = None
        try:
            returned = original(self, *given, **named)
            place = SAME_RESULT_OF_MPI.get(name, -1)
            if 0 <= place < len(given) and isinstance(given[place], np.ndarray):
                result = given[place]
        finally:
            operation.end(result)
        return returned

    return call


def _message(name: str, buffer_at: int | None, peer_at: int, peer_name: str, any_peer: bool) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    def call(self: WatchedComm, *given: Any, **named: Any) -> Any:
        observer = self.observer
        if not observer.on or observer.inside:
            return original(self, *given, **named)
        dtype, count = "", -1
        if buffer_at is not None:
            buffer = given[buffer_at] if len(given) > buffer_at else named.get(BUFFERS.get(name, "buf"))
            dtype, count = _described(buffer)
        peer = given[peer_at] if len(given) > peer_at else named.get(peer_name, MPI.ANY_SOURCE)
        operation = observer.message(self, name, dtype, count, _peer(peer, any_peer))
        operation.wait()
        try:
            return original(self, *given, **named)
        finally:
            operation.end()

    return call


def _peer(given: int, any_peer: bool) -> int:
    """A peer as reports have it."""
    return given if given >= 0 else ANYBODY if any_peer and given == MPI.ANY_SOURCE else NOBODY


def _later(name: str, peer_at: int, peer_name: str) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)
    receives = peer_name == "source"

    def call(self: WatchedComm, *given: Any, **named: Any) -> MPI.Request:
        request = original(self, *given, **named)
        if not self.observer.on or self.observer.inside:
            return request
        dtype, count = _described(given[0] if given else named.get("buf"))
        # The object form receives into no buffer, and its arguments may stand one place earlier.
        peer = given[peer_at] if len(given) > peer_at else named.get(peer_name, MPI.ANY_SOURCE)
        return WatchedRequest(request, self, name, dtype, count, _peer(peer, receives))

    return call


def _maker(name: str) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    def make(self: WatchedComm, *given: Any, **named: Any) -> MPI.Comm:
        made = original(self, *given, **named)
        own = not communicates(_getframe(1))  # the program's; hpckit names its own itself
        self.made += own
        if made == MPI.COMM_NULL:
            return made
        if own and not made.name:
            made.name = f"{name} {self.made} of {_name_of(self)}"[: MPI.MAX_OBJECT_NAME - 1]
        set_observer(made, self.observer)
        return WatchedComm(made)

    return make


def _name_of(comm: MPI.Comm) -> str:
    """The name of a communicator: `world`, as programs know it, that of a mesh's axis, or the one it was given here."""
    return {"MPI_COMM_WORLD": "world", "": f"{comm.size} ranks"}.get(comm.name, comm.name)


for _name, _places in COLLECTIVE.items():
    setattr(WatchedComm, _name, _collective(_name, *_places))
for _name, _where in MESSAGES.items():
    setattr(WatchedComm, _name, _message(_name, *_where))
for _name, _peers in LATER.items():
    setattr(WatchedComm, _name, _later(_name, *_peers))
for _name in ("Wait", "wait"):
    setattr(WatchedRequest, _name, _waits(_name))
    setattr(Requests, f"{_name}all", staticmethod(_waits_for_all(f"{_name}all", _name)))
for _name in ("Waitany", "Waitsome", "waitany", "waitsome"):
    setattr(Requests, _name, staticmethod(_waits_for_any(_name)))
for _name in ("Test", "test"):
    setattr(WatchedRequest, _name, _tests(_name))
for _name in ("Testall", "Testany", "Testsome", "testall", "testany", "testsome"):
    setattr(Requests, _name, staticmethod(_tests_several(_name)))
for _name in MAKERS:
    setattr(WatchedComm, _name, _maker(_name))
