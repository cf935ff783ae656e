"""Metals by the embedded-atom method: energies that depend on the density of electrons at each atom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.io.particles.lammps_eam import EamFile
from hpckit.kernels.particles.many_body.eam.curves import EamTables, in_single, tables
from hpckit.kernels.particles.many_body.eam.dispatch import densities, density_kernel, force_kernel, forces
from hpckit.md.forces import NearForces
from hpckit.md.interaction import MOST_ROWS
from hpckit.md.neighbors import NeighborList
from hpckit.particles.particles import Particles


@dataclass(frozen=True, eq=False)
class EmbeddedAtoms:
    """Tabulated functions of the embedded-atom method, for each type or pair of types of particles.

    embedding: F [types, m] at densities 0, density_step, …; density: rho [types, types, n], at a particle of the first
    type from one of the second, and pair: r phi [types, types, n], both at distances 0, step, …. Values between are
    interpolated as LAMMPS does it. Raises `InputError` for arrays that do not fit each other or are not finite.
    """

    embedding: np.ndarray
    density: np.ndarray
    pair: np.ndarray
    density_step: float
    step: float
    cutoff: float
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        types, shape = len(self.embedding), np.shape(self.density)
        if self.embedding.ndim != 2 or shape != np.shape(self.pair) or shape[:2] != (types, types):
            raise InputError(
                f"embedding is [types, m], density and pair are [types, types, n], not {list(self.embedding.shape)},"
                f" {list(shape)} and {list(np.shape(self.pair))}"
            )
        if min(self.embedding.shape[1], shape[2]) < 5:
            raise InputError("tables of embedded atoms have 5 values or more")
        if not all(np.isfinite(each).all() for each in (self.embedding, self.density, self.pair)):
            raise InputError("tables of embedded atoms hold numbers that are not finite")
        if not (self.step > 0 and self.density_step > 0 and self.cutoff > 0):
            raise InputError("steps and cutoff of embedded atoms must be above 0")

    @property
    def types(self) -> int:
        """The number of types."""
        return len(self.embedding)

    @property
    def one_cutoff(self) -> bool:
        """All pairs of types have the same cutoff."""
        return True


class EmbeddedForces(NearForces):
    """The forces of embedded atoms; see `Forces`. First the densities, then forces, with the slopes of F between."""

    def __init__(
        self,
        interaction: EmbeddedAtoms,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        super().__init__(interaction.types, True, precision, exact, isa, device)
        it = interaction
        made = tables(it.embedding, it.density, it.pair, it.density_step, it.step, it.cutoff)
        if made.pairs.size // 4 > MOST_ROWS and self.mixed:
            raise InputError(f"tables of {it.types} types with {made.points} points are too large for mixed precision")
        made = in_single(made) if self.mixed else made
        self._tables: EamTables = made._replace(
            pairs=device.to_device(made.pairs) if device.is_gpu else made.pairs,
            embedding=device.to_device(made.embedding),
        )
        self._density_kernel = density_kernel(self.form)
        self._kernels = {measure: force_kernel(replace(self.form, measure=measure)) for measure in (False, True)}
        self._slopes, self._energies = device.zeros((0,)), device.zeros((0,))

    @property
    def values(self) -> Any:
        """F' at each slot."""
        return self._slopes.reshape(1, -1, 1)

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Densities, or forces, of the slots of a part of the lists; see `Forces.compute`."""
        lists = neighbors.lists
        assert lists is not None
        records, zeros = self.records(particles), self.device.zeros
        if stage == 0:
            self.reserve_near(particles, neighbors)
            if len(self._slopes) < neighbors.slots:
                self._slopes, self._energies = zeros((particles.capacity,)), zeros((particles.capacity,))
            found = self.near, self.counts, self._slopes, self._energies
            densities(self._density_kernel, self.form, part, records, neighbors.slots, lists, self._tables, *found)
            return
        if measure:
            self.reserve_tallies(particles)
        near = self.near, self.counts, self._slopes, self._energies
        out = particles.forces, self.tallies
        forces(self._kernels[bool(measure)], self.form, part, records, lists, self._tables, *near, *out)


HARTREE_BOHR = 27.2 * 0.529  # eV Å, as LAMMPS and the potentials have it


def embedded_atoms(files: Sequence[EamFile], elements: Sequence[str] = ()) -> EmbeddedAtoms:
    """The interaction of types that are `elements` of one setfl or Finnis-Sinclair file (all of it, in its order, by
    default), or of one funcfl file each, or all of one.

    Several funcfl files are resampled to common steps, and a single one by the same rule, as LAMMPS does it: cubic
    interpolation through four values. Raises `InputError` for elements that the file does not have, and for files that
    do not go together.
    """
    whole = all(file.form == "funcfl" for file in files)
    if len(files) > 1:
        if not whole:
            raise InputError("several files of embedded atoms must be funcfl files of one element each")
        return _resampled(files)
    file, names = files[0], list(elements or files[0].elements)
    unknown = [name for name in names if name not in file.elements]
    if unknown:
        raise InputError(
            f"the file of embedded atoms has no element {', '.join(map(repr, unknown))}",
            do=f"choose of {', '.join(file.elements)}, one for each type",
        )
    if whole:
        return _resampled([file] * len(names))
    chosen = [file.elements.index(name) for name in names]
    of_pairs = np.ix_(chosen, chosen)
    each = file.embedding[chosen], file.density[of_pairs], file.pair[of_pairs]
    return EmbeddedAtoms(*each, file.density_step, file.step, file.cutoff)


def _resampled(files: Sequence[EamFile]) -> EmbeddedAtoms:
    step, density_step = max(file.step for file in files), max(file.density_step for file in files)
    longest = max((file.pair.shape[-1] - 1) * file.step for file in files)
    densest = max((file.embedding.shape[-1] - 1) * file.density_step for file in files)
    r = step * np.arange(int(longest / step + 0.5))
    n = density_step * np.arange(int(densest / density_step + 0.5))
    embedding = np.array([_cubic(file.embedding[0], file.density_step, n) for file in files])
    density = np.array([_cubic(file.density[0, 0], file.step, r) for file in files])
    charge = np.array([_cubic(file.pair[0, 0], file.step, r) for file in files])
    pair = HARTREE_BOHR * charge[:, None] * charge[None, :]
    cutoff = max(file.cutoff for file in files)
    return EmbeddedAtoms(embedding, np.array([density] * len(files)), pair, density_step, step, cutoff)


def _cubic(values: np.ndarray, step: float, places: np.ndarray) -> np.ndarray:
    """Values at 0, step, … at other places: the cubic polynomial through the four values around each (Lagrange)."""
    t = places / step
    k = np.clip(t.astype(np.int64), 1, len(values) - 3)
    u = np.minimum(t - k, 2.0)
    before, here, after, beyond = (values[k + shift] for shift in (-1, 0, 1, 2))
    outer = (u * (u * u - 1.0) * beyond - u * (u - 1.0) * (u - 2.0) * before) / 6.0
    inner = (u * u - 1.0) * (u - 2.0) * here - u * (u + 1.0) * (u - 2.0) * after
    return np.asarray(outer + 0.5 * inner)
