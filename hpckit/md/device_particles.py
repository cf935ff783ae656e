"""Particles of a rank on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.comm.device import Device
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.records.cuda import permute
from hpckit.particles.particles import TRAVELER, Particles

ROOM = 1.1  # how much more is reserved than is needed now


class DeviceParticles:
    """As `Particles`, in the memory of a GPU: own particles in the first `slots` slots, none empty, then ghosts.

    Arrays have the names and shapes of those of `Particles`, and the same records. Made from the own particles of
    `host`; `to_host` gives them back.
    """

    def __init__(self, host: Particles, device: Device) -> None:
        self.device = device
        self.slots = self.ghost_slots = 0
        self._make(0)
        self.append(host.travelers(host.own))

    def _make(self, capacity: int) -> None:
        zeros = self.device.zeros
        self.forces = zeros((capacity, RECORD))
        self._arrays, self._spare = (
            (zeros((capacity, RECORD)), zeros((capacity, RECORD)), zeros((capacity,), np.int64),
             zeros((capacity, 3), np.int32))
            for _ in range(2)
        )  # fmt: skip
        self.positions, self.velocities, self.ids, self.images = self._arrays

    @property
    def capacity(self) -> int:
        """Slots that there is room for."""
        return len(self.ids)

    @property
    def own(self) -> npt.NDArray[np.int64]:
        """The slots that hold own particles."""
        return np.arange(self.slots)

    @property
    def count(self) -> int:
        """Own particles."""
        return self.slots

    def reserve(self, capacity: int) -> None:
        """Make room for at least that many slots; what is in them stays, forces are lost."""
        if capacity <= self.capacity:
            return
        kept, n = self._arrays, self.capacity
        self._make(int(ROOM * capacity) + 1)
        for new, old in zip(self._arrays, kept, strict=True):
            new[:n] = old

    def append(self, travelers: npt.NDArray[Any]) -> None:
        """Add particles of the host behind the own ones: ghosts are forgotten."""
        first, stop = self.slots, self.slots + len(travelers)
        self.reserve(stop)
        for array, name in zip(self._arrays, ("position", "velocity", "id", "image"), strict=True):
            array[first:stop] = self.device.to_device(travelers[name])
        self.slots, self.ghost_slots = stop, 0

    def travelers(self, slots: Any) -> npt.NDArray[Any]:
        """The particles of some own slots (indices on the device, or a slice), as they travel, on the host."""
        found = [self.device.to_host(array[slots]) for array in self._arrays]
        travelers = np.zeros(len(found[0]), TRAVELER)
        for name, values in zip(("position", "velocity", "id", "image"), found, strict=True):
            travelers[name] = values
        return travelers

    def reorder(self, order: Any, slots: int) -> None:
        """Put particle `order[s]` into slot s, for `slots` slots."""
        permute(order, slots, *self._arrays, *self._spare)
        self._arrays, self._spare = self._spare, self._arrays
        self.positions, self.velocities, self.ids, self.images = self._arrays
        self.slots, self.ghost_slots = slots, 0

    def to_host(self) -> Particles:
        """A copy of the own particles and their forces, in the same slots."""
        host = Particles()
        host.append(self.travelers(slice(self.slots)))
        host.forces[: self.slots] = self.device.to_host(self.forces[: self.slots])
        return host
