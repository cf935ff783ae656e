"""The phases of a halo exchange on one rank: its copies, sends and receives along one dim.

A phase is made once for the types of the fields, from the messages of the plan. `bind` adds the views of slabs and the
persistent requests for particular arrays. Both hold the memory by its address and keep no array alive.

Fields on a GPU are packed, copied and unpacked in an `ExchangeStream`, which first waits for all GPU work launched
before `start`; `finish` makes the computing stream wait for it. In between, the kernels of the core run concurrently.
A message leaves once its buffer is packed: the host waits for this in `complete`, after the program has launched the
core. It leaves from the device if MPI accepts its memory, else through pinned host memory. Receives are also posted
then: the stream has emptied their buffers by that time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from hpckit.comm.checksums import End, Seals
from hpckit.comm.device import Device
from hpckit.comm.shared.compiled.mail import FIELDS, copies
from hpckit.comm.shared.transport import Flags, Transport
from hpckit.grid.regions import FieldType, Slab, slab_of, slab_starts
from hpckit.kernels.device_array import address
from hpckit.plan.grid.halo import HaloPlan, Message
from hpckit.plan.grid.halo_cells import JOINED, MEMORY, PACKED, SEAL

__communicates__ = True  # its frames are not call sites

Calls = list[tuple[Callable[..., object], tuple[Any, ...]]]


class ExchangeStream:
    """A stream of a GPU for an exchange. `begin` lets it wait for the current stream; `with` puts kernels into
    it, and at the end of the block the current stream waits for it.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.stream = device.stream()
        self._computed, self._exchanged = device.event(), device.event()

    def begin(self) -> None:
        """Make the stream wait for all GPU work launched so far."""
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


@dataclass(frozen=True)
class PhaseContext:
    """The context of the phases: the types of the fields, the rank, its messages, and their transport.

    first_tag: of the exchange. transport: None if all messages go by MPI. sealed: whether checksums follow them.
    lane: None on the host.
    """

    comm: MPI.Comm
    types: Sequence[FieldType]
    plan: HaloPlan
    first_tag: int
    transport: Transport | None = None
    sealed: bool = False
    lane: ExchangeStream | None = None

    @property
    def device(self) -> Device:
        """Where the fields are."""
        return self.types[0].device

    def slabs(self, message: Message, sent: bool) -> list[Slab]:
        """The slabs of a message: of the source fields if `sent`, else of the target fields."""
        boxes = [(part.field, part.send if sent else part.recv) for part in message.parts]
        return [slab_of(self.types, number, message.dim, box, self.comm.rank) for number, box in boxes]


class Buffers:
    """Persistent messages on buffers of their own, with aligned slabs. On a GPU whose memory MPI does not accept, each
    buffer has a stage in pinned host memory.
    """

    def __init__(self, place: PhaseContext, messages: Iterable[Message]) -> None:
        self._device = place.device
        self.outgoing: list[tuple[Slab, Any]] = []
        self.incoming: list[tuple[Slab, Any]] = []
        self.stage_out: Calls = []
        self.stage_in: Calls = []
        receives, sends = [], []
        for message in messages:
            tag = place.first_tag + message.tag
            if message.recv_from is not None:
                memory, buffer, stage = self._buffer(place.slabs(message, sent=False), self.incoming)
                receives.append(place.comm.Recv_init(memory, message.recv_from, tag))
                self.stage_in += [(self._device.copy_in, (stage, buffer))] * (stage is not None)
            if message.send_to is not None:
                memory, buffer, stage = self._buffer(place.slabs(message, sent=True), self.outgoing)
                sends.append(place.comm.Send_init(memory, message.send_to, tag))
                self.stage_out += [(self._device.copy_out, (buffer, stage))] * (stage is not None)
        self.requests = receives + sends

    def _buffer(self, slabs: Sequence[Slab], parts: list[tuple[Slab, Any]]) -> tuple[Any, Any, np.ndarray | None]:
        """The message argument for MPI, the buffer of the slabs, and its stage."""
        starts = slab_starts(slabs)
        buffer = self._device.zeros((starts[-1],), np.uint8)
        for slab, start in zip(slabs, starts[:-1], strict=True):
            parts.append((slab, buffer[start : start + slab.nbytes].view(slab.type.dtype)))
        if self._device.direct:
            return (MPI.memory.fromaddress(address(buffer), buffer.nbytes), MPI.BYTE), buffer, None
        stage = self._device.pinned(starts[-1])
        return (stage, MPI.BYTE), buffer, stage

    def free(self) -> None:
        """Free the requests; the buffers are freed with the object, once a GPU has finished with them."""
        if self.requests:
            self._device.wait()
        for request in self.requests:
            request.Free()
        self.requests = []


