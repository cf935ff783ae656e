"""The phases of a halo exchange: copies within a rank, or messages to the two neighbors along an axis.

A phase is made once for the layouts of the fields. `bind` adds what depends on the arrays: views of their slabs and
persistent requests on their memory. Both know the memory by its address and keep no array alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.checksums import End, Seals
from hpckit.comm.mesh import Mesh
from hpckit.comm.shared.mailboxes import BoundMailbox, Mailbox
from hpckit.grid.layout import Layout
from hpckit.grid.regions import Side, Slab, large_fields, slab_starts
from hpckit.plan.grid.halo import HaloField, halo_plan

__communicates__ = True  # its frames are not call sites

# Messages of a phase are told apart by direction, and by what they carry: packed slabs, joined slabs, halos on their
# way back, checksums, and the slabs of single fields.
PACKED, JOINED, BACK, SEAL, SINGLE = range(5)


def tags_needed(layouts: Sequence[Layout]) -> int:
    """How many tags an exchange uses: one a kind of message, face and direction."""
    return (SINGLE + len(layouts)) * tags_of_a_kind(layouts)


def tags_of_a_kind(layouts: Sequence[Layout]) -> int:
    """How many tags one kind of message uses: one a face and direction."""
    return 2 * layouts[0].decomposition.ndim


def phase_dims(layouts: Sequence[Layout]) -> tuple[int, ...]:
    """The dims with a phase, in the order of the plan; a field without halo in one sits that phase out."""
    return halo_plan([HaloField(layout.decomposition) for layout in layouts]).order


@dataclass
class Bound:
    """What a phase does to some arrays: calls before the messages, requests, calls after them."""

    before: list[tuple[Callable[..., None], tuple[Any, ...]]]
    requests: list[MPI.Prequest] = field(default_factory=list)
    after: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    owned: list[MPI.Prequest] = field(default_factory=list)  # those of the requests that are on the arrays themselves
    types: list[MPI.Datatype] = field(default_factory=list)
    mailbox: BoundMailbox | None = None  # the messages that need no MPI

    def begin(self) -> None:
        """Copy, pack, and send off."""
        for kernel, arguments in self.before:
            kernel(*arguments)
        if self.mailbox:
            self.mailbox.post()
        if self.requests:
            MPI.Prequest.Startall(self.requests)

    def complete(self, leave: bool = False) -> float:
        """Wait and unpack; returns the seconds waited. With `leave` what came by mailbox stays there."""
        if not self.requests and not self.mailbox:
            return 0.0
        begin = time.perf_counter()
        if self.requests:
            MPI.Prequest.Waitall(self.requests)
        if self.mailbox:
            self.mailbox.wait()
        waited = time.perf_counter() - begin
        for kernel, arguments in self.after:
            kernel(*arguments)
        if self.mailbox and not leave:
            self.mailbox.unpack()
        return waited

    def free(self) -> None:
        """Free what was made for the arrays."""
        for request in self.owned:
            request.Free()
        for datatype in self.types:
            datatype.Free()
        self.owned, self.types = [], []


@dataclass
class SealedBound:
    """The same with checksums of what leaves and of what has come (`hpckit.comm.checksums`)."""

    bound: Bound
    seals: Seals
    sent: list[End]
    received: list[End]

    def begin(self) -> None:
        """As of the phase; the checksums follow."""
        self.bound.begin()
        self.seals.start(self.sent, [(end.peer, end.tag) for end in self.received])

    def complete(self) -> float:
        """As of the phase. Raises `SilentCorruptionError` where something else has come than was sent."""
        waited = self.bound.complete()
        self.seals.finish(self.received)
        return waited

    def free(self) -> None:
        """Free what was made for the arrays."""
        self.bound.free()


class LocalPhase:
    """A periodic dim held whole by each rank: its halo is a copy of its own other end. Between walls: nothing."""

    nbytes = 0
    uses_mpi = False

    def __init__(self, layouts: Sequence[Layout], dim: int) -> None:
        self._dim = dim
        self._parts = [
            (number, layout, layout.decomposition.halo[dim])
            for number, layout in enumerate(layouts)
            if layout.decomposition.halo[dim] and layout.decomposition.periodic[dim]
        ]

    def bind(self, arrays: Sequence[np.ndarray]) -> Bound:
        """Copies of both ends."""
        return Bound(
            [
                (layout.kernels.wrap_ends, (layout.slabs(arrays[n], self._dim), width))
                for n, layout, width in self._parts
            ]
        )

    def bind_back(self, arrays: Sequence[np.ndarray]) -> Bound:
        """Both halos added to the cells that they copy, and cleared."""
        return Bound(
            [
                (layout.kernels.fold_ends, (layout.slabs(arrays[n], self._dim), width))
                for n, layout, width in self._parts
            ]
        )

    def free(self) -> None:
        """Nothing of its own to free."""


class Packed:
    """Persistent messages on buffers of their own, one to each neighbor; each slab in them aligned."""

    def __init__(self, comm: MPI.Comm, sides: Sequence[Side], tag: int) -> None:
        self.outgoing: list[tuple[Slab, np.ndarray]] = []
        self.incoming: list[tuple[Slab, np.ndarray]] = []
        receives, sends = [], []
        for side in sides:
            if side.recv_from is not None and side.recv:
                buffer = self._buffer(side.recv, self.incoming)
                receives.append(comm.Recv_init((buffer, MPI.BYTE), side.recv_from, tag + side.tag))
            if side.send_to is not None and side.send:
                buffer = self._buffer(side.send, self.outgoing)
                sends.append(comm.Send_init((buffer, MPI.BYTE), side.send_to, tag + side.tag))
        self.requests = receives + sends

    def _buffer(self, slabs: Sequence[Slab], parts: list[tuple[Slab, np.ndarray]]) -> np.ndarray:
        starts = slab_starts(slabs)
        buffer = np.zeros(starts[-1], np.uint8)
        for slab, start in zip(slabs, starts[:-1], strict=True):
            parts.append((slab, buffer[start : start + slab.nbytes].view(slab.layout.dtype)))
        return buffer

    def free(self) -> None:
        """Free the requests; the buffers go with the object."""
        for request in self.requests:
            request.Free()
        self.requests = []


class RemotePhase:
    """A dim split over ranks: a message leaves by each side and arrives in the neighbor's halo on the other.

    A large slab of one piece is sent from the field and received into it without a copy of ours. All others go by the
    `mailbox`, if there is one, to the neighbors that it reaches. For the rest of the neighbors small slabs of one piece
    are joined in one message, also without a copy, and slabs of many pieces are packed into one message a side.
    """

    def __init__(
        self,
        mesh: Mesh,
        axis: str,
        layouts: Sequence[Layout],
        sides: Sequence[Side],
        tag: int,
        mailbox: Mailbox | None,
    ) -> None:
        self._comm = mesh.comm
        self._axis = axis
        self._tag = tag
        self._tags_of_a_kind = tags_of_a_kind(layouts)
        self._sides = sides
        self._mailbox = mailbox
        self._far = [side.away_from(mailbox.ranks) for side in sides] if mailbox else sides
        self._large = large_fields(sides[0])
        self._small = [s.field for s in sides[0].send if s.pieces == 1 and s.field not in self._large]
        scattered = [slab.field for slab in sides[0].send if slab.pieces > 1]
        self._packed = Packed(mesh.comm, [side.only(scattered) for side in self._far], self._tag_of(PACKED))
        self._seals = Seals(mesh.comm) if mesh.observer.checks_messages else None
        self._back: Packed | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that this rank sends."""
        return sum(slab.nbytes for side in self._sides if side.send_to is not None for slab in side.send)

    @property
    def uses_mpi(self) -> bool:
        """Whether a message of this rank goes by MPI."""
        away = self._sides if self._large else self._far
        return any(side.send_to is not None or side.recv_from is not None for side in away)

    def bind(self, arrays: Sequence[np.ndarray]) -> Bound | SealedBound:
        """The messages of an exchange of these arrays."""
        bound = self._bind(arrays)
        return bound if self._seals is None else SealedBound(bound, self._seals, *self._ends(arrays))

    def _ends(self, arrays: Sequence[np.ndarray]) -> tuple[list[End], list[End]]:
        """Both ends of the messages, in the fields: what is sent, and what is received."""
        sent, received = [], []
        for side in self._sides:
            tag = self._tag_of(SEAL) + side.tag
            name = f"halo along {self._axis}"
            if side.send_to is not None:
                sent.append(End(side.send_to, tag, name, [slab.part(arrays) for slab in side.send]))
            if side.recv_from is not None:
                received.append(End(side.recv_from, tag, name, [slab.part(arrays) for slab in side.recv]))
        return sent, received

    def _bind(self, arrays: Sequence[np.ndarray]) -> Bound:
        receives, sends, types = [], [], []
        for side, far in zip(self._sides, self._far, strict=True):
            messages = [(SINGLE + number, side.only([number])) for number in self._large]
            if self._small:
                messages.append((JOINED, far.only(self._small)))
            for kind, part in messages:
                tag = self._tag_of(kind) + side.tag
                if part.recv_from is not None:
                    memory, made = _memory(arrays, part.recv)
                    receives.append(self._comm.Recv_init(memory, part.recv_from, tag))
                    types += made
                if part.send_to is not None:
                    memory, made = _memory(arrays, part.send)
                    sends.append(self._comm.Send_init(memory, part.send_to, tag))
                    types += made
        return Bound(
            [(s.layout.kernels.pack_slab, (*s.arguments(arrays), values)) for s, values in self._packed.outgoing],
            receives + self._packed.requests + sends,
            [(s.layout.kernels.unpack_slab, (*s.arguments(arrays), values)) for s, values in self._packed.incoming],
            receives + sends,
            types,
            self._mailbox.bind(arrays) if self._mailbox and self._mailbox.used else None,
        )

    def bind_back(self, arrays: Sequence[np.ndarray]) -> Bound:
        """The messages that take halos back to their owners, which add them; the halos are cleared."""
        if self._back is None:
            self._back = Packed(self._comm, [side.back() for side in self._sides], self._tag_of(BACK))
        before: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        for slab, values in self._back.outgoing:
            before += [(slab.layout.kernels.pack_slab, (*slab.arguments(arrays), values))]
            before += [(slab.layout.kernels.clear_slab, slab.arguments(arrays))]
        after = [(s.layout.kernels.add_slab, (*s.arguments(arrays), values)) for s, values in self._back.incoming]
        return Bound(before, list(self._back.requests), after)

    def _tag_of(self, kind: int) -> int:
        """The first tag of a kind of message."""
        return self._tag + kind * self._tags_of_a_kind

    def free(self) -> None:
        """Free the persistent requests."""
        self._packed.free()
        if self._back is not None:
            self._back.free()


def _memory(arrays: Sequence[np.ndarray], slabs: Sequence[Slab]) -> tuple[Any, list[MPI.Datatype]]:
    """The memory of slabs of one piece each as one message, and the datatypes that were made for it."""
    if len(slabs) == 1:
        return (MPI.memory.fromaddress(slabs[0].address(arrays), slabs[0].nbytes), MPI.BYTE), []
    joined = MPI.BYTE.Create_hindexed([slab.nbytes for slab in slabs], [slab.address(arrays) for slab in slabs])
    return (MPI.BOTTOM, 1, joined.Commit()), [joined]
