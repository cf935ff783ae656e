"""Charged particles: a pair potential with Coulomb's within a cutoff, and a sum over all images beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels import aligned
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.charged.clusters import dispatch as clusters
from hpckit.kernels.particles.charged.dispatch import force_kernel, forces
from hpckit.kernels.particles.charged.screening import Screening
from hpckit.kernels.particles.pair.dispatch import stored_table
from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.kernels.particles.records.reference import HIGH_SINGLE
from hpckit.md.forces import Forces
from hpckit.md.interaction import Interaction
from hpckit.md.neighbors import NeighborList
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles
from hpckit.particles.returns import GhostReturn

CLUSTERED = ("avx512", "avx2")  # instruction sets by which pairs of clusters are computed, each once


@dataclass(frozen=True, eq=False)
class Charged:
    """A pair potential with Coulomb's between the charges of the particles.

    screening: what 1/r becomes (`kernels.particles.charged.screening`); strength: the energy of two elementary charges
    at unit distance; of_partners: the screening between partners in a molecule, if it is another one. Raises
    `InputError` for tables of numbers.
    """

    pairs: Interaction
    screening: Screening
    strength: float
    of_partners: Screening | None = None

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
        pairs = interaction.pairs
        super().__init__(pairs.types, pairs.one_cutoff, precision, exact, isa, device)
        self.by_clusters = self.form.isa in CLUSTERED and not exact
        self.screen(interaction)
        self._table = device.to_device(stored_table(pairs.table, self.form))
        self._root = float(np.sqrt(interaction.strength))
        self.charges, self._stored = device.zeros((0,)), device.zeros((0,), self.form.dtype)
        self.energies = device.zeros((0,))
        self._longest2 = interaction.cutoff**2
        self._tiles = np.zeros((0, 3, CLUSTER))
        self._back: GhostReturn | None = None  # of what ghosts feel, where each pair is computed once

    def screen(self, interaction: Charged) -> None:
        """Take the screening of an interaction that differs in nothing else. Raises `InputError` for potentials
        without a form for GPUs.
        """
        pairs, screening = interaction.pairs, interaction.screening
        try:
            self._kernels = self._compiled(pairs, screening)
        except TypeError as error:
            raise InputError(f"the potential {pairs.potential.key[1]} has no form for GPUs: {error}") from error
        self._constants = self.device.to_device(screening.constants.astype(self.form.dtype))

    def _compiled(self, pairs: Interaction, screening: Screening) -> dict[Any, Any]:
        """A kernel for each of what may be asked for."""
        if not self.by_clusters:
            forms = {measure: replace(self.form, measure=measure) for measure in (False, True)}
            return {measure: force_kernel(pairs.potential, form, screening.key) for measure, form in forms.items()}
        rules = clusters.rules_of(pairs.table) if pairs.types > self.form.near_types else None
        self._numbers_of_types = np.zeros((0, pairs.types)) if rules is None else rules[1]
        one_reach = pairs.one_cutoff and pairs.cutoff == screening.cutoff
        what = pairs.potential, self.form, screening.key, None if rules is None else rules[0], one_reach
        return {both: clusters.force_kernel(*what, both) for both in (False, True)}

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:
        """Collective, after a rebuild: the charges of all slots."""
        self.charges = self.device.zeros((neighbors.slots,))
        self.charges[: particles.slots] = self._root * particles.charges[: particles.slots]
        values = self.charges.reshape(1, -1, 1)
        ghosts.start_values(values)
        ghosts.finish_values(values)
        self._stored = self.charges.astype(self.form.dtype) if self.device.is_gpu else self._lined(self.charges)
        if len(self.energies) < particles.slots:
            self.energies = self.device.zeros((particles.capacity,))
        if self.by_clusters:
            self._back = self._back or GhostReturn(ghosts, RECORD)
            self._back.rebuild()
            self._place_in_clusters(particles, neighbors)

    def _place_in_clusters(self, particles: Particles, neighbors: NeighborList) -> None:
        """What the loop over clusters reads of each slot beside its place, and where it adds."""
        records = particles.positions[: neighbors.slots]
        types = types_of(records)
        self._words = self._lined(
            (HIGH_SINGLE | types.astype(np.int32)).view(np.float32) if self.mixed else records[:, 3]
        )
        self._numbers = self._lined(self._numbers_of_types[:, types].ravel())
        own, count = particles.slots // CLUSTER, neighbors.slots // CLUSTER
        self._felt, self._pushed = np.zeros((own, 3, CLUSTER)), aligned.zeros((count, 3, CLUSTER), np.float64)
        assert neighbors.clusters is not None
        self._found = clusters.room_for_hits(neighbors.clusters, own)

    def _lined(self, values: np.ndarray) -> np.ndarray:
        """A copy in the form's precision from a line of the cache on: a vector from two lines takes twice as long."""
        found = aligned.zeros(values.shape, self.form.dtype)
        found[...] = values
        return found

    def prepare(self, particles: Particles, neighbors: NeighborList, first: int, stop: int) -> None:
        """See `Forces.prepare`."""
        if not self.by_clusters:
            super().prepare(particles, neighbors, first, stop)
            return
        if len(self._tiles) != neighbors.slots // CLUSTER:
            self._tiles = aligned.zeros((neighbors.slots // CLUSTER, 3, CLUSTER), self.form.dtype)
        last = min(stop, particles.slots + particles.ghost_slots)
        clusters.to_tiles(particles.positions, first // CLUSTER, last // CLUSTER, neighbors.center, self._tiles)

    def begin(self, particles: Particles, measure: int) -> None:
        """See `Forces.begin`."""
        if measure:
            self.reserve_tallies(particles)
        if self.by_clusters:
            self._pushed[...] = 0.0
            if measure == VIRIAL:
                self.tallies[: particles.slots, 0] = self.energies[: particles.slots] = 0.0

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Write the forces of the slots of a part of the lists; see `Forces.compute`."""
        if self.by_clusters:
            near = neighbors.clusters
            assert near is not None
            own = self._words, self._numbers, self._table, self._constants, self._longest2
            out = self._felt.reshape(-1), self._pushed.reshape(-1), self.tallies.reshape(-1), self.energies
            kernel = self._kernels[bool(measure) and measure != VIRIAL]
            kernel(part, self._tiles.reshape(-1), self._stored, *own, *near[:3], self._found, *out)
            return
        lists = neighbors.lists
        assert lists is not None
        given = self.records(particles), lists, self._table, self._stored, self._constants
        wanted = bool(measure)
        forces(self._kernels[wanted], self.form, part, *given, particles.forces, self.tallies, self.energies)

    def finish(self, particles: Particles, neighbors: NeighborList, measure: int) -> None:
        """See `Forces.finish`; what ghosts feel leaves for their owners."""
        if self._back is not None:
            where = particles.positions, particles.slots, particles.ghost_slots, neighbors.center
            clusters.finish(*where, self._felt, self._pushed, bool(measure), particles.forces, self.tallies)
            self._back.start(particles.forces[None])

    def complete(self, particles: Particles) -> None:
        """Collective where pairs are computed by clusters; see `Forces.complete`."""
        if self._back is not None:
            self._back.finish(particles.forces[None])
