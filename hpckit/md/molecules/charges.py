"""Charged particles: a pair potential with Coulomb's within a cutoff, and a sum over all images beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels.particles.charged.dispatch import force_kernel, forces
from hpckit.kernels.particles.charged.screening import Screening
from hpckit.kernels.particles.pair.dispatch import stored_table
from hpckit.md.forces import Forces
from hpckit.md.interaction import Interaction
from hpckit.md.neighbors import NeighborList
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles


@dataclass(frozen=True, eq=False)
class Charged:
    """A pair potential with Coulomb's between the charges of the particles.

    screening: what 1/r becomes (`kernels.particles.charged.screening`); strength: the energy of two elementary charges
    at unit distance. Raises `InputError` for tables of numbers.
    """

    pairs: Interaction
    screening: Screening
    strength: float

    def __post_init__(self) -> None:
        if self.pairs.potential.rows_at is not None:
            raise InputError("charges do not go with kind = table", do="choose a potential that is a function")

    @property
    def types(self) -> int:
        """The number of types."""
        return self.pairs.types

    @property
    def cutoff(self) -> float:
        """The longest of the cutoffs."""
        return max(self.pairs.cutoff, self.screening.cutoff)

    @property
    def tail_energy(self) -> np.ndarray | None:
        """See `Interaction`."""
        return self.pairs.tail_energy

    @property
    def tail_virial(self) -> np.ndarray | None:
        """See `Interaction`."""
        return self.pairs.tail_virial


class ChargedForces(Forces):
    """The forces of charged pairs; see `Forces`. `charges` are those of all slots, times the root of the strength;
    `energies` what is of charges in the energy of each slot.
    """

    def __init__(
        self,
        interaction: Charged,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        pairs, screening = interaction.pairs, interaction.screening
        super().__init__(pairs.types, pairs.one_cutoff, precision, exact, isa, device)
        try:
            self._kernels = {
                measure: force_kernel(pairs.potential, replace(self.form, measure=measure), screening.key)
                for measure in (False, True)
            }
        except TypeError as error:
            raise InputError(f"the potential {pairs.potential.key[1]} has no form for GPUs: {error}") from error
        self._table = device.to_device(stored_table(pairs.table, self.form))
        self._constants = device.to_device(screening.constants.astype(self.form.dtype))
        self._root = float(np.sqrt(interaction.strength))
        self.charges, self._stored = device.zeros((0,)), device.zeros((0,), self.form.dtype)
        self.energies = device.zeros((0,))

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:
        """Collective, after a rebuild: the charges of all slots."""
        self.charges = self.device.zeros((neighbors.slots,))
        self.charges[: particles.slots] = self._root * particles.charges[: particles.slots]
        values = self.charges.reshape(1, -1, 1)
        ghosts.start_values(values)
        ghosts.finish_values(values)
        self._stored = self.charges.astype(self.form.dtype)
        if len(self.energies) < particles.slots:
            self.energies = self.device.zeros((particles.capacity,))

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: bool, stage: int = 0) -> None:
        """Write the forces of the slots of a part of the lists; see `Forces.compute`."""
        if measure:
            self.reserve_tallies(particles)
        lists = neighbors.lists
        assert lists is not None
        given = self.records(particles), lists, self._table, self._stored, self._constants
        forces(self._kernels[measure], self.form, part, *given, particles.forces, self.tallies, self.energies)
