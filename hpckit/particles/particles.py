"""Particles of a rank: arrays side by side, in slots that keep neighbors in space near each other in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.comm.device import HOST, Device
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.records.dispatch import PIECE, pack, permute, type_words, unpack

CHARGE = 9  # its place among the numbers of a packed particle
ROOM = 1.1  # reserved over needed capacity
PACKED = np.dtype(
    [
        *(("position", "f8", 4), ("velocity", "f8", 4), ("id", "i8"), ("charge", "f8")),
        *(("image", "i4", 3), ("unused", "i4")),
    ]
)  # a particle in one piece, as it is sent to another rank


class Particles:
    """The particles of a rank: its own in the first `slots` slots, some of them empty (id -1), then ghosts.

    positions: [capacity, 4], x, y, z and the type (`kernels.particles.records`), wrapped into the box at the last
    rebuild; velocities, forces: [capacity, 4], of own slots; ids: from 0; images: int32 [capacity, 3], how many box
    lengths each own particle has gone: x + image * length is its unwrapped position; charges: float64 [capacity], of
    own slots, 0 in empty ones. Every rebuild reorders the slots: ids identify particles. All arrays are on `device`; on
    a GPU no slot is empty after a rebuild.
    """

    def __init__(self, device: Device = HOST) -> None:
        self.device = device
        self.slots = self.ghost_slots = 0
        self._charged = False  # whether there was ever one with a charge
        self._make(0)

    def _make(self, capacity: int) -> None:
        self.forces = self.device.zeros((capacity, RECORD))
        self._take_up(self._arrays(capacity))
        self._spare = self._arrays(capacity)
        self.charges = self.device.zeros((capacity,))

    def _arrays(self, capacity: int) -> tuple[Any, Any, Any, Any]:
        zeros = self.device.zeros
        ids = zeros((capacity,), np.int64)
        ids[:] = -1
        return zeros((capacity, RECORD)), zeros((capacity, RECORD)), ids, zeros((capacity, 3), np.int32)

    def _take_up(self, arrays: tuple[Any, Any, Any, Any]) -> None:
        self._held = arrays
        self.positions, self.velocities, self.ids, self.images = arrays

    @property
    def capacity(self) -> int:
        """The number of allocated slots."""
        return len(self.ids)

    @property
    def own(self) -> Any:
        """The slots that hold own particles, an array on the device."""
        return self.device.xp.flatnonzero(self.ids[: self.slots] >= 0)

    @property
    def count(self) -> int:
        """The number of own particles; waits for a GPU."""
        return int(self.device.xp.count_nonzero(self.ids[: self.slots] >= 0))

    def reserve(self, capacity: int) -> None:
        """Allocate at least `capacity` slots; their contents are kept, except forces."""
        if capacity <= self.capacity:
            return
        held = *self._held, self.charges
        self._make(-(-int(ROOM * capacity) // CLUSTER) * CLUSTER)
        for new, old in zip((*self._held, self.charges), held, strict=True):
            new[: len(old)] = old

    def append(self, packed: npt.NDArray[Any]) -> None:
        """Add particles (`PACKED`, in host memory) behind the slots in use; discards the ghosts."""
        self.append_rows(np.ascontiguousarray(packed).view(np.float64).reshape(-1, PIECE))

    def append_rows(self, rows: npt.NDArray[np.float64]) -> None:
        """As `append`, of records as they are sent: float64[n, PIECE], in host memory."""
        first, stop = self.slots, self.slots + len(rows)
        self.reserve(stop)
        self._charged = self._charged or bool(rows[:, CHARGE].any())
        unpack(self.device.to_device(rows), first, *self._held, self.charges)
        self.slots, self.ghost_slots = stop, 0

    def leave(self, slots: np.ndarray, rows: npt.NDArray[np.float64]) -> None:
        """Take the particles of some own slots into `rows`, float64[n, PIECE]; the slots are empty afterwards."""
        pack(slots, len(slots), True, *self._held, self.charges, rows)

    def take(self, slots: Any) -> npt.NDArray[Any]:
        """Remove and return the particles of some own slots, packed; the slots are empty afterwards."""
        return self.packed(slots, leave=True)

    def packed(self, slots: Any, leave: bool = False) -> npt.NDArray[Any]:
        """The particles of some own slots as `PACKED` records in host memory; with `leave` the slots are then empty."""
        rows = self.device.zeros((len(slots), PIECE))
        pack(slots, len(slots), leave, *self._held, self.charges, rows)
        return self.device.to_host(rows).view(PACKED).reshape(-1)

    def reorder(self, order: Any, slots: int) -> None:
        """Put particle `order[s]` into slot s, for `slots` slots; -1 leaves a slot empty."""
        self.reserve(slots)
        old = self._held
        permute(order, slots, *old, *self._spare)
        if self._charged:
            chosen = order[:slots]
            empty = chosen < 0
            charges = self.charges[chosen]
            charges[empty] = 0.0
            self.charges[:slots] = charges
        self._take_up(self._spare)
        self._spare = old
        self.slots, self.ghost_slots = slots, 0

    def on_host(self) -> Particles:
        """The own particles and their forces in host memory, in the same slots; do not modify them.

        A copy if they are on a GPU; waits for it.
        """
        if not self.device.is_gpu:
            return self
        host = Particles()
        host.append(self.packed(self.device.to_device(np.arange(self.slots))))
        host.forces[: self.slots] = self.device.to_host(self.forces[: self.slots])
        return host


def pack_particles(
    ids: npt.ArrayLike,
    positions: npt.NDArray[np.float64],
    velocities: npt.NDArray[np.float64],
    types: npt.NDArray[np.int64],
    images: npt.NDArray[np.int32] | None = None,
    charges: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[Any]:
    """Particles as `PACKED` records from plain arrays: ids [n], positions and velocities [n, 3], types [n] from 0.

    images [n, 3] and charges [n] are 0 where left out.
    """
    packed = np.zeros(len(positions), PACKED)
    packed["position"][:, :3], packed["velocity"][:, :3] = positions, velocities
    packed["position"][:, 3], packed["id"] = type_words(types), ids
    if images is not None:
        packed["image"] = images
    if charges is not None:
        packed["charge"] = charges
    return packed
