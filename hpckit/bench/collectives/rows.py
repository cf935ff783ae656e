"""Rows and ratios of `hpckit bench collectives` from the times that the ranks found."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from hpckit.bench.measure import ratio
from hpckit.plan.collective.algorithms import busbw_factor

Measured = dict[str, Any]
NO_TORCH = "torch is not installed: pip install 'hpckit[bench]' to have gloo measured too"


def busbw(nbytes: int, ranks: int, seconds: float, operation: str = "all_reduce") -> float:
    """Bytes/s over the busiest link of an operation, as nccl-tests define it."""
    return nbytes / seconds * busbw_factor(operation, ranks)


def interval(times: list[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median, by order statistics; the whole range of few times."""
    ordered, n = sorted(times), len(times)
    reach = max(0, int((n - 1.96 * n**0.5) / 2) - 1)
    return ordered[reach], ordered[n - 1 - reach]


def figures(one: Measured, name: str) -> dict[str, Any]:
    """The figures of a row for the times of one algorithm."""
    times, mpi = one["times"][name], one["times"].get("mpi")
    low, high = interval(times)
    middle = median(times)
    rate = busbw(one["bytes"], one["ranks"], middle, one["operation"])
    return {
        "algorithm": name,
        "us": round(middle * 1e6, 2),
        "low_us": round(low * 1e6, 2),
        "high_us": round(high * 1e6, 2),
        "algbw_GB_per_s": round(one["bytes"] / middle / 1e9, 3),
        "busbw_GB_per_s": round(rate / 1e9, 3),
        "vs_mpi": None if mpi is None else round(ratio(mpi, times)["median"], 2),
        "wrong": one["wrong"][name],
    }


def all_reduce_rows(measured: list[Measured]) -> list[dict[str, Any]]:
    """A row for each algorithm and size of an all-reduce."""
    found = [
        {"ranks": one["ranks"], "bytes": one["bytes"], **figures(one, name)}
        for one in measured
        for name in one["times"]
    ]
    if not any("gloo" in one["times"] for one in measured):
        found.append({"note": NO_TORCH})
    return found


def asked_rows(measured: list[Measured]) -> list[dict[str, Any]]:
    """Rows for requested operations; then the reasons why algorithms were left out."""
    keys = ("operation", "ranks", "bytes", "count", "dtype", "reduce", "root", "place")
    found = [{**{key: one[key] for key in keys}, **figures(one, name)} for one in measured for name in one["times"]]
    notes = [
        f"{one['operation']} on {one['ranks']} ranks, {name} left out: {why}"
        for one in measured
        for name, why in one["left_out"].items()
    ]
    return found + [{"note": note} for note in dict.fromkeys(notes)]


def wrong_values(measured: list[Measured]) -> list[str]:
    """The cases with wrong results, which set the exit code."""
    return [
        f"{one['operation']} of {one['bytes']} bytes on {one['ranks']} ranks by {name}: {count} wrong values"
        for one in measured
        for name, count in one["wrong"].items()
        if count
    ]


def asked_ratios(measured: list[Measured], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """For each operation the least ratio of MPI's time over that of `auto`, and of the algorithms asked for by name."""
    ratios = {}
    for operation in dict.fromkeys(one["operation"] for one in measured):
        for name in dict.fromkeys(("auto", *names)):
            each = [
                ratio(one["times"]["mpi"], one["times"][name])
                for one in measured
                if one["operation"] == operation and {"mpi", name} <= set(one["times"])
            ]
            if each and name != "mpi":
                ratios[f"{operation}_{name}_min_vs_mpi"] = min(each, key=lambda one: one["median"])
    return ratios
