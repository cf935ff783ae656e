"""All-reduce, or the collective asked for, by every algorithm against MPI's and torch's gloo; `--tune` keeps the table.

algbw is the buffer's size over the time, busbw = algbw 2 (p - 1) / p, as nccl-tests define them. Buffers are float32,
or as asked for, and are rewritten by their owners before every timed call; the candidates run in turn; the slowest rank
counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.collectives import asked as collectives_asked
from hpckit.bench.collectives.cases import MiB, default_cases, tuning_cases
from hpckit.bench.collectives.plot import draw, pyplot_for
from hpckit.bench.collectives.rows import all_reduce_rows, asked_ratios, asked_rows, wrong_values
from hpckit.bench.ranks import run_ranks
from hpckit.bench.measure import machine, ratio
from hpckit.collectives.table import Entry, steps_of, write
from hpckit.errors import HpckitError, InputError

MODULE = "hpckit.bench.collectives.ranks"
ASKED = "hpckit.bench.collectives.asked_ranks"
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
    return "ranks", "tune", "plot", *collectives_asked.add_options(group)


def run(
    quick: bool = False,
    ranks: Sequence[int] | None = None,
    tune: bool = False,
    plot: str | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """Start the ranks, and turn their times into rows and ratios. asked: `collectives_asked.OPTIONS`, as words."""
    if any(word is not None for word in asked.values()):
        own = collectives_asked.cases_of(asked, ranks or (2,), quick, tune=tune, plot=plot)
        return _asked_result(
            [row for n, each in own.items() for row in run_ranks(ASKED, n, tuple((one,) for one in each))], asked, plot
        )
    if plot is not None:
        pyplot_for(Path(plot))  # what is wrong is told before, not after minutes
    if any(n < 2 for n in ranks or ()):
        raise InputError("a collective is measured on 2 ranks or more", do="give --ranks 2")
    if tune:
        return _tuned([row for n in ranks or (2, 4) for row in run_ranks(MODULE, n, tuning_cases(quick))])
    cases = {n: default_cases(quick) for n in ranks or (2,)}
    if not ranks:
        cases[4] = tuple(one for one in default_cases(quick) if one[1] == 64 * MiB)
    measured = [row for n, each in cases.items() for row in run_ranks(MODULE, n, each)]
    return _result(measured, plot)


def _result(measured: list[dict[str, Any]], plot: str | None) -> dict[str, Any]:
    if plot is not None:
        draw(measured, Path(plot))
    return {
        "bench": "collectives",
        "machine": machine(),
        "results": all_reduce_rows(measured),
        "ratios": _ratios(measured),
        "missed": wrong_values(measured),
    }


def _asked_result(measured: list[dict[str, Any]], asked: Mapping[str, Any], plot: str | None) -> dict[str, Any]:
    if plot is not None:
        draw(measured, Path(plot))
    ratios = asked_ratios(measured, asked["algorithm"] or ())
    return {
        "bench": "collectives",
        "machine": machine(),
        "results": asked_rows(measured),
        "ratios": ratios,
        "missed": wrong_values(measured),
    }


def on_ranks(arguments: Sequence[str]) -> None:
    """On the ranks of a job that was started around it: measured, and printed by rank 0."""
    from mpi4py import MPI

    from hpckit.bench.collectives.asked_ranks import measured as asked_case
    from hpckit.bench.collectives.ranks import any_case
    from hpckit.cli.bench import exit_code, show

    parser = argparse.ArgumentParser(prog="python -m mpi4py -m hpckit.bench.collectives.verb")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_options(parser)
    options = parser.parse_args(arguments)
    comm = MPI.COMM_WORLD
    if comm.size < 2 or options.ranks:
        parser.error("a job of 2 ranks or more is measured as it is: start it with mpiexec, without --ranks")
    asked = {name: getattr(options, name) for name in collectives_asked.OPTIONS}
    if any(word is not None for word in asked.values()):
        measured = [asked_case(one) for one in _cases_of_job(options, asked)]
        result = _asked_result(measured, asked, options.plot) if comm.rank == 0 else {}
    else:
        cases = tuning_cases(options.quick) if options.tune else default_cases(options.quick)
        measured = [any_case(*one) for one in cases]
        if comm.rank == 0:
            result = _tuned(measured) if options.tune else _result(measured, options.plot)
    code = np.zeros(1, np.int32)
    if comm.rank == 0:
        show(result, options.json)
        code[0] = exit_code(result)
    comm.Bcast(code, 0)
    if code[0]:
        sys.exit(int(code[0]))


def _cases_of_job(options: argparse.Namespace, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases that were asked for, as rank 0 checks them. Where they cannot be, it says why, and all ranks end."""
    from mpi4py import MPI

    from hpckit.same import broadcast_bytes

    comm = MPI.COMM_WORLD
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    told: dict[str, Any] = {"code": 0}
    if comm.rank == 0:
        given = {"on_node": node.size, "tune": options.tune, "plot": options.plot}
        try:
            told["cases"] = collectives_asked.cases_of(asked, [comm.size], options.quick, **given)[comm.size]
        except HpckitError as error:
            told["code"] = error.exit_code
            print(error.report(), file=sys.stderr, flush=True)
    node.Free()
    told = json.loads(broadcast_bytes(comm, json.dumps(told).encode(), 0))
    if told["code"]:
        comm.Barrier()
        sys.exit(told["code"])
    return told["cases"]


def _ratios(measured: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    ratios = {}
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


def _tuned(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Keep the table, and show which algorithm is quickest where."""
    rows, entries = list[dict[str, Any]](), []
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
    return {"bench": "collectives", "machine": machine(), "results": rows, "ratios": {}}


def entry_of(operation: str, kind: str, measured: list[dict[str, Any]], without: Sequence[str]) -> Entry:
    """What a table keeps of the times at rising sizes: the names by their medians, without those for other buffers."""
    ranked = [
        tuple(
            sorted((name for name in one["times"] if name not in without), key=lambda name: median(one["times"][name]))
        )
        for one in measured
    ]
    first = measured[0]
    return Entry(operation, first["ranks"], first["layout"], kind, steps_of([one["bytes"] for one in measured], ranked))


if __name__ == "__main__":
    on_ranks(sys.argv[1:])
