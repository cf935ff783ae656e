"""The phases of a halo exchange: copies within a rank, or messages to the two neighbors along an axis."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpckit.layout import Layout
from hpckit.mesh import Mesh
from hpckit.plan.halo import Message, halo_plan

# Slabs of several fields travel in one message up to this size each. Below it the latency of a message costs more
# than the copy (16 to 40 % of an exchange at blocks of 16^3 to 32^3), above it packing gains nothing.
PACK_LIMIT = 16 * 1024
ALIGNMENT = 64
# A tag a direction.
TAGS_PER_FIELD = 2


def phase_dims(layouts: Sequence[Layout]) -> tuple[int, ...]:
    """The dims with a phase, in the order of the plan; a field without halo in one sits that phase out."""
    orders = [halo_plan(layout.decomposition).order for layout in layouts]
    dims = {dim for order in orders for dim in order}
    sizes = layouts[0].decomposition.topology.sizes
    return tuple(sorted(dims, key=lambda d: (sizes[d] > 1, -d)))


class Bound:
    """Persistent requests of a phase for some arrays: its own and those on the memory of the arrays."""

    def __init__(self, shared: list[MPI.Prequest], direct: list[MPI.Prequest]) -> None:
        self.requests = shared + direct
        self._direct = direct

    def free(self) -> None:
        """Free the requests on the arrays."""
        for request in self._direct:
            request.Free()
        self._direct = []


class LocalPhase:
    """A periodic dim held whole by each rank: its halo is a copy of its own other end. Between walls: nothing."""

    def __init__(self, layouts: Sequence[Layout], dim: int) -> None:
        self._dim = dim
        self._parts = [
            (number, layout, layout.decomposition.halo[dim])
            for number, layout in enumerate(layouts)
            if layout.decomposition.halo[dim] and layout.decomposition.periodic[dim]
        ]

    def bind(self, arrays: Sequence[np.ndarray]) -> Bound:
        """No messages, so no requests."""
        return Bound([], [])

    def run(self, arrays: Sequence[np.ndarray]) -> None:
        """Fill both halos of the dim."""
        for number, layout, width in self._parts:
            layout.kernels.wrap_ends(layout.slabs(arrays[number], self._dim), width)

    def run_reversed(self, arrays: Sequence[np.ndarray]) -> float:
        """Add both halos to the cells they copy, and clear them. Waits for nobody: 0 s."""
        for number, layout, width in self._parts:
            layout.kernels.fold_ends(layout.slabs(arrays[number], self._dim), width)
        return 0.0

    def free(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True)
class Slab:
    """Some layers of a field along the dim of a phase."""

    field: int
    layout: Layout
    first: int
    layers: int
    pieces: int  # separate stretches of memory
    values: int  # in one layer of a piece

    @property
    def nbytes(self) -> int:
        """Bytes of all its layers."""
        return self.pieces * self.layers * self.values * self.layout.dtype.itemsize


@dataclass(frozen=True)
class Side:
    """What one rank sends and receives in one direction of a phase."""

    send_to: int | None
    recv_from: int | None
    send: tuple[Slab, ...]
    recv: tuple[Slab, ...]


class Buffer:
    """One message that holds slabs of several fields, each aligned, in the order of the fields."""

    def __init__(self, slabs: Sequence[Slab]) -> None:
        starts = np.cumsum([0, *(-(-slab.nbytes // ALIGNMENT) * ALIGNMENT for slab in slabs)])
        self.bytes = np.zeros(int(starts[-1]), np.uint8)
        self.parts = [
            (slab, self.bytes[start : start + slab.nbytes].view(slab.layout.dtype))
            for slab, start in zip(slabs, starts[:-1], strict=True)
        ]

    def pack(self, arrays: Sequence[np.ndarray], dim: int) -> None:
        """Copy the slabs of the arrays into the message."""
        for slab, values in self.parts:
            view = slab.layout.slabs(arrays[slab.field], dim)
            slab.layout.kernels.pack_slab(view, slab.first, slab.layers, values)

    def unpack(self, arrays: Sequence[np.ndarray], dim: int) -> None:
        """Copy the message into the slabs of the arrays."""
        for slab, values in self.parts:
            view = slab.layout.slabs(arrays[slab.field], dim)
            slab.layout.kernels.unpack_slab(view, slab.first, slab.layers, values)

    def add(self, arrays: Sequence[np.ndarray], dim: int) -> None:
        """Add the message to the slabs of the arrays."""
        for slab, values in self.parts:
            view = slab.layout.slabs(arrays[slab.field], dim)
            slab.layout.kernels.add_slab(view, slab.first, slab.layers, values)


class PackedMessages:
    """Persistent messages of the packed slabs of a phase, one to each neighbor, on buffers of their own."""

    def __init__(
        self, comm: MPI.Comm, sides: Sequence[tuple[int | None, int | None, Sequence[Slab], Sequence[Slab]]], tag: int
    ) -> None:
        self.outgoing: list[Buffer] = []
        self.incoming: list[Buffer] = []
        receives, sends = [], []
        for turn, (send_to, recv_from, send, recv) in enumerate(sides):
            if recv_from is not None and recv:
                self.incoming.append(Buffer(recv))
                receives.append(comm.Recv_init(self.incoming[-1].bytes, recv_from, tag + turn))
            if send_to is not None and send:
                self.outgoing.append(Buffer(send))
                sends.append(comm.Send_init(self.outgoing[-1].bytes, send_to, tag + turn))
        self.requests = receives + sends

    def free(self) -> None:
        """Free the requests; the buffers go with the object."""
        for request in self.requests:
            request.Free()
        self.requests = []


class RemotePhase:
    """A dim split over ranks: a message leaves by each side and arrives in the neighbor's halo on the other.

    Slabs that are one stretch of memory are sent from the field and received into it; the others, and small ones of
    several fields, are packed into one message a side.
    """

    def __init__(self, mesh: Mesh, layouts: Sequence[Layout], dim: int, tag: int) -> None:
        self._dim = dim
        self._comm = mesh.comm
        self._tag = tag
        self._reverse_tag = tag + TAGS_PER_FIELD * (1 + len(layouts))
        self._sides = [_side(layouts, dim, turn, mesh.rank) for turn in (0, 1)]
        direct = {slab.field for side in self._sides for slab in side.send if _is_direct(slab, len(layouts))}
        self._direct = sorted(direct)
        self._packed = PackedMessages(
            mesh.comm,
            [(s.send_to, s.recv_from, self._not_direct(s.send), self._not_direct(s.recv)) for s in self._sides],
            tag,
        )
        self._reverse: PackedMessages | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that this rank sends."""
        return sum(slab.nbytes for side in self._sides if side.send_to is not None for slab in side.send)

    def bind(self, arrays: Sequence[np.ndarray]) -> Bound:
        """Requests for these arrays. They know the memory by its address and keep no array alive."""
        receives, sends = [], []
        for turn, side in enumerate(self._sides):
            for sent, received in zip(side.send, side.recv, strict=True):
                if sent.field not in self._direct:
                    continue
                tag = self._tag + TAGS_PER_FIELD * (1 + sent.field) + turn
                if side.recv_from is not None:
                    receives.append(self._comm.Recv_init(_memory(arrays, received), side.recv_from, tag))
                if side.send_to is not None:
                    sends.append(self._comm.Send_init(_memory(arrays, sent), side.send_to, tag))
        return Bound(self._packed.requests, receives + sends)

    def begin(self, arrays: Sequence[np.ndarray], bound: Bound) -> None:
        """Pack and send off."""
        for buffer in self._packed.outgoing:
            buffer.pack(arrays, self._dim)
        MPI.Prequest.Startall(bound.requests)

    def complete(self, arrays: Sequence[np.ndarray], bound: Bound) -> float:
        """Wait and unpack; returns the seconds waited."""
        begin = time.perf_counter()
        MPI.Prequest.Waitall(bound.requests)
        waited = time.perf_counter() - begin
        for buffer in self._packed.incoming:
            buffer.unpack(arrays, self._dim)
        return waited

    def run_reversed(self, arrays: Sequence[np.ndarray]) -> float:
        """Send the halos back to their owners, which add them; clear the halos. Returns the seconds waited."""
        if self._reverse is None:
            back = [(side.recv_from, side.send_to, side.recv, side.send) for side in self._sides]
            self._reverse = PackedMessages(self._comm, back, self._reverse_tag)
        for buffer in self._reverse.outgoing:
            buffer.pack(arrays, self._dim)
            for slab, _ in buffer.parts:
                slab.layout.slabs(arrays[slab.field], self._dim)[:, slab.first : slab.first + slab.layers] = 0
        begin = time.perf_counter()
        MPI.Prequest.Startall(self._reverse.requests)
        MPI.Prequest.Waitall(self._reverse.requests)
        waited = time.perf_counter() - begin
        for buffer in self._reverse.incoming:
            buffer.add(arrays, self._dim)
        return waited

    def free(self) -> None:
        """Free the persistent requests."""
        self._packed.free()
        if self._reverse is not None:
            self._reverse.free()

    def _not_direct(self, slabs: Sequence[Slab]) -> list[Slab]:
        return [slab for slab in slabs if slab.field not in self._direct]


