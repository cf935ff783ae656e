"""The forces of a rank: the kernels for its interaction, processor and precision, and the arrays they work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.pair.dispatch import TALLY, Form, force_kernel, forces, stored_table
from hpckit.kernels.particles.records.dispatch import to_single
from hpckit.md.interaction import Interaction
from hpckit.md.neighbors import NeighborList
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles
from hpckit.particles.returns import GhostReturn
from hpckit.plan.particles.domain import DomainDecomposition


class Forces(ABC):
    """Computes forces for a part of a neighbor list; with `measure`, energies and virials of the slots too (`tallies`).

    precision: "double", or "mixed" (pairs in float32, sums in float64). exact: forces are added without rounding, so
    that no bit depends on the number of ranks. isa: an entry of `vectors.available()`, the best by default. Forces may
    be computed in several `stages`: before each but the first, ghosts get the `values` that their owners computed in
    the one before. Raises `InputError` for options that this processor, or a GPU as `device`, does not support.
    """

    stages = 1
    values_each = 1  # numbers of each slot in `values`
    still: tuple[int, ...] = ()  # types that do not move
    by_clusters = False  # whether neighbors are listed as pairs of clusters
    by_distance = False  # whether neighbors are taken up to `NeighborList.ends`

    def __init__(
        self, types: int, one_cutoff: bool, precision: str, exact: bool, isa: str | None, device: Device
    ) -> None:
        isa = "cuda" if device.is_gpu else isa or vectors.available()[0]
        if not device.is_gpu and isa not in vectors.available():
            raise InputError(f"this processor has no {isa}", do=f"choose {', '.join(vectors.available())}")
        if precision not in ("double", "mixed"):
            raise InputError(f"precision is double or mixed, not {precision!r}")
        if exact and device.is_gpu:
            raise InputError("repro = True does not run on GPUs", do="leave --gpu out, or set repro = False")
        if exact and precision != "double":
            raise InputError("reproducible forces are added in double precision", do='set precision to "double"')
        kind = "f" if precision == "mixed" else "d"
        self.exact, self.device = exact, device
        self.form = Form(isa, kind, types, False, exact, one_cutoff and not device.is_gpu)
        self._singles = device.zeros((0, RECORD), np.float32)
        self.tallies = device.zeros((0, TALLY))

    @property
    def mixed(self) -> bool:
        """Whether pairs are computed in float32."""
        return self.form.kind == "f"

    @property
    def values(self) -> Any:
        """Numbers of each slot, float64[parts, slots, width], that ghosts get before a later stage."""
        raise NotImplementedError

    def prepare(self, particles: Particles, neighbors: NeighborList, first: int, stop: int) -> None:
        """Convert the positions of the slots first to stop - 1, if pairs are computed in float32."""
        if not self.mixed:
            return
        if len(self._singles) < neighbors.slots:
            self._singles = self.device.zeros((particles.capacity, RECORD), np.float32)
        to_single(particles.positions, first, stop, neighbors.center, self._singles)

    def records(self, particles: Particles) -> Any:
        """The records of positions from which pairs are computed, in their precision."""
        return self._singles if self.mixed else particles.positions

    def reserve_tallies(self, particles: Particles) -> None:
        """Make room for the tallies of all slots."""
        if len(self.tallies) < particles.slots:
            self.tallies = self.device.zeros((particles.capacity, TALLY))

    def forget(self) -> None:  # noqa: B027
        """Before other particles are loaded: drop what belongs to those of now."""

    def leave(  # noqa: B027
        self, mesh: Mesh, domains: DomainDecomposition, particles: Particles, neighbors: NeighborList
    ) -> None:
        """Collective, before particles go to their new ranks: send after them what they have beside `Particles`."""

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:  # noqa: B027
        """Collective, after a rebuild: get what else ghosts have, beside their positions and types."""

    def begin(self, particles: Particles, measure: int) -> None:  # noqa: B027
        """Before the parts of the lists: nothing, unless parts add to what they have in common."""

    def finish(self, particles: Particles, neighbors: NeighborList, measure: int) -> None:  # noqa: B027
        """After all parts and stages."""

    def complete(self, particles: Particles) -> None:  # noqa: B027
        """Collective, after `finish` and what else acts on this rank alone: add what comes from other ranks."""

    def whole(self, neighbors: NeighborList) -> Sequence[Any]:
        """The parts of the lists as they are computed where all ghosts are there."""
        return neighbors.parts.inner, neighbors.parts.outer

    @abstractmethod
    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Do a stage for the slots of a part of the lists (`inner`, one of `inner_parts`, or `outer`); the last writes
        their forces.
        """


