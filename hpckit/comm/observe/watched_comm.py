"""An mpi4py communicator that reports its blocking calls: `comm = WatchedComm(MPI.COMM_WORLD)`.

hpckit's own exchanges and collectives report themselves; MPI calls inside them count as theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.checksums import SAME_RESULT_OF_MPI
from hpckit.comm.observe.observer import ANYBODY, NOBODY, observer_of, set_observer

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
MAKERS = ("Dup", "Dup_with_info", "Clone", "Split", "Split_type", "Create", "Create_group")


class WatchedComm(MPI.Intracomm):
    """The same communicator, with its handle; communicators made from it by Dup, Split and Create are watched too."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.observer = observer_of(comm)


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
        if peer < 0:
            peer = ANYBODY if any_peer and peer == MPI.ANY_SOURCE else NOBODY
        operation = observer.message(self, name, dtype, count, peer)
        operation.wait()
        try:
            return original(self, *given, **named)
        finally:
            operation.end()

    return call


def _maker(name: str) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    def make(self: WatchedComm, *given: Any, **named: Any) -> MPI.Comm:
        made = original(self, *given, **named)
        if made == MPI.COMM_NULL:
            return made
        set_observer(made, self.observer)
        return WatchedComm(made)

    return make


for _name, _places in COLLECTIVE.items():
    setattr(WatchedComm, _name, _collective(_name, *_places))
for _name, _where in MESSAGES.items():
    setattr(WatchedComm, _name, _message(_name, *_where))
for _name in MAKERS:
    setattr(WatchedComm, _name, _maker(_name))
