"""Silicon, compounds as GaN and CdTe, and water as mW: Stillinger and Weber's potential of any number of elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels.particles.many_body.stillinger_weber.dispatch import (
    PAIR,
    PARTS,
    TRIPLE,
    Tetrahedra,
    force_kernel,
    forces,
    moment_kernel,
    moments,
    near_room,
)
from hpckit.md.forces import NearForces
from hpckit.md.neighbors import NeighborList
from hpckit.particles.particles import Particles


@dataclass(frozen=True, eq=False)
class StillingerWeber:
    """The potential between particles of `types` types; parameters as `lammps_sw` reads them, of one kind for all types
    or of as many kinds as types.

    Raises `InputError` for tables of other shapes, and for parameters without a cutoff.
    """

    parameters: Tetrahedra
    types: int = 1
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        it, kinds = self.parameters, self.parameters.kinds
        if it.pairs.shape != (kinds, kinds, PAIR) or it.triples.shape != (kinds, kinds, kinds, TRIPLE):
            raise InputError(
                f"pairs of Stillinger and Weber's potential are [kinds, kinds, {PAIR}], triples [kinds, kinds, kinds,"
                f" {TRIPLE}], not {list(it.pairs.shape)} and {list(it.triples.shape)}"
            )
        if kinds not in (1, self.types):
            raise InputError(f"parameters are of {kinds} kinds, and there are {self.types} types")
        if not self.cutoff > 0:
            raise InputError("Stillinger and Weber's potential: no pair has a cutoff, sigma a, above 0")

    @property
    def cutoff(self) -> float:
        """Beyond it there is no force: the longest of the cutoffs."""
        return float(self.parameters.pairs[..., 7].max())


class StillingerWeberForces(NearForces):
    """The forces of the potential; see `Forces`. First the moments of each particle's bonds, then forces."""

    def __init__(
        self,
        interaction: StillingerWeber,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        it = interaction.parameters
        super().__init__(it.kinds, True, precision, exact, isa, device)
        if self.mixed:
            raise InputError("Stillinger and Weber's potential is computed in double precision", do="omit precision")
        self.values_each = 4 * PARTS * it.kinds
        self.near_each, self.counts_each = near_room(self.form), it.kinds
        tables = (device.to_device(np.ascontiguousarray(each)) for each in (it.pairs, it.triples))
        self._given = Tetrahedra(*tables, it.powers)
        self._moment_kernel = moment_kernel(self.form)
        self._kernels = {
            measure: force_kernel(replace(self.form, measure=measure), it.powers) for measure in (False, True)
        }
        self._moments = device.zeros((PARTS * it.kinds, 0, 4))

    @property
    def values(self) -> Any:
        """The moments of each slot."""
        return self._moments

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Moments, or forces, of the slots of a part of the lists; see `Forces.compute`."""
        lists = neighbors.lists
        assert lists is not None
        what = self.form, part, particles.positions
        if stage == 0:
            self.reserve_near(particles, neighbors)
            if self._moments.shape[1] < neighbors.slots:
                self._moments = self.device.zeros((len(self._moments), particles.capacity, 4))
            near = self.near, self.counts, self._moments
            moments(self._moment_kernel, *what, neighbors.slots, lists, self._given, *near)
            return
        if measure:
            self.reserve_tallies(particles)
        out = particles.forces, self.tallies
        forces(self._kernels[bool(measure)], *what, lists, self._given, self.near, self.counts, self._moments, *out)
