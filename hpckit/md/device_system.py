"""A system of particles whose particles, lists and forces live on GPUs, one to a rank or shared by ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.device import Device
from hpckit.errors import InputError
from hpckit.kernels.integrate.dispatch import kinetic, wrap
from hpckit.kernels.records.cuda import of_types
from hpckit.md.device_forces import DeviceForces
from hpckit.md.device_ghosts import DeviceGhostExchange
from hpckit.md.device_neighbors import DeviceNeighborList
from hpckit.md.device_particles import DeviceParticles
from hpckit.md.system import System
from hpckit.particles import Particles


class DeviceSystem(System):
    """As `System`, on a GPU. Between rebuilds a rank alone never waits for it, unless `Rebuilds.check` asks for the
    largest move (every `Rebuilds.every` steps); with several ranks each step waits for what is packed for others.

    `particles` is a `DeviceParticles`; what is written or measured comes from `on_host`. Raises `InputError` for
    reproducible forces, which have no form for GPUs.
    """

    particles: Any
    neighbors: Any
    ghosts: Any
    forces: Any

    def __init__(self, *arguments: Any, device: Device, precision: str = "double", **options: Any) -> None:
        if options.pop("repro", False):
            raise InputError("reproducible forces have no form for GPUs", do="leave repro out, or --gpu")
        self.device = device
        super().__init__(*arguments, precision=precision, **options)
        self.forces = DeviceForces(self.interaction, precision, device)
        self.ghosts = DeviceGhostExchange(self.mesh, device)

    def _make_neighbors(self) -> None:
        self.neighbors = DeviceNeighborList(self.bricks, self.mesh, self.reach, self.device)

    def load(self, travelers: np.ndarray) -> None:
        """Collective: as `System.load`."""
        super().load(travelers)
        self.particles = DeviceParticles(self.particles, self.device)
        self._mass_values = self.device.to_device(self.masses)
        self._inverse_values = self.device.to_device(self.units.acceleration / self.masses)

    def rebuild(self) -> None:
        """Collective: wrap, migrate, sort, exchange ghosts, list neighbors."""
        particles, device = self.particles, self.device
        box = self.bricks.lower, self.bricks.upper, self.bricks.periodic
        wrap(particles.positions, particles.images, particles.slots, *box)
        self.neighbors.rebuild(particles, self.ghosts)
        if self.builds == 0 or len(self.slot_masses) < particles.slots:
            self.slot_masses, self.inverse_masses = (device.zeros((particles.capacity,)) for _ in range(2))
        of_types(particles.positions, particles.slots, self._mass_values, self.slot_masses)
        of_types(particles.positions, particles.slots, self._inverse_values, self.inverse_masses)
        self.builds += 1
        self._since = 0
        self.forces.prepare(particles, self.neighbors)

    def compute(self, measure: bool = False) -> None:
        """Forces where ghosts are up to date, as after `rebuild`."""
        with self.timer("force"):
            self.forces.compute(self.particles, self.neighbors, measure)

    def _compute_with_exchange(self, measure: bool) -> None:
        with self.timer("exchange"):
            self.ghosts.start(self.particles)
            self.ghosts.finish(self.particles)
            self.forces.prepare(self.particles, self.neighbors)
        self.compute(measure)

    def kinetic(self) -> np.ndarray:
        """The sums of m v_a v_b of this rank, as xx, yy, zz, xy, xz, yz."""
        sums, particles = self.device.zeros((6,)), self.particles
        kinetic(particles.velocities, self.slot_masses, particles.ids, particles.slots, sums)
        return self.device.to_host(sums)

    def tally_sums(self) -> np.ndarray:
        """As `System.tally_sums`."""
        return self.forces.tally_sums(self.particles.slots)

    def on_host(self) -> Particles:
        """A copy of the particles of this rank, in the host's memory."""
        return self.particles.to_host()