class Mail:
    """The messages of a phase that go through the shared memory of the node, without MPI."""

    def __init__(self, place: PhaseContext, transport: Transport, messages: Sequence[Message]) -> None:
        self.flags = Flags(place.comm)
        self._outgoing: list[tuple[Slab, tuple[int, int]]] = []  # slabs, and their addresses in the two buffers
        self._incoming: list[tuple[Slab, tuple[int, int]]] = []
        own = place.comm.rank
        sent: list[int] = []
        taken: list[int] = []
        for message in messages:
            for rank, outward in ((message.send_to, True), (message.recv_from, False)):
                if rank is None:
                    continue
                slabs = place.slabs(message, outward)
                writer, k = own if outward else rank, entry_of(message)
                (sent if outward else taken).append(transport.flag(writer, k))
                first, second = (address(transport.message(writer, k, turn)) for turn in (0, 1))
                for slab, start in zip(slabs, slab_starts(slabs)[:-1], strict=True):
                    (self._outgoing if outward else self._incoming).append((slab, (first + start, second + start)))
        self.flags.meet(sent, taken)

    def tables(self, arrays: Sequence[Any], outward: bool) -> tuple[np.ndarray, np.ndarray]:
        """What is copied to send the slabs of these arrays, or to receive them: for each of the two buffers."""
        rows: tuple[list[list[int]], list[list[int]]] = [], []
        for slab, buffers in self._outgoing if outward else self._incoming:
            piece = slab.nbytes // max(1, slab.pieces)
            for own, buffer in zip(rows, buffers, strict=True):
                ends = (slab.address(arrays), slab.step(arrays)), (buffer, piece)
                own.append(copies(*(ends if outward else ends[::-1]), slab.pieces, piece))
        first, second = (np.array(each, np.int64).reshape(-1, FIELDS) for each in rows)
        return first, second


def entry_of(message: Message) -> int:
    """The number of a message among those of a rank in shared memory: one per dim and direction."""
    return 2 * message.dim + (message.side > 0)


def prepare_mail(place: PhaseContext, phases: Sequence[Sequence[Message]]) -> None:
    """Collective over the node: reserve memory for the messages of all phases. Raises `SetupError` on all its ranks."""
    assert place.transport is not None
    sizes = [0] * (2 * place.plan.decomposition.ndim)
    for message in (each for phase in phases for each in phase):
        if message.way == MEMORY and message.send_to is not None:
            sizes[entry_of(message)] = slab_starts(place.slabs(message, sent=True))[-1]
    place.transport.prepare(sizes)
    place.transport.node.Barrier()  # the tables of all ranks are written


