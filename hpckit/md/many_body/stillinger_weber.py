"""Silicon, and water as mW: Stillinger and Weber's potential of one element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels.particles.many_body.stillinger_weber.dispatch import (
    PARTS,
    Silicon,
    force_kernel,
    forces,
    moment_kernel,
    moments,
)
from hpckit.md.forces import NearForces
from hpckit.md.neighbors import NeighborList
from hpckit.particles.particles import Particles


@dataclass(frozen=True)
class StillingerWeber:
    """The potential between particles of `types` types, all of one element; parameters as `lammps_sw` reads them.

    Raises `InputError` for parameters that make no potential.
    """

    parameters: Silicon
    types: int = 1
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        it = self.parameters
        if not all(np.isfinite(it)) or not 0 < it.cutoff <= it.reach or min(it.sigma, it.width) < 0:
            raise InputError(f"no potential of Stillinger and Weber: {it._asdict()}")

    @property
    def cutoff(self) -> float:
        """Beyond it there is no force."""
        return self.parameters.cutoff


class StillingerWeberForces(NearForces):
    """The forces of the potential; see `Forces`. First the moments of each particle's bonds, then forces."""

    values_each = 4 * PARTS

    def __init__(
        self,
        interaction: StillingerWeber,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        super().__init__(1, True, precision, exact, isa, device)
        if self.mixed:
            raise InputError("Stillinger and Weber's potential is computed in double precision", do="omit precision")
        self._given = interaction.parameters
        self._moment_kernel = moment_kernel(self.form)
        powers = self._given.p, self._given.q
        self._kernels = {
            measure: force_kernel(replace(self.form, measure=measure), *powers) for measure in (False, True)
        }
        self._moments = device.zeros((PARTS, 0, 4))

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
                self._moments = self.device.zeros((PARTS, particles.capacity, 4))
            near = self.near, self.counts, self._moments
            moments(self._moment_kernel, *what, neighbors.slots, lists, self._given, *near)
            return
        if measure:
            self.reserve_tallies(particles)
        out = particles.forces, self.tallies
        forces(self._kernels[bool(measure)], *what, lists, self._given, self.near, self.counts, self._moments, *out)
