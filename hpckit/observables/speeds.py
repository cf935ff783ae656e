"""The distribution of speeds, beside that of Maxwell and Boltzmann."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpckit.errors import InputError
from hpckit.observables.frame import Floats, Frame, own_block, summed

WIDEST = 6.0  # standard deviations of a component that the bins reach to


@dataclass(frozen=True)
class Speeds:
    """u: float64[bins], speed over sqrt(k T / m), middles of the bins. density: of the particles. exact: of Maxwell and
    Boltzmann, the mean over each bin. distance: the largest difference of the two cumulative distributions.
    """

    u: Floats
    density: Floats
    exact: Floats
    distance: float


class SpeedDistribution:
    """Speeds in units of sqrt(k T / m) of each particle at temperature `kt` (an energy), in `bins` bins."""

    def __init__(self, kt: float, bins: int = 60) -> None:
        if not kt > 0 or bins < 1:
            raise InputError(f"a distribution of speeds takes k T above 0 and 1 bin or more, not {kt} and {bins}")
        self.kt = kt
        self._counts = np.zeros(bins, np.int64)

    def add(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Count the speeds of a frame, which needs velocities. Without masses all are 1."""
        if frame.velocities is None:
            raise InputError("a distribution of speeds needs frames with velocities")
        own, bins = own_block(frame, comm), len(self._counts)
        mass = 1.0 if frame.masses is None else np.asarray(frame.masses)[frame.types[own]]
        u = np.sqrt((frame.velocities[own] ** 2).sum(1) * mass / self.kt)
        place = np.minimum((u / WIDEST * bins).astype(np.int64), bins - 1)
        self._counts += np.bincount(place, minlength=bins)

    def result(self, comm: MPI.Comm | None = None) -> Speeds:
        """What the frames so far give. Collective with a communicator."""
        counts, bins = summed(self._counts, comm), len(self._counts)
        ends = np.linspace(0.0, WIDEST, bins + 1)
        cumulative = np.array([_maxwell(u) for u in ends])
        cumulative[-1] = 1.0  # the last bin holds all that is faster
        total = max(int(counts.sum()), 1)
        width = WIDEST / bins
        distance = float(np.abs(np.cumsum(counts) / total - cumulative[1:]).max())
        return Speeds(0.5 * (ends[1:] + ends[:-1]), counts / (total * width), np.diff(cumulative) / width, distance)


def _maxwell(u: float) -> float:
    """Share of particles slower than u sqrt(k T / m)."""
    return math.erf(u / math.sqrt(2.0)) - math.sqrt(2.0 / math.pi) * u * math.exp(-0.5 * u * u)
