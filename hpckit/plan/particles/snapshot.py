"""All particles at one instant: the result of the readers of particle files, and the argument of the writers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.plan.particles.cell import Cell

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
BOUND = {"bonds": 2, "angles": 3, "dihedrals": 4, "impropers": 4}  # what binds particles, and how many


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Particles in a box, in the order of their ids.

    lower, upper: float64[3], corners of the box; tilt: xy, xz, yz of a tilted one (`Cell`). periodic: of each dim.
    ids: int64[n], unique, as in files, from 1. types: int64[n], from 0. positions: float64[n, 3]. images: int32[n,
    3], how many edges of the box a particle has gone beyond its position: positions + cell.shifts(images) are the
    unwrapped places. velocities, forces: float64[n, 3], or None where unknown. masses: float64[types], or None.
    charges: float64[n], or None. spheres: float64[n, 2], diameters and densities, or None; spins: float64[n, 3],
    angular velocities, or None. numbers: int64[n], of the molecule of each, as a file has them, 0 for none, or
    None. groups: by name, which particles each has: bool[n]. bonds: int64[bonds, 3], or None: type from 0, and the
    places of two particles, from 0; so angles [n, 4],
    dihedrals and impropers [n, 5]. coefficients: what a file says of their types, by the names of these fields: a
    row of numbers for each type. names: of the types, empty where they have none. All lengths, masses and times in
    the units of the run that made it. units: their name, empty where the file does not say it. passed_over:
    sections of the file that were not used.
    """

    lower: Floats
    upper: Floats
    periodic: tuple[bool, bool, bool]
    ids: Ints
    types: Ints
    positions: Floats
    images: npt.NDArray[np.int32]
    velocities: Floats | None = None
    forces: Floats | None = None
    masses: Floats | None = None
    charges: Floats | None = None
    names: tuple[str, ...] = ()
    step: int = 0
    time: float = 0.0
    units: str = ""
    passed_over: tuple[str, ...] = ()
    bonds: Ints | None = None
    angles: Ints | None = None
    dihedrals: Ints | None = None
    impropers: Ints | None = None
    coefficients: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    tilt: Floats = field(default_factory=lambda: np.zeros(3))
    spheres: Floats | None = None
    numbers: Ints | None = None
    spins: Floats | None = None
    groups: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.ids)
        for name, shape in (
            ("types", (n,)),
            ("positions", (n, 3)),
            ("images", (n, 3)),
            ("velocities", (n, 3)),
            ("forces", (n, 3)),
            ("charges", (n,)),
            ("spheres", (n, 2)),
            ("numbers", (n,)),
            ("spins", (n, 3)),
            ("lower", (3,)),
            ("upper", (3,)),
            ("tilt", (3,)),
        ):
            values = getattr(self, name)
            if values is not None and values.shape != shape:
                raise InputError(f"{name} of {n} particles have shape {shape}, not {values.shape}")

    @property
    def terms(self) -> dict[str, Ints]:
        """What binds particles, by the names of the fields."""
        each = {name: getattr(self, name) for name in BOUND}
        return {name: rows for name, rows in each.items() if rows is not None}

    @property
    def molecules(self) -> Ints:
        """The molecule of each particle: `numbers` of a file that has some; else those that terms join, from 1 in the
        order of their first particles, and 0 for particles in no term: int64[n].
        """
        if self.numbers is not None and self.numbers.any():
            return self.numbers
        found = np.arange(self.count)
        pairs = [np.zeros((0, 2), np.int64)]
        for rows in self.terms.values():
            pairs += [rows[:, k : k + 2] for k in range(1, rows.shape[1] - 1)]
        ends = np.concatenate(pairs)
        while True:
            lower = found[ends].min(axis=1, initial=self.count)
            before = found.copy()
            for side in ends.T:
                np.minimum.at(found, side, lower)
            found = found[found]
            if np.array_equal(found, before):
                break
        bound = np.zeros(self.count, bool)
        bound[ends.ravel()] = True
        numbers = np.zeros(self.count, np.int64)
        numbers[bound] = np.unique(found[bound], return_inverse=True)[1] + 1
        return numbers

    @property
    def count(self) -> int:
        """How many particles there are."""
        return len(self.ids)

    @property
    def edges(self) -> Floats:
        """The lengths of the box without its tilt: float64[3]."""
        return self.upper - self.lower

    @property
    def cell(self) -> Cell:
        """The cell of the box."""
        return Cell.of(self.lower, self.upper, self.tilt)

    @property
    def unwrapped(self) -> Floats:
        """Where the particles would be had they not been put back into the box: float64[n, 3]."""
        return self.positions + self.cell.shifts(self.images)

    @property
    def particle_masses(self) -> Floats | None:
        """The mass of each particle: float64[n]."""
        return None if self.masses is None else self.masses[self.types]

    def replicated(self, times: tuple[int, int, int]) -> Snapshot:
        """Copies side by side along x, y and z in a larger box; ids and molecules go on, those along x first.

        Molecules that lie across a side of the box stay whole: unwrapped places are copied.
        """
        copies, n = int(np.prod(times)), self.count
        steps = np.stack([*np.meshgrid(*map(np.arange, times[::-1]), indexing="ij")], axis=-1).reshape(-1, 3)[:, ::-1]
        whole = (self.unwrapped + self.cell.shifts(steps)[:, None, :]).reshape(-1, 3)
        edges, tilt = self.edges * times, self.tilt * np.array([times[1], times[2], times[2]])
        inside, away = Cell.of(self.lower, self.lower + edges, tilt).wrapped(whole, self.periodic)

        def each(values: Any) -> Any:
            return None if values is None else np.tile(values, (copies, *(1,) * (values.ndim - 1)))

        first = self.ids.max(initial=0) * np.arange(copies)
        terms: dict[str, Any] = {
            name: np.concatenate([rows[:, :1] + 0 * k, rows[:, 1:] + n * k], axis=1)
            for name, found in self.terms.items()
            for k, rows in [(np.repeat(np.arange(copies), len(found))[:, None], each(found))]
        }
        return replace(
            self,
            upper=self.lower + edges,
            tilt=tilt,
            ids=(self.ids + first[:, None]).ravel(),
            types=each(self.types),
            positions=inside,
            images=away,
            velocities=each(self.velocities),
            forces=each(self.forces),
            charges=each(self.charges),
            spheres=each(self.spheres),
            numbers=self._numbers_of(copies),
            spins=each(self.spins),
            groups={name: each(which) for name, which in self.groups.items()},
            **terms,
        )

    def _numbers_of(self, copies: int) -> Ints | None:
        """The numbers of the molecules of copies, which go on."""
        if self.numbers is None:
            return None
        further = self.numbers.max(initial=0) * np.arange(copies)[:, None]
        return np.asarray(np.where(self.numbers > 0, self.numbers + further, 0).ravel())


def sorted_by_id(ids: Ints, *arrays: npt.NDArray | None) -> list[Any]:
    """The ids and arrays in the order of the ids."""
    order = np.argsort(ids, kind="stable")
    return [ids[order], *(None if values is None else values[order] for values in arrays)]