@dataclass
class BoundPhase:
    """A phase bound to some arrays: calls before the messages, requests, calls after them.

    ready: on a GPU, the event after which the messages may leave. leaves, comes: what is copied to the shared memory of
    the node and from it, for each of the two buffers there.
    """

    lane: ExchangeStream | None = None
    before: Calls = field(default_factory=list)
    requests: list[MPI.Prequest] = field(default_factory=list)
    after: Calls = field(default_factory=list)
    ready: Any = None
    owned: list[MPI.Prequest] = field(default_factory=list)  # the requests on the arrays themselves
    types: list[MPI.Datatype] = field(default_factory=list)
    flags: Flags | None = None
    leaves: Sequence[np.ndarray] = ()
    comes: Sequence[np.ndarray] = ()
    seals: Seals | None = None
    sent: list[End] = field(default_factory=list)
    received: list[End] = field(default_factory=list)

    def begin(self) -> None:
        """Copy, pack, and start the messages."""
        self._call(self.before)
        if self.flags is not None:
            self.flags.send(self.leaves)
        if self.requests and self.ready is None:
            MPI.Prequest.Startall(self.requests)
        if self.seals is not None:
            due = [(end.peer, end.tag) for end in self.received]
            self._call([(self.seals.start, (self.sent, due))])

    def complete(self) -> float:
        """Wait and unpack; returns the seconds waited. Raises `SilentCorruptionError` if messages are checked and one
        differs from what was sent.
        """
        waited = 0.0
        if self.requests:
            begin = time.perf_counter()
            if self.ready is not None:
                self.ready.synchronize()
                MPI.Prequest.Startall(self.requests)
            MPI.Prequest.Waitall(self.requests)
            waited = time.perf_counter() - begin
        if self.flags is not None:
            waited += self.flags.take(self.comes)
        self._call(self.after)
        if self.seals is not None:
            self._call([(self.seals.finish, (self.received,))])
        return waited

    def _call(self, calls: Calls) -> None:
        if not calls:
            return
        if self.lane is None:
            for function, arguments in calls:
                function(*arguments)
        else:
            with self.lane.stream:
                for function, arguments in calls:
                    function(*arguments)

    def free(self) -> None:
        """Free the requests on the arrays."""
        for request in self.owned:
            request.Free()
        for datatype in self.types:
            datatype.Free()
        self.owned, self.types = [], []


