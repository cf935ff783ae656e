"""The distribution of speeds, beside that of Maxwell and Boltzmann."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpckit.errors import InputError
from hpckit.md.observables.frame import Floats, Frame, own_block, summed

if TYPE_CHECKING:
    from mpi4py import MPI

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
    """Speeds in units of sqrt(k T / m) of each particle in `bins` bins.

    `kt`: in units of mass x velocity squared; None: that of each frame, over 3 N - 3 degrees of freedom.
    """

    def __init__(self, kt: float | None = None, bins: int = 60) -> None:
        if (kt is not None and not kt > 0) or bins < 1:
            raise InputError(f"a distribution of speeds takes k T above 0 and 1 bin or more, not {kt} and {bins}")
        self.kt, self.frames = kt, 0
        self._counts = np.zeros(bins, np.int64)

    def add(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Count the speeds of a frame, which needs velocities. Without masses all are 1."""
        if frame.velocities is None:
            raise InputError("a distribution of speeds needs frames with velocities")
        own, bins = own_block(frame, comm), len(self._counts)
        masses = np.ones(len(frame.types)) if frame.masses is None else np.asarray(frame.masses)[frame.types]
        squares = (frame.velocities**2).sum(1) * masses
        kt = float(squares.sum()) / max(3 * len(squares) - 3, 1) if self.kt is None else self.kt
        if not kt > 0:
            raise InputError("a distribution of speeds needs particles that move")
        place = np.minimum((np.sqrt(squares[own] / kt) / WIDEST * bins).astype(np.int64), bins - 1)
        self._counts += np.bincount(place, minlength=bins)
        self.frames += 1

    def result(self, comm: MPI.Comm | None = None) -> Speeds:
        """The result of the frames so far. Collective with a communicator."""
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
