"""All numbers of a report, computed once: the page shows them and `report.json` holds them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from hpckit.report.run_data import RunData, is_number
from hpckit.report.sections.slices import Slices

Record = dict[str, Any]
HEADLINE = (
    "ranks",
    "steps",
    "cells",
    "wall_seconds",
    "simulated_seconds",
    "simulated_time",
    "particles",
    "atom_steps_per_second",
    "cell_steps_per_second",
    "bytes_per_cell_step",
    "t_eff",
    "cfl_limit",
    "result",
    "headline",
    "exit_code",
)
NOT_COMPUTE = ("wait", "halo", "exchange", "output", "diagnostics", "sample")
T_EFF = "t_eff = cells x steps x bytes per cell and step / wall time"


def numbers(run: RunData, fields: Sequence[Slices]) -> Record:
    """Everything that `report.json` holds but the findings."""
    conserved = list(run.summary.get("conserved", ("mass", "energy")))
    return {
        "schema": 1,
        "run": run.directory.name,
        "title": run.title,
        "app": run.app,
        "status": run.status,
        **{name: run.summary[name] for name in HEADLINE if name in run.summary},
        "time_unit": run.time_unit,
        "t_eff_formula": T_EFF + ", in GB/s",
        "failure": run.failure or None,
        "conserved": {name: _conservation(run, name) for name in conserved if _conservation(run, name)},
        "cfl": _statistics(run.series("cfl")[1]),
        "metrics": {name: _statistics(run.series(name)[1]) for name in run.metric_names()},
        "fields": {field.name: _field(field) for field in fields},
        "phases": phases(run.summary),
        "waits": waits(run.summary),
        "decomposition": run.summary.get("decomposition"),
        "provenance": run.provenance or None,
        "configuration": configuration(run.resolved),
        "told": run.summary.get("findings") or [],
        "unreadable": run.problems,
    }


def phases(summary: Record) -> Record:
    """Seconds of each phase over ranks, its imbalance (max / mean - 1) and its share of the wall time.

    "other" is the wall time outside of all phases.
    """
    given = {name: [float(x) for x in values] for name, values in (summary.get("phases") or {}).items() if values}
    told = summary.get("wall_seconds", 0.0)
    wall = float(told) if is_number(told) else 0.0
    if given and wall and "other" not in given:
        totals = [sum(values) for values in zip(*given.values(), strict=False)]
        rest = [max(0.0, wall - total) for total in totals]
        if max(rest) > 0.005 * wall:
            given["other"] = rest
    rows = {}
    for name, values in given.items():
        mean = statistics.fmean(values)
        rows[name] = {
            "min": min(values),
            "mean": mean,
            "max": max(values),
            "imbalance": max(values) / mean - 1 if mean > 0 else 0.0,
            "share": mean / wall if wall else None,
            "ranks": values,
        }
    return rows


def waits(summary: Record) -> Record | None:
    """Waiting times in s, means over ranks: for `late` peers and for `transfer`; the rank waited for most, and the time
    that all others lost by it (`by_worst`, None if no rank stands out). None without a record.
    """
    record = summary.get("waits")
    if not isinstance(record, dict):
        return None
    means = {name: statistics.fmean(record[name]) for name in ("seconds", "late", "transfer")}
    by = record["waited_for"]
    worst = max(range(len(by)), key=by.__getitem__)
    stands_out = len(by) > 1 and by[worst] > 1.5 * statistics.fmean(by)
    return {**means, "ranks": record, "worst": worst if stands_out else None, "by_worst": by[worst]}


def compute_imbalance(rows: Record) -> float:
    """How much longer the slowest rank computes than the mean: max / mean - 1 over the sum of compute phases."""
    each = [row["ranks"] for name, row in rows.items() if name not in (*NOT_COMPUTE, "other")]
    if not each:
        return 0.0
    totals = [sum(values) for values in zip(*each, strict=False)]
    mean = statistics.fmean(totals)
    return max(totals) / mean - 1 if mean > 0 else 0.0


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, keys joined by dots; lists stay."""
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat.update(flatten(item, f"{prefix}.{name}" if prefix else str(name)))
    return flat


def configuration(resolved: Record) -> list[Record]:
    """Each setting with its value and origin."""
    origins = flatten(resolved.get("origins") or {})
    values = resolved.get("values", resolved)
    return [
        {"key": key, "value": value, "origin": str(origins.get(key, ""))}
        for key, value in flatten(values).items()
        if not key.startswith("origins.")
    ]


def _conservation(run: RunData, name: str) -> Record:
    """First and last value and the change in between, from the summary, and the largest change on the way."""
    given = run.summary.get("conserved", {}).get(name) or {}
    _, values = run.series(name)
    record = {key: given[key] for key in ("initial", "final", "relative_change") if key in given}
    if changes := run.changes(name)[1]:
        record.setdefault("initial", values[0])
        record.setdefault("final", values[-1])
        record.setdefault("relative_change", changes[-1])
        record["largest_relative_change"] = max(changes, key=abs)
    return record


def _statistics(values: Sequence[float]) -> Record | None:
    good = [value for value in values if math.isfinite(value)]
    if not good:
        return None
    return {"first": values[0], "last": values[-1], "min": min(good), "mean": statistics.fmean(good), "max": max(good)}


def _field(field: Slices) -> Record:
    return {
        "long_name": field.long_name,
        "units": field.units,
        "times_shown": field.times,
        "min": field.low,
        "max": field.high,
        "finite": field.finite,
    }
