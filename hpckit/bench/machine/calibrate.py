"""The machine model of a node for collectives, fitted to the times of the smallest plans, and tested on other plans.

Calibration knows no algorithm: it times single steps (`hpckit.bench.machine.times`) and, for the cost of a call before
its first message, the smallest all-reduce. The times of whole algorithms are then predicted from their plans.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from hpckit.bench.collectives.rows import interval
from hpckit.bench.machine.times import COPY, HALO, LONG, PROBE, PROBES, STEPS, Case, CollectiveTimes, at_once, share
from hpckit.plan.collective.algorithms import ALGORITHMS, collective_plan
from hpckit.plan.grid.halo import LARGE
from hpckit.plan.machine.machine import Level, Machine, MeasuredSteps
from hpckit.plan.pricing import price

ITEM = 8  # bytes of a cell of these fields
EMPTY = 64  # bytes: a message that costs nothing but its latency
SIZES = tuple(2**power for power in range(16, 27, 2))
PROBE_SIZES = (2**12, 2**14, *SIZES)  # algorithms cut buffers into smaller messages
# The number of steps of tiny all-reduces, whose times give the cost of a call before its first message.
STARTS = {"recursive_doubling": 1, "tree": 2, "halving_doubling": 2}  # times log2(p)
APART = 1.15  # algorithms whose times differ by more must be predicted in the right order
FASTEST = 1e12  # bytes/s: above any measured rate
LATENCY_SHARE = 0.95  # of the quickest step, at most
IN_NODE = ("flat", "staged")  # all-reduces in shared memory, of any buffer
FLAT = 2**14  # bytes of the largest buffer for the first of them
STRIDED = (4, 24, 48, 80, 96, 192, 320)  # cells along each dim of the fields whose halos are exchanged
HALVES = ("x", "yx", "zyx")  # of a halo, in the order of its phases: what each adds is what it takes among the others
COPIED, ADDED = ("broadcast", "staged"), ("all_reduce", "staged")


def probe_cases(ranks: int, sizes: tuple[int, ...] = PROBE_SIZES) -> list[Case]:
    """The cases to time for a model."""
    names = [name + plus for name in PROBES if ranks > 2 or name != "pairs" for plus in ("", "+")]
    small: list[Case] = [(PROBE, name, EMPTY) for name in names]
    long: list[Case] = [(PROBE, name + LONG, EMPTY) for name in names]
    starts: list[Case] = [("all_reduce", name, EMPTY) for name in STARTS]
    long += [(PROBE, COPY + LONG, EMPTY)]
    small += [(PROBE, COPY, EMPTY)]
    strided: list[Case] = [(HALO, "z", STRIDED[0]), *((HALO, along, n) for n in STRIDED for along in HALVES)]
    return [*starts, *small, *long, *strided, *((PROBE, name, nbytes) for nbytes in sizes for name in (*names, COPY))]


def memory_cases(sizes: tuple[int, ...] = PROBE_SIZES) -> list[Case]:
    """The cases to time for a model of a node's shared memory: its smallest calls, and large ones."""
    empty: list[Case] = [("all_reduce", name, EMPTY) for name in IN_NODE]
    return [*empty, *((*call, nbytes) for nbytes in sizes for call in (COPIED, ADDED))]


def default_cases(sizes: tuple[int, ...] = PROBE_SIZES) -> list[Case]:
    """All-reduces that run by default within a node."""
    return [("all_reduce", name, nbytes) for nbytes in sizes for name in IN_NODE if name == "staged" or nbytes <= FLAT]


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
            row = (tuple(moved), stored, added)
            measured.append(MeasuredSteps(ranks, at_once(probe, ranks), start, latency, *row))
        measured += [*_copies(found, ranks, sizes), *_pieces(found, ranks), *_memory(found, ranks)]
    widest = max((it for it in measured if it.place == "messages"), key=lambda it: (-it.ranks, it.messages))
    long = [place for place, nbytes in enumerate(widest.nbytes) if nbytes >= min(SIZES) / 2]
    level = Level("node", 0, widest.latency, max(widest.stored[place] for place in long))
    return Machine(name, (level,), 0.0, max(widest.added[place] for place in long), source, tuple(measured))


def _copies(found: dict[Case, float], ranks: int, sizes: tuple[int, ...]) -> list[MeasuredSteps]:
    """The table of copies of all ranks at once within their own memory."""
    if (PROBE, COPY, EMPTY) not in found:
        return []
    latency, start = _empty(found, COPY)
    moved = tuple(share(COPY) * nbytes for nbytes in sizes)
    steps = [(found[PROBE, COPY, nbytes] - start) / STEPS for nbytes in sizes]
    latency = min(latency, LATENCY_SHARE * min(steps))
    rates = tuple(b / max(t - latency, b / FASTEST) for b, t in zip(moved, steps, strict=True))
    return [MeasuredSteps(ranks, ranks, 0.0, latency, moved, rates, rates, COPY)]


