"""Particle-particle particle-mesh (PPPM): the waves of an Ewald sum by Fourier transforms of charges on a mesh.

Hockney and Eastwood (1988), Computer Simulation Using Particles: charges are spread over mesh points by B-splines, an
influence function that is the best for ik differentiation takes them to potentials, and forces are gathered with the
same weights. Deserno and Holm (1998, J. Chem. Phys. 109, 7678) have the formulas; LAMMPS computes the same.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.mesh.dispatch import gather, spread
from hpckit.md.molecules.charge_mesh import ChargeMesh
from hpckit.md.molecules.estimates import Fineness
from hpckit.md.molecules.ewald import charges_of, constant_energy, most_charge, rounding
from hpckit.md.system import System
from hpckit.md.thermo import add_ranks
from hpckit.particles.migration import straight
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.charge_mesh import charge_halo, charge_mesh_plan
from hpckit.tensors.fourier import FFT

NEGLIGIBLE = 1e-7  # of the influence of aliases
CROWD = 256.0  # magnitudes of the largest charge that meet at a point, at most
PARTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


class MeshEwald:
    """The part of Coulomb's energy that is left beside pairs with erfc(g r) / r, on a mesh; `LongRange`.

    The mesh is cut over the ranks as the box is; whether each rank transforms its block, the whole or a slab of it, a
    `ChargeMeshPlan` says: the one that is quickest by price, or with `whole` the one that is asked for. Charges are
    spread without rounding of sums, so forces have the same bits on any number of ranks, and energies where sums are
    exact. Domains must be equal.
    """

    def __init__(self, fineness: Fineness, whole: bool | None = None) -> None:
        self.fineness, self._asked = fineness, whole
        self.energy, self.virial = 0.0, np.zeros(6)
        self._mesh: ChargeMesh | None = None
        self._lost: Any = 0  # charges beyond the mesh, since a GPU was last asked for them

    def meet(self, system: System) -> None:
        """Collective: take up charges and box. Raises `InputError` for open dims, without charges, and for unequal
        domains; `DecompositionError` for blocks that are asked for, of a mesh too coarse for that many ranks.
        """
        self._check(system)
        self._forces = charges_of(system)
        self._constants = constant_energy(system, self._forces, self.fineness.splitting)
        self._cell: Cell | None = None
        self._big = rounding(CROWD * most_charge(system, self._forces) / system.count)
        lengths, topology = system.domains.lengths, system.domains.topology
        reaches = system.domains.cell.reaches(system.neighbors.skin)
        for cuts, n, length in zip(system.domains.cuts, topology.sizes, lengths, strict=True):
            if not np.allclose(np.diff(cuts), length / n, rtol=1e-9):
                raise InputError("a mesh of charges needs equal domains", do="set ranks.balance = 0, or take ewald")
        halo = charge_halo(self.fineness.mesh, self.fineness.order, reaches, lengths)
        if self._mesh is None or any(a > b for a, b in zip(halo, self._mesh.plan.halo, strict=True)):
            shares = not system.device.is_gpu  # which transforms a small mesh sooner than it sends a slab
            plan = charge_mesh_plan(self.fineness.mesh, system.mesh.topology, halo, self._asked, shares=shares)
            self._mesh = ChargeMesh(system, plan)
            self._prepare(self._mesh.fft, system)
        self._fit(system)

    def _prepare(self, fft: FFT, system: System) -> None:
        """Make room for transforms of the field; what the influence function has of the mesh, whatever the box is."""
        self._spectra = system.device.zeros((3, *fft.spectrum.local_shape(system.mesh.rank)), fft.complex)
        mesh = self.fineness.mesh
        self._numbers = [np.rint(f * n) for f, n in zip(fft.frequencies(1.0), mesh, strict=True)]
        spreads = [_spread_of(number / n, self.fineness.order) for number, n in zip(self._numbers, mesh, strict=True)]
        self._spreads = 4 * np.pi / (spreads[0] * spreads[1] * spreads[2]) ** 2

    def _fit(self, system: System) -> None:
        """Fit the influence function to the box."""
        cell, lengths, mesh = system.domains.cell, system.domains.lengths, self.fineness.mesh
        if cell == self._cell:
            return
        assert self._mesh is not None
        self._cell = cell
        volume, points = float(np.prod(lengths)), math.prod(mesh)
        self._scale = np.array(mesh) / lengths
        # The wave of half the points has no derivative on the mesh.
        turned = [np.where(np.abs(n) * 2 == m, 0.0, n) for n, m in zip(self._numbers, mesh, strict=True)]
        slopes = waves_of(turned, cell)
        placed = system.device.to_device
        self._slopes = [placed(np.asarray(-1j * k * (points / volume))) for k in slopes]
        # It stands for two waves, of either sign, which differ in length where the cell leans.
        signs = (1.0, -1.0) if cell.tilted else (1.0,)
        often = self._mesh.fft.weights() * (0.5 / volume)
        self._parts: list[tuple[Any, ...]] = []
        whole: Any = 0.0
        for sign in signs:
            each = [np.where(np.abs(n) * 2 == m, sign * n, n) for n, m in zip(self._numbers, mesh, strict=True)]
            waves = waves_of(each, cell)
            influence, inverse = influence_of(each, waves, self._spreads, self.fineness, cell)
            influence /= len(signs)
            energies = influence * often
            bends = (inverse + 0.25 / self.fineness.splitting**2) * energies
            shears = waves if cell.tilted else slopes
            along = [placed(np.asarray(k)) for k in (*waves, *shears)]
            self._parts.append((placed(energies), placed(bends), along[:3], along[3:]))
            whole = whole + influence
        self._influence = placed(whole)
        own, background = self._constants
        self._constant = own - background / volume

    def start(self, system: System) -> None:
        """Spread the charges of this rank, and give the others what they need of them; see `LongRange`."""
        self._fit(system)
        mesh = self._mesh
        assert mesh is not None
        places = straight(system.domains, system.particles)  # where the mesh is upright
        where = system.domains.lower, self._scale, mesh.start, mesh.shape, self.fineness.order
        self._spread = places, self._forces.charges, system.particles.slots, *where
        with system.timer("long range"):
            mesh.charges[:] = 0.0
            self._lost += spread(*self._spread, self._big, mesh.charges)
            mesh.send()

    def add(self, system: System, measure: bool) -> None:
        """Collective, after `start`: add the forces by the mesh, and with `measure` set energy and virial."""
        mesh = self._mesh
        assert mesh is not None
        with system.timer("long range"):
            if measure or not system.device.is_gpu:
                self._check(system)
            spectrum = mesh.spectrum()
            if measure:
                self._measure(spectrum)
            spectrum *= self._influence
            for component, slope in zip(self._spectra, self._slopes, strict=True):
                component[...] = slope * spectrum
            mesh.lay(self._spectra)
            gather(*self._spread, mesh.beside, system.particles.forces)

    def _check(self, system: System) -> None:
        """Raise `BlowUpError` for charges beyond the mesh since the last call; waits for a GPU, which is asked at
        rebuilds and where energies are measured.
        """
        lost, self._lost = int(self._lost), 0
        if lost:
            raise BlowUpError(
                f"{lost} charges are beyond the mesh of their rank",
                where=f"rank {system.mesh.rank}",
                likely="lists that are rebuilt too rarely, or a time step too long",
                do="lower time.dt, or set neighbors.check = true",
            )

    def _measure(self, spectrum: Any) -> None:
        """Collective: energy and virial of a transform of all charges; the bends of k a k b are the parts of it."""
        assert self._mesh is not None
        powers, exact = spectrum.real**2 + spectrum.imag**2, self._forces.exact
        each: list[Any] = []  # for each sign of the waves seven columns
        for energies, bends, waves, shears in self._parts:
            own, bent = energies * powers, bends * powers
            columns = [own]
            for a, b in PARTS:
                one, other = (waves[a], waves[b]) if a == b else (shears[a], shears[b])
                columns.append(float(a == b) * own - 2.0 * (bent * one * other))
            each.append(columns)
        if exact:
            rows = [np.stack([one.reshape(-1) for one in columns], axis=1) for columns in each]
            values = np.sum(rows, axis=0)
        else:
            values = np.array([[sum(float(columns[k].sum()) for columns in each) for k in range(1 + len(PARTS))]])
        found = add_ranks(self._mesh.comm, values, math.prod(self.fineness.mesh) + self._mesh.comm.size, exact)
        self.energy, self.virial = float(found[0]) + self._constant, found[1:]


def waves_of(numbers: list[np.ndarray], cell: Cell) -> list[np.ndarray]:
    """The x, y and z of waves with these numbers (one array a dim, which broadcast)."""
    if not cell.tilted:
        return [2 * np.pi / length * n for n, length in zip(numbers, cell.lengths, strict=True)]
    unit = cell.reciprocal  # upper triangular
    return [np.asarray(sum(numbers[i] * unit[i, dim] for i in range(dim + 1))) for dim in range(3)]


def influence_of(
    numbers: list[np.ndarray], waves: list[np.ndarray], spreads: np.ndarray, fineness: Fineness, cell: Cell
) -> tuple[np.ndarray, np.ndarray]:
    """The influence function of ik differentiation at these waves of these numbers (one array a dim, which broadcast),
    and their 1 / k^2, 0 for no wave. It takes the transform of charges to that of potentials times the volume.

    spreads: 4 pi over the squared sum of what all aliases have of the splines.
    """
    g, order, mesh, lengths = fineness.splitting, fineness.order, fineness.mesh, cell.lengths
    squares = waves[0] ** 2 + waves[1] ** 2 + waves[2] ** 2
    inverse = 1.0 / np.where(squares > 0, squares, np.inf)
    aliases = [
        int(g * length / (math.pi * n) * (-math.log(NEGLIGIBLE)) ** 0.25)
        for length, n in zip(lengths, mesh, strict=True)
    ]
    total: Any = 0.0
    for alias in itertools.product(*(range(-most, most + 1) for most in aliases)):
        shifted = waves_of([each + n * m for each, n, m in zip(numbers, mesh, alias, strict=True)], cell)
        alike = [number / n + m for number, n, m in zip(numbers, mesh, alias, strict=True)]
        # The dims before the last one make small arrays.
        weight: Any = 1.0
        for q, t in zip(shifted, alike, strict=True):
            weight = weight * (np.exp(-0.25 * (q / g) ** 2) * np.sinc(t) ** (2 * order))
        if any(alias):
            own = sum(q * q for q in shifted)
            along = sum(k * q for k, q in zip(waves, shifted, strict=True))
            weight = weight * (along / np.where(own > 0, own, np.inf))
        total = total + weight
    return spreads * total * inverse, inverse


def _spread_of(fraction: np.ndarray, order: int) -> np.ndarray:
    """The sum of sinc^(2 order) over all aliases: the transform of the B-spline of twice the order at whole places."""
    values = _spline(2 * order)
    places = zip(range(1 - order, order), values, strict=True)
    return np.asarray(sum(v * np.cos(2 * np.pi * fraction * j) for j, v in places))


def _spline(order: int) -> list[float]:
    """The cardinal B-spline of an even order at the whole places within it."""
    found = [1.0]  # order 2 at 0
    for m in range(3, order + 1):
        # At 1, …, m - 1 from the left end of its support.
        before = [0.0, *found, 0.0]
        found = [(k * before[k] + (m - k) * before[k - 1]) / (m - 1) for k in range(1, m)]
    return found
