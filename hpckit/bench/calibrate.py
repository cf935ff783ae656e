"""The machine model of a node for collectives, made from the times of the smallest plans, and held against others.

Calibration knows no algorithm: it times single steps (`hpckit.bench.probes`) and, for what a call costs before its
first message, the smallest all-reduce. The times of whole algorithms are then predicted from their plans.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from hpckit.bench.collective_times import PROBE, Case
from hpckit.bench.probes import LONG, PROBES, STEPS, at_once, share
from hpckit.plan.algorithms import ALGORITHMS, collective_plan
from hpckit.plan.machine import Level, Machine, Measured
from hpckit.plan.price import price

EMPTY = 64  # bytes: a message that costs nothing but its latency
SIZES = tuple(2**power for power in range(16, 27, 2))
# The number of steps of all-reduces of next to nothing, whose times tell what a call costs before its first message.
STARTS = {"recursive_doubling": 1, "tree": 2, "halving_doubling": 2}  # times log2(p)
APART = 1.15  # algorithms whose times differ by more are to be put in the right order
FASTEST = 1e12  # bytes/s: nothing measured is quicker
LATENCY_SHARE = 0.8  # of the quickest step, at most


def probe_cases(ranks: int, sizes: tuple[int, ...] = SIZES) -> list[Case]:
    """What must be timed for a model."""
    names = [name + plus for name in PROBES if ranks > 2 or name != "pairs" for plus in ("", "+")]
    small: list[Case] = [(PROBE, name, EMPTY) for name in names]
    long: list[Case] = [(PROBE, name + LONG, EMPTY) for name in names]
    starts: list[Case] = [("all_reduce", name, EMPTY) for name in STARTS]
    return [*starts, *small, *long, *((PROBE, name, nbytes) for nbytes in sizes for name in names)]


def all_reduce_cases(sizes: tuple[int, ...] = SIZES) -> list[Case]:
    """All algorithms that a plan describes."""
    return [("all_reduce", name, nbytes) for nbytes in sizes for name in ALGORITHMS["all_reduce"]]


def model(times: dict[int, dict[Case, float]], name: str, source: str) -> Machine:
    """The machine of times by the number of ranks."""
    measured = []
    for ranks, found in times.items():
        start = _start(found, ranks)
        sizes = tuple(sorted({nbytes for operation, _, nbytes in found if operation == PROBE and nbytes > EMPTY}))
        for probe in (each for each in PROBES if (PROBE, each, EMPTY) in found):
            steps = {}
            for plus in ("", "+"):
                before = _empty(found, probe + plus)[1]
                steps[plus] = [(found[PROBE, probe + plus, nbytes] - before) / STEPS for nbytes in sizes]
            latency = min(_empty(found, probe)[0], LATENCY_SHARE * min(*steps[""], *steps["+"]))
            moved = [share(probe) * nbytes for nbytes in sizes]
            stored, added = (
                tuple(b / max(t - latency, b / FASTEST) for b, t in zip(moved, steps[plus], strict=True))
                for plus in ("", "+")
            )
            row = (tuple(map(float, sizes)), stored, added)
            measured.append(Measured(ranks, at_once(probe, ranks), start, latency, *row))
    widest = max(measured, key=lambda it: (-it.ranks, it.messages))
    level = Level("node", 0, widest.latency, max(widest.stored))
    return Machine(name, (level,), 0.0, max(widest.added), source, tuple(measured))


def _start(found: dict[Case, float], ranks: int) -> float:
    """Seconds of a call before its first message."""
    step, rounds = _empty(found, "exchange+")[0], math.ceil(math.log2(ranks))
    left = sorted(found["all_reduce", name, EMPTY] - steps * rounds * step for name, steps in STARTS.items())
    return max(left[len(left) // 2], 0.0)


def _empty(found: dict[Case, float], probe: str) -> tuple[float, float]:
    """Seconds of an empty step, and of what comes before the first one."""
    short, long = found[PROBE, probe, EMPTY], found[PROBE, probe + LONG, EMPTY]
    step = max((long - short) / (2 * STEPS), 1e-9)
    return step, max(short - STEPS * step, 0.0)


def predictions(
    machine: Machine, ranks: int, found: dict[Case, float], options: dict[Case, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Predicted and measured seconds of each all-reduce; `options` of the plans as they ran."""
    rows = []
    for case in found:
        operation, algorithm, nbytes = case
        if operation != "all_reduce" or nbytes <= EMPTY:
            continue
        plan = collective_plan(operation, algorithm, ranks, **options.get(case, {}))
        predicted = price(plan, machine, nbytes, itemsize=4).seconds
        rows.append(
            {
                "ranks": ranks,
                "bytes": nbytes,
                "algorithm": algorithm,
                "predicted_us": round(1e6 * predicted, 1),
                "measured_us": round(1e6 * found[case], 1),
                "predicted_over_measured": round(predicted / found[case], 3),
            }
        )
    return rows


def judged(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How far the predictions are off, as a factor (median and worst), the part that is within 35 %, and the part of
    the pairs of algorithms that differ by more than 15 % which are in the right order.
    """
    off = sorted(max(row["predicted_over_measured"], 1 / row["predicted_over_measured"]) for row in rows)
    within = sum(0.65 <= row["predicted_over_measured"] <= 1.35 for row in rows) / len(rows)
    right = pairs = 0
    for a, b in combinations(rows, 2):
        times = (a["measured_us"], b["measured_us"])
        if a["bytes"] == b["bytes"] and max(times) > APART * min(times):
            pairs += 1
            right += (times[0] < times[1]) == (a["predicted_us"] < b["predicted_us"])
    return {"median": off[len(off) // 2], "worst": off[-1], "within": within, "ordered": right / max(pairs, 1)}
