"""The phases of a halo exchange between fields on GPUs, in a queue of their own beside the one that computes.

An exchange runs in a `Lane`, a stream that first waits for all that was asked of the GPU before `start` and that
`finish` makes the computing stream wait for. In between the kernels of the core run beside it. The host waits for the
GPU in one place: a message leaves when its slabs are packed, and is sent from `complete`, after the program has asked
for the core, so that the GPU computes while the host sends and receives.

All slabs of a side travel in one message from one buffer on the device: straight from there where MPI takes device
memory, else by way of pinned host memory. Receives are posted once the pack is done, which is also when the last
exchange has emptied their buffers: both are in the lane.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.grid.layout import Layout
from hpckit.grid.phases import BACK, PACKED, LocalPhase, tags_of_a_kind
from hpckit.grid.regions import Side, Slab, side_of, slab_starts
from hpckit.kernels.device_array import address

Calls = list[tuple[Callable[..., None], tuple[Any, ...]]]


class Lane:
    """A stream for an exchange. `begin` lets it wait for the current stream; `with lane:` puts kernels into it, and at
    the end of the block the current stream waits for it.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.stream = device.stream()
        self._computed, self._exchanged = device.event(), device.event()

    def begin(self) -> None:
        """What follows in the lane comes after all that was asked of the GPU so far."""
        self._computed.record(self.device.current_stream())
        self.stream.wait_event(self._computed)

    def __enter__(self) -> Self:
        self.stream.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.__exit__(kind, error, trace)
        self._exchanged.record(self.stream)
        self.device.current_stream().wait_event(self._exchanged)


class Messages:
    """Persistent messages on buffers of the device, one to each neighbor; the slabs in them stand aligned."""

    def __init__(self, comm: MPI.Comm, device: Device, sides: Sequence[Side], tag: int) -> None:
        self._device = device
        self.outgoing: list[tuple[Slab, Any]] = []
        self.incoming: list[tuple[Slab, Any]] = []
        self.out: list[tuple[Any, np.ndarray]] = []  # buffers to stage: of the device, and pinned on the host
        self.into: list[tuple[Any, np.ndarray]] = []
        self.packed = device.event()
        receives, sends = [], []
        for side in sides:
            if side.recv_from is not None and side.recv:
                message = self._buffer(side.recv, self.incoming, self.into)
                receives.append(comm.Recv_init(message, side.recv_from, tag + side.tag))
            if side.send_to is not None and side.send:
                message = self._buffer(side.send, self.outgoing, self.out)
                sends.append(comm.Send_init(message, side.send_to, tag + side.tag))
        self.requests = receives + sends

    def _buffer(
        self, slabs: Sequence[Slab], parts: list[tuple[Slab, Any]], staged: list[tuple[Any, np.ndarray]]
    ) -> Any:
        """A buffer for the slabs, and the memory of its message."""
        starts = slab_starts(slabs)
        buffer = self._device.zeros((starts[-1],), np.uint8)
        for slab, start in zip(slabs, starts[:-1], strict=True):
            parts.append((slab, buffer[start : start + slab.nbytes].view(slab.layout.dtype)))
        staged.append((buffer, self._device.pinned(0 if self._device.direct else starts[-1])))
        if self._device.direct:
            return (MPI.memory.fromaddress(address(buffer), buffer.nbytes), MPI.BYTE)
        return (staged[-1][1], MPI.BYTE)

    def send_off(self) -> None:
        """In the lane: what is packed goes to the host."""
        if not self._device.direct:
            for buffer, host in self.out:
                self._device.copy_out(buffer, host)
        self.packed.record(self._device.current_stream())

    def exchange(self) -> None:
        """Wait for the pack, then for the messages."""
        self.packed.synchronize()
        MPI.Prequest.Startall(self.requests)
        MPI.Prequest.Waitall(self.requests)

    def fetch(self) -> None:
        """In the lane: what has arrived goes to the device."""
        if not self._device.direct:
            for buffer, host in self.into:
                self._device.copy_in(host, buffer)

    def free(self) -> None:
        """Free the requests; the buffers go with the object, once the GPU has done with them."""
        if self.requests:
            self._device.wait()
        for request in self.requests:
            request.Free()
        self.requests = []


