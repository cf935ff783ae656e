"""Temperature, energies and pressure of a system, as LAMMPS defines them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpckit.comm.agree import max_of_ranks, share_numbers, sum_of_ranks
from hpckit.kernels.particles.integrate.dispatch import kinetic
from hpckit.kernels.sums import bin_sums, combine, exponent_above
from hpckit.md.system import System

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Thermo:
    """Of all particles: temperature over 3 N - 3 degrees of freedom; energies (sums, not per particle); pressure and
    its tensor xx, yy, zz, xy, xz, yz. bonded: the part of the potential energy that is of bonds.
    """

    temperature: float
    kinetic: float
    potential: float
    pressure: float
    tensor: tuple[float, ...]
    volume: float
    bonded: float = 0.0

    @property
    def total(self) -> float:
        """Kinetic and potential energy."""
        return self.kinetic + self.potential


def measure(system: System) -> Thermo:
    """Collective: the results of the last `System.compute(measure=True)`, summed over the ranks.

    P = (sum m v v + W) / V with the virial W of the pairs (Thompson, Plimpton and Mattson 2009, J. Chem. Phys. 131).
    Waits for a GPU.
    """
    particles, units, forces = system.particles, system.units, system.forces
    slots = particles.slots
    if forces.exact:
        v, m = particles.velocities[:slots], system.slot_masses
        pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
        motion = np.stack([m * v[:, a] * v[:, b] for a, b in pairs], axis=1)
        columns = np.concatenate([motion, forces.tallies[:slots]], axis=1)[particles.ids[:slots] >= 0]
    else:
        tallied = system.device.to_host(forces.tallies[:slots].sum(axis=0))
        columns = np.concatenate([_kinetic_sums(system), tallied])[None]
    sums = add_ranks(system.mesh.comm, np.ascontiguousarray(columns), _rows(system, 1), forces.exact)
    tail_energy, tail_virial = _tails(system)
    energy = 0.5 * units.energy * float(sums[:3].sum())
    volume = float(np.prod(system.domains.lengths))
    virial = 0.5 * sums[7:13] + np.array([tail_virial / 3] * 3 + [0.0] * 3)
    tensor = units.pressure * (units.energy * sums[:6] + virial) / volume
    return Thermo(
        temperature=2 * energy / (freedom(system) * units.boltzmann),
        kinetic=energy,
        potential=0.5 * float(sums[6]) + tail_energy,
        pressure=float(tensor[:3].sum() / 3),
        tensor=tuple(float(x) for x in tensor),
        volume=volume,
        bonded=0.5 * float(sums[13]) if system.bonds is not None else 0.0,
    )


def freedom(system: System) -> int:
    """Degrees of freedom: three per particle, less three of the center of mass."""
    return max(3 * system.count - 3, 1)


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
    counts, volume = system.type_counts.astype(float), float(np.prod(system.domains.lengths))
    tails = system.interaction.tail_energy, system.interaction.tail_virial
    energy, virial = (0.0 if tail is None else float(0.5 * counts @ tail @ counts / volume) for tail in tails)
    return energy, virial


def add_ranks(comm: MPI.Comm, columns: np.ndarray, count: int, exact: bool) -> np.ndarray:
    """Collective: the sums of the columns of [n, k] over the rows of all ranks: float64[k].

    exact: rounded once at the end (`kernels.sums`); count: an upper bound of the rows of all ranks. inf and nan are
    kept.
    """
    if not exact:
        return sum_of_ranks(comm, columns.sum(axis=0))
    largest = np.abs(columns).max(axis=0, initial=0.0)
    largest[~np.isfinite(largest)] = np.inf  # MPI's maximum may lose NaN, which compares as not larger
    max_of_ranks(comm, largest)
    if not np.isfinite(largest).all():
        return np.where(np.isfinite(largest), 0.0, np.nan)
    exponents = [exponent_above(float(value)) for value in largest]
    bins = np.array([bin_sums(columns[:, k], exponent, count) for k, exponent in enumerate(exponents)])
    sum_of_ranks(comm, bins)
    return np.array([combine(bins[k], exponent, count) for k, exponent in enumerate(exponents)])
