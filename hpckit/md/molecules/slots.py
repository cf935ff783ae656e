"""Where the particles of molecules are: the slots of this rank and its ghosts by ids, between two rebuilds."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.particles.molecules.bonds.dispatch import index_slots
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles


class MoleculeSlots:
    """ids: of own slots and ghosts, float64, -1 for none. of_ids: the slots of each id, see `index_slots` of
    `kernels.particles.molecules.bonds.reference`. partners: those that were found since the last rebuild, by what was
    looked for. Arrays may go on behind the slots.
    """

    def __init__(self) -> None:
        self.ids: Any = np.zeros(0)
        self.of_ids: tuple = (np.zeros(0, np.int32), np.zeros(0, np.int32))
        self.partners: dict[bytes, tuple] = {}

    def number(self, particles: Particles, ghosts: GhostExchange, slots: int, count: int) -> None:
        """Collective: give each of all `slots` its id, those of ghosts by messages; count: particles of all ranks."""
        zeros, own = particles.device.zeros, particles.slots
        self.partners.clear()
        if len(self.ids) < slots or len(self.of_ids[0]) != count:
            self.ids = zeros((particles.capacity,))
            self.of_ids = zeros((count,), np.int32), zeros((particles.capacity,), np.int32)
        self.ids[:own] = particles.ids[:own]
        self.ids[own:slots] = -1.0
        values = self.ids.reshape(1, -1, 1)
        ghosts.start_values(values)
        ghosts.finish_values(values)
        index_slots(self.ids, slots, *self.of_ids)
