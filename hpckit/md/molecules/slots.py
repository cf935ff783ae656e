"""Where the particles of molecules are: the slots of this rank and its ghosts by ids, between two rebuilds."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.particles.molecules.bonds.dispatch import index_slots
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles


class MoleculeSlots:
    """ids: of own slots and ghosts, float64, -1 for none. of_ids: the slots of each id, see `index_slots` of
    `kernels.particles.molecules.bonds.reference`. partners: those that were found since, by what was looked for.
    """

    def __init__(self) -> None:
        self.ids: Any = np.zeros(0)
        self.of_ids: tuple = ()
        self.partners: dict[bytes, tuple] = {}

    def number(self, particles: Particles, ghosts: GhostExchange, slots: int, count: int) -> None:
        """Collective: give each of all `slots` its id, those of ghosts by messages; count: particles of all ranks."""
        zeros = particles.device.zeros
        ids = zeros((1, slots, 1))
        ids[...] = -1.0
        ids[0, : particles.slots, 0] = particles.ids[: particles.slots]
        ghosts.start_values(ids)
        ghosts.finish_values(ids)
        self.ids = ids.reshape(-1)
        self.of_ids = zeros((count,), np.int32), zeros((slots,), np.int32)
        index_slots(self.ids, slots, *self.of_ids)
