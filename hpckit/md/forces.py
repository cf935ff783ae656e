"""The forces of a rank: the kernels for its interaction, instruction set and precision, and the arrays they work on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.pair.simd import Form, force_kernel, stored_table
from hpckit.kernels.particles.records.dispatch import to_single
from hpckit.md.interaction import Interaction
from hpckit.md.neighbors import NeighborList
from hpckit.particles.particles import Particles, aligned


class Forces:
    """Computes forces for some clusters; with `measure`, energies and virials of the slots too (`tallies`).

    precision: "double", or "mixed" (pairs in float32, sums in float64). exact: forces are added without rounding, so
    that no bit depends on the number of ranks. isa: an entry of `vectors.available()`, the best by default. Raises
    `InputError` for what this host cannot do.
    """

    def __init__(
        self, interaction: Interaction, precision: str = "double", exact: bool = False, isa: str | None = None
    ) -> None:
        isa = isa or vectors.available()[0]
        if isa not in vectors.available():
            raise InputError(f"this processor has no {isa}", do=f"choose {', '.join(vectors.available())}")
        if precision not in ("double", "mixed"):
            raise InputError(f"precision is double or mixed, not {precision!r}")
        if exact and precision != "double":
            raise InputError("reproducible forces are added in double precision", do='set precision to "double"')
        kind = "f" if precision == "mixed" else "d"
        self.interaction, self.exact = interaction, exact
        self.form = Form(isa, kind, interaction.types, False, exact, interaction.one_cutoff)
        self._kernels = {
            measure: force_kernel(interaction.potential, replace(self.form, measure=measure))
            for measure in (False, True)
        }
        rows_at = interaction.potential.rows_at
        self._table = stored_table(interaction.table, self.form, interaction.rows, rows_at)
        self._singles = aligned((0, RECORD), np.float32)
        self.tallies = np.empty((0, TALLY))

    @property
    def mixed(self) -> bool:
        """Whether pairs are computed in float32."""
        return self.form.kind == "f"

    def prepare(self, particles: Particles, neighbors: NeighborList, first: int, stop: int) -> None:
        """Take over the positions of the slots first to stop - 1, where pairs are computed in float32."""
        if not self.mixed:
            return
        if len(self._singles) < neighbors.slots:
            self._singles = aligned((particles.capacity, RECORD), np.float32)
        to_single(particles.positions, first, stop, neighbors.center, self._singles)

    def compute(self, particles: Particles, neighbors: NeighborList, clusters: np.ndarray, measure: bool) -> None:
        """Write the forces of the slots of `clusters`."""
        if measure and len(self.tallies) < particles.slots:
            self.tallies = np.empty((particles.capacity, TALLY))
        records = self._singles if self.mixed else particles.positions
        self._kernels[measure](
            clusters,
            records.reshape(-1),
            neighbors.start,
            neighbors.entries,
            self._table,
            particles.forces.reshape(-1),
            self.tallies.reshape(-1),
        )
