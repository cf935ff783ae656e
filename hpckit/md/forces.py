"""The forces of a rank: the kernels for its interaction, processor and precision, and the arrays they work on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.pair.dispatch import TALLY, Form, force_kernel, forces, stored_table
from hpckit.kernels.particles.records.dispatch import to_single
from hpckit.md.interaction import Interaction
from hpckit.md.neighbors import NeighborList
from hpckit.particles.particles import Particles


class Forces:
    """Computes forces for a part of a neighbor list; with `measure`, energies and virials of the slots too (`tallies`).

    precision: "double", or "mixed" (pairs in float32, sums in float64). exact: forces are added without rounding, so
    that no bit depends on the number of ranks. isa: an entry of `vectors.available()`, the best by default. Raises
    `InputError` for options that this processor, or a GPU as `device`, does not support.
    """

    def __init__(
        self,
        interaction: Interaction,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        isa = "cuda" if device.is_gpu else isa or vectors.available()[0]
        if not device.is_gpu and isa not in vectors.available():
            raise InputError(f"this processor has no {isa}", do=f"choose {', '.join(vectors.available())}")
        if precision not in ("double", "mixed"):
            raise InputError(f"precision is double or mixed, not {precision!r}")
        if exact and device.is_gpu:
            raise InputError("repro = True does not run on GPUs", do="leave --gpu out, or set repro = False")
        if exact and precision != "double":
            raise InputError("reproducible forces are added in double precision", do='set precision to "double"')
        kind, potential = "f" if precision == "mixed" else "d", interaction.potential
        one_cutoff = interaction.one_cutoff and not device.is_gpu
        self.interaction, self.exact, self.device = interaction, exact, device
        self.form = Form(isa, kind, interaction.types, False, exact, one_cutoff)
        try:
            self._kernels = {
                measure: force_kernel(potential, replace(self.form, measure=measure)) for measure in (False, True)
            }
        except TypeError as error:
            raise InputError(f"the potential {potential.key[1]} has no form for GPUs: {error}") from error
        stored = stored_table(interaction.table, self.form, interaction.rows, potential.rows_at)
        self._table = device.to_device(stored)
        self._singles = device.zeros((0, RECORD), np.float32)
        self.tallies = device.zeros((0, TALLY))

    @property
    def mixed(self) -> bool:
        """Whether pairs are computed in float32."""
        return self.form.kind == "f"

    def prepare(self, particles: Particles, neighbors: NeighborList, first: int, stop: int) -> None:
        """Convert the positions of the slots first to stop - 1, if pairs are computed in float32."""
        if not self.mixed:
            return
        if len(self._singles) < neighbors.slots:
            self._singles = self.device.zeros((particles.capacity, RECORD), np.float32)
        to_single(particles.positions, first, stop, neighbors.center, self._singles)

    def records(self, particles: Particles) -> Any:
        """The records of positions from which pairs are computed, in their precision."""
        return self._singles if self.mixed else particles.positions

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: bool) -> None:
        """Write the forces of the slots of a part of the lists: `inner`, one of `inner_parts`, or `outer`."""
        if measure and len(self.tallies) < particles.slots:
            self.tallies = self.device.zeros((particles.capacity, TALLY))
        lists = neighbors.lists
        assert lists is not None
        what = part, self.records(particles), lists.bounds, lists.entries, self._table
        forces(self._kernels[measure], self.form, *what, particles.forces, self.tallies)
