"""Distances in molecules that stay: rigid water, bonds of hydrogen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.comm.device import HOST
from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.molecules.constraints.dispatch import hold_distances, hold_speeds, sums_of
from hpckit.md.molecules.bonds import Bonds
from hpckit.md.molecules.terms import Members
from hpckit.md.system import System


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters of one shape: the ids of their particles, int64[clusters, n]; pairs of these, int64[m, 2], and the
    lengths between them, float64[clusters, m].
    """

    ids: np.ndarray
    pairs: np.ndarray
    lengths: np.ndarray


def clusters_of(
    bonds: np.ndarray, lengths: np.ndarray, angles: np.ndarray, cosines: np.ndarray, count: int
) -> list[Clusters]:
    """Clusters of constrained bonds, ids from 0, int64[n, 2], of these lengths; and of angles [k, 3] between two of
    them, whose ends keep their distance, too. A cluster is one particle in the middle and up to three around it; with
    an angle, two. Raises `InputError` for others, and for angles between other bonds.
    """
    degree = np.bincount(bonds.ravel(), minlength=count)
    first = np.where(degree[bonds[:, 0]] >= degree[bonds[:, 1]], 0, 1)
    rows = np.arange(len(bonds))
    middle, outer = bonds[rows, first], bonds[rows, 1 - first]
    if (degree > 3).any() or (degree[outer] > 1).any():
        raise InputError(
            "constraints hold clusters of one particle and up to three around it, and these bonds make larger ones",
            do="constrain fewer types of bonds",
        )
    order = np.lexsort((outer, middle))
    middle, outer, lengths = middle[order], outer[order], lengths[order]
    heads, starts = np.unique(middle, return_index=True)
    sizes = np.diff([*starts, len(middle)])
    at = {int(head): int(start) for head, start in zip(heads, starts, strict=True)}
    opened = {}
    for (one, head, other), cosine in zip(angles.tolist(), cosines.tolist(), strict=True):
        start = at.get(head, -1)
        ends = set(outer[start : start + 2].tolist()) if start >= 0 else set()
        if degree[head] != 2 or ends != {one, other}:
            raise InputError(
                "constrained angles lie between the two constrained bonds of their particle, and these do not",
                do="constrain the bonds of these angles, too, and no third one",
            )
        opened[head] = cosine
    held = np.array([int(head) in opened for head in heads], bool)
    found = []
    for size, closed in ((1, False), (2, False), (3, False), (2, True)):
        chosen = np.flatnonzero((sizes == size) & (held == closed))
        if not len(chosen):
            continue
        slices = starts[chosen][:, None] + np.arange(size)
        each, pairs = lengths[slices], [(0, 1 + k) for k in range(size)]
        if closed:
            cosine = np.array([opened[int(head)] for head in heads[chosen]])
            squares = each[:, 0] ** 2 + each[:, 1] ** 2 - 2 * each[:, 0] * each[:, 1] * cosine
            each, pairs = np.column_stack([each, np.sqrt(squares)]), [*pairs, (1, 2)]
        found.append(Clusters(np.column_stack([heads[chosen], outer[slices]]), np.array(pairs), each))
    return found


class Springs(Bonds):
    """Springs in place of constraints, for a minimization: K (r - length)^2, as `fix shake` of LAMMPS has them then."""

    moves, count = False, 0

    def __init__(self, clusters: Sequence[Clusters], particles: int, stiffness: float) -> None:
        self.longest_step, self._stiffness = math.inf, stiffness
        ends = np.concatenate([each.ids[:, each.pairs].reshape(-1, 2) for each in clusters])
        lengths, kinds = np.unique(np.concatenate([each.lengths.ravel() for each in clusters]), return_inverse=True)
        rows = np.column_stack([kinds.reshape(-1), ends])
        super().__init__(rows, particles, "harmonic", [(stiffness, length) for length in lengths])

    def attach(self, system: System) -> None:
        """See `Bonds.attach`."""
        super().attach(system)
        weight = system.units.acceleration / float(system.masses.min())
        self.longest_step = 0.5 / math.sqrt(2.0 * self._stiffness * weight)  # a twelfth of the fastest swing of two

    def expect(self, stretch: np.ndarray, slowing: np.ndarray) -> None:
        """Nothing: springs see the box as it is."""

    def ready(self, system: System) -> None:
        """Nothing: forces are the same before a step and after it."""

    def correct(self, system: System) -> None:
        """Nothing: springs may be stretched."""

    def drift(self, system: System, dt: float) -> None:
        """Not of this kind, as `moves` says."""
        raise NotImplementedError

    kick = drift


