"""A system of particles whose particles, lists and forces live on GPUs, one to a rank or shared by ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.errors import InputError
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.integrate.dispatch import wrap
from hpckit.kernels.particles.records.cuda import of_types
from hpckit.md.device_forces import DeviceForces
from hpckit.md.device_ghosts import DeviceGhostExchange
from hpckit.md.device_neighbors import DeviceNeighborList
from hpckit.md.device_particles import DeviceParticles
from hpckit.md.system import System
from hpckit.particles.particles import Particles


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
        self.device, self._pairs = device, 0.0  # pairs in the list, counted where the cuts move
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
        if self.balance_every:
            self._pairs = float(self.neighbors.lengths[: particles.slots].sum())
        self.forces.prepare(particles, self.neighbors)

    def compute(self, measure: bool = False) -> None:
        """Forces where ghosts are up to date, as after `rebuild`. The rank's load is the pairs that are looked at."""
        self._load += self._pairs
        with self.timer("force"):
            self.forces.compute(self.particles, self.neighbors, measure)
            self._add_external(measure)

    def _compute_with_exchange(self, measure: bool) -> None:
        with self.timer("exchange"):
            self.ghosts.start(self.particles)
            self.ghosts.finish(self.particles)
            self.forces.prepare(self.particles, self.neighbors)
        self.compute(measure)

    def _sums(self, kernel: Callable[..., None], count: int, *arrays: Any) -> np.ndarray:
        """As of `System`; waits for the GPU."""
        sums = self.device.zeros((count,))
        kernel(*arrays, self.particles.slots, sums)
        return self.device.to_host(sums)

    def _own_places(self) -> np.ndarray:
        """As of `System`; waits for the GPU."""
        return self.device.to_host(self.particles.positions[: self.particles.slots])[:, :3]

    def make_records(self) -> Any:
        """As `System.make_records`."""
        return self.device.zeros((self.particles.capacity, RECORD))

    def tally_sums(self) -> np.ndarray:
        """As `System.tally_sums`."""
        return self.forces.tally_sums(self.particles.slots)

    keeps_lists = False

    def built_positions(self) -> np.ndarray:
        """Where particles are: a system that goes on on a GPU rebuilds."""
        return self.on_host().positions

    def on_host(self) -> Particles:
        """A copy of the particles of this rank, in the host's memory."""
        return self.particles.to_host()