def _side(layouts: Sequence[Layout], dim: int, turn: int, rank: int) -> Side:
    """The messages of all fields along the dim, leaving low (turn 0) or high (turn 1)."""
    sends: list[Slab] = []
    receives: list[Slab] = []
    send_to = recv_from = None
    for number, layout in enumerate(layouts):
        message = _message(layout, dim, turn, rank)
        if message is None:
            continue
        pieces, values = layout.layer_values(rank, dim)
        send_to, recv_from = message.send_to, message.recv_from
        for boxes, box in ((sends, message.send[dim]), (receives, message.recv[dim])):
            boxes.append(Slab(number, layout, box.start, box.stop - box.start, pieces, values))
    return Side(send_to, recv_from, tuple(sends), tuple(receives))


def _message(layout: Layout, dim: int, turn: int, rank: int) -> Message | None:
    for phase in halo_plan(layout.decomposition).messages(rank):
        for message in phase:
            if message.dim == dim and message.side == 2 * turn - 1:
                return message
    return None


def _is_direct(slab: Slab, fields: int) -> bool:
    return slab.pieces == 1 and (fields == 1 or slab.nbytes > PACK_LIMIT)


def _memory(arrays: Sequence[np.ndarray], slab: Slab) -> tuple[MPI.memory, MPI.Datatype]:
    """The stretch of memory of a slab, without a reference to its array."""
    layer = slab.values * slab.layout.dtype.itemsize
    address = arrays[slab.field].ctypes.data + slab.first * layer
    return (MPI.memory.fromaddress(address, slab.layers * layer), MPI.BYTE)
