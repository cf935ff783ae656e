"""A change of layout that runs again and again: on one node through memory that its ranks share, else by messages."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np

from hpckit.comm.agree import min_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.comm.shared.transport import ALIGNMENT, Flags, Transport
from hpckit.errors import SetupError
from hpckit.kernels.device_array import is_device_array
from hpckit.plan.protocol import NOBODY
from hpckit.plan.tensors.hop import Hop
from hpckit.plan.tensors.redistribution import RedistributionPlan
from hpckit.tensors.exchange import Box, MessageBox, added, program, redistribute, slots_for

__communicates__ = True  # its frames are not call sites
MOST = 1 << 22  # bytes that a rank sends in a hop through shared memory; MPI moves longer messages as quickly


class LayoutChange:
    """Runs a plan of changes of layout for local arrays of one dtype; made by all ranks of the mesh.

    `change(local)` gives the local array in the new layout, as `redistribute` does, with the same bits. Between
    `change.start(local)` and `change.finish()` the rank may compute: on one node the others need nothing more of it.
    Arrays on GPUs, messages between nodes, long ones and those with checksums go by `redistribute`, in `finish`.
    """

    def __init__(self, mesh: Mesh, plan: RedistributionPlan, dtype: np.dtype) -> None:
        self.mesh, self.plan = mesh, plan
        self._local: Any = None
        self._exchanges = _in_memory(mesh, plan, dtype)
        self._observer = mesh.observer
        self._report = mesh.observer.exchange(mesh.comm, "layout", "change of layout", dtype.str)
        self._report.meet(sorted({peer for each in self._exchanges or () for peer in each.peers}))

    def __call__(self, local: Any) -> Any:
        """Collective: the local array in the new layout; a new array."""
        self.start(local)
        return self.finish()

    def start(self, local: Any) -> None:
        """Give the others what they need first; `local` must stay as it is until `finish`."""
        self._local = local
        self._begun = self._exchanges is not None and not is_device_array(local)
        if self._begun:
            assert self._exchanges is not None
            if self._observer.on:
                self._report.begin()
            self._exchanges[0].start(local)
            if self._observer.on:
                self._report.posted()

    def finish(self) -> Any:
        """Collective: wait for what the others give; the local array in the new layout, a new one."""
        local, self._local = self._local, None
        if not self._begun:
            return redistribute(self.mesh, self.plan, local)
        if self._observer.on:
            self._report.wait()
        waited = 0.0
        for number, exchange in enumerate(self._exchanges or ()):
            if number:
                exchange.start(local)
            begin = time.perf_counter()
            exchange.flags.wait()
            waited += time.perf_counter() - begin
            local = exchange.finish(local)
        if self._observer.on:
            self._report.end(waited=waited)
        return local


class _Part(NamedTuple):
    """A message in shared memory: its two buffers, taken in turn, and its box in the local array, or in a summand."""

    buffers: tuple[np.ndarray, np.ndarray]
    box: Box
    summand: int


class MemoryExchange:
    """The messages of a rank under way at once, each of which has a peer that sends one back. shape: of a summand of
    the new local array; None: what arrives is added to the old one.
    """

    def __init__(
        self,
        transport: Transport,
        dtype: np.dtype,
        sends: list[MessageBox],
        receives: list[MessageBox],
        kept: list[tuple[MessageBox, MessageBox]],
        shape: tuple[int, ...] | None,
        filled: tuple[bool, ...],
    ) -> None:
        self.flags, self._kept, self._shape, self._filled = Flags(transport.comm), kept, shape, filled
        place, own = transport.place, transport.comm.rank
        self.peers = [part.peer for part in sends]
        self._out = [_part(transport, dtype, own, place[part.peer], part) for part in sends]
        self._in = [_part(transport, dtype, part.peer, place[own], part) for part in receives]
        self.flags.meet(
            [transport.flag(own, place[part.peer]) for part in sends],
            [transport.flag(part.peer, place[own]) for part in receives],
        )

    def start(self, local: np.ndarray) -> None:
        """Give the others their parts."""
        turn = (self.flags.number + 1) & 1
        for part in self._out:
            part.buffers[turn][...] = local[part.box]
        self.flags.post()

    def finish(self, local: np.ndarray) -> np.ndarray:
        """The new local array, once all has arrived."""
        turn = self.flags.number & 1
        if self._shape is None:
            total = local.copy()
            for part in self._in:
                total += part.buffers[turn]
            return total
        slots = slots_for(self._shape, self._filled, local)
        for before, after in self._kept:
            slots[after.summand][after.box] = local[before.box]
        for part in self._in:
            slots[part.summand][part.box] = part.buffers[turn]
        return added(slots)


def _part(transport: Transport, dtype: np.dtype, rank: int, k: int, part: MessageBox) -> _Part:
    """Message k of a rank as arrays."""
    shape = tuple(each.stop - each.start for each in part.box)
    nbytes = math.prod(shape) * dtype.itemsize
    first, second = (transport.message(rank, k, turn)[:nbytes].view(dtype).reshape(shape) for turn in (0, 1))
    return _Part((first, second), part.box, part.summand)


def _in_memory(mesh: Mesh, plan: RedistributionPlan, dtype: np.dtype) -> list[MemoryExchange] | None:
    """Collective: the exchanges of a plan in the memory of a node; None where they go by messages."""
    rounds = [each for hop in plan.hops for each in _rounds(hop, mesh.rank)]
    mutual = all({part.peer for part in sends} == {part.peer for part in takes} for sends, takes, *_ in rounds)
    small = plan.traffic()[1] <= MOST and not mesh.observer.checks_messages
    fits = min_of_ranks(mesh.comm, np.array(mutual and small, np.int64))  # a rank without messages fits, too
    if not fits or mesh.size == 1:
        return None
    transports = []
    for sends, *_ in rounds:
        transport = Transport(mesh.comm)
        if transport.node.size < mesh.size:
            return None
        counts = np.zeros(mesh.size, np.int64)
        for part in sends:
            nbytes = math.prod(each.stop - each.start for each in part.box) * dtype.itemsize
            counts[transport.place[part.peer]] = -(-nbytes // ALIGNMENT) * ALIGNMENT
        try:
            transport.prepare(counts.tolist())
        except SetupError:  # on all ranks alike
            return None
        transports.append(transport)
    min_of_ranks(mesh.comm, np.array(0, np.int64))  # after it the tables of all ranks are written
    return [MemoryExchange(transport, dtype, *each) for transport, each in zip(transports, rounds, strict=True)]


def _rounds(
    hop: Hop, rank: int
) -> list[tuple[list[MessageBox], list[MessageBox], list, tuple[int, ...] | None, tuple[bool, ...]]]:
    """What a rank sends and takes, at once, in each round of a hop; what it keeps; the shape of what it makes, None
    where it adds to what it has; and which summands that fills.
    """
    its = program(hop, rank)
    if hop.doubling:
        bounds = hop.source.bounds()[rank]
        whole = tuple(slice(0, int(stop - start)) for start, stop in bounds)
        return [
            (
                [MessageBox(peer, whole) for peer in gives],
                [MessageBox(taker, whole)] if taker != NOBODY else [],
                [],
                None,
                (),
            )
            for gives, taker in its.doubled
        ]
    own = [part for part in its.sends if part.peer == rank]
    kept = [(own[0], part) for part in its.receives if part.peer == rank]
    away, coming = ([part for part in each if part.peer != rank] for each in (its.sends, its.receives))
    return [(away, coming, kept, its.shape, its.filled)]
