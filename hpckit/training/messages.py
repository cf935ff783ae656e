"""Messages of activations and gradients between pipeline stages: started early, awaited when needed."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpckit.collectives.axis import MOST_TAGS, axis_of
from hpckit.comm.checksums import ExpectedChecksum, SingleSeals
from hpckit.comm.device import HOST, Device
from hpckit.comm.observe.clocks import clock_offset
from hpckit.comm.observe.observer import Operation, Unheard
from hpckit.comm.progress import Begun, Unfinished, give_way
from hpckit.kernels.device_array import address
from hpckit.kernels.nn import memory

__communicates__ = True  # its frames are not call sites

TAG = MOST_TAGS  # one is enough: any two ranks receive in the order of the sends, which the plan proves
SEAL_TAG = TAG + 1  # of checksums
PATIENCE = 50  # unsuccessful polls before yielding the core to other processes


class Posted(NamedTuple):
    """A posted receive: its buffer, the sending rank, its report, its final place on a GPU, and its checksum."""

    request: MPI.Request
    array: Any
    peer: int
    report: Operation | Unheard
    target: Any = None
    seal: ExpectedChecksum | None = None


class Messages(Begun):
    """Messages of this rank on `comm`; waiting advances the reductions under way.

    `sent` has the bytes of each message, until it is cleared. Arrays of a GPU are sent once computed: through pinned
    host memory, or directly from the device if MPI accepts device memory.
    """

    def __init__(self, comm: MPI.Comm, device: Device = HOST) -> None:
        self._axis = axis_of(comm)
        self._progress = self._axis.progress
        self._comm = self._axis.comm  # shared with the collectives, which use other tags
        self._device, self._observer = device, self._axis.observer
        self._seals = (
            SingleSeals(self._comm, SEAL_TAG, "message of the pipeline") if self._observer.checks_messages else None
        )
        self._leaving: list[tuple[MPI.Request, Any]] = []
        self._coming: deque[MPI.Request] = deque()  # posted receives not known to be complete
        self._packing: list[tuple[Any, Any, int]] = []  # GPU event, array to send after it, receiver
        self._landing: list[tuple[Any, np.ndarray]] = []  # GPU event, host memory that it reads until then
        self.sent: list[int] = []
        self._outlive()

    def unfinished(self) -> Unfinished | None:
        """The messages that nobody has waited for."""
        requests = [*self._coming, *(request for request, _ in self._leaving)]
        return Unfinished("messages of the pipeline", None, requests) if requests else None

    def post(self, peer: int, shape: tuple[int, ...], dtype: np.dtype) -> Posted:
        """Post a receive, for `wait`."""
        return self.post_into(peer, memory.empty(shape, self._device.zeros((0,), dtype)))

    def post_into(self, peer: int, array: Any) -> Posted:
        """Post a receive into an existing array."""
        target = None
        if self._device.is_gpu and self._device.direct:
            self._device.wait()  # MPI writes at once, and a kernel may still read this memory
        elif self._device.is_gpu:
            target, array = array, self._pinned(array)
        report = self._observer.message(self._comm, "", array.dtype.name, array.size, peer, kind="pipeline")
        seal = None if self._seals is None else self._seals.post(peer)
        request = self._comm.Irecv(_bytes_of(array), peer, TAG)
        self._coming.append(request)
        return Posted(request, array, peer, report, target, seal)

    def send(self, peer: int, array: Any) -> None:
        """Start to send an array, which must not change afterwards."""
        array = array if array.flags.c_contiguous else array.copy()
        self.sent.append(array.nbytes)
        if not self._device.is_gpu:
            self._leaving = [each for each in self._leaving if not each[0].Test()]
            self._start(array, peer)
            return
        leaving = array if self._device.direct else self._pinned(array)
        if not self._device.direct:
            self._device.copy_out(array, leaving)
        event = self._device.event()
        event.record(self._device.current_stream())
        self._packing.append((event, leaving, peer))
        self._send_packed(wait=False)

    def has(self, posted: Posted) -> bool:
        """Whether a message is there: for a rank that has something else to do, or sleeps, until it comes."""
        return posted.request.Test()

    def wait(self, posted: Posted, what: str) -> Any:
        """The received array; `what` names the operation for a watch."""
        request, array, peer, report, target, seal = posted
        self._send_packed(wait=True)
        if not request.Test():
            report.wait(f"pipeline: {what}")
            self._wait(request)
        report.end()
        if self._seals is not None and seal is not None:
            self._seals.check(seal, peer, array)
        if target is None:
            return array
        self._device.copy_in(array, target)
        event = self._device.event()
        event.record(self._device.current_stream())
        self._landing = [each for each in self._landing if not each[0].done] + [(event, array)]
        return target

    def move(self) -> None:
        """Advance the messages and reductions under way."""
        self._send_packed(wait=False)
        if self._leaving:
            self._leaving = [each for each in self._leaving if not each[0].Test()]
        self._look_at_coming()
        if self._progress.runs:
            self._progress.advance()

    def _look_at_coming(self) -> None:
        """Poll posted receives, as a large message arrives only while its receiver is in MPI; drop completed ones."""
        while self._coming and self._coming[0].Test():
            self._coming.popleft()

    def finish(self) -> None:
        """Wait until all sends are complete."""
        self._send_packed(wait=True)
        for request, _ in self._leaving:
            self._wait(request)
        self._leaving.clear()
        self._look_at_coming()
        if self._seals is not None:
            self._seals.finish()

    def clock_ahead(self) -> float:
        """The lead of this rank's clock over rank 0's, s, to about the time of a message. Collective.

        0 within a node, which has one clock; else as `hpckit.comm.observe.clocks.clock_offset` finds it.
        """
        return 0.0 if self._axis.layout == "node" else -clock_offset(self._comm)

    def _pinned(self, array: Any) -> np.ndarray:
        """Pinned memory of the host for an array of the GPU, of its shape and dtype."""
        return self._device.pinned(array.nbytes)[: array.nbytes].view(array.dtype).reshape(array.shape)

    def _send_packed(self, wait: bool) -> None:
        """Send in order the arrays that the GPU has finished; with `wait`, wait for it and send all."""
        while self._packing and (wait or self._packing[0][0].done):
            event, array, peer = self._packing.pop(0)
            event.synchronize()
            self._start(array, peer)

    def _start(self, array: Any, peer: int) -> None:
        """Start to send memory that no longer changes."""
        report = self._observer.message(self._comm, "", "", array.size, peer, sends=True, kind="pipeline")
        self._leaving.append((self._comm.Isend(_bytes_of(array), peer, TAG), array))
        if self._seals is not None:
            self._seals.send(peer, array)
        report.posted()
        report.end()

    def _wait(self, request: MPI.Request) -> None:
        looks = 0
        while self._progress.runs and not request.Test():
            looks = 0 if self._progress.advance() else looks + 1
            if looks > PATIENCE:
                give_way(looks)
        request.Wait()


def _bytes_of(array: Any) -> Any:
    """The memory of a contiguous array, of the host or of a GPU, as MPI takes it."""
    if type(array).__module__ == "cupy":
        return MPI.memory.fromaddress(address(array), array.nbytes), MPI.BYTE
    return array.reshape(-1).view(np.uint8), MPI.BYTE


def form_of(array: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and dtype of an array."""
    return tuple(array.shape), array.dtype