class Phase:
    """The messages of one rank along one dim, each in the way of the plan: a copy within the rank, packed into a
    buffer, in place (joined or for a single field), or through the shared memory of the node.

    adds: halos are sent back to their owners and added there, then cleared.
    """

    def __init__(self, place: PhaseContext, messages: Sequence[Message], adds: bool = False) -> None:
        own = place.comm.rank
        self._place, self._adds = place, adds
        self._copies = [each for each in messages if each.send_to == own]
        self._messages = [each for each in messages if each.send_to != own]
        self._buffers = Buffers(place, [each for each in self._messages if each.way == PACKED or adds])
        self._in_place = [each for each in self._messages if each.way >= JOINED and each.way != PACKED and not adds]
        mailed = [each for each in self._messages if each.way == MEMORY]
        self._mail = Mail(place, place.transport, mailed) if mailed and place.transport is not None else None
        self._seals = Seals(place.comm, place.device) if place.sealed and self._messages and not adds else None

    @property
    def nbytes(self) -> int:
        """Bytes that this rank sends to other ranks."""
        sent = [each for each in self._messages if each.send_to is not None]
        return sum(slab.nbytes for each in sent for slab in self._place.slabs(each, sent=True))

    @property
    def wraps(self) -> list[tuple[int, int]]:
        """The fields (by number) and dims whose ends this rank copies to each other."""
        return list(dict.fromkeys((part.field, each.dim) for each in self._copies for part in each.parts))

    @property
    def is_alone(self) -> bool:
        """Whether it has no messages from or to other ranks."""
        return not self._messages

    @property
    def uses_mpi(self) -> bool:
        """Whether a message of this rank goes by MPI."""
        return any(each.way != MEMORY for each in self._messages)

    def bind(self, arrays: Sequence[Any]) -> BoundPhase:
        """The phase bound to these arrays."""
        place, buffers = self._place, self._buffers
        bound = BoundPhase(place.lane, self._copied(arrays), seals=self._seals)
        for slab, values in buffers.outgoing:
            bound.before.append((slab.type.kernels.pack_slab, (*slab.arguments(arrays), values)))
            if self._adds:
                bound.before.append((slab.type.kernels.clear_slab, slab.arguments(arrays)))
        bound.before += buffers.stage_out
        if place.lane is not None and buffers.requests:
            bound.ready = place.device.event()
            bound.before.append((bound.ready.record, (place.lane.stream,)))
        bound.after += buffers.stage_in
        for slab, values in buffers.incoming:
            kernels = slab.type.kernels
            kernel = kernels.add_slab if self._adds else kernels.unpack_slab
            bound.after.append((kernel, (*slab.arguments(arrays), values)))
        self._bind_in_place(bound, arrays)
        if self._mail is not None:
            bound.flags = self._mail.flags
            bound.leaves = self._mail.tables(arrays, outward=True)
            bound.comes = self._mail.tables(arrays, outward=False)
        if self._seals is not None:
            bound.sent, bound.received = self._ends(arrays, sent=True), self._ends(arrays, sent=False)
        return bound

    def _copied(self, arrays: Sequence[Any]) -> Calls:
        """The copies for fields that are periodic within the rank: both ends at once, unless they come in rounds."""
        calls: Calls = []
        for message in self._copies:
            for slab, target in zip(*(self._place.slabs(message, sent) for sent in (True, False)), strict=True):
                of = slab.type
                if of.decomposition.halo[slab.dim] <= of.decomposition.shape[slab.dim]:
                    continue
                values = self._place.device.zeros((slab.nbytes,), np.uint8).view(of.dtype)
                calls.append((of.kernels.pack_slab, (*slab.arguments(arrays), values)))
                if self._adds:
                    calls.append((of.kernels.clear_slab, slab.arguments(arrays)))
                kernel = of.kernels.add_slab if self._adds else of.kernels.unpack_slab
                calls.append((kernel, (*target.arguments(arrays), values)))
        for number, dim in self.wraps:
            of = self._place.types[number]
            if of.decomposition.halo[dim] > of.decomposition.shape[dim]:
                continue
            kernel = of.kernels.fold_ends if self._adds else of.kernels.wrap_ends
            calls.append((kernel, (of.slabs(arrays[number], dim), of.decomposition.halo[dim])))
        return calls

    def _bind_in_place(self, bound: BoundPhase, arrays: Sequence[Any]) -> None:
        """Add the messages that MPI sends from the fields and receives into them."""
        place = self._place
        receives, sends = [], []
        for message in self._in_place:
            tag = place.first_tag + message.tag
            if message.recv_from is not None:
                memory, made = _memory(arrays, place.slabs(message, sent=False))
                receives.append(place.comm.Recv_init(memory, message.recv_from, tag))
                bound.types += made
            if message.send_to is not None:
                memory, made = _memory(arrays, place.slabs(message, sent=True))
                sends.append(place.comm.Send_init(memory, message.send_to, tag))
                bound.types += made
        bound.owned = receives + sends
        bound.requests = receives + self._buffers.requests + sends

    def _ends(self, arrays: Sequence[Any], sent: bool) -> list[End]:
        """One end of all messages, in the fields: the data sent, or received, in each direction has one checksum."""
        found: dict[tuple[int, int], End] = {}
        place = self._place
        for message in self._messages:
            peer = message.send_to if sent else message.recv_from
            if peer is None:
                continue
            tag = place.first_tag + SEAL * place.plan.tags_of_a_way + entry_of(message)
            parts = [slab.part(arrays) for slab in place.slabs(message, sent)]
            end = found.setdefault((peer, tag), End(peer, tag, f"halo along {message.axis}", []))
            found[peer, tag] = End(peer, tag, end.name, [*end.arrays, *parts])
        return list(found.values())

    def free(self) -> None:
        """Free the persistent requests."""
        self._buffers.free()


def _memory(arrays: Sequence[Any], slabs: Sequence[Slab]) -> tuple[Any, list[MPI.Datatype]]:
    """The memory of contiguous slabs as one message, and the datatypes made for it."""
    if len(slabs) == 1:
        return (MPI.memory.fromaddress(slabs[0].address(arrays), slabs[0].nbytes), MPI.BYTE), []
    joined = MPI.BYTE.Create_hindexed([slab.nbytes for slab in slabs], [slab.address(arrays) for slab in slabs])
    return (MPI.BOTTOM, 1, joined.Commit()), [joined]
