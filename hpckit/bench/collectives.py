"""All-reduce by every algorithm against MPI_Allreduce and torch's gloo: time, algbw, busbw; `--tune` keeps the table.

algbw is the buffer's size over the time, busbw = algbw 2 (p - 1) / p, as nccl-tests define them. Buffers are float32
and are rewritten by their owners before every timed call; the candidates run in turn; the slowest rank counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hpckit.bench.job import run_ranks
from hpckit.bench.measure import machine, ratio
from hpckit.collectives.table import Entry, steps_of, write
from hpckit.errors import InputError, SetupError
from hpckit.plan.algorithms import ALGORITHMS

MODULE = "hpckit.bench.collectives_ranks"
KiB, MiB = 1024, 1024**2
P2P = ("recursive_doubling", "halving_doubling", "ring")
IN_NODE = ("flat", "staged", "symmetric")
EVERY = ("mpi", "gloo", *P2P, "ordered", *IN_NODE, "auto", "auto_symmetric")
QUICK = ("mpi", "gloo", "ring", *IN_NODE, "auto")
FLAT_MOST = 64 * KiB
# Bytes, rounds.
SIZES = (
    (8, 41),
    (512, 41),
    (4 * KiB, 41),
    (32 * KiB, 41),
    (256 * KiB, 41),
    (MiB, 41),
    (8 * MiB, 21),
    (64 * MiB, 15),
    (256 * MiB, 5),
)
QUICK_SIZES = ((8, 21), (32 * KiB, 21), (MiB, 21), (64 * MiB, 7))
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
    return "ranks", "tune", "plot"


def run(
    quick: bool = False, ranks: Sequence[int] | None = None, tune: bool = False, plot: str | None = None
) -> dict[str, Any]:
    """Start the ranks, and turn their times into rows and ratios."""
    if any(n < 2 for n in ranks or ()):
        raise InputError("a collective is measured on 2 ranks or more", do="give --ranks 2")
    if tune:
        return _tuned([row for n in ranks or (2, 4) for row in run_ranks(MODULE, n, _tuning_cases(quick))])
    cases = {n: _cases(quick) for n in ranks or (2,)}
    if not ranks:
        cases[4] = tuple(one for one in _cases(quick) if one[1] == 64 * MiB)
    measured = [row for n, each in cases.items() for row in run_ranks(MODULE, n, each)]
    return _result(measured, plot)


def _result(measured: list[dict[str, Any]], plot: str | None) -> dict[str, Any]:
    if plot is not None:
        draw(measured, Path(plot))
    return {"bench": "collectives", "machine": machine(), "results": _rows(measured), "ratios": _ratios(measured)}


def on_ranks(arguments: Sequence[str]) -> None:
    """On the ranks of a job that was started around it: measured, and printed by rank 0."""
    from mpi4py import MPI

    from hpckit.bench.collectives_ranks import any_case
    from hpckit.cli.bench import show

    parser = argparse.ArgumentParser(prog="python -m mpi4py -m hpckit.bench.collectives")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_options(parser)
    options = parser.parse_args(arguments)
    if MPI.COMM_WORLD.size < 2 or options.ranks:
        parser.error("a job of 2 ranks or more is measured as it is: start it with mpiexec, without --ranks")

    def measure(cases: tuple[tuple[Any, ...], ...]) -> list[dict[str, Any]]:
        return [any_case(*one) for one in cases]

    measured = measure(_tuning_cases(options.quick) if options.tune else _cases(options.quick))
    if MPI.COMM_WORLD.rank == 0:
        result = _tuned(measured) if options.tune else _result(measured, options.plot)
        show(result, options.json)


def _cases(quick: bool) -> tuple[tuple[Any, ...], ...]:
    """One case a size: the operation, bytes, names, rounds."""
    return tuple(
        (
            "all_reduce",
            nbytes,
            [name for name in (QUICK if quick else EVERY) if nbytes <= FLAT_MOST or name != "flat"],
            rounds,
        )
        for nbytes, rounds in (QUICK_SIZES if quick else SIZES)
    )


def busbw(nbytes: int, ranks: int, seconds: float) -> float:
    """Bytes/s over the busiest link of an all-reduce, as nccl-tests define it."""
    return nbytes / seconds * 2 * (ranks - 1) / ranks


def interval(times: list[float]) -> tuple[float, float]:
    """An interval that holds the true median with 95 %, by order statistics; all of them where there are few."""
    ordered, n = sorted(times), len(times)
    reach = max(0, int((n - 1.96 * n**0.5) / 2) - 1)
    return ordered[reach], ordered[n - 1 - reach]


def _rows(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for one in measured:
        for name, times in one["times"].items():
            low, high = interval(times)
            middle = median(times)
            rows.append(
                {
                    "ranks": one["ranks"],
                    "bytes": one["bytes"],
                    "algorithm": name,
                    "us": round(middle * 1e6, 2),
                    "low_us": round(low * 1e6, 2),
                    "high_us": round(high * 1e6, 2),
                    "algbw_GB_per_s": round(one["bytes"] / middle / 1e9, 3),
                    "busbw_GB_per_s": round(busbw(one["bytes"], one["ranks"], middle) / 1e9, 3),
                    "vs_mpi": round(ratio(one["times"]["mpi"], times)["median"], 2),
                    "wrong": one["wrong"][name],
                }
            )
    if not any("gloo" in one["times"] for one in measured):
        rows.append({"note": "torch is not installed: pip install 'hpckit[bench]' to have gloo measured too"})
    return rows


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


def _tuning_cases(quick: bool) -> tuple[tuple[Any, ...], ...]:
    """Every algorithm of every operation that has a choice, at every size."""
    sizes = [nbytes for nbytes, _ in (QUICK_SIZES if quick else SIZES) if nbytes <= 64 * MiB]
    rounds, found = 5 if quick else 11, list[tuple[Any, ...]]()
    for operation in ALGORITHMS:
        for nbytes in sizes:
            names = ["mpi", *P2P, *(name for name in IN_NODE if nbytes <= FLAT_MOST or name != "flat")]
            if operation == "all_reduce":
                found.append((operation, nbytes, names, rounds))
            elif len(ALGORITHMS[operation]) > 1:
                found.append((operation, nbytes, rounds))
    return tuple(found)


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


def draw(measured: list[dict[str, Any]], path: Path) -> None:
    """Draw busbw over the size: a line an algorithm, a panel a number of ranks."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError:
        raise SetupError("a plot needs matplotlib", do="pip install 'hpckit[analysis]'") from None
    counts = [n for n in dict.fromkeys(one["ranks"] for one in measured) if sum(m["ranks"] == n for m in measured) > 1]
    figure, panels = pyplot.subplots(
        1, len(counts), figsize=(7 * len(counts), 4.5), squeeze=False, layout="constrained"
    )
    for n, panel in zip(counts, panels[0], strict=True):
        cases = [one for one in measured if one["ranks"] == n]
        for name in dict.fromkeys(name for one in cases for name in one["times"]):
            points = [(one["bytes"], median(one["times"][name])) for one in cases if name in one["times"]]
            rates = [busbw(nbytes, n, seconds) / 1e9 for nbytes, seconds in points]
            dashed = "--" if name in ("mpi", "gloo") else "-"
            panel.plot([nbytes for nbytes, _ in points], rates, dashed, marker="o", markersize=3, label=name)
        panel.set(xscale="log", yscale="log", xlabel="bytes", ylabel="busbw, GB/s", title=f"all-reduce on {n} ranks")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    on_ranks(sys.argv[1:])
