"""Potentials that are Python functions of a brick: the particles of a rank, their ghosts, and the pairs of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.loops import COARSE, FINE
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md.forces import CenteredForces
from hpckit.md.neighbors import NeighborList
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles
from hpckit.particles.returns import GhostReturn

WIDTH = 16  # features of a particle in one message
TENSOR = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


class Brick:
    """What a potential sees on a rank: `own` particles, then its ghosts, which are images or particles of other ranks.

    positions float64[n, 3], types and ids (from 0) int64[n], of own particles and ghosts; first, second int64[m]: each
    own particle with everything within the cutoff, sorted by the ids, so that sums over the pairs of a particle do not
    depend on the number of ranks; vectors float64[m, 3]: from the first to the second; lower, lengths: of the box.

    A network of several layers calls `forward` between two of them, and `back` with the gradients of what it got.
    """

    def __init__(self, forces: BrickForces, particles: Particles, neighbors: NeighborList, cutoff: float) -> None:
        own, ghosts = particles.own, np.arange(particles.slots, particles.slots + particles.ghost_slots)
        records = particles.positions
        ghosts = ghosts[records[ghosts, 0] < 0.5 * forces.far]
        self.slots = np.concatenate([own, ghosts])
        self.own, self._forces, self._room = len(own), forces, neighbors.slots
        number = np.full(neighbors.slots, -1)
        number[self.slots] = np.arange(len(self.slots))
        self.positions = records[self.slots, :3].copy()
        self.types, self.ids = types_of(records[self.slots]), forces.ids[self.slots]
        lists = neighbors.lists
        assert lists is not None
        count = np.diff(lists.bounds[: particles.slots + 1])
        first = number[np.repeat(np.arange(particles.slots), count)]
        second = number[lists.entries[: lists.bounds[particles.slots]] // RECORD]
        near = (first >= 0) & (second >= 0)
        first, second = first[near], second[near]
        vectors = self.positions[second] - self.positions[first]
        near = (vectors * vectors).sum(axis=1) < cutoff * cutoff
        first, second, vectors = first[near], second[near], vectors[near]
        order = np.lexsort((*vectors.T[::-1], self.ids[second], first))
        self.first, self.second, self.vectors = first[order], second[order], vectors[order]

    def forward(self, features: np.ndarray) -> np.ndarray:
        """Collective: the features [own, w] of own particles and those of ghosts, from their owners: [n, w]."""
        found = np.zeros((len(self.slots), features.shape[1]))
        found[: self.own] = features[: self.own]
        ghosts = self._forces.ghosts
        for some in self._pieces(found):
            values = self._placed(found[:, some])
            ghosts.start_values(values)
            ghosts.finish_values(values)
            found[:, some] = values[0, self.slots, : found[:, some].shape[1]]
        return found

    def back(self, gradients: np.ndarray) -> np.ndarray:
        """Collective: gradients by the features of `forward`, [n, w], as gradients by those of own particles [own, w]:
        those of their ghosts, on all ranks, are added, in an order that depends on the ranks.
        """
        found = np.array(gradients, np.float64)
        for some in self._pieces(found):
            values = self._placed(found[:, some])
            self._forces.returns.start(values)
            self._forces.returns.finish(values)
            found[:, some] = values[0, self.slots, : found[:, some].shape[1]]
        return found[: self.own]

    def _pieces(self, features: np.ndarray) -> list[slice]:
        return [slice(k, min(k + WIDTH, features.shape[1])) for k in range(0, features.shape[1], WIDTH)]

    def _placed(self, features: np.ndarray) -> np.ndarray:
        values = np.zeros((1, self._room, WIDTH))
        values[0, self.slots, : features.shape[1]] = features
        return values


@dataclass(frozen=True, eq=False)
class BrickPotential:
    """A potential function(brick) -> (energies [own], slopes [m, 3]): the energies of own particles, and the
    derivatives of the energy of all particles by `brick.vectors`.

    All ranks call it at every step, those without particles, too. Raises `InputError` for a cutoff that is not above 0.
    """

    function: Callable[[Brick], tuple[np.ndarray, np.ndarray]]
    cutoff: float
    types: int = 1
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        if not self.cutoff > 0:
            raise InputError(f"the cutoff of a potential is above 0, not {self.cutoff:g}")


class BrickForces(CenteredForces):
    """The forces of a `BrickPotential`; see `Forces`. They are computed at once, when all ghosts are there."""

    on_cpu = "potentials that are functions of a brick"
    values_each = WIDTH
    far = 1e8  # where empty slots lie

    def __init__(
        self,
        interaction: Any,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        super().__init__(interaction.types, True, precision, exact, isa, device)
        self.interaction = interaction
        self._back_values: GhostReturn | None = None

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:
        """See `Forces.meet`."""
        super().meet(particles, neighbors, ghosts)
        if self._back_values is None:
            self._back_values = GhostReturn(ghosts, WIDTH)
        self.ghosts, self.returns = ghosts, self._back_values
        self.returns.rebuild()
        ids = np.full((1, neighbors.slots, WIDTH), -1.0)
        ids[0, : particles.slots, 0] = particles.ids[: particles.slots]
        ghosts.start_values(ids)
        ghosts.finish_values(ids)
        self.ids = ids[0, :, 0].astype(np.int64)

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Nothing: `finish` does all parts at once."""

    def finish(self, particles: Particles, neighbors: NeighborList, measure: int) -> None:
        """Collective: call the function, and bring forces home."""
        if measure:
            self.reserve_tallies(particles)
            self.tallies[: particles.slots] = 0.0
        brick = Brick(self, particles, neighbors, self.interaction.cutoff)
        energies, slopes = self._checked(brick, *self.interaction.function(brick))
        slots = brick.slots
        self._push(slots[brick.first], slopes)
        self._push(slots[brick.second], -slopes)
        if measure:
            self.tallies[slots[: brick.own], 0] = 2.0 * energies
            for column, (a, b) in enumerate(TENSOR, start=1):
                parts = -2.0 * slopes[:, a] * brick.vectors[:, b]
                np.add.at(self.tallies[:, column], slots[brick.first], parts)
        super().finish(particles, neighbors, measure)

    def _checked(self, brick: Brick, energies: Any, slopes: Any) -> tuple[np.ndarray, np.ndarray]:
        energies, slopes = np.asarray(energies, np.float64), np.asarray(slopes, np.float64)
        if energies.shape != (brick.own,) or slopes.shape != brick.vectors.shape:
            raise InputError(
                f"a potential of a brick returned energies {list(energies.shape)} and slopes {list(slopes.shape)}",
                likely=f"it has {brick.own} own particles and {len(brick.vectors)} pairs",
                do="return energies [own] and derivatives by brick.vectors [m, 3]",
            )
        return energies, slopes

    def _push(self, slots: np.ndarray, forces: np.ndarray) -> None:
        """Add forces; where sums are exact, as multiples of two scales."""
        if not self.exact:
            np.add.at(self.pushed[:, :3], slots, forces)
            return
        coarse = (forces + COARSE) - COARSE
        fine = ((forces - coarse) + FINE) - FINE
        np.add.at(self.pushed[:, :3], slots, coarse)
        np.add.at(self.pushed[:, RECORD : RECORD + 3], slots, fine)
