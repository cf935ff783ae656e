"""The forces of a rank on a GPU: the kernels for its interaction and precision, and the arrays they work on."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.errors import InputError
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.pair.cuda import DeviceForm, force_kernel, forces, stored_table
from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.records.cuda import to_single
from hpckit.md.device_neighbors import DeviceNeighborList
from hpckit.md.device_particles import DeviceParticles
from hpckit.md.interaction import Interaction


class DeviceForces:
    """As `Forces`, on a GPU, for all own particles at once.

    precision: "double", or "mixed" (pairs in float32, sums in float64). Raises `InputError` for another one,
    and for a potential whose force cannot be derived.
    """

    exact = False

    def __init__(self, interaction: Interaction, precision: str, device: Device) -> None:
        if precision not in ("double", "mixed"):
            raise InputError(f"precision is double or mixed, not {precision!r}")
        self.interaction, self.device = interaction, device
        self.mixed = precision == "mixed"
        kind = "f" if self.mixed else "d"
        forms = {measure: DeviceForm(kind, interaction.types, measure) for measure in (False, True)}
        try:
            self._kernels = {measure: force_kernel(interaction.potential, form) for measure, form in forms.items()}
        except TypeError as error:
            raise InputError(f"the potential {interaction.potential.key[1]} has no form for GPUs: {error}") from error
        rows_at = interaction.potential.rows_at
        stored = stored_table(interaction.table, forms[False], interaction.rows, rows_at)
        self._table = device.to_device(stored)
        self._singles = device.zeros((0, RECORD), np.float32)
        self.tallies = device.zeros((0, TALLY))

    def prepare(self, particles: DeviceParticles, neighbors: DeviceNeighborList) -> None:
        """Take over the positions of all slots, where pairs are computed in float32."""
        if not self.mixed:
            return
        if len(self._singles) < neighbors.slots:
            self._singles = self.device.zeros((particles.capacity, RECORD), np.float32)
        to_single(particles.positions, 0, neighbors.slots, neighbors.center, self._singles)

    def records(self, particles: DeviceParticles) -> Any:
        """What pairs are computed from: records in their precision."""
        return self._singles if self.mixed else particles.positions

    def compute(self, particles: DeviceParticles, neighbors: DeviceNeighborList, measure: bool) -> None:
        """Write the forces of own particles; with `measure` their energies and virials too."""
        if measure and len(self.tallies) < particles.slots:
            self.tallies = self.device.zeros((particles.capacity, TALLY))
        lists = neighbors.table, neighbors.lengths, self._table, self.interaction.types
        made, records = self._kernels[measure], self.records(particles)
        forces(made, records, particles.slots, *lists, particles.forces, self.tallies)

    def tally_sums(self, slots: int) -> np.ndarray:
        """The sums over own particles of what was measured: energy, xx, yy, zz, xy, xz, yz."""
        return self.device.to_host(self.tallies[:slots].sum(axis=0))[:7]
