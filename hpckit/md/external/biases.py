"""Energies of collective variables: restraints, still or moving, and metadynamics.

Each rank gets the places of the few particles that variables are made of, computes the same numbers, and pushes its
own ones: no bit depends on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hpckit.comm.agree import sum_of_ranks
from hpckit.errors import InputError
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md.external.grid import HillGrid
from hpckit.md.external.variables import Box, CollectiveVariable, Value
from hpckit.md.system import System

PARTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # of a virial


class Bias(Protocol):
    """An energy of some variables, by their places in the list of all."""

    places: tuple[int, ...]

    def begin_step(self, values: np.ndarray, step: int) -> None:
        """Once a step, before its forces: change by the values [of all variables] at this step."""

    def energy(self, values: np.ndarray, step: int) -> tuple[float, np.ndarray]:
        """The energy, and its slope by each of its own variables."""

    def saved(self) -> dict[str, Any]:
        """Its state, as plain values, the same on every rank."""

    def restore(self, values: dict[str, Any]) -> None:
        """Set the saved state."""


@dataclass
class Restraint:
    """strength / 2 (s - center)^2 for a variable s, times `coupling`; below or above its center alone with `side`.

    to, over, after: its center moves to `to` within `over` steps after the step `after`; `work` is what that cost so
    far. period: of the variable, 0 for none.
    """

    place: int
    strength: float
    center: float
    to: float | None = None
    over: int = 0
    after: int = 0
    side: str = "both"
    period: float = 0.0
    coupled: bool = False
    coupling: float = 1.0
    work: float = 0.0
    places: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.side not in ("both", "below", "above") or (self.to is not None and self.over < 1):
            raise InputError(
                f"a restraint acts on both sides, below or above, and moves over 1 step or more, not {self.side!r},"
                f" {self.over}"
            )
        self.places = (self.place,)

    def center_at(self, step: int) -> float:
        """The center at a step."""
        if self.to is None:
            return self.center
        share = min(max((step - self.after) / self.over, 0.0), 1.0)
        return self.center + share * (self.to - self.center)

    def begin_step(self, values: np.ndarray, step: int) -> None:
        """Add the work of moving the center from that of the step before."""
        if self.to is not None:
            now, before = (self._energy(values[self.place], self.center_at(step - back))[0] for back in (0, 1))
            self.work += now - before

    def energy(self, values: np.ndarray, step: int) -> tuple[float, np.ndarray]:
        """See `Bias.energy`."""
        energy, slope = self._energy(values[self.place], self.center_at(step))
        return self.coupling * energy, np.array([self.coupling * slope])

    def whole(self, values: np.ndarray, step: int) -> float:
        """The energy without the factor of a coupling."""
        return self._energy(values[self.place], self.center_at(step))[0]

    def _energy(self, value: float, center: float) -> tuple[float, float]:
        gap = float(value) - center
        if self.period:
            gap -= self.period * float(np.rint(gap / self.period))
        if (self.side == "below" and gap > 0) or (self.side == "above" and gap < 0):
            gap = 0.0
        return 0.5 * self.strength * gap * gap, self.strength * gap

    def saved(self) -> dict[str, Any]:
        """The work so far."""
        return {"work": self.work}

    def restore(self, values: dict[str, Any]) -> None:
        """Set it."""
        self.work = values["work"]


@dataclass
class Metadynamics:
    """Hills where the variables have been: Laio and Parrinello (2002), PNAS 99, 12562; well tempered by Barducci, Bussi
    and Parrinello (2008), Phys. Rev. Lett. 100, 020603.

    A hill of `height` each `every` steps after the step `after`. thermal: k T. factor: the bias factor (T + dT) / T, by
    which heights fall where hills are; 0: plain, all of one height.
    """

    places: tuple[int, ...]
    grid: HillGrid
    height: float
    every: int
    thermal: float
    factor: float = 0.0
    after: int = 0
    hills: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.height <= 0 or self.every < 1 or not (self.factor == 0.0 or self.factor > 1.0) or self.thermal <= 0:
            raise InputError(
                "metadynamics takes a height above 0, a hill every step or more, a bias factor above 1 (0: none), and"
                f" a temperature, not {self.height}, {self.every}, {self.factor}, {self.thermal}"
            )

    def begin_step(self, values: np.ndarray, step: int) -> None:
        """Add a hill if one is due."""
        if step <= self.after or step % self.every:
            return
        place, height = values[list(self.places)], self.height
        if self.factor:
            height *= float(np.exp(-self.grid.at(place)[0] / ((self.factor - 1.0) * self.thermal)))
        self.hills.append([step, *place.tolist(), height])
        self.grid.add(place, height)

    def energy(self, values: np.ndarray, step: int) -> tuple[float, np.ndarray]:
        """See `Bias.energy`."""
        return self.grid.at(values[list(self.places)])

    def free_energy(self) -> np.ndarray:
        """The estimate of the free energy at the points of the grid, its least value 0."""
        share = self.factor / (self.factor - 1.0) if self.factor else 1.0
        found = -share * self.grid.values
        return np.asarray(found - found.min())

    def saved(self) -> dict[str, Any]:
        """All hills: step, place, height."""
        return {"hills": self.hills}

    def restore(self, values: dict[str, Any]) -> None:
        """Put up the hills again, in their order."""
        self.hills = [list(row) for row in values["hills"]]
        self.grid.sums[:] = 0.0
        for _, *place, height in self.hills:
            self.grid.add(np.array(place), height)


class Biases:
    """Collective variables of a system, and their biases; part of the forces as `System.biases`.

    The energy of biases is in the potential energy, their virial in the pressure. values: of the variables at the last
    forces; energy: of all biases then. The host computes them: it takes the places of their particles from a
    GPU, and adds to the forces there. Raises `InputError` for particles beyond the system.
    """

    def __init__(self, variables: Sequence[CollectiveVariable], biases: Sequence[Bias] = ()) -> None:
        self.variables, self.biases = tuple(variables), tuple(biases)
        self.values, self.energy = np.zeros(len(self.variables)), 0.0
        self._ids = np.unique([id_ for each in self.variables for id_ in each.ids]).astype(np.int64)
        self._rows = [np.searchsorted(self._ids, each.ids) for each in self.variables]
        self._own = self._slots = np.zeros(0, np.int64)  # places in `_ids` of this rank's particles, and their slots
        self._there: Any = self._slots  # on the device
        self._masses = np.zeros(0)
        self._last = -1

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots of the particles."""
        if len(self._ids) and self._ids[-1] >= system.count:
            raise InputError(
                f"a variable names particle {self._ids[-1] + 1}, but there are {system.count}",
                do="give ids from 1",
            )
        particles, device = system.particles, system.device
        ids = device.to_host(particles.ids[: particles.slots])
        where = np.full(system.count, -1, np.int64)
        mine = np.flatnonzero(ids >= 0)
        where[ids[mine]] = mine
        slots = where[self._ids]
        self._own = np.flatnonzero(slots >= 0)
        self._slots = slots[self._own]
        self._there = device.to_device(self._slots)
        masses = np.zeros(len(self._ids))
        masses[self._own] = system.masses[types_of(device.to_host(particles.positions[self._there]))]
        self._masses = sum_of_ranks(system.mesh.comm, masses)

    def look(self, system: System) -> list[Value]:
        """Collective: the variables of now, with their slopes."""
        places = np.zeros((len(self._ids), 3))
        places[self._own] = system.device.to_host(system.particles.positions[self._there, :3])
        sum_of_ranks(system.mesh.comm, places)
        box = Box(system.domains.cell, np.asarray(system.domains.periodic))
        found = [
            each.value(places[rows], self._masses[rows], box)
            for each, rows in zip(self.variables, self._rows, strict=True)
        ]
        self.values = np.array([each.value for each in found])
        return found

    def add(self, system: System, measure: bool) -> None:
        """Collective: add the forces of biases, and with `measure` energies and virials."""
        with system.timer("biases"):
            found, step = self.look(system), system.steps
            if system.within_step and step != self._last:
                self._last = step
                for bias in self.biases:
                    bias.begin_step(self.values, step)
            slopes, energies = np.zeros(len(found)), np.zeros(len(found))
            for bias in self.biases:
                energy, by = bias.energy(self.values, step)
                energies[bias.places[0]] += energy
                slopes[list(bias.places)] += by
            self.energy = float(energies.sum())
            self._push(system, found, slopes, energies, measure)

    def _push(
        self, system: System, found: list[Value], slopes: np.ndarray, energies: np.ndarray, measure: bool
    ) -> None:
        forces = np.zeros((len(self._ids), 3))
        for each, rows, slope in zip(found, self._rows, slopes, strict=True):
            np.add.at(forces, rows, -slope * each.slopes)
        device = system.device
        if len(self._own):
            system.particles.forces[self._there, :3] += device.to_device(forces[self._own])
        if not measure:
            return
        for each, rows, slope, energy in zip(found, self._rows, slopes, energies, strict=True):
            owned = np.flatnonzero(self._own == rows[0])  # by the rank of the first particle
            for slot in self._slots[owned]:
                virial = [-slope * each.strain[a, b] for a, b in PARTS]
                system.forces.tallies[slot, :7] += device.to_device(2.0 * np.array([energy, *virial]))

    def saved(self) -> dict[str, Any]:
        """The state of all biases."""
        return {"last": self._last, "biases": [each.saved() for each in self.biases]}

    def restore(self, values: dict[str, Any]) -> None:
        """Set the saved state, before the forces of the system are computed."""
        self._last = values["last"]
        for each, given in zip(self.biases, values["biases"], strict=True):
            each.restore(given)