class DeviceBound:
    """What a phase does to some arrays of a device: kernels before the messages, the messages, kernels after them."""

    def __init__(self, lane: Lane, before: Calls, messages: Messages | None = None, after: Calls | None = None) -> None:
        self._lane, self._before, self._messages, self._after = lane, before, messages, after or []

    def begin(self) -> None:
        """Ask for the copies and the pack."""
        with self._lane.stream:
            for kernel, arguments in self._before:
                kernel(*arguments)
            if self._messages is not None:
                self._messages.send_off()

    def complete(self) -> float:
        """Send, receive, and ask for the unpack; returns the seconds waited."""
        if self._messages is None or not self._messages.requests:
            return 0.0
        begin = time.perf_counter()
        self._messages.exchange()
        waited = time.perf_counter() - begin
        with self._lane.stream:
            self._messages.fetch()
            for kernel, arguments in self._after:
                kernel(*arguments)
        return waited

    def free(self) -> None:
        """Nothing was made for the arrays alone."""


class DeviceLocalPhase(LocalPhase):
    """As `LocalPhase`, by kernels in the lane."""

    def __init__(self, lane: Lane, layouts: Sequence[Layout], dim: int) -> None:
        super().__init__(layouts, dim)
        self._lane = lane

    def bind(self, arrays: Sequence[Any]) -> Any:
        """Copies of both ends."""
        return DeviceBound(self._lane, super().bind(arrays).before)

    def bind_back(self, arrays: Sequence[Any]) -> Any:
        """Both halos added to the cells that they copy, and cleared."""
        return DeviceBound(self._lane, super().bind_back(arrays).before)


class DeviceRemotePhase:
    """As `RemotePhase`, with one message a side whatever the slabs look like."""

    uses_mpi = True

    def __init__(self, lane: Lane, mesh: Mesh, layouts: Sequence[Layout], dim: int, tag: int) -> None:
        self._lane, self._comm = lane, mesh.comm
        self._sides = [side_of(layouts, dim, turn, mesh.rank) for turn in (0, 1)]
        self._tag_back = tag + BACK * tags_of_a_kind(layouts)
        self._there = Messages(mesh.comm, lane.device, self._sides, tag + PACKED * tags_of_a_kind(layouts))
        self._back: Messages | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that this rank sends."""
        return sum(slab.nbytes for side in self._sides if side.send_to is not None for slab in side.send)

    def bind(self, arrays: Sequence[Any]) -> DeviceBound:
        """The messages of an exchange of these arrays."""
        before = [(s.layout.kernels.pack_slab, (*s.arguments(arrays), values)) for s, values in self._there.outgoing]
        after = [(s.layout.kernels.unpack_slab, (*s.arguments(arrays), values)) for s, values in self._there.incoming]
        return DeviceBound(self._lane, before, self._there, after)

    def bind_back(self, arrays: Sequence[Any]) -> DeviceBound:
        """The messages that take halos back to their owners, which add them; the halos are cleared."""
        if self._back is None:
            sides = [side.back() for side in self._sides]
            self._back = Messages(self._comm, self._lane.device, sides, self._tag_back)
        before: Calls = []
        for slab, values in self._back.outgoing:
            before += [(slab.layout.kernels.pack_slab, (*slab.arguments(arrays), values))]
            before += [(slab.layout.kernels.clear_slab, slab.arguments(arrays))]
        after = [(s.layout.kernels.add_slab, (*s.arguments(arrays), values)) for s, values in self._back.incoming]
        return DeviceBound(self._lane, before, self._back, after)

    def free(self) -> None:
        """Free the persistent requests."""
        self._there.free()
        if self._back is not None:
            self._back.free()
