"""A communicator of mpi4py whose calls that block tell the watch: `comm = WatchedComm(MPI.COMM_WORLD)`.

hpckit's own exchanges and collectives tell the watch by themselves; calls of MPI inside of them are theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm import checksums
from hpckit.comm.observe import waits, watch

ANY, NOBODY = -1, -2  # in place of the peer of a message
# Name -> (place of the buffer whose elements all ranks must agree in, place of the root); None for none.
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
# Name -> (place of the buffer, place and name of the peer that is waited for, whether no peer means any).
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
BUFFERS = {"Sendrecv": "recvbuf"}  # names of buffers that may be given by name
MAKERS = ("Dup", "Dup_with_info", "Clone", "Split", "Split_type", "Create", "Create_group")


class WatchedComm(MPI.Intracomm):
    """The communicator given, by the same handle; so are those made from it by Dup, Split and Create."""


def _described(buffer: Any) -> tuple[Any, int]:
    """The dtype and the elements of a buffer; unknown where it is no array."""
    return (buffer.dtype, buffer.size) if isinstance(buffer, np.ndarray) else ("", -1)


def _collective(name: str, buffer_at: int | None, root_at: int | None) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    def call(self: MPI.Intracomm, *given: Any, **named: Any) -> Any:
        seen = watch.current
        if seen is None or seen.inside():
            return original(self, *given, **named)
        dtype, count = "", -1
        if buffer_at is not None:
            buffer = given[buffer_at] if len(given) > buffer_at else None
            if buffer is MPI.IN_PLACE:  # of the root of a reduction, which has it in its result
                buffer = given[1] if len(given) > 1 else None
            dtype, count = _described(buffer)
        root = -1
        if root_at is not None:
            root = given[root_at] if len(given) > root_at else named.get("root", 0)
        seen.enter(self, name, dtype, count, root)
        entered = time.perf_counter()
        try:
            returned = original(self, *given, **named)
        finally:
            seen.leave()
            if waits.current is not None and self.size > 1:
                left = time.perf_counter()
                waits.current.collective(self, name, root).add(entered, entered, entered, left, left - entered)
        place = checksums.SAME_RESULT_OF_MPI.get(name, -1) if checksums.on else -1
        if 0 <= place < len(given) and isinstance(given[place], np.ndarray):
            checksums.check_result(self, name, given[place])
        return returned

    return call


def _message(name: str, buffer_at: int | None, peer_at: int, peer_name: str, any_peer: bool) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    def call(self: MPI.Intracomm, *given: Any, **named: Any) -> Any:
        seen = watch.current
        if seen is None or seen.inside():
            return original(self, *given, **named)
        dtype, count = "", -1
        if buffer_at is not None:
            buffer = given[buffer_at] if len(given) > buffer_at else named.get(BUFFERS.get(name, "buf"))
            dtype, count = _described(buffer)
        peer = given[peer_at] if len(given) > peer_at else named.get(peer_name, MPI.ANY_SOURCE)
        if peer < 0:
            peer = ANY if any_peer and peer == MPI.ANY_SOURCE else NOBODY
        seen.enter_message(self, name, dtype, count, peer)
        try:
            return original(self, *given, **named)
        finally:
            seen.leave()

    return call


def _maker(name: str) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    def make(self: MPI.Intracomm, *given: Any, **named: Any) -> MPI.Comm:
        made = original(self, *given, **named)
        return made if made == MPI.COMM_NULL else WatchedComm(made)

    return make


for _name, _places in COLLECTIVE.items():
    setattr(WatchedComm, _name, _collective(_name, *_places))
for _name, _where in MESSAGES.items():
    setattr(WatchedComm, _name, _message(_name, *_where))
for _name in MAKERS:
    setattr(WatchedComm, _name, _maker(_name))