class Constraints:
    """Holds distances by forces: at each step such that the next places keep them (SHAKE), as `fix shake` of LAMMPS.

    dt: the time step of the dynamics, velocity Verlet with or without chains and barostats around it. A cluster that is
    cut by sides of domains is solved on each of their ranks, from what ghosts would move by. `count`: the distances,
    each of which takes a degree of freedom. foresee: whether forces allow for what a barostat does in the next step.
    speeds: whether velocities at the end of a step have no part along the distances (RATTLE, as `fix rattle`): the
    forces at the end of a step see to that, and `ready` makes of them those of the next drift.
    """

    moves, longest_step = False, math.inf

    def __init__(
        self, clusters: Sequence[Clusters], particles: int, dt: float, foresee: bool = True, speeds: bool = False
    ) -> None:
        self.foresee, self.speeds = foresee, speeds
        self.dt, self.count = dt, sum(each.lengths.size for each in clusters)
        self._stretch, self._slowing = np.ones(3), np.ones(3)
        self._groups: list[tuple[Members, Any, Any]] = [
            (
                Members(np.column_stack([np.zeros(len(each.ids), np.int64), each.ids]), particles, once=True),
                each.pairs,
                each.lengths**2,
            )
            for each in clusters
        ]
        self._failed: Any = 0  # clusters without a solution, since a GPU was last asked for them
        self._device = HOST

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots of all clusters."""
        self._check(system)
        if self._device is not system.device:
            self._device, move = system.device, system.device.to_device
            self._groups = [(members, move(pairs), move(squares)) for members, pairs, squares in self._groups]
        for members, _, _ in self._groups:
            members.attach(system)
        self._weights = system.device.zeros((1, system.neighbors.slots, 1))
        self._weights[0, : system.particles.slots, 0] = system.inverse_masses
        self._exchange(system, self._weights)
        # Kept, since sums on fresh pages took 4 times as long.
        self._found = system.device.zeros((3, system.neighbors.slots))

    def add(self, system: System, measure: int) -> None:
        """Collective: add the forces of constraints, after all others. Raises `BlowUpError` for no solution."""
        if self.speeds and system.within_step:
            self._hold_speeds(system, 0.5 * self.dt, system.particles.forces, measure)
            return
        # Velocities are those of half a step before the forces within a step, and those of now at the start.
        per_force = self.dt**2 * (1.0 if system.within_step else 0.5)
        moves = self._everywhere(system, self.dt * self._slowing, per_force)
        if (self._stretch != 1.0).any():
            stretch = system.device.to_device(self._stretch - 1.0)
            moves += (stretch * system.particles.positions[: moves.shape[1], :3]).T
        self._hold(system, moves, per_force, system.particles.forces, measure)

    def ready(self, system: System) -> None:
        """Collective, before the first kick and the drift of a step: what `speeds` needs."""
        if self.speeds:
            per_force = 0.5 * self.dt**2
            self._hold(system, self._everywhere(system, self.dt, per_force), per_force, system.particles.forces, False)

    def drift(self, system: System, dt: float) -> None:
        """Not of this kind, as `moves` says."""
        raise NotImplementedError

    kick = drift

    def _everywhere(self, system: System, per_velocity: float | np.ndarray, per_force: float) -> Any:
        """Collective: a sum of velocities and accelerations, [3, slots], of own slots and of ghosts, until the next."""
        particles, found = system.particles, self._found
        with system.timer("force"):
            factors = np.broadcast_to(np.asarray(per_velocity, np.float64), 3).copy()
            sums_of(factors, per_force, particles.velocities, particles.forces, system.inverse_masses, found)
        with system.timer("exchange"):
            self._exchange(system, found[:, :, None])
        return found

    def _hold_speeds(self, system: System, per_force: float, forces: Any, measure: int) -> None:
        """Collective: add to the forces what keeps velocities across the distances after a kick of this time."""
        speeds, own = self._everywhere(system, 1.0, per_force), system.particles.slots
        with system.timer("force"):
            for members, pairs, _ in self._groups:
                what = speeds, self._weights.reshape(-1), members.found, pairs, 1.0 / (per_force or 1.0)
                out = forces, system.forces.tallies, int(measure)
                hold_speeds(own, system.particles.positions, *what, *out)

    def expect(self, stretch: np.ndarray, slowing: np.ndarray) -> None:
        """Take the factors [3] by which a barostat is about to change the box, and velocities up to the next drift.

        Without them distances are off by what the box adds in a step. Constraint forces pull it back in the next one,
        and this work, which is in no virial, makes the conserved quantity of a barostat fall.
        """
        if self.foresee:
            self._stretch, self._slowing = stretch, slowing

    def correct(self, system: System) -> None:
        """Collective: move particles along their distances, by the inverse of their masses, until these are those held.

        Ghosts are to be refreshed. Raises `BlowUpError` for no solution.
        """
        zeros, own = system.device.zeros, system.particles.slots
        pushes = zeros(system.particles.forces.shape)
        self._hold(system, zeros((3, system.neighbors.slots)), 1.0, pushes, False)
        self._check(system)
        system.particles.positions[:own, :3] += pushes[:own, :3] * system.inverse_masses[:, None]
        if self.speeds:
            system.ghosts.start(system.particles)
            system.ghosts.finish(system.particles)
            pushes[...] = 0.0
            self._hold_speeds(system, 0.0, pushes, False)
            system.particles.velocities[:own, :3] += pushes[:own, :3] * system.inverse_masses[:, None]

    def _hold(self, system: System, moves: Any, per_force: float, forces: Any, measure: int) -> None:
        """Add to the forces what keeps the distances where particles would make these moves."""
        own, weights = system.particles.slots, self._weights.reshape(-1)
        with system.timer("force"):
            for members, pairs, squares in self._groups:
                what = moves, weights, members.found, members.numbers, pairs, squares, 1.0 / per_force
                out = forces, system.forces.tallies, int(measure)
                self._failed += hold_distances(own, system.particles.positions, *what, *out)
        if measure or not system.device.is_gpu:
            self._check(system)

    def _check(self, system: System) -> None:
        """Raise `BlowUpError` for clusters without a solution since the last call; waits for a GPU, which is asked at
        rebuilds and where energies are measured.
        """
        failed, self._failed = int(self._failed), 0
        if failed:
            raise BlowUpError(
                f"{failed} molecules are too far from their constrained lengths",
                where=f"rank {system.mesh.rank}",
                likely="a time step too long, or molecules that start stretched",
                do="lower time.dt, or start from lengths nearer to those of the constraints",
            )

    def _exchange(self, system: System, values: Any) -> None:
        system.ghosts.start_values(values)
        system.ghosts.finish_values(values)