class PairForces(Forces):
    """The forces of a pair potential; see `Forces`."""

    by_distance = True

    def __init__(
        self,
        interaction: Interaction,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        super().__init__(interaction.types, interaction.one_cutoff, precision, exact, isa, device)
        potential = interaction.potential
        try:
            self._kernels = {
                measure: force_kernel(potential, replace(self.form, measure=measure)) for measure in (False, True)
            }
        except TypeError as error:
            raise InputError(f"the potential {potential.key[1]} has no form for GPUs: {error}") from error
        self.set_table(interaction)

    def set_table(self, interaction: Interaction) -> None:
        """Take the parameters of an interaction of the same potential from now on."""
        stored = stored_table(interaction.table, self.form, interaction.rows, interaction.potential.rows_at)
        self._table = self.device.to_device(stored)

    def kernel(self, measure: bool) -> Any:
        """The kernel with energies and virials, or without."""
        return self._kernels[measure]

    def whole(self, neighbors: NeighborList) -> Sequence[Any]:
        """See `Forces.whole`; lists of particles by themselves need no parts."""
        every = neighbors.lists and neighbors.lists.every
        return super().whole(neighbors) if every is None else (every,)

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Write the forces of the slots of a part of the lists; see `Forces.compute`."""
        if measure:
            self.reserve_tallies(particles)
        lists = neighbors.lists
        assert lists is not None
        what = part, self.records(particles), lists.bounds, neighbors.ends, lists.entries, self._table
        forces(self._kernels[bool(measure)], self.form, *what, particles.forces, self.tallies)


class CenteredForces(Forces):
    """Forces of potentials whose energy at a particle depends on the vectors to all that is near it: the rank that has
    the particle pushes it and its neighbors, and what ghosts got goes back to their owners.

    Forces are added to `pushed`, [slots, 4], which are those of the particles, or, of an exact form, [slots, 8]:
    multiples of two scales, whose sums have no rounding (`kernels.particles.loops`). on_cpu: what they are called where
    they run on the CPU alone; "": anywhere.
    """

    on_cpu = ""

    def __init__(
        self, types: int, one_cutoff: bool, precision: str, exact: bool, isa: str | None, device: Device
    ) -> None:
        if device.is_gpu and self.on_cpu:
            raise InputError(f"{self.on_cpu} run on the CPU only", do="leave --gpu out")
        super().__init__(types, one_cutoff, precision, exact, isa, device)
        if self.mixed:
            raise InputError("forces of many bodies are computed in double precision", do="omit precision")
        self._width = 2 * RECORD if exact else RECORD
        self.pushed = device.zeros((0, self._width))
        self._back: GhostReturn | None = None

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:
        """See `Forces.meet`."""
        if self._back is None:
            self._back = GhostReturn(ghosts, self._width)
        self._back.rebuild()
        if not self.exact:
            self.pushed = particles.forces
        elif len(self.pushed) < neighbors.slots:
            self.pushed = self.device.zeros((particles.capacity, self._width))

    def begin(self, particles: Particles, measure: int) -> None:
        """See `Forces.begin`."""
        self.pushed[...] = 0.0
        if measure:
            self.reserve_tallies(particles)

    def finish(self, particles: Particles, neighbors: NeighborList, measure: int) -> None:
        """Collective: add what ghosts elsewhere have got."""
        assert self._back is not None
        values = self.pushed.reshape(1, *self.pushed.shape)
        self._back.start(values)
        self._back.finish(values)
        if self.exact:
            own = slice(particles.slots)
            particles.forces[own] = self.pushed[own, :RECORD] + self.pushed[own, RECORD:]


class NearForces(Forces):
    """Forces in two stages: the first notes the neighbors within the cutoff, and the second takes only these."""

    stages = 2
    near_each, counts_each = 0, 1  # room of each slot in `near`, beside its list, and in `counts`

    def __init__(
        self, types: int, one_cutoff: bool, precision: str, exact: bool, isa: str | None, device: Device
    ) -> None:
        super().__init__(types, one_cutoff, precision, exact, isa, device)
        self.near, self.counts = device.zeros((0,), np.int32), device.zeros((0,), np.int32)

    def reserve_near(self, particles: Particles, neighbors: NeighborList) -> None:
        """Make room for the near neighbors of all slots; a GPU keeps none."""
        lists = neighbors.lists
        assert lists is not None
        if self.device.is_gpu:
            return
        if len(self.counts) < self.counts_each * neighbors.slots:
            self.counts = self.device.zeros((self.counts_each * particles.capacity,), np.int32)
        room = len(lists.entries) + self.near_each * neighbors.slots
        if len(self.near) < room:
            self.near = self.device.zeros((room,), np.int32)
