"""The price of a step on any number of ranks: what they compute, as measured, and what their plans cost on a machine.

    T(n) = T_1 w(n) / w(1) c(n) + C(n)

T_1: measured seconds a step of the smallest run; w: work of the rank that has most; c: how much slower so many runs on
one rank each are at once than one alone, as measured (cores share memory and clock); C: `hp.price` of the halo
exchanges and all-reduces of the step. The band: the 95 % intervals of T_1 and c, the factor by which predictions of
exchanges are known to be off (`OFF`), and the largest factor between a measured point and its price.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hpckit.apps.common.scaling import Load
from hpckit.bench.scaling.fit import Estimate
from hpckit.errors import DecompositionError, InputError, SetupError
from hpckit.plan.machine.machine import Machine, machine_of

MOST = 4096  # ranks
OFF = 1.35  # predictions of exchanges are within 35 % (docs/collectives.md)
RANKS = (2, 4)  # on which a machine is measured


@dataclass(frozen=True)
class Point:
    """Seconds of a step on so many ranks: computing, communicating, both, and the ends of the band."""

    ranks: int
    compute: float
    communicate: float
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """Points by the number of ranks; missed: the largest factor between prediction and measurement, less 1; ends: why
    the curve stops here.
    """

    points: list[Point]
    machine: Machine
    missed: float
    ends: str = ""


def machine_for(name: str | None, cores: int, quick: bool) -> Machine | None:
    """The machine of the prices: from a file, shipped under this name, or this node, measured now; None with a printed
    note if it cannot be measured.
    """
    if name is not None:
        return machine_of(Path(name) if Path(name).exists() else name)
    from hpckit.bench.machine import calibrate
    from hpckit.bench.machine.times import measured

    counts = [ranks for ranks in RANKS if ranks <= max(cores, 2)]
    seconds = 4.0 if quick else 10.0
    try:
        times = {ranks: measured(ranks, calibrate.probe_cases(ranks), seconds).undisturbed() for ranks in counts}
    except SetupError as problem:
        print(f"not priced: {problem.message}; --machine FILE names a machine", file=sys.stderr)
        return None
    return calibrate.model(times, "this node", "measured in the study")


def on(machine: Machine, ranks: int, cores: int) -> Machine:
    """The machine for so many ranks: beyond the cores of a measured node all messages are as fast as two ranks of it
    have them, for want of a network that was measured.
    """
    return replace(machine, measured=()) if machine.measured and ranks > max(cores, 2) else machine


def curve(
    load: Callable[[int], Load],
    measured: Mapping[int, Estimate],
    slower: Mapping[int, Estimate],
    machine: Machine,
    cores: int,
) -> Curve:
    """The points at the measured numbers of ranks and all powers of two up to `MOST`.

    load: of so many ranks; raises `InputError` where there are too many of them. measured: seconds a step; slower: c
    by the number of ranks.
    """
    base = min(measured)
    first, work = measured[base], load(base).work
    loads, ends = {}, ""
    for ranks in sorted({*measured, *(2**power for power in range(MOST.bit_length()))}):
        if ranks >= base:
            try:
                loads[ranks] = load(ranks)
            except (DecompositionError, InputError) as problem:
                ends = problem.message
                break
    compute = {n: _times(first, each.work / work, _slower(slower, n)) for n, each in loads.items()}
    talk = {n: each.seconds(on(machine, n, cores)) for n, each in loads.items()}
    there = [n for n in measured if n in loads]
    ratios = [measured[n].value / (compute[n].value + talk[n]) for n in there]
    missed = max(max(ratio, 1 / ratio) for ratio in ratios) - 1
    points = []
    for n, it in compute.items():
        total = it.value + talk[n]
        less, more = it.low + talk[n] / OFF, it.high + talk[n] * OFF
        low = total / (1 + np.hypot(total / less - 1, missed))
        high = total * (1 + np.hypot(more / total - 1, missed))
        points.append(Point(n, it.value, talk[n], total, float(low), float(high)))
    return Curve(points, machine, missed, ends)


def _slower(slower: Mapping[int, Estimate], ranks: int) -> Estimate:
    """The factor c of so many ranks: interpolated in the logarithm of their number, beyond the most theirs."""
    if not slower:
        return Estimate(1.0, 1.0, 1.0)
    known = {1: Estimate(1.0, 1.0, 1.0), **slower}
    at = np.log(sorted(known))
    rows = [[getattr(known[n], key) for n in sorted(known)] for key in ("value", "low", "high")]
    return Estimate(*(float(np.interp(np.log(ranks), at, row)) for row in rows))


def _times(first: Estimate, share: float, slower: Estimate) -> Estimate:
    """The product; relative half widths add as independent ones do."""
    value = first.value * share * slower.value
    down = np.hypot(1 - first.low / first.value, 1 - slower.low / slower.value)
    up = np.hypot(first.high / first.value - 1, slower.high / slower.value - 1)
    return Estimate(value, value * (1 - float(down)), value * (1 + float(up)))
