"""A parameter server: some ranks hold the parameters, the others push gradients and pull parameters.

The clock of a worker is the number of its pushes. With a staleness s a worker at clock c waits until all have pushed
c - s times (stale synchronous parallel: Ho et al. 2013; Li et al. 2014). With s = 0 the server takes the mean of each
clock in the order of the workers, as a deterministic all-reduce does: the same bits as synchronous training.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives.axis import axis_of
from hpckit.collectives.buffers import Buffer
from hpckit.collectives.reduction import Reduction
from hpckit.comm.agree import ClosedTogether, require_same
from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.plan.inputs.numbers import count

__communicates__ = True  # its frames are not call sites

Update = Callable[[np.ndarray, np.ndarray], object]
PUSH, PULL, REPLY, DONE = range(4)  # tags
SPIN, LONGEST_SLEEP = 1e-4, 1e-3  # s: a server polls at full speed, then with sleeps that grow up to the second


class ParameterServer(ClosedTogether):
    """Parameters on the first `servers` ranks of an axis, a part on each; the other ranks are workers.

        with hp.training.ParameterServer(comm, parameters, update, staleness=2) as server:
            for step in range(steps if server.is_worker else 0):
                server.pull(parameters)
                server.push(gradient(parameters))
        server.pull(parameters)  # in the end, on all ranks: the last ones

    update(part, gradient): changes the server's part of the parameters in place; it may keep state for its part, such
    as a momentum. staleness: pushes by which a worker may lead the slowest one; 0 is synchronous: one update with the
    mean of all workers for each clock. Above 0, every push is an update at once, with the gradient over the number of
    workers, in the order of arrival. None: no bound (fully asynchronous).

    Servers work at the end of the block, until all workers have left theirs. With a staleness of 0 workers must push
    equally often. Collective over the axis, with equal parameters on all ranks. Raises `InputError` on every rank for
    invalid arguments.
    """

    def __init__(
        self, mesh_axis: Any, parameters: np.ndarray, update: Update, *, servers: int = 1, staleness: int | None = 0
    ) -> None:
        axis = axis_of(mesh_axis)
        given = Buffer(parameters, "the parameters", written=False)
        said = {"shape": repr(parameters.shape), "dtype": str(parameters.dtype), "servers": repr(servers)}
        require_same(axis.comm, {**said, "staleness": repr(staleness)}, "a parameter server is the same on every rank")
        self.servers = count(servers, "the number of servers")
        if not 1 <= self.servers < axis.size:
            raise InputError(
                f"{servers} servers among {axis.size} ranks", do=f"give 1 to {axis.size - 1}; the other ranks work"
            )
        self.staleness = None if staleness is None else count(staleness, "the staleness")
        if self.staleness is not None and self.staleness < 0:
            raise InputError(f"a staleness of {staleness}", do="give 0 or more, or None for no bound")
        self._mean = Reduction(given.array.dtype, "mean")
        if self._mean.working != given.array.dtype:
            raise InputError(f"parameters of {given.array.dtype}", do="keep them in float32 or float64")
        self._comm: MPI.Intracomm = axis.comm.Dup()
        self._comm.Set_name("parameter server")
        self._report = axis.observer.exchange(
            self._comm, "parameter server", "parameter server pull", parameters.dtype, range(self.servers)
        )
        self._workers = axis.size - self.servers
        starts = block_starts(given.size, self.servers).tolist()
        self._blocks = [slice(a, b) for a, b in itertools.pairwise(starts)]
        self._shape, self._dtype = parameters.shape, parameters.dtype
        self.is_worker = axis.rank >= self.servers
        self._clock = 0
        self._service = None
        if not self.is_worker:
            part = np.array(given.flat[self._blocks[axis.rank]])
            self._service = _Service(self._comm, part, update, self.servers, self._workers, self.staleness, self._mean)
        self._last: np.ndarray | None = None

    def pull(self, out: np.ndarray) -> np.ndarray:
        """Get the parameters, as old as the staleness allows; after the end the last ones, on servers too."""
        flat = self._checked(out)
        if self._last is not None:
            flat[...] = self._last
            return out
        self._require_worker("pull")
        report = self._report
        report.begin()
        clock = np.array([self._clock])
        replies = [
            self._comm.Irecv((flat[block].view(np.uint8), MPI.BYTE), server, REPLY)
            for server, block in enumerate(self._blocks)
        ]
        asked = [self._comm.Isend(clock, server, PULL) for server in range(self.servers)]
        report.posted()
        report.wait()
        entered = time.perf_counter()
        MPI.Request.Waitall(replies + asked)
        report.end(waited=time.perf_counter() - entered)
        return out

    def push(self, gradient: np.ndarray) -> None:
        """Send a gradient, of the shape and dtype of the parameters; does not wait for its update."""
        self._require_worker("push")
        flat = self._checked(gradient)
        sends = [
            self._comm.Isend((flat[block].view(np.uint8), MPI.BYTE), server, PUSH)
            for server, block in enumerate(self._blocks)
        ]
        MPI.Request.Waitall(sends)
        self._clock += 1

    def close(self) -> None:
        """Workers finish, servers serve until all have, and all ranks get the last parameters. Collective.

        Raises `InputError` if the staleness is 0 and workers have not pushed equally often.
        """
        if self._last is not None:
            return
        last = np.empty(self._blocks[-1].stop, self._dtype)
        if self._service is not None:
            self._service.run()
            last[self._blocks[self._comm.rank]] = self._service.part
        else:
            for server in range(self.servers):
                self._comm.Send(np.array([self._clock]), server, DONE)
        for server, block in enumerate(self._blocks):
            self._comm.Bcast((last[block].view(np.uint8), MPI.BYTE), server)
        self._comm.Free()
        self._last = last

    def _checked(self, array: np.ndarray) -> np.ndarray:
        flat = Buffer(array, "the array").flat
        if array.shape != self._shape or array.dtype != self._dtype:
            raise InputError(
                f"the parameters are {self._dtype} of shape {self._shape}, not {array.dtype} of {array.shape}"
            )
        return flat

    def _require_worker(self, what: str) -> None:
        if not self.is_worker or self._last is not None:
            why = "is a server" if not self.is_worker else "has closed the parameter server"
            raise InputError(f"rank {self._comm.rank} {why} and cannot {what}", do="ask is_worker first")


class _Service:
    """The service of a server: it receives pushes, and answers pulls as soon as the slowest worker allows."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        part: np.ndarray,
        update: Update,
        servers: int,
        workers: int,
        staleness: int | None,
        mean: Reduction,
    ) -> None:
        self.part, self._comm, self._update, self._mean = part, comm, update, mean
        self._first, self._workers, self._staleness = servers, workers, staleness
        self._clocks = [0] * workers
        self._done = [False] * workers
        self._waiting: dict[int, int] = {}  # worker -> clock of its pull
        self._pushed: list[list[np.ndarray]] = [[] for _ in range(workers)]  # not yet part of an update
        self._replies: list[tuple[MPI.Request, np.ndarray]] = []

    def run(self) -> None:
        """Serve until all workers are done."""
        status = MPI.Status()
        idle_since = time.perf_counter()
        while not all(self._done):
            if not self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
                idle = time.perf_counter() - idle_since
                time.sleep(min(idle / 8, LONGEST_SLEEP)) if idle > SPIN else os.sched_yield()
                continue
            self._take(status.Get_source(), status.Get_tag())
            idle_since = time.perf_counter()
        MPI.Request.Waitall([request for request, _ in self._replies])
        if any(self._pushed):
            raise InputError(
                f"workers pushed {', '.join(map(str, self._clocks))} times; a staleness of 0 needs equal numbers",
                do="make equally many steps on all workers, or allow a staleness",
            )

    def _take(self, source: int, tag: int) -> None:
        worker = source - self._first
        if tag == PUSH:
            gradient = np.empty_like(self.part)
            self._comm.Recv((gradient.view(np.uint8), MPI.BYTE), source, PUSH)
            self._clocks[worker] += 1
            self._apply(worker, gradient)
        else:
            clock = np.zeros(1, np.int64)
            self._comm.Recv(clock, source, tag)
            if tag == PULL:
                self._waiting[worker] = int(clock[0])
            else:
                self._done[worker] = True
        self._answer()

    def _apply(self, worker: int, gradient: np.ndarray) -> None:
        """Update at once, or with a staleness of 0 as soon as the last gradient of a clock has arrived."""
        if self._staleness != 0:
            self._update(self.part, np.divide(gradient, gradient.dtype.type(self._workers), out=gradient))
            return
        self._pushed[worker].append(gradient)
        while all(self._pushed):
            first, *others = [each.pop(0) for each in self._pushed]
            for other in others:
                self._mean.combine(first, other)
            self._mean.finish(first, np.ones(self._workers))
            self._update(self.part, first)

    def _answer(self) -> None:
        """Answer the pulls of workers that are not too far ahead. A finished worker delays no other."""
        slowest = min((c for c, done in zip(self._clocks, self._done, strict=True) if not done), default=None)
        self._replies = [pair for pair in self._replies if not pair[0].Test()]
        for worker, clock in list(self._waiting.items()):
            if self._staleness is None or slowest is None or clock - self._staleness <= slowest:
                del self._waiting[worker]
                copy = self.part.copy()
                request = self._comm.Isend((copy.view(np.uint8), MPI.BYTE), worker + self._first, REPLY)
                self._replies.append((request, copy))
