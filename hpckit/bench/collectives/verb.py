"""All-reduce, or the collective asked for, by every algorithm against MPI's and torch's gloo; `--tune` keeps the table.

algbw is the buffer's size over the time, busbw = algbw 2 (p - 1) / p, as nccl-tests define them. Buffers are float32,
or as asked for, and are rewritten by their owners before every timed call; the candidates run in turn; the slowest rank
counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hpckit.bench.collectives.cases import MiB, add_asked, cases_of, default_cases, tuning_cases
from hpckit.bench.collectives.plot import draw, pyplot_for
from hpckit.bench.collectives.rows import all_reduce_rows, asked_ratios, asked_rows, wrong_values
from hpckit.bench.measure import Ratios, Rows, ratio, result
from hpckit.bench.ranks import run_ranks
from hpckit.collectives.table import Entry, steps_of, write
from hpckit.errors import InputError

# Key: bytes, ours, the rival's name, ranks; the ratio is the rival's time over ours.
KEYS = {
    "ring_64m_vs_mpi": (64 * MiB, "ring", "mpi", 2),
    "ring_64m_vs_gloo": (64 * MiB, "ring", "gloo", 2),
    "staged_64m_vs_mpi": (64 * MiB, "staged", "mpi", 2),
    "staged_64m_vs_gloo": (64 * MiB, "staged", "gloo", 2),
    "symmetric_64m_vs_mpi": (64 * MiB, "symmetric", "mpi", 2),
    "symmetric_64m_vs_gloo": (64 * MiB, "symmetric", "gloo", 2),
    "symmetric_1m_vs_mpi": (MiB, "symmetric", "mpi", 2),
    "symmetric_64m_4ranks_vs_mpi": (64 * MiB, "symmetric", "mpi", 4),
}


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options of this benchmark alone, and their names for `run`."""
    group = parser.add_argument_group("collectives")
    group.add_argument("--ranks", metavar="N", type=int, action="append", help="on N ranks (default 2, and 4 at 64 MB)")
    group.add_argument("--tune", action="store_true", help="measure all algorithms and keep which is quickest where")
    group.add_argument("--plot", metavar="FILE", help="draw busbw over the size into FILE (.svg, .png, .pdf)")
    return "ranks", "tune", "plot", *add_asked(group)


def run(
    quick: bool = False,
    ranks: Sequence[int] | None = None,
    tune: bool = False,
    plot: str | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """Start the ranks, and turn their times into rows and ratios. asked: `cases.OPTIONS`, as words."""
    if any(word is not None for word in asked.values()):
        return asked_result(_measured(cases_of(asked, ranks or (2,), quick, tune=tune, plot=plot)), asked, plot)
    if plot is not None:
        pyplot_for(Path(plot))  # a bad path is reported now, not after minutes
    if any(n < 2 for n in ranks or ()):
        raise InputError("a collective is measured on 2 ranks or more", do="give --ranks 2")
    if tune:
        return tuned(_measured({n: tuning_cases(quick, n) for n in ranks or (2, 4)}))
    cases = {n: default_cases(quick, n) for n in ranks or (2,)}
    if not ranks:
        cases[4] = [one for one in default_cases(quick, 4) if one["bytes"] == 64 * MiB]
    return default_result(_measured(cases), plot)


def _measured(cases: Mapping[int, Rows]) -> Rows:
    """The ranks' measurements of the cases, by number of ranks."""
    module = "hpckit.bench.collectives.ranks"
    return [row for n, each in cases.items() for row in run_ranks(module, n, [(one,) for one in each])]


def default_result(measured: Rows, plot: str | None) -> dict[str, Any]:
    """The result of all-reduces."""
    return _result(measured, plot, all_reduce_rows(measured), _ratios(measured))


def asked_result(measured: Rows, asked: Mapping[str, Any], plot: str | None) -> dict[str, Any]:
    """The result of requested operations."""
    return _result(measured, plot, asked_rows(measured), asked_ratios(measured, asked["algorithm"] or ()))


def _result(measured: Rows, plot: str | None, rows: Rows, ratios: Ratios) -> dict[str, Any]:
    if plot is not None:
        draw(measured, Path(plot))
    return result("collectives", rows, ratios, missed=wrong_values(measured))


def _ratios(measured: Rows) -> Ratios:
    ratios: Ratios = {}
    for key, (nbytes, ours, rival, ranks) in KEYS.items():
        for one in measured:
            times = one["times"]
            if (one["bytes"], one["ranks"]) == (nbytes, ranks) and {ours, rival} <= set(times):
                ratios[key] = ratio(times[rival], times[ours])
    at_two = [one["times"] for one in measured if one["ranks"] == 2]
    if at_two:
        smallest = next(one["times"] for one in measured if one["ranks"] == 2)
        if "flat" in smallest:  # a ratio of times: below 1 is better
            ratios["flat_8b_vs_mpi"] = ratio(smallest["flat"], smallest["mpi"])
        every = [ratio(times["mpi"], times["auto"]) for times in at_two]
        ratios["auto_min_vs_mpi"] = min(every, key=lambda each: each["median"])
    return ratios


def tuned(measured: Rows) -> dict[str, Any]:
    """Save the table, and show the fastest algorithms."""
    rows, entries = Rows(), []
    for n, operation in dict.fromkeys((one["ranks"], one["operation"]) for one in measured):
        found = [one for one in measured if (one["ranks"], one["operation"]) == (n, operation)]
        kinds: dict[str, tuple[str, ...]] = {"host": ("symmetric",)}
        if operation == "all_reduce" and "symmetric" in found[0]["times"]:
            kinds["symmetric"] = ("staged",)
        for kind, without in kinds.items():
            entry = entry_of(operation, kind, found, without)
            entries.append(entry)
            head = {"operation": operation, "ranks": n, "buffers": kind}
            rows += [{**head, "up_to_bytes": limit, "quickest": " ".join(names)} for limit, names in entry.steps]
    rows.append({"operation": f"kept in {write(tuple(entries))}"})
    return result("collectives", rows, {})


def entry_of(operation: str, kind: str, measured: Rows, without: Sequence[str]) -> Entry:
    """The table's entry for times at rising sizes: the names by their medians, without those for other buffers."""
    ranked = [
        tuple(
            sorted((name for name in one["times"] if name not in without), key=lambda name: median(one["times"][name]))
        )
        for one in measured
    ]
    first = measured[0]
    return Entry(operation, first["ranks"], first["layout"], kind, steps_of([one["bytes"] for one in measured], ranked))
