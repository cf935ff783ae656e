"""Ewald's sum over all images of the charges, wave by wave: the reference of the mesh."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.errors import InputError
from hpckit.kernels.particles.ewald import dispatch as kernels
from hpckit.md.molecules.charges import ChargedForces
from hpckit.md.molecules.estimates import Fineness, waves_within
from hpckit.md.system import System
from hpckit.md.thermo import add_ranks
from hpckit.particles.migration import straight
from hpckit.plan.particles.cell import Cell


class Ewald:
    """The part of Coulomb's energy that is left beside pairs with erfc(g r) / r: smooth charges, as waves; `LongRange`.

    Its sums over particles have no rounding of their own: the same bits on any number of ranks. Each rank holds all
    waves, so the cost is particles times waves. A total charge has a background of the opposite one. The waves are
    those within the sphere in `cell`, or in that of the first system, and stay where the box changes: energies then
    have no steps.
    """

    def __init__(self, fineness: Fineness, cell: Cell | None = None) -> None:
        self.fineness, self._chosen_in = fineness, cell
        self.energy, self.virial = 0.0, np.zeros(6)
        self._rows = np.zeros((0, 5), np.int64)
        self._most = np.array(fineness.waves, np.int64)

    def meet(self, system: System) -> None:
        """Collective: take up charges and box. Raises `InputError` for open dims, and without charges."""
        self._forces = charges_of(system)
        self._big = rounding(most_charge(system, self._forces))
        self._constants = constant_energy(system, self._forces, self.fineness.splitting)
        self._cell: Cell | None = None
        if not len(self._rows):
            cell, most = self._chosen_in or system.domains.cell, self.fineness.waves
            if cell.tilted:
                self._rows, self._numbers = waves_of_cell(most, cell)
                self._most = np.abs(self._numbers).max(axis=0, initial=0)
            else:
                self._rows, self._numbers = waves_within(most, cell.lengths, self.fineness.squares)
            self._waves = system.device.zeros((2, len(self._numbers)))
            self._rows = system.device.to_device(self._rows)
        self._fit(system)

    def _fit(self, system: System) -> None:
        """Fit the waves, whose numbers stay, to the box."""
        cell, lengths = system.domains.cell, system.domains.lengths
        if cell == self._cell:
            return
        self._cell, self._unit = cell, 2 * np.pi / lengths
        k = self._numbers @ cell.reciprocal if cell.tilted else self._unit * self._numbers
        squares, g4 = (k * k).sum(axis=1), 0.25 / self.fineness.splitting**2
        self._weights = 4 * np.pi / float(np.prod(lengths)) * np.exp(-g4 * squares) / squares
        self._placed = system.device.to_device(self._weights)
        slope = -2.0 * (1.0 / squares + g4)
        parts = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
        self._stress = np.stack([float(a == b) + slope * k[:, a] * k[:, b] for a, b in parts])
        own, background = self._constants
        self._constant = own - background / float(np.prod(lengths))

    def start(self, system: System) -> None:
        """Nothing: sums over particles come with the forces."""

    def add(self, system: System, measure: bool) -> None:
        """Collective: add the forces of the waves, and with `measure` set energy and virial."""
        self._fit(system)
        particles, charges = system.particles, self._forces.charges
        # Phases are those of straight coordinates in the upright box.
        places = straight(system.domains, particles)
        where = places, charges, particles.slots, self._rows, self._unit, self._most
        with system.timer("long range"):
            kernels.structure(*where, self._big, *self._waves)
            waves = self._of_all_ranks(system)
            if places is particles.positions:
                kernels.wave_forces(*where, *waves, self._placed, particles.forces)
            else:
                upright = system.device.zeros((max(1, particles.slots), 4))
                kernels.wave_forces(*where, *waves, self._placed, upright)
                turn = system.domains.cell.reciprocal / self._unit[:, None]  # of k, from the upright box
                for dim in range(3):  # not by a product of matrices, whose order of sums may depend on their size
                    each = (upright[: particles.slots, d] * turn[d, dim] for d in range(3))
                    particles.forces[: particles.slots, dim] += sum(each)
            if measure:
                each = self._weights * (system.device.to_host(waves) ** 2).sum(axis=0)
                self.energy = float(each.sum()) + self._constant
                self.virial = self._stress @ each

    def _of_all_ranks(self, system: System) -> Any:
        """Collective: the sums of the waves over all ranks, on the device."""
        device, comm = system.device, system.mesh.comm
        if not device.is_gpu or comm.size > 1:
            return device.to_device(sum_of_ranks(comm, device.to_host(self._waves)))
        return self._waves


def waves_of_cell(most: tuple[int, int, int], cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """As `waves_within`, in a tilted cell: all waves within the sphere that the largest of the three has there without
    the tilt.
    """
    reciprocal = cell.reciprocal
    limit = 1.00001 * float(((2 * np.pi / cell.lengths * most) ** 2).max())
    top = np.floor(math.sqrt(limit) * np.linalg.norm(cell.matrix, axis=1) / (2 * np.pi)).astype(int)
    z, rows, numbers, place = np.arange(-top[2], top[2] + 1), [], [], 0
    for x in range(top[0] + 1):
        for y in range(-top[1] if x else 0, top[1] + 1):
            k = x * reciprocal[0] + y * reciprocal[1] + z[:, None] * reciprocal[2]
            found = z[((k * k).sum(axis=1) <= limit) & ((x > 0) | (y > 0) | (z > 0))]
            if found.size:
                rows.append((x, y, int(found[0]), found.size, place))
                numbers += [(x, y, int(each)) for each in found]
                place += found.size
    return np.array(rows, np.int64).reshape(-1, 5), np.array(numbers, np.int64).reshape(-1, 3)


def rounding(total: float) -> float:
    """A number that, added and taken away, rounds to multiples of which sums up to `total` are exact."""
    return 1.5 * 2.0 ** math.ceil(math.log2(max(total, 1e-300)) + 1)


def charges_of(system: System) -> ChargedForces:
    """The forces of a system with charges in a periodic box. Raises `InputError` for others."""
    forces = system.forces
    if not isinstance(forces, ChargedForces):
        raise InputError("a sum over all images needs charges", do="set interaction.coulomb")
    if not all(system.domains.periodic):
        raise InputError("a sum over all images needs a box that is periodic in x, y and z")
    return forces


def most_charge(system: System, forces: ChargedForces) -> float:
    """Collective: an upper bound of the sum of all magnitudes of charges."""
    own = system.device.to_host(forces.charges[: system.particles.slots])
    largest = np.array(np.abs(own).max(initial=0.0))
    return float(max_of_ranks(system.mesh.comm, largest)) * system.count


def constant_energy(system: System, forces: ChargedForces, splitting: float) -> tuple[float, float]:
    """Collective: the energy of smooth charges with themselves, which is taken off, and that of a background of the
    opposite charge times the volume.
    """
    own = system.device.to_host(forces.charges[: system.particles.slots])
    columns, rows = np.column_stack([own, own * own]), max(2 * system.count, system.mesh.size)
    total, squares = add_ranks(system.mesh.comm, columns, rows, exact=True)
    return -splitting / math.sqrt(math.pi) * float(squares), 0.5 * math.pi * float(total) ** 2 / splitting**2
