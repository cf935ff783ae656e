"""Replica exchange: copies of a system at several temperatures that swap these now and then.

Sugita and Okamoto (1999), Chem. Phys. Lett. 314, 141. Neighbors in the list of temperatures swap with the probability
min(1, exp((1 / k T - 1 / k T') (U - U'))), even and odd pairs in turn, so each replica visits all temperatures while
all replicas together are in the canonical ensemble of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.comm.agree import all_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError

AXIS, DOMAIN = "replica", "domain"  # of the mesh


class TemperatureReplicas:
    """The temperatures of the replicas along the axis `replica` of a mesh, and how often they were swapped.

    which: int64[replicas], the number of the temperature that each has, from 0. tried, swapped: of each neighbor pair,
    int64[temperatures - 1]. Raises `InputError` for temperatures that do not fit the axis, or are not above 0.
    """

    def __init__(self, mesh: Mesh, temperatures: Sequence[float], seed: int) -> None:
        self.mesh, self.temperatures, self.seed = mesh, tuple(map(float, temperatures)), seed
        count = mesh[AXIS].size
        if len(self.temperatures) != count or count < 2 or min(self.temperatures) <= 0:
            raise InputError(f"{count} replicas (at least 2) need a temperature above 0 each, not {temperatures}")
        self.which = np.arange(count)
        self.tried, self.swapped = np.zeros(count - 1, np.int64), np.zeros(count - 1, np.int64)
        self.number = 0  # of attempts

    @property
    def own(self) -> int:
        """The number of this replica."""
        return int(self.mesh[AXIS].rank)

    @property
    def temperature(self) -> float:
        """The temperature of this replica."""
        return self.temperatures[self.which[self.own]]

    @property
    def holds_first(self) -> bool:
        """Whether this replica has the first temperature."""
        return bool(self.which[self.own] == 0)

    def attempt(self, potential: float, boltzmann: float) -> float:
        """Collective: try to swap temperatures, given the potential energy of this replica; the factor of velocities.

        No decision depends on the number of ranks of a replica.
        """
        before = self.temperature
        energies = all_of_ranks(self.mesh[AXIS], np.array(potential)).ravel()
        self.which, tried, swapped = swaps(
            self.which, energies, boltzmann * np.array(self.temperatures), self.seed, self.number
        )
        self.tried += tried
        self.swapped += swapped
        self.number += 1
        return math.sqrt(self.temperature / before)

    def saved(self) -> dict[str, Any]:
        """Who has which temperature, and all counters."""
        each = {"which": self.which, "tried": self.tried, "swapped": self.swapped}
        return {"number": self.number, **{name: values.tolist() for name, values in each.items()}}

    def restore(self, values: dict[str, Any]) -> None:
        """Set what was saved."""
        self.number = values["number"]
        self.which, self.tried, self.swapped = (np.array(values[name]) for name in ("which", "tried", "swapped"))


def swaps(
    which: np.ndarray, energies: np.ndarray, thermal: np.ndarray, seed: int, number: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attempt `number`: the temperatures of the replicas after it, which pairs were tried, and which swapped.

    which: int64[replicas]; energies: of the replicas; thermal: k T of the temperatures.
    """
    holder, found = np.argsort(which), which.copy()
    tried, swapped = np.zeros(len(which) - 1, np.int64), np.zeros(len(which) - 1, np.int64)
    drawn = np.random.Generator(np.random.Philox(key=[seed, number])).random(len(which))
    for low in range(number % 2, len(which) - 1, 2):
        one, other = holder[low], holder[low + 1]
        odds = (1 / thermal[low] - 1 / thermal[low + 1]) * (energies[one] - energies[other])
        tried[low] = 1
        if odds >= 0 or drawn[low] < math.exp(odds):
            found[one], found[other] = low + 1, low
            swapped[low] = 1
    return found, tried, swapped
