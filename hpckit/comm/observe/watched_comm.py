"""An mpi4py communicator that reports its blocking calls: `comm = WatchedComm(MPI.COMM_WORLD)`.

hpckit's own exchanges and collectives report themselves; MPI calls inside them count as theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.checksums import SAME_RESULT_OF_MPI
from hpckit.comm.observe.observer import ANYBODY, NOBODY, observer_of, set_observer
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
MAKERS = ("Dup", "Dup_with_info", "Clone", "Split", "Split_type", "Create")  # by all ranks together


class WatchedComm(MPI.Intracomm):
    """The same communicator, with its handle; communicators made from it by Dup, Split and Create are watched too.

    These get a name by which reports tell them apart, the same on all ranks: `Dup 2 of world`.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.observer = observer_of(comm)
        self.made = 0


class WatchedRequest(MPI.Request):
    """The same request, whose wait is reported as that for its message."""

    def __new__(cls, request: MPI.Request, *_: Any) -> WatchedRequest:
        """A handle of the same request."""
        return super().__new__(cls, request)

    def __init__(self, request: MPI.Request, comm: WatchedComm, *message: Any) -> None:
        self.comm, self.message = comm, message

    def Wait(self, status: MPI.Status | None = None) -> Any:
        """As `MPI.Request.Wait`."""
        return self._watched(super().Wait, status)

    def wait(self, status: MPI.Status | None = None) -> Any:
        """As `MPI.Request.wait`."""
        return self._watched(super().wait, status)

    def _watched(self, wait: Callable[..., Any], status: MPI.Status | None) -> Any:
        observer = self.comm.observer
        if not observer.on or observer.inside:
            return wait(status)
        operation = observer.message(self.comm, *self.message)
        operation.wait()
        try:
            return wait(status)
        finally:
            operation.end()


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
for _name in MAKERS:
    setattr(WatchedComm, _name, _maker(_name))
