"""What a message of a halo exchange carries: slabs of fields, and the two directions of a phase."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from hpckit.grid.layout import Layout
from hpckit.plan.grid.halo import halo_plan

ALIGNMENT = 64  # bytes, of each slab in a buffer
# A slab of one piece above this size is a message of its own, from array to array by MPI. Below it the latency of a
# message costs more than gathering the slabs of several fields (a third to a half of an exchange at blocks of 32^3 to
# 64^3), and than two copies through memory that both ranks see (a quarter at 64^3; at 128^3 MPI is quicker by a tenth).
LARGE = 64 * 1024


@dataclass(frozen=True)
class Slab:
    """Some layers of a field along the dim of a phase."""

    field: int
    layout: Layout
    dim: int
    first: int
    layers: int
    pieces: int  # separate stretches of memory
    values: int  # in one layer of a piece

    @property
    def nbytes(self) -> int:
        """Bytes of all its layers."""
        return self.pieces * self.layers * self.values * self.layout.dtype.itemsize

    def arguments(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, int, int]:
        """What the slab kernels take: the array with the dim in the middle, the first layer, how many."""
        return self.layout.slabs(arrays[self.field], self.dim), self.first, self.layers

    def part(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Its values, a view that keeps the array as little alive as the arguments do."""
        whole, first, layers = self.arguments(arrays)
        return whole[:, first : first + layers]

    def address(self, arrays: Sequence[np.ndarray]) -> int:
        """Where a slab of one piece starts in memory."""
        return arrays[self.field].ctypes.data + self.first * self.values * self.layout.dtype.itemsize


@dataclass(frozen=True)
class Side:
    """What one rank sends and receives in one direction of a phase; None for nobody, `tag` as the plan has it."""

    tag: int
    send_to: int | None
    recv_from: int | None
    send: tuple[Slab, ...]
    recv: tuple[Slab, ...]

    def only(self, fields: Sequence[int]) -> Side:
        """The part of it that concerns some of the fields."""
        return Side(
            self.tag,
            self.send_to,
            self.recv_from,
            tuple(slab for slab in self.send if slab.field in fields),
            tuple(slab for slab in self.recv if slab.field in fields),
        )

    def among(self, ranks: Collection[int]) -> Side:
        """The part of it that goes to and comes from some of the ranks."""
        send_to = self.send_to if self.send_to in ranks else None
        return Side(self.tag, send_to, self.recv_from if self.recv_from in ranks else None, self.send, self.recv)

    def away_from(self, ranks: Collection[int]) -> Side:
        """The part that goes to and comes from the others."""
        send_to = self.send_to if self.send_to not in ranks else None
        return Side(self.tag, send_to, self.recv_from if self.recv_from not in ranks else None, self.send, self.recv)

    def back(self) -> Side:
        """The same ways the other way round: halos return to their owners."""
        return Side(self.tag, self.recv_from, self.send_to, self.recv, self.send)


def large_fields(side: Side) -> list[int]:
    """The fields whose slab is one piece and large."""
    return [slab.field for slab in side.send if slab.pieces == 1 and slab.nbytes > LARGE]


def slab_starts(slabs: Sequence[Slab]) -> list[int]:
    """Where each slab starts in a buffer for all of them, aligned, and last the size of the buffer; bytes."""
    return [0, *accumulate(-(-slab.nbytes // ALIGNMENT) * ALIGNMENT for slab in slabs)]


def side_of(layouts: Sequence[Layout], dim: int, turn: int, rank: int) -> Side:
    """The messages of all fields along the dim, leaving low (turn 0) or high (turn 1)."""
    sends: list[Slab] = []
    receives: list[Slab] = []
    tag, send_to, recv_from = 0, None, None
    for number, layout in enumerate(layouts):
        phases = halo_plan(layout.decomposition).messages(rank)
        here = [it for phase in phases for it in phase if (it.dim, it.side) == (dim, 2 * turn - 1)]
        if not here:
            continue
        (message,) = here
        pieces, values = layout.layer_values(rank, dim)
        tag, send_to, recv_from = message.tag, message.send_to, message.recv_from
        for boxes, box in ((sends, message.send[dim]), (receives, message.recv[dim])):
            boxes.append(Slab(number, layout, dim, box.start, box.stop - box.start, pieces, values))
    return Side(tag, send_to, recv_from, tuple(sends), tuple(receives))
