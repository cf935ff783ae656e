"""Forces from outside: a constant field, walls normal to open dims, and mirrors there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpckit.errors import BlowUpError
from hpckit.kernels.particles.integrate.dispatch import hold_off, push
from hpckit.md.external.groups import ParticleGroup, slots_of, unwrapped
from hpckit.md.external.pushes import Friction
from hpckit.md.system import System

LAWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {  # energy and force at a distance
    "lj93": (
        lambda d, epsilon, sigma, _: epsilon * (2 / 15 * (sigma / d) ** 9 - (sigma / d) ** 3),
        lambda d, epsilon, sigma, _: epsilon * (6 / 5 * (sigma / d) ** 9 - 3 * (sigma / d) ** 3) / d,
    ),
    "lj126": (
        lambda d, epsilon, sigma, _: 4 * epsilon * ((sigma / d) ** 12 - (sigma / d) ** 6),
        lambda d, epsilon, sigma, _: 24 * epsilon * (2 * (sigma / d) ** 12 - (sigma / d) ** 6) / d,
    ),
    "harmonic": (
        lambda d, epsilon, _, cutoff: epsilon * (cutoff - d) ** 2,
        lambda d, epsilon, _, cutoff: 2 * epsilon * (cutoff - d),
    ),
}


@dataclass(frozen=True)
class Wall:
    """A wall normal to dim that pushes particles away from `low` or high, at `place` or, without one, at that end of
    the box; group: those that feel it, None: all. Its energy, shifted to 0 at the cutoff, is that of a half space of
    Lennard-Jones particles (lj93), of one such particle (lj126), or epsilon (cutoff - d)^2 (harmonic): wall/lj93,
    wall/lj126 and wall/harmonic of LAMMPS.
    """

    dim: int
    low: bool
    epsilon: float = 1.0
    sigma: float = 1.0
    cutoff: float = 2.5
    law: str = "lj93"
    place: float | None = None
    group: ParticleGroup | None = None

    def add(self, system: System, measure: bool) -> int:
        """Add forces and energies of this rank; how many particles are behind it."""
        particles, tallies, slots = system.particles, system.forces.tallies, system.particles.slots
        place, side, ids = _place_of(self, system), 1.0 if self.low else -1.0, particles.ids
        numbers = self.epsilon, self.sigma, self.cutoff
        if self.law == "lj93" and self.group is None:
            wall = self.dim, side, place, *numbers, measure
            return hold_off(particles.forces, tallies, particles.positions, ids, slots, *wall)
        xp = system.device.xp
        here = xp.flatnonzero(slots_of(system, self.group))
        gaps = (particles.positions[here, self.dim] - place) * side
        near = (gaps > 0) & (gaps < self.cutoff)
        here, d = here[near], gaps[near]
        energy, force = LAWS[self.law]
        particles.forces[here, self.dim] += side * force(d, *numbers)
        if measure:
            tallies[here, 0] += 2 * (energy(d, *numbers) - energy(self.cutoff, *numbers))
        return int((gaps <= 0).sum())


@dataclass(frozen=True)
class Mirror:
    """A plane normal to dim that reflects particles of a group, None for all, which have crossed it in a step: from
    below (`low`) or above (fix wall/reflect of LAMMPS).
    """

    dim: int
    low: bool
    place: float | None = None
    group: ParticleGroup | None = None

    def reflect(self, system: System) -> None:
        """Turn those of this rank back that are behind it."""
        particles, dim, place = system.particles, self.dim, _place_of(self, system)
        here = system.device.xp.flatnonzero(slots_of(system, self.group))
        places = particles.positions[here, dim]
        behind = here[places < place if self.low else places > place]
        particles.positions[behind, dim] = place + (place - particles.positions[behind, dim])
        particles.velocities[behind, dim] *= -1.0


def _place_of(plane: Wall | Mirror, system: System) -> float:
    """Where a plane is: at its own place, or at its end of the box."""
    ends = system.domains.lower if plane.low else system.domains.upper
    return float(ends[plane.dim]) if plane.place is None else plane.place


class Pushing(Protocol):
    """Changes forces from outside: `….groups`."""

    def add(self, system: System) -> None:
        """Collective: change the forces of this rank."""


class ExternalFields:
    """Adds a field (an acceleration) and walls to the forces, and their energies to the potential energy; then pushes,
    in their order. mirrors: reflect particles before the forces of a step.

    Raises `BlowUpError` on the rank that has a particle behind a wall.
    """

    def __init__(
        self,
        field: Sequence[float] = (0.0, 0.0, 0.0),
        walls: Sequence[Wall] = (),
        pushes: Sequence[Pushing] = (),
        mirrors: Sequence[Mirror] = (),
    ) -> None:
        self.field, self.walls, self.pushes = np.array(field, np.float64), list(walls), list(pushes)
        self.mirrors = list(mirrors)

    @property
    def sees_velocities(self) -> bool:
        """Whether forces depend on velocities, so that they do not follow from the places alone."""
        return any(isinstance(each, Friction) for each in self.pushes)

    def reflect(self, system: System) -> None:
        """Turn particles back that have crossed a mirror."""
        for each in self.mirrors:
            each.reflect(system)

    def add(self, system: System, measure: bool) -> None:
        """Add to this rank's forces, after those of pairs."""
        particles, tallies = system.particles, system.forces.tallies
        slots, ids = particles.slots, particles.ids
        if self.field.any():
            field = system.units.energy * self.field
            push(particles.forces, tallies, particles.positions, system.slot_masses, ids, slots, field, measure)
            if measure and (field * system.domains.periodic).any():  # no jump where a particle goes over a side
                gone = (unwrapped(system) - particles.positions[:slots, :3]) @ system.device.to_device(field)
                tallies[:slots, 0] -= 2 * system.slot_masses * gone * (ids[:slots] >= 0)
        for wall in self.walls:
            if wall.add(system, measure):
                raise BlowUpError(
                    f"a particle is behind the {'lower' if wall.low else 'upper'} wall along {'xyz'[wall.dim]}",
                    where=f"rank {system.mesh.rank}",
                    likely="a time step too long, or particles that start at the wall",
                    do="lower time.dt, or start farther from the walls",
                )
        for push_of in self.pushes:
            push_of.add(system)
