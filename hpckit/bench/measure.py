"""Timing of candidates in turn, so that their ratios hold on a machine whose speed drifts."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Times = dict[str, list[float]]
SELDOM = 3  # candidates far from the others run in the first of so many rounds


def interleave(candidates: Mapping[str, Callable[[], object]], rounds: int, calls: int = 1) -> Times:
    """Seconds a call of each candidate, `rounds` times in turn (A B C A B C).

    Every candidate runs once first, outside the timing: that compiles it and touches its memory. `calls` calls are
    timed together where one is too short for the clock.
    """
    times: Times = {name: [] for name in candidates}
    for candidate in candidates.values():
        candidate()
    for _ in range(rounds):
        for name, candidate in candidates.items():
            begin = time.perf_counter()
            for _ in range(calls):
                candidate()
            times[name].append((time.perf_counter() - begin) / calls)
    return times


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The order of candidates in a round: in 2 n rounds of n candidates each follows every other one equally often.

    Williams, "Experimental designs balanced for the estimation of residual effects of treatments", 1949: what a
    candidate leaves behind, as in caches and in how rested the cores are, then meets all others alike.
    """
    count = len(names)
    zigzag = [((place + 1) // 2 if place % 2 else count - place // 2) + turn for place in range(count)]
    order = [names[each % count] for each in zigzag]
    return order[::-1] if turn // count % 2 else order


def ratio(slower: list[float], faster: list[float], scale: float = 1.0) -> dict[str, float]:
    """How many times faster `faster` is, round by round: median, low and high of slower / faster * scale."""
    return spread(by_round(slower, faster, scale))


def by_round(slower: Sequence[float], faster: Sequence[float], scale: float = 1.0) -> list[float]:
    """Slower / faster * scale of each round."""
    return [scale * a / b for a, b in zip(slower, faster, strict=True)]


def spread(each: Sequence[float]) -> dict[str, float]:
    """Median, low and high of a figure's rounds."""
    return {"median": statistics.median(each), "low": min(each), "high": max(each), "rounds": len(each)}


def interval(each: Sequence[float], level: float = 0.95, draws: int = 4000) -> list[float]:
    """Where the median of a round's figure lies with that probability, [low, high]: the bootstrap's percentiles.

    Efron, "Bootstrap methods", 1979: medians of so many draws with replacement; the same numbers every time.
    """
    drawn = np.random.default_rng(0).choice(np.asarray(each), (draws, len(each)))
    tail = 50 * (1 - level)
    return np.percentile(np.median(drawn, axis=1), [tail, 100 - tail]).tolist()


def machine() -> dict[str, Any]:
    """What the figures were measured on, without names that identify a host."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    import numba
    import numpy

    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "numba": numba.__version__,
    }
