"""Groups of particles, their temperatures, and forces from outside on them (fix setforce and others of LAMMPS)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.comm.agree import share_numbers
from hpckit.kernels.particles.integrate.dispatch import dilate, kinetic
from hpckit.md.system import System
from hpckit.md.thermo import add_ranks, freedom

TENSOR = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


class ParticleGroup:
    """Particles by their ids. members: bool[particles], from id 0, the same on every rank."""

    def __init__(self, members: np.ndarray) -> None:
        self.members, self.count = np.asarray(members, bool), int(np.count_nonzero(members))
        self._of: Any = None  # the masses by slot of the last rebuild, of which
        self._here: Any = None  # these are the slots of the group

    def slots(self, system: System) -> Any:
        """Which slots of this rank have its particles: bool[slots], on the device."""
        if system.slot_masses is not self._of:
            ids = system.particles.ids[: system.particles.slots]
            self._of, self._here = system.slot_masses, system.device.to_device(self.members)[ids] & (ids >= 0)
        return self._here


def slots_of(system: System, group: ParticleGroup | None) -> Any:
    """Which slots of this rank have particles of a group, None for all particles: bool[slots], on the device."""
    return system.particles.ids[: system.particles.slots] >= 0 if group is None else group.slots(system)


@dataclass(frozen=True)
class Warmth:
    """What a temperature counts: velocities of a group, None for all particles, along some dims (compute temp and
    temp/partial of LAMMPS).
    """

    group: ParticleGroup | None = None
    along: tuple[bool, bool, bool] = (True, True, True)

    def freedom(self, system: System) -> float:
        """Its degrees of freedom, less those of the center of mass. Constraints are those of all particles."""
        count = system.count if self.group is None else self.group.count
        whole = freedom(system) if self.group is None else system.dims * (count - 1)
        return max(whole * sum(self.along[: system.dims]) / system.dims, 0.0)

    def motion(self, system: System) -> np.ndarray:
        """Collective: the sums of m v v, as energies: xx, yy, zz, xy, xz, yz. Waits for a GPU."""
        particles, slots = system.particles, system.particles.slots
        masses = system.slot_masses if self.group is None else system.slot_masses * self.group.slots(system)
        if system.forces.exact:
            v = particles.velocities[:slots]
            each = np.stack([masses * v[:, a] * v[:, b] for a, b in TENSOR], axis=1)
            columns = each[particles.ids[:slots] >= 0]
        else:
            sums = system.device.zeros((6,))
            kinetic(particles.velocities, masses, particles.ids, slots, sums)
            columns = system.device.to_host(sums)[None]
        rows = max(system.count, system.mesh.size)
        found = share_numbers(system.mesh.comm, add_ranks(system.mesh.comm, columns, rows, system.forces.exact))
        counts = [self.along[a] and self.along[b] for a, b in TENSOR]
        return np.asarray(system.units.energy * np.where(counts, found, 0.0))

    def doubled(self, system: System) -> float:
        """Collective: twice the kinetic energy that it counts."""
        return float(self.motion(system)[:3].sum())

    def temperature(self, system: System) -> float:
        """Collective: the temperature, 0 without degrees of freedom."""
        degrees = self.freedom(system)
        return self.doubled(system) / (degrees * system.units.boltzmann) if degrees else 0.0


def scale(
    system: System, group: ParticleGroup | None, factor: float, along: Sequence[bool] = (True, True, True)
) -> None:
    """Scale the velocities of a group, None for all particles, along some dims."""
    particles, factors = system.particles, np.where(along, factor, 1.0)
    with system.timer("integrate"):
        if group is None:
            dilate(particles.velocities, particles.slots, factors)
            return
        here = group.slots(system)
        for dim in range(3):
            if along[dim]:
                particles.velocities[: particles.slots, dim][here] *= factor


def weighted_sums(system: System, group: ParticleGroup | None, columns: Any) -> np.ndarray:
    """Collective: the sums over a group, None for all particles, of columns [slots, k] of this rank: float64[k]."""
    rows = system.device.to_host(columns[slots_of(system, group)])
    if not system.forces.exact:
        rows = rows.sum(axis=0)[None]
    total = add_ranks(system.mesh.comm, rows, max(system.count, system.mesh.size), system.forces.exact)
    return np.asarray(share_numbers(system.mesh.comm, total))


@dataclass(frozen=True)
class Push:
    """A force from outside on each particle of a group; None for all: `set` in place of what others do to it, `add`
    to that, or `average`, the mean of that over the group and more (fix setforce, addforce, aveforce of LAMMPS).
    along: the dims in which it acts. None of these has an energy or a part of the pressure.
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


def unwrapped(system: System) -> Any:
    """Where the particles of this rank would be had they not been put back into the box: float64[slots, 3]."""
    particles, slots = system.particles, system.particles.slots
    cell, images = system.domains.cell, particles.images[:slots].astype(np.float64)
    away = images * system.device.to_device(np.array(cell.lengths))
    xy, xz, yz = cell.tilt
    away[:, 0] += xy * images[:, 1] + xz * images[:, 2]
    away[:, 1] += yz * images[:, 2]
    return particles.positions[:slots, :3] + away


def center_of(system: System, group: ParticleGroup | None) -> tuple[np.ndarray, float]:
    """Collective: the center of mass of a group, None for all particles, and its mass."""
    masses = system.slot_masses[:, None]
    columns = system.device.xp.concatenate([masses * unwrapped(system), masses], axis=1)
    sums = weighted_sums(system, group, columns)
    return sums[:3] / sums[3], float(sums[3])
