"""Temperature, energies and pressure of a system, as LAMMPS defines them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpckit.md.sums import add_ranks
from hpckit.md.system import System


@dataclass(frozen=True)
class Thermo:
    """Of all particles: temperature over 3 N - 3 degrees of freedom; energies (sums, not per particle); pressure and
    its tensor xx, yy, zz, xy, xz, yz.
    """

    temperature: float
    kinetic: float
    potential: float
    pressure: float
    tensor: tuple[float, ...]
    volume: float

    @property
    def total(self) -> float:
        """Kinetic and potential energy."""
        return self.kinetic + self.potential


def measure(system: System) -> Thermo:
    """Collective: what `System.compute(measure=True)` has just written, added up over the ranks.

    P = (sum m v v + W) / V with the virial W of the pairs (Thompson, Plimpton and Mattson 2009, J. Chem. Phys. 131).
    """
    particles, units = system.particles, system.units
    slots, exact = particles.slots, system.forces.exact
    filled = particles.ids[:slots] >= 0
    v, m = particles.velocities[:slots], system.slot_masses
    if exact:
        pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
        motion = np.stack([m * v[:, a] * v[:, b] for a, b in pairs], axis=1)
        columns = np.concatenate([motion, system.forces.tallies[:slots, :7]], axis=1)[filled]
    else:
        columns = np.concatenate([system.kinetic(), system.tally_sums()])[None]
    sums = add_ranks(system.mesh.comm, np.ascontiguousarray(columns), max(system.count, system.mesh.size), exact)
    tail_energy, tail_virial = system.tails()
    kinetic = 0.5 * units.energy * float(sums[:3].sum())
    volume = float(np.prod(system.domains.lengths))
    virial = 0.5 * sums[7:] + np.array([tail_virial / 3] * 3 + [0.0] * 3)
    tensor = units.pressure * (units.energy * sums[:6] + virial) / volume
    return Thermo(
        temperature=2 * kinetic / (system.freedom * units.boltzmann),
        kinetic=kinetic,
        potential=0.5 * float(sums[6]) + tail_energy,
        pressure=float(tensor[:3].sum() / 3),
        tensor=tuple(float(x) for x in tensor),
        volume=volume,
    )
