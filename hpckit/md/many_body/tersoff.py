"""Silicon, carbon and their compounds: Tersoff's potential of any number of elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels.particles.many_body.tersoff.dispatch import (
    PAIR,
    TRIPLE,
    Room,
    Tersoff,
    force_kernel,
    forces,
    room,
)
from hpckit.md.forces import CenteredForces
from hpckit.md.neighbors import NeighborList
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles


@dataclass(frozen=True, eq=False)
class TersoffBonds:
    """Tersoff's potential; parameters as `lammps_tersoff` reads them.

    Raises `InputError` for tables of other shapes.
    """

    parameters: Tersoff
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        pairs, triples = self.parameters.pairs, self.parameters.triples
        types = len(pairs)
        if pairs.shape != (types, types, PAIR) or triples.shape != (types, types, types, TRIPLE):
            raise InputError(
                f"pairs of Tersoff's potential are [types, types, {PAIR}], triples [types, types, types, {TRIPLE}],"
                f" not {list(pairs.shape)} and {list(triples.shape)}"
            )

    @property
    def types(self) -> int:
        """The number of types."""
        return len(self.parameters.pairs)

    @property
    def cutoff(self) -> float:
        """The longest of the cutoffs."""
        return self.parameters.cutoff


class TersoffForces(CenteredForces):
    """The forces of the potential; see `Forces`."""

    def __init__(
        self,
        interaction: TersoffBonds,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        super().__init__(interaction.types, False, precision, exact, isa, device)
        it = interaction.parameters
        tables = (device.to_device(np.ascontiguousarray(each)) for each in (it.pairs, it.triples))
        self._given = Tersoff(*tables, *it[2:])
        self._kernels = {
            measure: force_kernel(replace(self.form, measure=measure), it.shared, it.widths)
            for measure in (False, True)
        }
        self._room: Room | None = None

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:
        """See `Forces.meet`."""
        super().meet(particles, neighbors, ghosts)
        assert neighbors.lists is not None
        self._room = room(self.form, neighbors.lists, particles.slots, self._room)

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Add the forces of the slots of a part of the lists; see `Forces.compute`."""
        lists = neighbors.lists
        assert lists is not None
        what = particles.positions, neighbors.slots, lists, self._given, self._room
        forces(self._kernels[bool(measure)], self.form, part, *what, self.pushed, self.tallies)
