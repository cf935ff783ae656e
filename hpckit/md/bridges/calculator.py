"""hpckit as a calculator of ASE: energies, forces and stresses by the kernels and the ranks of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.calculator import all_changes
from mpi4py import MPI

from hpckit.comm.agree import share_numbers
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import totals
from hpckit.md.units import UNITS
from hpckit.particles.particles import pack_particles
from hpckit.plan.grid.factor import best_factorization
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.topology import Topology

AXES = ("x", "y", "z")
FINE = 5040  # units per longest edge, in which a split is chosen
ROOM = 1.0  # beyond the atoms, in a dim that is open
VOIGT = (0, 1, 2, 5, 4, 3)  # xx, yy, zz, yz, xz, xy among our xx, yy, zz, xy, xz, yz


class Calculator(AseCalculator):
    """A calculator with a potential of hpckit, for types that are these chemical symbols, on the ranks of `comm`.

    interaction: as `System` takes it; `hpckit.apps.md.potentials.calculator` makes one by the names of run files. With
    several ranks every one of them calls the calculator, with the same atoms, and all get the results. repro: the same
    bits on any number of ranks. Energies and lengths are those of the potential, eV and Å for files of metals. Raises
    `InputError` for atoms of another element, and for cells that are not boxes along x, y and z.
    """

    implemented_properties = ["energy", "free_energy", "forces", "stress"]  # noqa: RUF012 (as ASE has it)

    def __init__(
        self,
        interaction: Any,
        symbols: Sequence[str],
        comm: MPI.Intracomm = MPI.COMM_SELF,
        repro: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        if len(symbols) != interaction.types:
            raise InputError(f"{len(symbols)} symbols for {interaction.types} types of particles")
        self.interaction, self.symbols, self.comm, self.repro = interaction, list(symbols), comm, repro
        self._system: System | None = None
        self._box: tuple[Any, ...] = ()

    def calculate(
        self, atoms: Any = None, properties: Sequence[str] = ("energy",), system_changes: Sequence[str] = all_changes
    ) -> None:
        """See ASE; all properties come together."""
        super().calculate(atoms, properties, system_changes)
        given: Any = self.atoms
        unknown = sorted(set(given.get_chemical_symbols()) - set(self.symbols))
        if unknown:
            raise InputError(f"the calculator has no {', '.join(unknown)}", do=f"it has {', '.join(self.symbols)}")
        system = self._system_of(given)
        types = np.array([self.symbols.index(name) for name in given.get_chemical_symbols()], np.int64)
        count, packed = len(given), pack_particles([], np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0, np.int64))
        if self.comm.rank == 0:
            packed = pack_particles(np.arange(count), given.get_positions(), np.zeros((count, 3)), types)
        system.load(packed)
        system.rebuild()
        system.compute(measure=True)
        found, forces = snapshot(system, forces=True), np.zeros((count, 3))
        sums = totals(system)
        if found is not None:
            assert found.forces is not None
            forces[:] = found.forces
        share_numbers(self.comm, forces)
        self.results = {"energy": sums.potential, "free_energy": sums.potential, "forces": forces}
        if given.pbc.all():
            volume = float(np.prod(system.domains.lengths))
            self.results["stress"] = -sums.virial[list(VOIGT)] / volume

    def _system_of(self, atoms: Any) -> System:
        """The system for this box: the one of the last call, if that had the same."""
        cell, periodic = np.asarray(atoms.cell), np.asarray(atoms.pbc)
        if np.abs(cell - np.diag(np.diag(cell))).max() > 0 or (np.diag(cell)[periodic] <= 0).any():
            raise InputError(
                f"the cell {cell.tolist()} is not a box along x, y and z",
                do="give edges along the axes in periodic dims",
            )
        places = atoms.get_positions()
        lower = np.where(periodic, 0.0, places.min(axis=0) - ROOM)
        upper = np.where(periodic, np.diag(cell), places.max(axis=0) + ROOM)
        if self._system is not None and not periodic.all():
            old = self._system.domains  # an open box may stay larger than its atoms
            inside = (places.min(axis=0) >= old.lower).all() and (places.max(axis=0) <= old.upper).all()
            if inside:
                lower, upper = np.where(periodic, lower, old.lower), np.where(periodic, upper, old.upper)
        box = (*lower.tolist(), *upper.tolist(), *periodic.tolist())
        if self._system is None or box != self._box:
            self.close()
            shape = tuple(max(1, round(FINE * float(n / (upper - lower).max()))) for n in upper - lower)
            sizes = best_factorization(self.comm.size, shape, (0, 0, 0), periodic.tolist())
            closed = tuple(axis for axis, wraps in zip(AXES, periodic, strict=True) if wraps)
            mesh = Mesh(self.comm, periodic=closed, x=sizes[0], y=sizes[1], z=sizes[2])
            domains = DomainDecomposition.even(Topology(AXES, sizes, closed), lower, upper)
            masses = np.ones(len(self.symbols))
            more: dict[str, Any] = {"units": UNITS["lj"], "repro": self.repro}  # no unit is turned into another
            self._system, self._box = System(mesh, domains, masses, self.interaction, skin=1e-6, **more), box
        return self._system

    def close(self) -> None:
        """Collective: give back the communicators of the last system."""
        if self._system is not None:
            self._system.mesh.close()
            self._system = None
