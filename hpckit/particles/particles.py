"""Particles of a rank: arrays side by side, in slots that keep neighbors in space near each other in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, FAR_STEP, RECORD
from hpckit.kernels.particles.records.dispatch import permute, type_words, types_of

ALIGNMENT = 64  # bytes: a cache line, and what vector loads want
TRAVELER = np.dtype(
    [("position", "f8", 4), ("velocity", "f8", 4), ("id", "i8"), ("image", "i4", 3), ("unused", "i4")]
)  # a particle on its way to another rank


def aligned(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """An array whose memory starts at a cache line, with zeros."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


class Particles:
    """What a rank knows of particles: its own in the first `slots` slots, some of them empty (id -1), then ghosts.

    positions: [capacity, 4], x, y, z and the type (`particles.records`), wrapped into the box at the last rebuild;
    velocities, forces: [capacity, 4], of own slots; ids: from 0; images: int32 [capacity, 3], how many box lengths each
    own particle has gone: x + image * length is its unwrapped place. Slots move at every rebuild: ids say who is who.
    """

    def __init__(self, capacity: int = 0) -> None:
        self.slots = 0
        self.ghost_slots = 0
        self._make(capacity)

    def _make(self, capacity: int) -> None:
        self.positions, self.velocities = aligned((capacity, RECORD)), aligned((capacity, RECORD))
        self.forces = aligned((capacity, RECORD))
        self.ids, self.images = np.full(capacity, -1, np.int64), np.zeros((capacity, 3), np.int32)
        self._spare = (
            aligned((capacity, RECORD)),
            aligned((capacity, RECORD)),
            np.full(capacity, -1, np.int64),
            np.zeros((capacity, 3), np.int32),
        )

    @property
    def capacity(self) -> int:
        """Slots that there is room for."""
        return len(self.ids)

    @property
    def own(self) -> npt.NDArray[np.int64]:
        """The slots that hold own particles."""
        return np.flatnonzero(self.ids[: self.slots] >= 0)

    @property
    def count(self) -> int:
        """Own particles."""
        return int((self.ids[: self.slots] >= 0).sum())

    @property
    def types(self) -> npt.NDArray[np.int64]:
        """The type of each own slot, from 0 (0 where it is empty)."""
        return np.where(self.ids[: self.slots] >= 0, types_of(self.positions[: self.slots]), 0)

    def reserve(self, capacity: int) -> None:
        """Make room for at least that many slots; what is in them stays, forces are lost."""
        if capacity <= self.capacity:
            return
        kept: tuple[npt.NDArray[Any], ...] = (self.positions, self.velocities, self.ids, self.images)
        self._make(-(-int(1.1 * capacity) // CLUSTER) * CLUSTER)
        now: tuple[npt.NDArray[Any], ...] = (self.positions, self.velocities, self.ids, self.images)
        for new, old in zip(now, kept, strict=True):
            new[: len(old)] = old

    def append(self, travelers: npt.NDArray[Any]) -> None:
        """Add particles, behind the slots in use: ghosts are forgotten."""
        first, stop = self.slots, self.slots + len(travelers)
        self.reserve(stop)
        self.positions[first:stop], self.velocities[first:stop] = travelers["position"], travelers["velocity"]
        self.ids[first:stop], self.images[first:stop] = travelers["id"], travelers["image"]
        self.slots, self.ghost_slots = stop, 0

    def take(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The particles of some own slots, which are empty afterwards."""
        travelers = self.travelers(slots)
        self.ids[slots] = -1
        self.velocities[slots] = 0.0
        self.positions[slots] = FAR
        self.positions[slots, 0] = FAR + FAR_STEP * slots
        return travelers

    def travelers(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The particles of some own slots, as they travel."""
        travelers = np.zeros(len(slots), TRAVELER)
        travelers["position"], travelers["velocity"] = self.positions[slots], self.velocities[slots]
        travelers["id"], travelers["image"] = self.ids[slots], self.images[slots]
        return travelers

    def reorder(self, order: npt.NDArray[np.int64], slots: int) -> None:
        """Put particle `order[s]` into slot s, for `slots` slots; -1 leaves a slot empty."""
        self.reserve(slots)
        old = self.positions, self.velocities, self.ids, self.images
        permute(order, slots, *old, *self._spare)
        self.positions, self.velocities, self.ids, self.images = self._spare
        self._spare = old
        self.slots, self.ghost_slots = slots, 0


def make_travelers(
    ids: npt.ArrayLike,
    positions: npt.NDArray[np.float64],
    velocities: npt.NDArray[np.float64],
    types: npt.NDArray[np.int64],
    images: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[Any]:
    """Particles as they travel, from plain arrays: ids [n], positions and velocities [n, 3], types [n] from 0."""
    travelers = np.zeros(len(positions), TRAVELER)
    travelers["position"][:, :3], travelers["velocity"][:, :3] = positions, velocities
    travelers["position"][:, 3], travelers["id"] = type_words(types), ids
    if images is not None:
        travelers["image"] = images
    return travelers
