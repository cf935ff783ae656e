"""Forces from outside on groups of particles: fix setforce, addforce, aveforce, spring, spring/self, viscous, efield,
indent and enforce2d of LAMMPS. None of these has an energy or a part of the pressure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md.external.groups import ParticleGroup, center_of, slots_of, unwrapped, weighted_sums
from hpckit.md.system import System


@dataclass(frozen=True)
class Push:
    """A force from outside on each particle of a group; None for all: `set` in place of what others do to it, `add`
    to that, or `average`, the mean of that over the group and more (fix setforce, addforce, aveforce of LAMMPS).
    along: the dims in which it acts.
    """

    kind: str
    group: ParticleGroup | None
    force: tuple[float, float, float]
    along: tuple[bool, bool, bool] = (True, True, True)

    def add(self, system: System) -> None:
        """Collective: change the forces of this rank."""
        particles, slots = system.particles, system.particles.slots
        here = slots_of(system, self.group)
        mean = np.zeros(3)
        if self.kind == "average":
            count = system.count if self.group is None else self.group.count
            mean = weighted_sums(system, self.group, particles.forces[:slots, :3]) / max(count, 1)
        for dim in range(3):
            if self.along[dim]:
                column = particles.forces[:slots, dim]
                column[here] = column[here] + self.force[dim] if self.kind == "add" else mean[dim] + self.force[dim]


@dataclass(frozen=True)
class Tether:
    """A spring between the center of mass of a group and a place; along: the dims in which it acts; length: at which
    it is at rest (fix spring tether of LAMMPS).
    """

    group: ParticleGroup | None
    stiffness: float
    place: tuple[float, float, float]
    along: tuple[bool, bool, bool] = (True, True, True)
    length: float = 0.0

    def add(self, system: System) -> None:
        """Collective: add to the forces of this rank, to each particle in proportion to its mass."""
        particles, slots = system.particles, system.particles.slots
        center, mass = center_of(system, self.group)
        way = np.where(self.along, center - self.place, 0.0)
        far = math.sqrt(float(way @ way))
        if not far:
            return
        force = -self.stiffness * (far - self.length) * way / far / mass
        here = slots_of(system, self.group)
        particles.forces[:slots, :3][here] += system.slot_masses[here][:, None] * system.device.to_device(force)


@dataclass(frozen=True)
class Indenter:
    """A sphere, a cylinder along a dim, or a plane normal to it, that pushes particles out (or, with `inside`, keeps
    them in) by stiffness times squared depth (fix indent of LAMMPS). place: where it starts; per_step: how far it moves
    in a step of the run, from its first step on. It has no energy and no part of the pressure.
    """

    group: ParticleGroup | None
    shape: str
    dim: int
    inside: bool
    stiffness: float
    place: np.ndarray
    per_step: np.ndarray
    radius: float = 0.0

    def add(self, system: System) -> None:
        """Add to the forces of this rank."""
        particles, xp = system.particles, system.device.xp
        here = xp.flatnonzero(slots_of(system, self.group))
        center, cell = self.place + system.steps * self.per_step, system.domains.cell
        if self.shape == "plane":
            side = 1.0 if self.inside else -1.0
            depth = side * (particles.positions[here, self.dim] - center[self.dim])
            force = -side * self.stiffness * xp.maximum(depth, 0.0) ** 2
            particles.forces[here, self.dim] += force
            return
        away = particles.positions[here, :3] - system.device.to_device(center)
        for dim in (2, 1, 0):  # the nearest image
            if system.domains.periodic[dim]:
                turns = xp.rint(away[:, dim] / cell.lengths[dim])[:, None]
                away = away - turns * system.device.to_device(cell.matrix[dim])
        if self.shape == "cylinder":
            away[:, self.dim] = 0.0
        far = xp.sqrt((away * away).sum(axis=1))
        depth = far - self.radius if self.inside else self.radius - far
        strength = (-1.0 if self.inside else 1.0) * self.stiffness * xp.maximum(depth, 0.0) ** 2
        particles.forces[here, :3] += (strength / xp.where(far > 0, far, 1.0))[:, None] * away


@dataclass(frozen=True)
class Flat:
    """Particles in a plane: neither force nor velocity along z (fix enforce2d of LAMMPS)."""

    def add(self, system: System) -> None:
        """Take away what there is along z."""
        particles, slots = system.particles, system.particles.slots
        particles.forces[:slots, 2] = 0.0
        particles.velocities[:slots, 2] = 0.0


@dataclass(frozen=True)
class Leash:
    """A spring of each particle of a group to a place of its own (fix spring/self of LAMMPS). places: of all particles,
    float64[particles, 3], by id, as if they were never put back into the box.
    """

    group: ParticleGroup | None
    stiffness: float
    places: np.ndarray
    along: tuple[bool, bool, bool] = (True, True, True)

    def add(self, system: System) -> None:
        """Add to the forces of this rank."""
        particles, slots = system.particles, system.particles.slots
        here = system.device.xp.flatnonzero(slots_of(system, self.group))
        homes = self.places[system.device.to_host(particles.ids[:slots][here])]
        way = unwrapped(system)[here] - system.device.to_device(homes)
        for dim in range(3):
            if self.along[dim]:
                particles.forces[here, dim] -= self.stiffness * way[:, dim]


@dataclass(frozen=True)
class Friction:
    """A force against the velocity of each particle of a group, by a strength of its type (fix viscous of LAMMPS). In a
    step the velocities are those of its middle.
    """

    group: ParticleGroup | None
    strengths: np.ndarray

    def add(self, system: System) -> None:
        """Add to the forces of this rank."""
        particles, slots = system.particles, system.particles.slots
        here = system.device.xp.flatnonzero(slots_of(system, self.group))
        types = types_of(particles.positions[:slots][here])
        each = system.device.to_device(self.strengths)[types][:, None]
        particles.forces[here, :3] -= each * particles.velocities[here, :3]


@dataclass(frozen=True)
class ElectricField:
    """A uniform field that pulls at the charges of a group (fix efield); field: force per charge."""

    group: ParticleGroup | None
    field: np.ndarray

    def add(self, system: System) -> None:
        """Add to the forces of this rank."""
        particles, slots = system.particles, system.particles.slots
        here = system.device.xp.flatnonzero(slots_of(system, self.group))
        pulls = particles.charges[:slots][here][:, None] * system.device.to_device(self.field)
        particles.forces[here, :3] += pulls
