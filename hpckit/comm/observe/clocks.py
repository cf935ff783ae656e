"""The offsets between the clocks of the nodes, by round-trip messages (Cristian 1989)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

ROUNDS = 40


def clock_offset(comm: MPI.Intracomm) -> float:
    """Collective: s to add to this rank's `time.perf_counter()` to get that of rank 0.

    All processes of a node read one clock. One rank of each other node queries rank 0's node in turn; the quickest of
    40 answers counts, whose error is at most half its round trip.
    """
    from mpi4py import MPI

    node = MPI.Intracomm(comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank))
    leaders = comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, comm.rank)
    offset = np.zeros(1)
    if leaders != MPI.COMM_NULL:
        for other in range(1, leaders.size):
            if leaders.rank == 0:
                _answer(leaders, other)
            elif leaders.rank == other:
                offset[0] = _ask(leaders)
        leaders.Free()
    node.Bcast(offset, root=0)
    node.Free()
    return float(offset[0])


def _answer(comm: MPI.Comm, other: int) -> None:
    asked, clock = np.empty(1), np.empty(1)
    for _ in range(ROUNDS):
        comm.Recv(asked, other)
        clock[0] = time.perf_counter()
        comm.Send(clock, other)


def _ask(comm: MPI.Comm) -> float:
    question, clock = np.zeros(1), np.empty(1)
    best, offset = float("inf"), 0.0
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        comm.Send(question, 0)
        comm.Recv(clock, 0)
        back = time.perf_counter()
        if back - sent < best:
            best, offset = back - sent, clock[0] - (sent + back) / 2
    return float(offset)