def _pieces(found: dict[Case, float], ranks: int) -> list[MeasuredSteps]:
    """The tables of the slabs of fields, of both sides of a cube with the halo around. Along its last dim each cell is
    a piece, along the middle one each row; along the first one whole slabs go to the other rank: large ones from array
    to array, others through the memory of the node. The phases before left the caches as an exchange leaves them. The
    latency of a message between ranks of the node is from the smallest field.
    """
    least, *cubes = STRIDED
    if (HALO, "z", least) not in found:
        return []
    start = found[HALO, "x", least]
    latency = max(found[HALO, "z", least] - start, 0.0) / 2

    def table(place: str, each: list[int], along: tuple[str, str], item: int, wait: float = 0.0) -> MeasuredSteps:
        """Of phases along one dim, as long as the exchange without it is shorter; item: bytes of a cell, or 1."""
        amounts = tuple(float(item * (n + 2) ** 2) for n in each)
        phases = [found[HALO, along[1], n] - (found[HALO, along[0], n] if along[0] else start) for n in each]
        rates = tuple(
            amount / max(phase / 2 - wait, amount / FASTEST) for amount, phase in zip(amounts, phases, strict=True)
        )
        return MeasuredSteps(ranks, ranks, start, wait, amounts, rates, rates, place)

    large = [n for n in cubes if ITEM * (n + 2) ** 2 > LARGE]
    mail = [n for n in cubes if n not in large]
    pieces = replace(table("pieces", cubes, ("", "x"), 1), latency=latency)
    rows, slabs = table("rows", cubes, ("x", "yx"), ITEM), table("slabs", large, ("yx", "zyx"), ITEM)
    return [pieces, rows, table("mail", mail, ("yx", "zyx"), ITEM, latency), slabs]


def _memory(found: dict[Case, float], ranks: int) -> list[MeasuredSteps]:
    """The table of steps in shared memory: a staged broadcast copies twice, a staged all-reduce also adds."""
    if ("all_reduce", "flat", EMPTY) not in found:
        return []
    flat, staged = (found["all_reduce", name, EMPTY] for name in IN_NODE)  # one look at the others, and two
    latency = min(max(staged - flat, 0.1 * flat), flat)
    start = flat - latency
    sizes = tuple(sorted(nbytes for *call, nbytes in found if tuple(call) == COPIED))
    moved, stored, added = [], [], []
    for nbytes in sizes:
        copy = max(found[(*COPIED, nbytes)] - flat, nbytes / FASTEST) / (2 * nbytes)  # s a byte
        part = nbytes * (ranks - 1) / ranks
        copies = part + nbytes / ranks + part
        add = max((found[(*ADDED, nbytes)] - start - 2 * latency - copies * copy) / part, copy)
        moved.append(float(nbytes))
        stored.append(1 / copy)
        added.append(1 / add)
    return [MeasuredSteps(ranks, ranks, start, latency, tuple(moved), tuple(stored), tuple(added), "memory")]


def _start(found: dict[Case, float], ranks: int) -> float:
    """Seconds of a call before its first message."""
    step, rounds = _empty(found, "exchange+")[0], math.ceil(math.log2(ranks))
    left = sorted(found["all_reduce", name, EMPTY] - steps * rounds * step for name, steps in STARTS.items())
    return max(left[len(left) // 2], 0.0)


def _empty(found: dict[Case, float], probe: str) -> tuple[float, float]:
    """Seconds of an empty step, and of the start before the first one."""
    short, long = found[PROBE, probe, EMPTY], found[PROBE, probe + LONG, EMPTY]
    step = max((long - short) / (2 * STEPS), 1e-9)
    return step, max(short - STEPS * step, 0.0)


def predictions(machine: Machine, ranks: int, times: CollectiveTimes) -> list[dict[str, Any]]:
    """Predicted and measured seconds of each all-reduce, those first that are farthest off."""
    found, rows = times.undisturbed(), []
    for operation, algorithm, nbytes in found:
        if operation != "all_reduce" or nbytes <= EMPTY:
            continue
        case = (operation, algorithm, nbytes)
        plan = collective_plan(operation, algorithm, ranks, **times.options[case])
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
    return sorted(rows, key=_off, reverse=True)


def _off(row: dict[str, Any]) -> float:
    """The factor by which a prediction is off, 1 or more."""
    return max(row["predicted_over_measured"], 1 / row["predicted_over_measured"])


def pairs(rows: list[dict[str, Any]], times: CollectiveTimes) -> list[dict[str, Any]]:
    """The pairs of algorithms at a size that differ by more than 15 %: slower over faster as measured in the same
    rounds, with a 95 % confidence interval of the median above 1.15, and as predicted.
    """
    found = []
    for a, b in combinations(rows, 2):
        if a["bytes"] != b["bytes"]:
            continue
        slow, quick = sorted((a, b), key=lambda row: -row["measured_us"])
        of = [np.array(times.seconds["all_reduce", row["algorithm"], row["bytes"]]) for row in (slow, quick)]
        low, high = interval((of[0] / of[1]).tolist())
        if min(low, slow["measured_us"] / quick["measured_us"]) > APART:
            found.append(
                {
                    "ranks": slow["ranks"],
                    "bytes": slow["bytes"],
                    "slower": slow["algorithm"],
                    "quicker": quick["algorithm"],
                    "measured_ratio": round(slow["measured_us"] / quick["measured_us"], 3),
                    "low": round(low, 3),
                    "high": round(high, 3),
                    "predicted_ratio": round(slow["predicted_us"] / quick["predicted_us"], 3),
                }
            )
    return found


def judged(rows: list[dict[str, Any]], unlike: list[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """The factor by which predictions are off (median and worst), the share within 35 %, and the share of pairs of
    unlike algorithms in the right order; each with the number of predictions or pairs.
    """
    off = sorted(_off(row) for row in rows)
    within = sum(0.65 <= row["predicted_over_measured"] <= 1.35 for row in rows) / len(rows)
    ordered = sum(pair["predicted_ratio"] > 1 for pair in unlike) / max(len(unlike), 1)
    return {
        "within_35": (within, len(rows)),
        "order": (ordered, len(unlike)),
        "off_median": (off[len(off) // 2], len(rows)),
        "off_worst": (off[-1], len(rows)),
    }
