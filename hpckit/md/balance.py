"""Load balance: the cuts between bricks move so that every slab of ranks has its share of the measured work."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from hpckit.plan.particles.domain import Bricks

BINS = 2048  # along a dim, in which the work is added up
THINNEST = 0.25  # of the reach of the lists: no brick gets thinner
STEP = 0.7  # of the way to where the cut should be: times are of the present cuts, and noisy


def imbalance(comm: MPI.Comm, load: float) -> float:
    """Collective: the largest load over the mean; 1 is perfect."""
    every = np.empty(comm.size)
    comm.Allgather(np.array([load]), every)
    mean = float(every.mean())
    return float(every.max()) / mean if mean > 0 else 1.0


def moved_cuts(comm: MPI.Comm, bricks: Bricks, positions: np.ndarray, load: float, reach: float) -> Bricks:
    """Collective: bricks with cuts that share the work more evenly; the same on every rank.

    positions: [n, 3] of this rank's particles, each of which stands for an equal share of its load (seconds). Along
    each dim the work of all that lies across it is added up, and cut into equal parts.
    """
    lower, lengths = bricks.lower, bricks.lengths
    share = load / max(len(positions), 1)
    work = np.zeros((3, BINS))
    for d in range(3):
        places = np.clip(((positions[:, d] - lower[d]) / lengths[d] * BINS).astype(np.int64), 0, BINS - 1)
        work[d] = share * np.bincount(places, minlength=BINS)
    comm.Allreduce(MPI.IN_PLACE, work, op=MPI.SUM)
    comm.Bcast(work, root=0)
    cuts = []
    for d, old in enumerate(bricks.cuts):
        parts = len(old) - 1
        if parts == 1 or not work[d].sum() > 0:
            cuts.append(old)
            continue
        done = np.concatenate([[0.0], np.cumsum(work[d])])
        wanted = np.interp(done[-1] * np.arange(1, parts) / parts, done, np.linspace(0, 1, BINS + 1))
        middle = np.array(old[1:-1])
        middle += STEP * (lower[d] + wanted * lengths[d] - middle)
        cuts.append(_apart(old[0], middle, old[-1], min(THINNEST * reach, 0.5 * lengths[d] / parts)))
    return Bricks(bricks.topology, tuple(cuts))


def _apart(low: float, middle: np.ndarray, high: float, least: float) -> tuple[float, ...]:
    """Cuts that are at least `least` apart, by moving those that are not as little as that takes from either end."""
    cuts = [low, *map(float, middle), high]
    for i in range(1, len(cuts) - 1):
        cuts[i] = max(cuts[i], cuts[i - 1] + least)
    for i in range(len(cuts) - 2, 0, -1):
        cuts[i] = min(cuts[i], cuts[i + 1] - least)
    return tuple(cuts)
