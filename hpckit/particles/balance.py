"""Load balance: the cuts between domains move so that every slab of ranks has its share of the measured work."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hpckit.comm.agree import all_of_ranks, share_numbers, sum_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.plan.particles.domain import DomainDecomposition

if TYPE_CHECKING:
    from mpi4py import MPI

BINS = 2048  # of the work along a dim
THINNEST = 0.25  # of the reach of the lists: the least thickness of a domain
STEP = 0.7  # share of the way to the ideal cut: the measured times belong to the present cuts, and are noisy


class LoadBalance:
    """Measures the work of a rank, and moves the cuts every `every` steps (0: never).

    Work is the processor time between `begin` and `end` or, if a GPU computes, the number of pairs in its list.
    `imbalance`: the largest load of a rank over the mean at the last move of the cuts; 1 is perfect.
    """

    def __init__(self, every: int) -> None:
        self.every, self.imbalance = every, 1.0
        self._load = self._begin = 0.0

    def is_due(self, step: int) -> bool:
        """Whether the cuts move after this step."""
        return self.every > 0 and step % self.every == 0

    def begin(self) -> None:
        """Begin to measure work."""
        if self.every:
            self._begin = time.process_time()

    def end(self, pairs: float | None = None) -> None:
        """End the measurement; pairs: counts as the work instead of the processor time."""
        if self.every:
            self._load += time.process_time() - self._begin if pairs is None else pairs

    def moved(
        self, mesh: Mesh, domains: DomainDecomposition, positions: np.ndarray, reach: float
    ) -> DomainDecomposition:
        """Collective: the domains with cuts moved by the work since the last time; see `moved_cuts`."""
        self.imbalance = _imbalance(mesh.comm, self._load)
        if mesh.size > 1:
            domains = moved_cuts(mesh.comm, domains, positions, self._load, reach)
        self._load = 0.0
        return domains


def _imbalance(comm: MPI.Comm, load: float) -> float:
    """Collective: the largest load over the mean."""
    every = all_of_ranks(comm, np.array(load))
    mean = float(every.mean())
    return float(every.max()) / mean if mean > 0 else 1.0


def moved_cuts(
    comm: MPI.Comm, domains: DomainDecomposition, positions: np.ndarray, load: float, reach: float
) -> DomainDecomposition:
    """Collective: domains with cuts that share the work more evenly; the same on every rank.

    positions: [n, 3] of this rank's particles, each with an equal share of its load (seconds). The work is summed into
    bins along each dim, and cut into equal parts.
    """
    lower, lengths, spans = domains.lower, domains.lengths, domains.cell.reaches(reach)
    if any(domains.tilt):
        positions = domains.cell.straight(positions)
    share = load / max(len(positions), 1)
    work = np.zeros((3, BINS))
    for d in range(3):
        places = np.clip(((positions[:, d] - lower[d]) / lengths[d] * BINS).astype(np.int64), 0, BINS - 1)
        work[d] = share * np.bincount(places, minlength=BINS)
    share_numbers(comm, sum_of_ranks(comm, work))
    cuts = []
    for d, old in enumerate(domains.cuts):
        parts = len(old) - 1
        if parts == 1 or not work[d].sum() > 0:
            cuts.append(old)
            continue
        done = np.concatenate([[0.0], np.cumsum(work[d])])
        wanted = np.interp(done[-1] * np.arange(1, parts) / parts, done, np.linspace(0, 1, BINS + 1))
        middle = np.array(old[1:-1])
        middle += STEP * (lower[d] + wanted * lengths[d] - middle)
        cuts.append(_apart(old[0], middle, old[-1], min(THINNEST * spans[d], 0.5 * lengths[d] / parts)))
    return replace(domains, cuts=tuple(cuts))


def _apart(low: float, middle: np.ndarray, high: float, least: float) -> tuple[float, ...]:
    """Move cuts apart to distances of at least `least`, from either end and as little as possible."""
    cuts = [low, *map(float, middle), high]
    for i in range(1, len(cuts) - 1):
        cuts[i] = max(cuts[i], cuts[i - 1] + least)
    for i in range(len(cuts) - 2, 0, -1):
        cuts[i] = min(cuts[i], cuts[i + 1] - least)
    return tuple(cuts)
