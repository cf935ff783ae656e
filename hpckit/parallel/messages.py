"""Activations and gradients on their way between the stages of a pipeline: started, and waited for when needed."""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpckit import waits, watch
from hpckit.clocks import clock_offset
from hpckit.collectives.axis import MOST_TAGS, axis_of
from hpckit.collectives.work import advance_all, flying
from hpckit.kernels.nn import memory

TAG = MOST_TAGS  # one is enough: any two ranks receive in the order of the sends, which the plan proves
PATIENCE = 50  # fruitless looks before the core is offered to other processes
MOST_DIMS = 8
DTYPES = ("float32", "float64", "float16", "uint16", "int32", "int64")


class Posted(NamedTuple):
    """A receive that was posted: where it goes, the rank that sends it, and where its wait is noted."""

    request: MPI.Request
    array: np.ndarray
    peer: int
    noted: tuple[waits.Channel, waits.Row] | None


class Messages:
    """Messages of this rank on `comm`; whoever waits lets reductions under way go on.

    `sent` has the bytes of each message, until it is cleared.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._axis = axis_of(comm)
        self._comm = self._axis.comm  # of the collectives, whose tags are others
        self._leaving: list[tuple[MPI.Request, np.ndarray]] = []
        self.sent: list[int] = []

    def post(self, peer: int, shape: tuple[int, ...], dtype: np.dtype) -> Posted:
        """Post a receive; goes to `wait`."""
        return self.post_into(peer, memory.empty(shape, np.empty(0, dtype)))

    def post_into(self, peer: int, array: np.ndarray) -> Posted:
        """The same, of an array that is there."""
        noted, kept = None, waits.current
        if kept is not None:
            now = perf_counter()
            channel = kept.messages("pipeline", self._comm, peer, self._comm.rank)
            noted = channel, channel.open(now, now)
        return Posted(self._comm.Irecv((array.view(np.uint8), MPI.BYTE), peer, TAG), array, peer, noted)

    def send(self, peer: int, array: np.ndarray) -> None:
        """Start to send an array, which nobody may change afterwards."""
        array = np.ascontiguousarray(array)
        self._leaving = [each for each in self._leaving if not each[0].Test()]
        self.sent.append(array.nbytes)
        begun, kept = perf_counter(), waits.current
        self._leaving.append((self._comm.Isend((array.view(np.uint8), MPI.BYTE), peer, TAG), array))
        if kept is not None:
            kept.messages("pipeline", self._comm, self._comm.rank, peer).open(begun, perf_counter())

    def wait(self, posted: Posted, what: str) -> np.ndarray:
        """The array that was received; `what` tells a watch what is waited for."""
        request, array, peer, noted = posted
        entered = perf_counter()
        if not request.Test():
            seen = watch.current
            if seen is not None:
                # A message: how many a rank waits for depends on who is early, and there is nothing to compare.
                seen.enter_message(self._comm, f"pipeline: {what}", array.dtype.name, array.size, peer)
            self._wait(request)
            if seen is not None:
                seen.leave()
        if noted is not None:
            channel, row = noted
            channel.close(row, entered, perf_counter())
        return array

    def move(self) -> None:
        """Let messages and reductions under way go on."""
        if self._leaving:
            self._leaving = [each for each in self._leaving if not each[0].Test()]
        if flying:
            advance_all()

    def finish(self) -> None:
        """Wait until all that was sent has left."""
        for request, _ in self._leaving:
            self._wait(request)
        self._leaving.clear()

    def tell_form(self, peer: int, array: np.ndarray) -> None:
        """Send the shape and dtype of an array."""
        header = np.zeros(2 + MOST_DIMS, np.int64)
        header[:2] = DTYPES.index(array.dtype.name), array.ndim
        header[2 : 2 + array.ndim] = array.shape
        self._comm.Send(header, peer, TAG)

    def hear_form(self, peer: int) -> tuple[tuple[int, ...], np.dtype]:
        """The shape and dtype that `tell_form` of a rank sent."""
        header = np.zeros(2 + MOST_DIMS, np.int64)
        self._comm.Recv(header, peer, TAG)
        return tuple(header[2 : 2 + header[1]].tolist()), np.dtype(DTYPES[header[0]])

    def gather(self, rows: np.ndarray) -> list[np.ndarray]:
        """The rows of all ranks, float64[n, k] with a k that all share, on every rank."""
        counts = np.zeros(self._comm.size, np.int64)
        self._comm.Allgather(np.array([rows.size], np.int64), counts)
        flat = np.empty(int(counts.sum()))
        self._comm.Allgatherv(np.ascontiguousarray(rows).reshape(-1), (flat, counts))
        parts = np.split(flat, np.cumsum(counts)[:-1])
        return [part.reshape(-1, rows.shape[1]) for part in parts]

    def clock_ahead(self) -> float:
        """By how much this rank's clock is ahead of rank 0's, s, to about the time of a message. Collective.

        0 within a node, which has one clock; else as `hpckit.clocks.clock_offset` finds it.
        """
        return 0.0 if self._axis.layout == "node" else -clock_offset(self._comm)

    def _wait(self, request: MPI.Request) -> None:
        looks = 0
        while flying and not request.Test():
            looks = 0 if advance_all() else looks + 1
            if looks > PATIENCE:
                os.sched_yield()
        request.Wait()


def form_of(array: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and dtype of an array."""
    return tuple(array.shape), array.dtype
