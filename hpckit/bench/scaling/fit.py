"""Efficiency, serial fraction and the laws of Amdahl and Gustafson, from times of interleaved runs, with their spread.

Intervals hold 95 % of 2,000 bootstrap samples of the rounds (Efron 1979): a round is drawn with all of its runs, so
that what slowed all of them together cancels as it does in the ratios.

With m times the ranks of the smallest run (mostly 1 rank), T_1 and T_m seconds a step, S = T_1 / T_m:
strong scaling, Amdahl (1967): S = 1 / (s + (1 - s) / m), s the serial fraction; weak, Gustafson (1988): the scaled
speedup m T_1 / T_m = m - s (m - 1). The experimentally determined serial fraction of one point is that of Karp and
Flatt (1990), (1 / S - 1 / m) / (1 - 1 / m), with the scaled speedup in place of S where the problem grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SAMPLES = 2000
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A median over rounds, or a fit, and the 95 % interval of the bootstrap."""

    value: float
    low: float
    high: float


def bootstrap(rounds: int, figure: Callable[[npt.NDArray[np.int64]], float], seed: int = 1) -> Estimate:
    """`figure` of all rounds, and its interval over samples of them; it gets the numbers of the rounds to use."""
    generator = np.random.default_rng(seed)
    draws = [figure(generator.integers(0, rounds, rounds)) for _ in range(SAMPLES if rounds > 1 else 1)]
    low, high = np.percentile(draws, (2.5, 97.5))
    return Estimate(figure(np.arange(rounds)), float(low), float(high))


def speedups(times: Mapping[int, Sequence[float]], weak: bool) -> dict[int, Floats]:
    """Round by round for each number of ranks: how many times the work a second of the smallest run."""
    base = min(times)
    first = np.asarray(times[base])
    return {n: first / np.asarray(each) * (n / base if weak else 1.0) for n, each in times.items()}


def efficiency(times: Mapping[int, Sequence[float]], ranks: int, weak: bool) -> Estimate:
    """Parallel efficiency: the speedup over the number of times that there are more ranks than in the smallest run."""
    each = speedups(times, weak)[ranks] * min(times) / ranks
    return bootstrap(len(each), lambda rounds: float(np.median(each[rounds])))


def undisturbed(times: Mapping[int, Sequence[float]], ranks: int, weak: bool) -> float:
    """The efficiency of the quickest turns: other programs make turns longer, never shorter, and those on all cores of
    a machine more often than those on one.
    """
    return efficiency({n: [min(each)] for n, each in times.items()}, ranks, weak).value


def karp_flatt(times: Mapping[int, Sequence[float]], ranks: int, weak: bool) -> Estimate:
    """The serial fraction that one number of ranks shows."""
    m = ranks / min(times)
    each = (1 / speedups(times, weak)[ranks] - 1 / m) / (1 - 1 / m)
    return bootstrap(len(each), lambda rounds: float(np.median(each[rounds])))


def serial_fraction(times: Mapping[int, Sequence[float]], weak: bool) -> Estimate | None:
    """Amdahl's law (strong) or Gustafson's (weak) fitted to the medians over rounds; None for one number of ranks.

    Least squares of T_m / T_1 = s + (1 - s) / m (Amdahl), each with its relative weight, or of the scaled speedup over
    m (Gustafson): both are linear in s. A fraction below 0 says that more ranks do better than their number, as where a
    share of the problem fits a cache.
    """
    base = min(times)
    counts = [n for n in times if n != base]
    if not counts:
        return None
    m = np.array(counts) / base
    scaled = speedups(times, weak)
    every = np.array([scaled[n] for n in counts])

    def fit(rounds: npt.NDArray[np.int64]) -> float:
        median = np.median(every[:, rounds], axis=1)
        # Strong: m / S - 1 = s (m - 1), the relative excess over ideal time. Weak: 1 - S / m = s (m - 1) / m.
        excess, slope = (1 - median / m, (m - 1) / m) if weak else (m / median - 1, m - 1)
        weight = np.ones_like(m) if weak else (median / m) ** 2
        return float((weight * slope * excess).sum() / (weight * slope**2).sum())

    return bootstrap(every.shape[1], fit)


def law(serial: float, m: npt.ArrayLike, weak: bool) -> Floats:
    """The efficiency that a serial fraction leaves with m times the ranks."""
    more = np.asarray(m, float)
    if weak:
        return 1 - serial * (more - 1) / more
    return 1 / (1 + serial * (more - 1))
