"""Particle-particle particle-mesh (PPPM): the waves of an Ewald sum by Fourier transforms of charges on a mesh.

Hockney and Eastwood (1988), Computer Simulation Using Particles: charges are spread over mesh points by B-splines, an
influence function that is the best for ik differentiation takes them to potentials, and forces are gathered with the
same weights. Deserno and Holm (1998, J. Chem. Phys. 109, 7678) have the formulas; LAMMPS computes the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.errors import BlowUpError, InputError
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.particles.mesh.dispatch import SIDE, WIDTH, gather, lay_beside, spread
from hpckit.md.molecules.estimates import Fineness
from hpckit.md.molecules.ewald import charges_of, constant_energy, most_charge, rounding
from hpckit.md.system import System
from hpckit.md.thermo import add_ranks
from hpckit.particles.migration import straight
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.particles.cell import Cell
from hpckit.tensors.fourier import FFT

NEGLIGIBLE = 1e-7  # of the influence of aliases
CROWD = 256.0  # magnitudes of the largest charge that meet at a point, at most
PARTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


class MeshEwald:
    """The part of Coulomb's energy that is left beside pairs with erfc(g r) / r, on a mesh; `LongRange`.

    The mesh is cut over the ranks as the box is. Charges at the edges of a rank's part travel by `accumulate` of a halo
    exchange, and fields come back by the exchange itself; the transform is `hp.tensors.FFT`. Charges are spread without
    rounding of sums, so all has the same bits on any number of ranks. Domains must be equal.
    """

    def __init__(self, fineness: Fineness) -> None:
        self.fineness = fineness
        self.energy, self.virial = 0.0, np.zeros(6)
        self._fft: FFT | None = None
        self._halo: tuple[int, ...] = (0, 0, 0)
        self._lost: Any = 0  # charges beyond the mesh, since a GPU was last asked for them

    def meet(self, system: System) -> None:
        """Collective: take up charges and box. Raises `InputError` for open dims, without charges, and for unequal
        domains; `DecompositionError` for a mesh that is too coarse for that many ranks.
        """
        self._check(system)
        self._forces = charges_of(system)
        self._constants = constant_energy(system, self._forces, self.fineness.splitting)
        self._cell: Cell | None = None
        self._big = rounding(CROWD * most_charge(system, self._forces) / system.count)
        lengths, sizes = system.domains.lengths, system.domains.topology.sizes
        reach = system.domains.cell.reaches(0.5 * system.neighbors.skin)
        for cuts, n, length in zip(system.domains.cuts, sizes, lengths, strict=True):
            if not np.allclose(np.diff(cuts), length / n, rtol=1e-9):
                raise InputError("a mesh of charges needs equal domains", do="set ranks.balance = 0, or take ewald")
        # A particle may leave its domain by half the skin; a domain and its block of points differ by less than a step.
        moves = np.ceil(reach * 1.5 * np.array(self.fineness.mesh) / lengths).astype(int)
        halo = tuple(int(self.fineness.order // 2 + 2 + move) for move in moves)
        if self._fft is None or any(a > b for a, b in zip(halo, self._halo, strict=True)):
            self._prepare(system, halo)
        self._fit(system)

    def _prepare(self, system: System, halo: tuple[int, ...]) -> None:
        mesh, device = system.mesh, system.device
        cells = Decomposition(self.fineness.mesh, mesh.topology, halo)
        self._halo, self._inside = halo, cells.interior
        local = cells.local_shape(mesh.rank)
        self._shape = np.array(local, np.int64)
        self._start = np.array(cells.start(mesh.rank), np.int64) - np.array(halo)
        count = math.prod(local)
        # Vectors touch some numbers behind the last row.
        self._charges, self._fields = device.zeros((count + WIDTH,)), device.zeros((3, count + WIDTH))
        self._beside = device.zeros((count + WIDTH, SIDE))
        self._charge_field = Field(mesh, cells, self._charges[:count].reshape(local), "charge", device=device)
        self._field_of_each = [
            Field(mesh, cells, row[:count].reshape(local), "field", device=device) for row in self._fields
        ]
        self._back = HaloExchange(mesh, self._charge_field)
        self._out = HaloExchange(mesh, self._field_of_each)
        self._fft = FFT(mesh, self.fineness.mesh)

    def _fit(self, system: System) -> None:
        """Fit the influence function to the box."""
        cell, lengths, fft, mesh = system.domains.cell, system.domains.lengths, self._fft, self.fineness.mesh
        assert fft is not None
        if cell == self._cell:
            return
        self._cell = cell
        volume, points = float(np.prod(lengths)), math.prod(mesh)
        self._scale = np.array(mesh) / lengths
        numbers = [np.rint(f * n) for f, n in zip(fft.frequencies(1.0), mesh, strict=True)]
        # The wave of half the points has no derivative on the mesh.
        turned = [np.where(np.abs(n) * 2 == m, 0.0, n) for n, m in zip(numbers, mesh, strict=True)]
        slopes = waves_of(turned, cell)
        placed = system.device.to_device
        self._slopes = [placed(np.asarray(-1j * k * (points / volume))) for k in slopes]
        # It stands for two waves, of either sign, which differ in length where the cell leans.
        signs = (1.0, -1.0) if cell.tilted else (1.0,)
        whole, energies, stress = np.asarray(0.0), np.asarray(0.0), [np.asarray(0.0)] * 6
        for sign in signs:
            each = [np.where(np.abs(n) * 2 == m, sign * n, n) for n, m in zip(numbers, mesh, strict=True)]
            influence, squares = influence_of(each, self.fineness, cell)
            influence = influence / len(signs)
            waves = waves_of(each, cell)
            weights = np.ascontiguousarray(fft.weights() * influence * (0.5 / volume))
            bend = -2.0 * (1.0 / np.where(squares > 0, squares, np.inf) + 0.25 / self.fineness.splitting**2)
            shears = waves if cell.tilted else slopes
            whole, energies = whole + influence, energies + weights
            for part, (a, b) in enumerate(PARTS):
                both = waves[a] * waves[a] if a == b else shears[a] * shears[b]
                stress[part] = stress[part] + weights * (float(a == b) + bend * both)
        self._influence, self._weights = placed(whole), [placed(each) for each in (energies, *stress)]
        own, background = self._constants
        self._constant = own - background / volume

    def add(self, system: System, measure: bool) -> None:
        """Collective: add the forces by the mesh, and with `measure` set energy and virial."""
        self._fit(system)
        particles, charges, fft = system.particles, self._forces.charges, self._fft
        assert fft is not None
        places = straight(system.domains, particles)  # where the mesh is upright
        place: Any = system.domains.lower, self._scale, self._start, self._shape, self.fineness.order
        with system.timer("long range"):
            self._charges[:] = 0.0
            self._lost += spread(places, charges, particles.slots, *place, self._big, self._charges)
            if measure or not system.device.is_gpu:
                self._check(system)
            self._back.accumulate(self._charge_field)
            spectrum = fft.forward(self._charge_field.data[self._inside])
            if measure:
                self._measure(system, spectrum)
            spectrum *= self._influence
            for field, slope in zip(self._field_of_each, self._slopes, strict=True):
                field.data[self._inside] = fft.backward(slope * spectrum)
            self._out(self._field_of_each)
            lay_beside(self._fields, self._beside)
            gather(places, charges, particles.slots, *place, self._beside, particles.forces)

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

    def _measure(self, system: System, spectrum: np.ndarray) -> None:
        powers, xp = spectrum.real**2 + spectrum.imag**2, system.device.xp
        exact = self._forces.exact
        if exact:
            each = np.stack([(one * powers).reshape(-1) for one in self._weights], axis=1)
        else:
            # Not np.dot: its threads wait for each other on a busy machine, longer than all of this takes.
            each = np.array([[float(xp.einsum("ijk,ijk->", one, powers)) for one in self._weights]])
        found = add_ranks(system.mesh.comm, each, math.prod(self.fineness.mesh) + system.mesh.size, exact)
        self.energy, self.virial = float(found[0]) + self._constant, found[1:]


def waves_of(numbers: list[np.ndarray], cell: Cell) -> list[np.ndarray]:
    """The x, y and z of waves with these numbers (one array a dim, which broadcast)."""
    if not cell.tilted:
        return [2 * np.pi / length * n for n, length in zip(numbers, cell.lengths, strict=True)]
    unit = cell.reciprocal  # upper triangular
    return [np.asarray(sum(numbers[i] * unit[i, dim] for i in range(dim + 1))) for dim in range(3)]


def influence_of(numbers: list[np.ndarray], fineness: Fineness, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """The influence function of ik differentiation at waves of these numbers (one array a dim, which broadcast), and
    their k^2. It takes the transform of charges to that of potentials times the volume.
    """
    g, order, mesh, lengths = fineness.splitting, fineness.order, fineness.mesh, cell.lengths
    waves = waves_of(numbers, cell)
    squares = waves[0] ** 2 + waves[1] ** 2 + waves[2] ** 2
    aliases = [
        int(g * length / (math.pi * n) * (-math.log(NEGLIGIBLE)) ** 0.25)
        for length, n in zip(lengths, mesh, strict=True)
    ]
    total = np.zeros(squares.shape)
    for x in range(-aliases[0], aliases[0] + 1):
        for y in range(-aliases[1], aliases[1] + 1):
            for z in range(-aliases[2], aliases[2] + 1):
                shifted = waves_of([each + n * m for each, n, m in zip(numbers, mesh, (x, y, z), strict=True)], cell)
                alike = [number / n + m for number, n, m in zip(numbers, mesh, (x, y, z), strict=True)]
                weight: Any = 1.0
                for q, t in zip(shifted, alike, strict=True):
                    weight = weight * (np.exp(-0.25 * (q / g) ** 2) * np.sinc(t) ** (2 * order))
                own = sum(q * q for q in shifted)
                along = sum(k * q for k, q in zip(waves, shifted, strict=True))
                total += weight * along / np.where(own > 0, own, np.inf)
    spreads = [_spread_of(number / n, order) for number, n in zip(numbers, mesh, strict=True)]
    full = (spreads[0] * spreads[1] * spreads[2]) ** 2
    return 4 * np.pi / np.where(squares > 0, squares, np.inf) * total / full, squares


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
