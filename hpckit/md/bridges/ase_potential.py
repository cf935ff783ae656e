"""Any calculator of ASE as the potential of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.errors import InputError, SetupError
from hpckit.md.bridges.brick import TENSOR, Brick, BrickForces
from hpckit.md.neighbors import NeighborList
from hpckit.particles.particles import Particles

ENERGIES = ("energies", "node_energy")  # names of what a calculator tells of every atom
VOIGT = {(0, 0): 0, (1, 1): 1, (2, 2): 2, (1, 2): 3, (0, 2): 4, (0, 1): 5}
STRAIN = 1e-5  # by which a brick is stretched where a calculator has no stresses of every atom


@dataclass(frozen=True, eq=False)
class AsePotential:
    """A calculator of ASE, made anew on each rank by `make()`, for types that are these chemical symbols.

    A rank gives it its own atoms and all within twice `range` of them, the distance at which the energy of one atom
    still feels another: the forces on its own are those of the whole. The calculator must tell the energy of each atom;
    if it has no stress of each, virials are differences of energies. Energies and lengths are taken as they are: eV
    and Å in a run with units metal. Raises `InputError` for symbols
    that ASE does not know, `SetupError` without ASE.
    """

    make: Callable[[], Any]
    symbols: Sequence[str]
    range: float
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        numbers = _ase("ase.data").atomic_numbers
        unknown = [name for name in self.symbols if name not in numbers]
        if unknown:
            raise InputError(f"ASE knows no element {', '.join(map(repr, unknown))}")

    @property
    def types(self) -> int:
        """The number of types."""
        return len(self.symbols)

    @property
    def cutoff(self) -> float:
        """How far ghosts and lists reach."""
        return 2.0 * self.range


def _ase(name: str) -> Any:
    try:
        return __import__(name, fromlist=["data"])
    except ImportError:
        raise SetupError("ASE is not installed", do="pip install ase") from None


class AseForces(BrickForces):
    """The forces of an `AsePotential`; see `Forces`."""

    def __init__(self, interaction: AsePotential, *args: Any, **more: Any) -> None:
        super().__init__(interaction, *args, **more)
        self._calculator = interaction.make()
        there = getattr(self._calculator, "implemented_properties", ())
        named = [name for name in ENERGIES if name in there]
        if not named:
            raise InputError(
                f"{type(self._calculator).__name__} of ASE does not give the energy of each atom",
                likely="a rank can only take the energies of its own atoms if the calculator gives them one by one",
                do=f"choose a calculator that has {' or '.join(ENERGIES)} in its implemented_properties",
            )
        self._named, self._has_stresses = named[0], "stresses" in there

    def finish(self, particles: Particles, neighbors: NeighborList, measure: int) -> None:
        """Collective: have the calculator do the brick; nothing is left to bring home."""
        if measure:
            self.reserve_tallies(particles)
            self.tallies[: particles.slots] = 0.0
        brick = Brick(self, particles, neighbors, self.interaction.cutoff)
        if not brick.own:
            return
        low = brick.positions.min(axis=0) - 1.0
        atoms, own = self._atoms(brick, low), brick.slots[: brick.own]
        particles.forces[own, :3] = np.asarray(self._calculator.get_property("forces", atoms))[: brick.own]
        if measure:
            self.tallies[own, 0] = 2.0 * self._energies(brick, atoms)
            for column, place in enumerate(TENSOR, start=1):
                self.tallies[own, column] = 2.0 * self._virials(brick, atoms, *place)

    def _energies(self, brick: Brick, atoms: Any) -> np.ndarray:
        """Of own atoms."""
        return np.array(self._calculator.get_property(self._named, atoms), np.float64)[: brick.own]

    def _virials(self, brick: Brick, atoms: Any, a: int, b: int) -> np.ndarray:
        """An element of the virial of each own atom: minus the derivative of its energy by a strain."""
        if self._has_stresses:
            stresses = np.asarray(self._calculator.get_property("stresses", atoms))[: brick.own]
            return np.asarray(-stresses[:, VOIGT[a, b]] * atoms.get_volume())
        each = []
        for strain in (STRAIN, -STRAIN):
            moved = atoms.copy()
            places = atoms.get_positions()
            places[:, a] += strain * places[:, b]
            moved.set_positions(places)
            each.append(self._energies(brick, moved))
        return np.asarray((each[1] - each[0]) / (2.0 * STRAIN))

    def _atoms(self, brick: Brick, low: np.ndarray) -> Any:
        """The brick as atoms in an open cell, of which only the volume counts."""
        symbols = np.array(self.interaction.symbols)[brick.types]
        edges = brick.positions.max(axis=0) - low + 1.0
        return _ase("ase").Atoms(list(symbols), brick.positions - low, cell=edges, pbc=False)
