"""SNAP: machine-learned potentials of metals and semiconductors, by the bispectrum of the neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels.particles.many_body.snap.dispatch import Snap, force_kernel, forces, room
from hpckit.md.forces import CenteredForces
from hpckit.md.neighbors import NeighborList
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles


@dataclass(frozen=True, eq=False)
class SnapPotential:
    """The potential; parameters as `lammps_snap` reads them. Raises `InputError` for numbers that are not finite."""

    parameters: Snap
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        it = self.parameters
        if not all(np.isfinite(each).all() for each in (it.coefficients, it.radii, it.weights, it.zbl)):
            raise InputError("parameters of SNAP are not finite")

    @property
    def types(self) -> int:
        """The number of types."""
        return len(self.parameters.radii)

    @property
    def cutoff(self) -> float:
        """The longest of the cutoffs."""
        return self.parameters.cutoff


class SnapForces(CenteredForces):
    """The forces of the potential; see `Forces`."""

    def __init__(
        self,
        interaction: SnapPotential,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        super().__init__(interaction.types, False, precision, exact, isa, device)
        self._given = interaction.parameters
        self._kernels = {measure: force_kernel(exact, measure, self.pushed) for measure in (False, True)}
        self._room: Any = None

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:
        """See `Forces.meet`."""
        super().meet(particles, neighbors, ghosts)
        assert neighbors.lists is not None
        self._room = room(self._given, neighbors.lists, particles.slots, self._room)

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Add the forces of the slots of a part of the lists; see `Forces.compute`."""
        assert neighbors.lists is not None
        what = part, particles.positions, neighbors.lists, self._given, self._room
        forces(self._kernels[bool(measure)], *what, self.pushed, self.tallies)
