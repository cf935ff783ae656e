"""Groups of particles, their temperatures and centers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hpckit.comm.agree import share_numbers
from hpckit.kernels.particles.integrate.dispatch import dilate, kinetic
from hpckit.md.system import System
from hpckit.md.thermo import add_parts, add_ranks, freedom

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


@dataclass(frozen=True)
class Within:
    """Those of a group, None for all particles, that are in a region at the time: between `low` and `high` along x, y,
    z, and no farther than `radius` from `center` in the dims `across`: a block, a sphere, a cylinder. outside: those
    that are not.
    """

    group: ParticleGroup | None
    low: tuple[float, ...] = (-np.inf,) * 3
    high: tuple[float, ...] = (np.inf,) * 3
    center: tuple[float, ...] = (0.0, 0.0, 0.0)
    radius: float = np.inf
    across: tuple[int, ...] = ()
    outside: bool = False

    def slots(self, system: System) -> Any:
        """As `ParticleGroup.slots`."""
        places, to_device = system.particles.positions[: system.particles.slots, :3], system.device.to_device
        here = ((places >= to_device(np.array(self.low))) & (places <= to_device(np.array(self.high)))).all(axis=1)
        if self.across:
            squares = sum((places[:, dim] - self.center[dim]) ** 2 for dim in self.across)
            here &= squares**0.5 <= self.radius
        return slots_of(system, self.group) & (here != self.outside)


Some = ParticleGroup | Within | None  # None: all particles


def slots_of(system: System, group: Some) -> Any:
    """Which slots of this rank have particles of a group, None for all particles: bool[slots], on the device."""
    return system.particles.ids[: system.particles.slots] >= 0 if group is None else group.slots(system)


def count_of(system: System, group: Some) -> int:
    """How many particles a group has; collective for those in a region."""
    if isinstance(group, Within):
        return int(weighted_sums(system, group, 1.0 * (system.slot_masses[:, None] >= 0.0))[0])
    return system.count if group is None else group.count


@dataclass(frozen=True)
class Warmth:
    """What a temperature counts: velocities of a group, None for all particles, along some dims (compute temp and
    temp/partial of LAMMPS). thermal: less the flow of a box that changes (temp/deform).
    """

    group: Some = None
    along: tuple[bool, bool, bool] = (True, True, True)
    thermal: bool = False

    def freedom(self, system: System) -> float:
        """Its degrees of freedom, less those of the center of mass; collective for those in a region. Constraints are
        those of all particles.
        """
        whole = freedom(system) if self.group is None else system.dims * (count_of(system, self.group) - 1)
        return max(whole * sum(self.along[: system.dims]) / system.dims, 0.0)

    def motion(self, system: System) -> np.ndarray:
        """Collective: the sums of m v v, as energies: xx, yy, zz, xy, xz, yz. Waits for a GPU."""
        if self.thermal and system.flow is not None:
            with system.flow.removed(system.particles):
                return replace(self, thermal=False).motion(system)
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


def weighted_sums(system: System, group: Some, columns: Any) -> np.ndarray:
    """Collective: the sums over a group, None for all particles, of columns [slots, k] of this rank: float64[k]."""
    return sums_of(system, system.device.to_host(columns[slots_of(system, group)]))


def sums_of(system: System, rows: np.ndarray) -> np.ndarray:
    """Collective: the sums of the rows [n, k] of particles of this rank, on the host: float64[k]."""
    total = add_ranks(system.mesh.comm, rows, max(system.count, system.mesh.size), system.forces.exact)
    return np.asarray(share_numbers(system.mesh.comm, total))


def sums_by(system: System, labels: np.ndarray, columns: np.ndarray, number: int) -> np.ndarray:
    """Collective: the sums of the rows [n, k] of particles of this rank with the same label, int64[n] from 0 to
    `number` - 1: float64[number, k].
    """
    rows = max(system.count, system.mesh.size)
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(number + 1))
    parts = [columns[order[first:end]] for first, end in pairwise(ends)]
    total = add_parts(system.mesh.comm, parts, rows, system.forces.exact)
    return np.asarray(share_numbers(system.mesh.comm, total))


def unwrapped(system: System) -> Any:
    """Where the particles of this rank would be had they not been put back into the box: float64[slots, 3]."""
    particles, slots = system.particles, system.particles.slots
    cell, images = system.domains.cell, particles.images[:slots].astype(np.float64)
    away = images * system.device.to_device(np.array(cell.lengths))
    xy, xz, yz = cell.tilt
    away[:, 0] += xy * images[:, 1] + xz * images[:, 2]
    away[:, 1] += yz * images[:, 2]
    return particles.positions[:slots, :3] + away


def center_of(system: System, group: Some) -> tuple[np.ndarray, float]:
    """Collective: the center of mass of a group, None for all particles, nan of none, and its mass."""
    masses = system.slot_masses[:, None]
    columns = system.device.xp.concatenate([masses * unwrapped(system), masses], axis=1)
    sums = weighted_sums(system, group, columns)
    return sums[:3] / (sums[3] or np.nan), float(sums[3])
