"""The halo exchange as a plan: who sends which box to whom, in which phase.

One phase a dim. A message carries the full local extent of all other dims, halos included, so what an earlier phase
brought travels on with a later one: corners and edges arrive with two messages a dim (in 3-D, 6 messages reach 26
neighbors). The price is that phases follow each other. Dims held by one rank go first: their phase is a copy within
the rank (or nothing, at walls), and the messages of the split dims then carry it along as whole, contiguous slabs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpckit.plan.grid.decomposition import Decomposition, Slices
from hpckit.plan.topology import Topology

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HaloStep:
    """All ranks' messages of one dim in one direction; rank r sends to `send_to[r]`, receives from `recv_from[r]`.

    `side` is the side of the sender's block that its message leaves by: -1 low, +1 high; it arrives in the halo on
    the opposite side. -1 stands for nobody: a wall. Along `dim` rank r sends its local cells send[0][r] to send[1][r]
    and stores what it gets in recv[0][r] to recv[1][r]; all other dims move in full.
    """

    dim: int
    side: int
    tag: int
    send_to: Ints
    recv_from: Ints
    send: tuple[Ints, Ints]
    recv: tuple[Ints, Ints]


@dataclass(frozen=True)
class Message:
    """One rank's part of a step: what it sends to `send_to` and receives from `recv_from`; None at a wall.

    `send` and `recv` are boxes of the local array. Where both ranks are the rank itself, the message is a copy.
    """

    axis: str
    dim: int
    side: int
    tag: int
    send_to: int | None
    recv_from: int | None
    send: Slices
    recv: Slices


@dataclass(frozen=True)
class HaloPlan:
    """The halo exchange of a decomposition, for all ranks; see `halo_plan`."""

    decomposition: Decomposition
    order: tuple[int, ...]

    def phases(self) -> Iterator[tuple[HaloStep, HaloStep]]:
        """The phases in their order; the two steps of a phase (leaving low, leaving high) fly together."""
        for dim in self.order:
            yield self._step(dim, -1), self._step(dim, +1)

    def messages(self, rank: int) -> tuple[tuple[Message, ...], ...]:
        """The column of one rank: for each phase its messages, those at walls without a peer left out."""
        return tuple(
            tuple(self._message(step, rank) for step in steps if step.send_to[rank] >= 0 or step.recv_from[rank] >= 0)
            for steps in self.phases()
        )

    def message(self, rank: int, dim: int, side: int) -> Message | None:
        """What the rank sends by one side along one dim; None where it has no halo there, or no peer."""
        if dim not in self.order:
            return None
        message = self._message(self._step(dim, side), rank)
        return None if message.send_to is None and message.recv_from is None else message

    def nbytes(self, rank: int, itemsize: int) -> int:
        """Bytes that the rank sends to other ranks in one exchange of one field."""
        shape = self.decomposition.local_shape(rank)
        return itemsize * sum(
            _volume(message.send, shape)
            for phase in self.messages(rank)
            for message in phase
            if message.send_to not in (None, rank)
        )

    @cached_property
    def _steps(self) -> dict[tuple[int, int], HaloStep]:
        """Made once: they hold all ranks, and each rank asks for its column."""
        return {(dim, side): self._made(dim, side) for dim in self.order for side in (-1, 1)}

    def _step(self, dim: int, side: int) -> HaloStep:
        return self._steps[dim, side]

    def _made(self, dim: int, side: int) -> HaloStep:
        dec = self.decomposition
        name, width = dec.topology.names[dim], dec.halo[dim]
        owned = dec.all_owned()[dim]
        # Local cells: halo 0..w, owned w..w+n, halo w+n..w+n+w.
        low_edge, high_edge = np.full_like(owned, width), owned.copy()
        low_halo, high_halo = np.zeros_like(owned), owned + width
        send, recv = (low_edge, high_halo) if side < 0 else (high_edge, low_halo)
        return HaloStep(
            dim=dim,
            side=side,
            tag=2 * dim + (side > 0),
            send_to=dec.topology.all_shifted(name, side),
            recv_from=dec.topology.all_shifted(name, -side),
            send=(send, send + width),
            recv=(recv, recv + width),
        )

    def _message(self, step: HaloStep, rank: int) -> Message:
        shape = self.decomposition.local_shape(rank)
        full = tuple(slice(0, n) for n in shape)

        def box(bounds: tuple[Ints, Ints]) -> Slices:
            along = slice(int(bounds[0][rank]), int(bounds[1][rank]))
            return (*full[: step.dim], along, *full[step.dim + 1 :])

        return Message(
            axis=self.decomposition.topology.names[step.dim],
            dim=step.dim,
            side=step.side,
            tag=step.tag,
            send_to=_somebody(step.send_to[rank]),
            recv_from=_somebody(step.recv_from[rank]),
            send=box(step.send),
            recv=box(step.recv),
        )


def halo_plan(decomposition: Decomposition) -> HaloPlan:
    """The plan that fills the halo of every rank, corners included.

    Dims without a halo have no phase. `plan.messages(rank)` is what one rank executes, `prove(plan)` checks all ranks.
    """
    dims = [d for d in range(decomposition.ndim) if decomposition.halo[d]]
    return HaloPlan(decomposition, phase_order(decomposition.topology, dims))


def phase_order(topology: Topology, dims: Iterable[int]) -> tuple[int, ...]:
    """The order of the phases of some dims: whole ones first (see above), among equals the unit-stride dim, so that
    the slabs of dim 0, contiguous in memory, carry all the others.
    """
    return tuple(sorted(dims, key=lambda d: (topology.sizes[d] > 1, -d)))


def _somebody(rank: np.int64) -> int | None:
    return None if rank < 0 else int(rank)


def _volume(box: Slices, shape: tuple[int, ...]) -> int:
    return int(np.prod([len(range(*part.indices(n))) for part, n in zip(box, shape, strict=True)]))
