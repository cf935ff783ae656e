"""Timing of candidates in turn, so that their ratios hold on a machine whose speed drifts."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.run.peaks import cpu_name

Times = dict[str, list[float]]
Ratios = dict[str, dict[str, Any]]
Rows = list[dict[str, Any]]
Turns = Sequence[Mapping[str, Any]]  # of each: its round ("turn"), its number of ranks, the share that a rank "waited"
SELDOM = 3  # candidates far from the others run in the first of so many rounds
CALM = 0.01  # the share of a timing that a rank may wait for its core, before the round counts as disturbed
MOST = 2  # times the rounds that are asked for are made, where some are disturbed


def interleave(candidates: Mapping[str, Callable[[], object]], rounds: int) -> Times:
    """Seconds of each candidate, `rounds` times in turn (A B C A B C).

    Every candidate runs once first, outside the timing: that compiles it and touches its memory.
    """
    times: Times = {name: [] for name in candidates}
    for candidate in candidates.values():
        candidate()
    with uncollected():
        for _ in range(rounds):
            for name, candidate in candidates.items():
                times[name].append(seconds_of(candidate))
    return times


def seconds_of(call: Callable[[], object]) -> float:
    """The wall time of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected meanwhile: a collection would be charged to the candidate that happens to run."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The order of candidates in a round: in 2 n rounds of n candidates each follows every other one equally often.

    Williams, "Experimental designs balanced for the estimation of residual effects of treatments", 1949: what a
    candidate leaves behind, as in caches and in how rested the cores are, then meets all others alike.
    """
    count = len(names)
    zigzag = [((place + 1) // 2 if place % 2 else count - place // 2) + turn for place in range(count)]
    order = [names[each % count] for each in zigzag]
    return order[::-1] if turn // count % 2 else order


def ratio(slower: Sequence[float], faster: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """How many times faster `faster` is, round by round: median, low and high of slower / faster * scale."""
    return spread(by_round(slower, faster, scale))


def by_round(slower: Sequence[float], faster: Sequence[float], scale: float = 1.0) -> list[float]:
    """Slower / faster * scale of each round."""
    return [scale * a / b for a, b in zip(slower, faster, strict=True)]


def spread(each: Sequence[float], rounds: int | None = None) -> dict[str, float]:
    """Median, low and high of a figure's rounds. rounds: how many cases a figure stands for that is known as one."""
    rounds = len(each) if rounds is None else rounds
    return {"median": statistics.median(each), "low": min(each), "high": max(each), "rounds": rounds}


def timed(case: str, candidate: str, seconds: Sequence[float], steps: int = 1, **more: Any) -> dict[str, Any]:
    """A row: the median milliseconds of a step, what else is known of it, and how often it was measured."""
    middle = round(statistics.median(seconds) / steps * 1e3, 3)
    return {"case": case, "candidate": candidate, "milliseconds": middle, **more, "rounds": len(seconds)}


def speed_up(key: str, times: Times, ranks: int) -> Ratios:
    """All ranks over one, and the ceiling: what as many runs on one rank each at once leave (`ranks.against_one`)."""
    one = times["1 rank"]
    return {key: ratio(one, times["all ranks"]), f"{key}_ceiling": ratio(one, times["1 rank each"], ranks)}


def interval(each: Sequence[float], level: float = 0.95, draws: int = 4000) -> list[float]:
    """Where the median of a round's figure lies with that probability, [low, high]: the bootstrap's percentiles.

    Efron, "Bootstrap methods", 1979: medians of so many draws with replacement; the same numbers every time.
    """
    drawn = np.random.default_rng(0).choice(np.asarray(each), (draws, len(each)))
    tail = 50 * (1 - level)
    return np.percentile(np.median(drawn, axis=1), [tail, 100 - tail]).tolist()


def core_wait() -> float:
    """Seconds that this thread has been ready to run while something else had its core, and that a hypervisor took from
    the cores that it may use; 0 where Linux does not tell.

    It tells that other programs disturbed a timing, whatever the time was.
    """
    try:
        ready = 1e-9 * int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
        cores = [f"cpu{core}" for core in os.sched_getaffinity(0)]
        lines = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
        stolen = sum(int(words[8]) for words in lines if words[0] in cores) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return ready + stolen


def disturbance(turns: Turns, crowded: Collection[int] = ()) -> float:
    """The largest share of a turn that a rank waited for its core; `crowded`: numbers of ranks that take each other's
    cores, whose turns do not tell.
    """
    return max((each["waited"] for each in turns if each["ranks"] not in crowded), default=0.0)


def calmest(turns: Turns, rounds: int, crowded: Collection[int] = ()) -> dict[int, float]:
    """The so many rounds that were disturbed least, in their order, each with its `disturbance`."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for each in turns:
        found.setdefault(each["turn"], []).append(each)
    shares = {turn: disturbance(some, crowded) for turn, some in found.items()}
    return {turn: shares[turn] for turn in sorted(sorted(shares, key=shares.__getitem__)[:rounds])}


def machine() -> dict[str, Any]:
    """What the figures were measured on, without names that identify a host."""
    import numba

    from hpckit.kernels.compile.vectors import available

    return {
        "cpu": cpu_name(),
        "vectors": available()[0],
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def result(
    bench: str, rows: Rows, ratios: Ratios, *, about: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """What a benchmark returns and `--json` prints. about: what else is to be said of the machine."""
    return {"bench": bench, "machine": {**machine(), **(about or {})}, "results": rows, "ratios": ratios, **more}
