"""Forces from outside: a constant field, and walls across the ends of open dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hpckit.errors import BlowUpError
from hpckit.kernels.particles.integrate.dispatch import hold_off, push
from hpckit.md.system import System


@dataclass(frozen=True)
class Wall:
    """A half space of Lennard-Jones particles at an end of the box along dim: `low` or high (wall/lj93 of LAMMPS)."""

    dim: int
    low: bool
    epsilon: float = 1.0
    sigma: float = 1.0
    cutoff: float = 2.5


class Pushing(Protocol):
    """Changes forces from outside: `….groups`."""

    def add(self, system: System) -> None:
        """Collective: change the forces of this rank."""


class ExternalFields:
    """Adds a field (an acceleration) and walls to the forces, and their energies to the potential energy; then pushes,
    in their order.

    Raises `BlowUpError` on the rank that has a particle behind a wall.
    """

    def __init__(
        self,
        field: Sequence[float] = (0.0, 0.0, 0.0),
        walls: Sequence[Wall] = (),
        pushes: Sequence[Pushing] = (),
    ) -> None:
        self.field, self.walls, self.pushes = np.array(field, np.float64), list(walls), list(pushes)

    def add(self, system: System, measure: bool) -> None:
        """Add to this rank's forces, after those of pairs."""
        particles, tallies = system.particles, system.forces.tallies
        slots, ids = particles.slots, particles.ids
        if self.field.any():
            field = system.units.energy * self.field
            push(particles.forces, tallies, particles.positions, system.slot_masses, ids, slots, field, measure)
        for wall in self.walls:
            end = (system.domains.lower if wall.low else system.domains.upper)[wall.dim]
            place = float(end), wall.epsilon, wall.sigma, wall.cutoff, measure
            side = 1.0 if wall.low else -1.0
            if hold_off(particles.forces, tallies, particles.positions, ids, slots, wall.dim, side, *place):
                raise BlowUpError(
                    f"a particle is behind the {'lower' if wall.low else 'upper'} wall along {'xyz'[wall.dim]}",
                    where=f"rank {system.mesh.rank}",
                    likely="a time step too long, or particles that start at the wall",
                    do="lower time.dt, or start farther from the walls",
                )
        for push_of in self.pushes:
            push_of.add(system)
