"""Temperature, energies and pressure of a system, as LAMMPS defines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.comm.agree import max_of_ranks, share_numbers, sum_of_ranks
from hpckit.kernels.particles.cells.constants import CLUSTER
from hpckit.kernels.particles.integrate.dispatch import kinetic
from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.sums import bin_sums, combine, exponent_above
from hpckit.md.granular.contacts import SphereForces
from hpckit.md.molecules.charges import Charged, ChargedForces
from hpckit.md.system import System

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Thermo:
    """Of all particles: temperature over 3 N - 3 degrees of freedom, in a plane 2 N - 2; energies (sums, not per
    particle); pressure and its tensor xx, yy, zz, xy, xz, yz. Parts of the potential energy: bonded: of molecules, of
    which angles, dihedrals and impropers have theirs, and bonds the rest; coulomb: of pairs of charges; long_range: of
    all images of the charges. rotational: the energy of spheres that turn.
    """

    temperature: float
    kinetic: float
    potential: float
    pressure: float
    tensor: tuple[float, ...]
    volume: float
    bonded: float = 0.0
    coulomb: float = 0.0
    long_range: float = 0.0
    angles: float = 0.0
    dihedrals: float = 0.0
    impropers: float = 0.0
    rotational: float = 0.0

    @property
    def total(self) -> float:
        """Kinetic and potential energy, with that of rotation."""
        return self.kinetic + self.rotational + self.potential


@dataclass(frozen=True)
class Totals:
    """Sums over all particles, as energies: m v v and the virial, each xx, yy, zz, xy, xz, yz, and the potential
    energies of all, of molecules, of pairs of charges, of all images of the charges, of rotation, and of molecules by
    name.
    """

    motion: np.ndarray
    virial: np.ndarray
    potential: float
    bonded: float
    coulomb: float = 0.0
    long_range: float = 0.0
    rotational: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    def pressures(self, system: System) -> np.ndarray:
        """P = (sum m v v + W) / V, the tensor as xx, yy, zz, xy, xz, yz."""
        return system.units.pressure * (self.motion + self.virial) / volume(system)


def totals(system: System) -> Totals:
    """Collective: the results of the last `System.compute(measure=True)`, summed over the ranks. Waits for a GPU.

    The virial W of the pairs is that of Thompson, Plimpton and Mattson (2009, J. Chem. Phys. 131, 154107).
    """
    particles, units, forces = system.particles, system.units, system.forces
    slots = particles.slots
    if forces.exact:
        v, m = particles.velocities[:slots], system.slot_masses
        pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
        motion = np.stack([m * v[:, a] * v[:, b] for a, b in pairs], axis=1)
        each = [motion, forces.tallies[:slots], *(given[:, None] for given in _others(system))]
        columns = np.concatenate(each, axis=1)[particles.ids[:slots] >= 0]
    else:
        tallies = forces.tallies[:slots]
        if not system.device.is_gpu:  # the rows of a cluster side by side: one at a time is added as slowly as eight
            tallies = tallies.reshape(-1, CLUSTER * TALLY).sum(axis=0).reshape(CLUSTER, TALLY)
        tallied = system.device.to_host(tallies.sum(axis=0))
        columns = np.array([*_kinetic_sums(system), *tallied, *(float(given.sum()) for given in _others(system))])
        columns = columns[None]
    sums = add_ranks(system.mesh.comm, np.ascontiguousarray(columns), _rows(system, 1), forces.exact)
    beyond, tail_virial = _tails(system)
    virial = 0.5 * sums[7:13] + np.array([tail_virial / 3] * 3 + [0.0] * 3)
    names = [each.name for each in system.terms]
    parts = dict(zip(names, (0.5 * sums[len(sums) - len(names) :]).tolist(), strict=True))
    coulomb = far = 0.0
    if isinstance(system.interaction, Charged):
        coulomb = float(0.5 * sums[14] + system.interaction.screening.own * sums[15])
        beyond += coulomb - 0.5 * float(sums[14])
    if system.long_range is not None:
        far, virial = system.long_range.energy, virial + system.long_range.virial
    return Totals(
        motion=units.energy * sums[:6],
        virial=virial,
        potential=0.5 * float(sums[6]) + beyond + far,
        bonded=0.5 * float(sums[13]) if system.bonds is not None or parts else 0.0,
        coulomb=coulomb,
        long_range=far,
        rotational=0.5 * units.energy * float(sums[14]) if isinstance(forces, SphereForces) else 0.0,
        parts=parts,
    )


def _others(system: System) -> list[Any]:
    """Of each slot of this rank: the energy of pairs of charges, and the squared charge, with charges; and the energies
    of angles, dihedrals and impropers.
    """
    forces, slots = system.forces, system.particles.slots
    found = [each.energies[:slots] for each in system.terms]
    if isinstance(forces, ChargedForces):
        found = [forces.energies[:slots], forces.charges[:slots] ** 2, *found]
    if isinstance(forces, SphereForces):
        found = [forces.rotations(slots), *found]
    return found


def measure(system: System) -> Thermo:
    """Collective: temperature, energies and pressure of the last `System.compute(measure=True)`. Waits for a GPU.

    Where `system.counted` says so, temperature, kinetic energy and its part of the pressure are those of a group.
    """
    found, degrees = totals(system), float(freedom(system))
    if system.counted is not None:
        found = replace(found, motion=system.counted.motion(system))
        degrees = system.counted.freedom(system)
    kinetic, tensor = 0.5 * float(found.motion[:3].sum()), found.pressures(system)
    return Thermo(
        temperature=2 * kinetic / (degrees * system.units.boltzmann) if degrees else 0.0,
        kinetic=kinetic,
        potential=found.potential,
        pressure=float(tensor[: system.dims].sum() / system.dims),
        tensor=tuple(float(x) for x in tensor),
        volume=volume(system),
        bonded=found.bonded,
        coulomb=found.coulomb,
        long_range=found.long_range,
        rotational=found.rotational,
        **found.parts,
    )


def volume(system: System) -> float:
    """The volume of the box; in a plane its area. Along open dims that follow the particles it ends with them."""
    lengths = np.array(system.domains.lengths)
    for dim in system.margins:
        lengths[dim] = system.extent[dim]
    return float(np.prod(lengths[: system.dims]))


def mass_density(system: System) -> float:
    """The mass per volume: g/cm3 in metal and real units."""
    return system.units.mass_density * float(system.masses @ system.type_counts) / volume(system)


def tail_energy(system: System) -> float:
    """The energy of the pairs beyond the cutoff, 0 without `interaction.tail`."""
    return _tails(system)[0]


def freedom(system: System) -> int:
    """Degrees of freedom: three per particle, in a plane two, less those of the center of mass and one for each
    constraint.
    """
    held = 0 if system.constraints is None else system.constraints.count
    return max(system.dims * (system.count - 1) - held, 1)


def kinetic_energy(system: System) -> float:
    """Collective: the kinetic energy of all particles, the same on every rank. Waits for a GPU."""
    particles, slots = system.particles, system.particles.slots
    if system.forces.exact:
        squares = (particles.velocities[:slots, :3] ** 2).sum(axis=1) * system.slot_masses
        columns = np.where(particles.ids[:slots] >= 0, squares, 0.0)[:, None]
    else:
        columns = np.array([[_kinetic_sums(system)[:3].sum()]])
    total = add_ranks(system.mesh.comm, columns, _rows(system, 8), system.forces.exact)
    return 0.5 * system.units.energy * float(share_numbers(system.mesh.comm, total)[0])


def _kinetic_sums(system: System) -> np.ndarray:
    """The sums of m v_a v_b of this rank, as xx, yy, zz, xy, xz, yz."""
    particles, sums = system.particles, system.device.zeros((6,))
    kinetic(particles.velocities, system.slot_masses, particles.ids, particles.slots, sums)
    return system.device.to_host(sums)


def _rows(system: System, slots: int) -> int:
    """An upper bound of the rows of all ranks, with at most `slots` slots per particle."""
    return max(slots * system.count, system.mesh.size)


def _tails(system: System) -> tuple[float, float]:
    """Energy and virial of the pairs beyond the cutoff, as if particles were spread evenly."""
    counts = system.type_counts.astype(float)
    tails = system.interaction.tail_energy, system.interaction.tail_virial
    energy, virial = (0.0 if tail is None else float(0.5 * counts @ tail @ counts / volume(system)) for tail in tails)
    return energy, virial


def add_ranks(comm: MPI.Comm, columns: np.ndarray, count: int, exact: bool) -> np.ndarray:
    """Collective: the sums of the columns of [n, k] over the rows of all ranks: float64[k].

    exact: rounded once at the end (`kernels.sums`); count: an upper bound of the rows of all ranks. inf and nan are
    kept.
    """
    return add_parts(comm, [columns], count, exact)[0]


def add_parts(comm: MPI.Comm, parts: Sequence[np.ndarray], count: int, exact: bool) -> np.ndarray:
    """Collective: as `add_ranks`, of several arrays [n, k] with as many columns: float64[parts, k]."""
    if not exact:
        return sum_of_ranks(comm, np.array([part.sum(axis=0) for part in parts]))
    largest = np.max([np.abs(part).max(axis=0, initial=0.0) for part in parts], axis=0)
    largest[~np.isfinite(largest)] = np.inf  # MPI's maximum may lose NaN, which compares as not larger
    max_of_ranks(comm, largest)
    if not np.isfinite(largest).all():
        return np.tile(np.where(np.isfinite(largest), 0.0, np.nan), (len(parts), 1))
    exponents = [exponent_above(float(value)) for value in largest]
    bins = np.array([[bin_sums(part[:, k], e, count) for k, e in enumerate(exponents)] for part in parts])
    sum_of_ranks(comm, bins)
    return np.array([[combine(sums, e, count) for sums, e in zip(each, exponents, strict=True)] for each in bins])
