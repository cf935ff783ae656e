"""Particles that a script makes, on their way to those of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hpckit.apps.md.lammps.making.velocities import places_read
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.snapshot import Snapshot


@dataclass
class Made:
    """Particles so far; groups: which of them each has. masses: of the types; boltzmann: with the energy of mass times
    velocity squared, in the units of the script.
    """

    periodic: tuple[bool, bool, bool]
    masses: np.ndarray
    boltzmann: float
    lower: np.ndarray = field(default_factory=lambda: np.zeros(3))
    upper: np.ndarray = field(default_factory=lambda: np.ones(3))
    tilt: np.ndarray = field(default_factory=lambda: np.zeros(3))
    positions: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    types: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    velocities: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    images: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int32))
    groups: dict[str, np.ndarray] = field(default_factory=dict)
    numbers: np.ndarray | None = None  # of the molecules in a file
    given: np.ndarray | None = None  # numbers of particles in a file
    dims: int = 3  # 2 of particles in a plane

    @classmethod
    def of_file(cls, file: Snapshot) -> Made:
        """The particles of a data file, as LAMMPS has read them."""
        places = places_read(file)
        found = cls(file.periodic, np.zeros(0), 1.0, file.lower, file.upper, file.tilt, places, file.types)
        found.images, found.numbers = file.images, file.numbers
        found.given = file.ids
        return found

    def take(self, file: Snapshot, order: np.ndarray) -> None:
        """Begin with the particles of a data file, in this order."""
        read = Made.of_file(file)
        self.lower, self.upper, self.tilt = file.lower, file.upper, file.tilt
        self.add(read.positions[order], read.types[order])
        self.images, self.given = read.images[order], file.ids[order]
        if file.velocities is not None:
            self.velocities = file.velocities[order]

    @property
    def ids(self) -> np.ndarray:
        """The numbers of the particles."""
        return np.arange(1, len(self.types) + 1) if self.given is None else self.given

    @property
    def molecules(self) -> np.ndarray:
        """The numbers of their molecules, 0 for none."""
        return np.zeros(len(self.types), np.int64) if self.numbers is None else self.numbers

    @property
    def cell(self) -> Cell:
        """The cell of the box."""
        return Cell.of(self.lower, self.upper, self.tilt)

    def group(self, name: str) -> np.ndarray:
        """Which particles are in a group."""
        return np.ones(len(self.types), bool) if name == "all" else self.groups[name]

    def add(self, places: np.ndarray, types: np.ndarray) -> None:
        """More particles, in no group but all, with numbers behind those that are there."""
        if self.given is not None:
            self.given = np.append(self.given, self.given.max(initial=0) + 1 + np.arange(len(places)))
        self.positions = np.concatenate([self.positions, places])
        self.types = np.concatenate([self.types, types])
        self.velocities = np.concatenate([self.velocities, np.zeros((len(places), 3))])
        self.images = np.concatenate([self.images, np.zeros((len(places), 3), np.int32)])
        self.groups = {
            name: np.concatenate([which, np.zeros(len(places), bool)]) for name, which in self.groups.items()
        }

    def keep(self, order: np.ndarray) -> None:
        """Only these particles, in this order; those of a file with their numbers."""
        if self.given is not None:
            self.given = self.given[order]
        for name in ("positions", "types", "velocities", "images"):
            setattr(self, name, getattr(self, name)[order])
        self.groups = {name: which[order] for name, which in self.groups.items()}

    def snapshot(self) -> Snapshot:
        """The particles as those of a file, in the order of their numbers."""
        order = np.argsort(self.ids)
        box, kinds, moves = (self.lower, self.upper, self.periodic), self.types[order], self.velocities[order]
        groups = {name: which[order] for name, which in self.groups.items()}
        where = self.positions[order], self.images[order], moves
        return Snapshot(*box, self.ids[order], kinds, *where, tilt=self.tilt, groups=groups)

    def move(self, places: np.ndarray) -> None:
        """Take these places, in the box."""
        self.positions, away = self.cell.wrapped(places, self.periodic)
        self.images = self.images + away


Step = Callable[[Made], None]
